"""Stores containers, the ledger of exits, and the numbered event log, in one SQLite database.

"Exactly once" is a constraint here: an exit is stored under (container, run, exec), in one transaction with its event
and the decision about what follows.
"""

import asyncio
import contextlib
import re
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog

from shim.frozen import frozen
from supervisor.model.errors import NameTaken, StoreFailed
from supervisor.model.execs import Exec
from supervisor.model.taskfacts import TaskExec, Tombstone
from supervisor.model.values import BootTime, Container, Event, Exit, Retained, RunKey
from supervisor.store import codec, schema
from supervisor.store.codec import Damaged
from supervisor.store.groupcommit import Writer
from supervisor.system import threads

T = TypeVar("T")
PAGE = 1000
CHUNK = 1000  # rows deleted, or pages returned, in one transaction of a compaction, so that commits get in between
DAY_NS = 24 * 3600 * 10**9
EXIT = "container, run, exec, at_ns, body"  # the columns of a ledger row
DAMAGED = "damaged/"  # in `meta`, before a container's id: its unreadable row, as it was before it was replaced

log = structlog.get_logger(__name__)


class AlreadyStored(Exception):
    """The ledger already has this end of this run: another witness was first. Nothing of the transaction was stored."""

    def __init__(self, exit: Exit) -> None:
        super().__init__(f"{exit.key} is stored already")
        self.key = exit.key


@frozen
class Transaction:
    """What is stored together or not at all. Removals come first, so that a name can be reused within one transaction.

    `ahead`: an intention, written before work begins that no client knows of. It survives a kill of exitd, but need not
    survive a crash of the host, so it is not flushed.
    """

    containers: tuple[Container, ...] = ()
    removed: tuple[str, ...] = ()
    exits: tuple[Exit, ...] = ()
    events: tuple[Event, ...] = ()
    retained: tuple[Retained, ...] = ()
    execs: tuple[Exec, ...] = ()
    ended_execs: tuple[RunKey, ...] = ()
    task_execs: tuple[TaskExec, ...] = ()
    ended_task_execs: tuple[TaskExec, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    watching: tuple[codec.Statement, ...] = ()  # of `codec`
    kept_aside: tuple[str, ...] = ()  # ids of containers whose rows are replaced: the old rows are kept
    ahead: bool = False


@frozen
class Keep:
    """What a compaction keeps: the rows within both the number and the age."""

    events: int = 50_000
    events_age_ns: int = 7 * DAY_NS
    exits: int = 100_000
    exits_age_ns: int = 90 * DAY_NS


class Store:
    """The database at `path`. Raises CannotStart, with the file untouched, when it is damaged or of a newer version.

    A store belongs to one event loop and never blocks it: writes go to the writer thread, reads to a reading thread.
    Reads see every acknowledged commit. Every call raises StoreFailed if the disk does not answer within
    `limit_seconds`. `room_bytes`: size of a write-ahead log that need not grow with each commit, see Writer.
    """

    def __init__(self, path: Path, *, lock_seconds: float = 2, limit_seconds: float = 30, room_bytes: int = 0) -> None:
        self.path = path
        self._lock_seconds = lock_seconds
        self._limit_seconds = limit_seconds
        self._writer = Writer(path, lock_seconds, room_bytes)
        self._reader: sqlite3.Connection | None = None
        self._reading = threads.pool(1, "exitd-store-read")
        self._oldest, self._last = self._reading.submit(self._first_look).result()

    @property
    def flush_seconds(self) -> float:
        """How long the last flush to the disk took."""
        return self._writer.flush_seconds

    def oldest_seq(self) -> int:
        """The number of the oldest stored event; last_seq() + 1 if there is none."""
        return self._oldest

    def last_seq(self) -> int:
        """The number of the newest event on the disk, 0 before the first."""
        return self._last

    async def commit(self, change: Transaction, *, patient: bool = False) -> tuple[Event, ...]:
        """Store the transaction. Return its events, numbered, once they are durable (except for `ahead`).

        `patient`: wait as long as the disk takes, for callers that would try again anyway.

        Raises NameTaken or AlreadyStored when the transaction conflicts (others in the same flush are stored),
        StoreFailed when the disk does. After an error nothing is stored; only a slow disk may still store it later,
        unless `patient`.
        """
        future = self.commit_soon(change)
        return await (future if patient else self._within_limit(future))

    def commit_soon(self, change: Transaction) -> asyncio.Future[tuple[Event, ...]]:
        """As `commit`, without the time limit. Transactions are stored, and futures resolved, in the order of the
        calls."""
        return self._writer.submit(partial(_apply, change), self._note_events, flush=not change.ahead)

    async def load(self) -> tuple[Container, ...]:
        """Return every container whose row can be read, oldest first."""
        return (await self.load_containers())[0]

    async def load_containers(self) -> tuple[tuple[Container, ...], tuple[Damaged, ...]]:
        """Return every container, oldest first, and the rows that this exitd cannot read."""
        whole, damaged = list[Container](), list[Damaged]()
        columns = "id, namespace, name, body"
        for id, namespace, name, body in await self._rows(f"SELECT {columns} FROM containers ORDER BY rowid"):
            try:
                whole.append(codec.container_of(id, namespace, name, body))
            except codec.BadRow as error:
                damaged.append(Damaged(str(id), str(namespace), str(name), body, str(error)))
        return tuple(whole), tuple(damaged)

    async def load_execs(self) -> tuple[tuple[Exec, ...], tuple[Damaged, ...]]:
        """Return the execs whose end is not stored, also of removed containers, and the rows that this exitd cannot
        read."""
        whole, damaged = list[Exec](), list[Damaged]()
        for container, run, exec_id, body in await self._rows("SELECT container, run, exec, body FROM execs"):
            try:
                whole.append(codec.exec_of(RunKey(container, run, exec_id), body))
            except codec.BadRow as error:
                row = Damaged(str(container), body=body, why=str(error), exec_id=str(exec_id))
                damaged.append(replace(row, run=run if isinstance(run, int) else 0))
        return tuple(whole), tuple(damaged)

    async def load_task_execs(self) -> tuple[TaskExec, ...]:
        """Return the execs of tasks. Unreadable rows are logged and left alone."""
        return await self.load_all(TaskExec, "task_execs")

    async def load_all(self, cls: type[T], table: str) -> tuple[T, ...]:
        """Return every row of a table that can be read. The others are logged and left alone."""
        found = [self._read_or_log(cls, body) for (body,) in await self._rows(f"SELECT body FROM {table}")]
        return tuple(each for each in found if each is not None)

    async def newest_run_told(self, container: str) -> int:
        """Return the newest run of this container in the event log; 0 if there is none. Reads the whole log: it is
        meant for a container about which nothing else is known."""
        query = "SELECT seq, body FROM events WHERE instr(body, ?)"
        runs = [0]
        for seq, body in await self._rows(query, container):
            with contextlib.suppress(codec.BadRow):
                event = codec.event_from(seq, body)
                run = dict(event.attributes).get("run", "1")
                runs += [int(run)] if event.id == container and re.fullmatch("[0-9]{1,18}", run) else []
        return max(runs)

    async def tombstones(self, words: str, *values: object) -> list[Tombstone]:
        """Return those for which the SQL expression holds, newest first; unreadable ones are logged."""
        found = await self._rows(f"SELECT body FROM tombstones WHERE {words} ORDER BY boot_ns DESC", *values)
        read = [self._read_or_log(Tombstone, body) for (body,) in found]
        return [each for each in read if each is not None]

    async def forget_tombstones(self, words: str, *values: object) -> None:
        statement = f"DELETE FROM tombstones WHERE {words}"
        await self._write(lambda connection: connection.execute(statement, values).rowcount, flush=False)

    async def exits(
        self,
        since_ns: int | None = None,
        unknown: bool = False,
        id: str | None = None,
        *,
        after: Exit | None = None,
        limit: int = PAGE,
    ) -> list[Exit]:
        """Return one page of the ledger, by time of the end; the next page begins `after` the last exit of this one."""
        where, values = ["1"], list[object]()
        if since_ns is not None:
            where, values = [*where, "at_ns >= ?"], [*values, since_ns]
        if unknown:
            where = [*where, "unknown"]
        if id is not None:
            where, values = [*where, "container = ?"], [*values, id]
        if after is not None:
            cursor = (after.at_ns, after.key.container, after.key.run, after.key.exec_id)
            where, values = [*where, "(at_ns, container, run, exec) > (?, ?, ?, ?)"], [*values, *cursor]
        order = "ORDER BY at_ns, container, run, exec LIMIT ?"
        found = await self._rows(f"SELECT {EXIT} FROM exits WHERE {' AND '.join(where)} {order}", *values, limit)
        return [_exit(row) for row in found]

    async def exit_pages(
        self, since_ns: int | None = None, unknown: bool = False, id: str | None = None
    ) -> AsyncIterator[list[Exit]]:
        """Yield the whole ledger, page by page."""
        page = await self.exits(since_ns, unknown, id)
        while page:
            yield page
            page = await self.exits(since_ns, unknown, id, after=page[-1])

    async def last_exit(self, container: str, run: int, exec_id: str = "") -> Exit | None:
        """Return the stored end of this run; None if there is none, or it is no longer kept."""
        query = f"SELECT {EXIT} FROM exits WHERE container = ? AND run = ? AND exec = ?"
        found = await self._rows(query, container, run, exec_id)
        return _exit(found[0]) if found else None

    async def exec_exit(self, container: str, exec_id: str) -> Exit | None:
        """Return the stored end of this exec, in whichever run it was; None if there is none, or it is no longer
        kept."""
        query = f"SELECT {EXIT} FROM exits WHERE container = ? AND exec = ? ORDER BY run DESC LIMIT 1"
        found = await self._rows(query, container, exec_id)
        return _exit(found[0]) if found else None

    async def newest_exit(self, container: str) -> Exit | None:
        """Return the stored end of the newest run that has one; None if the ledger has no such container."""
        query = f"SELECT {EXIT} FROM exits WHERE container = ? AND exec = '' ORDER BY run DESC LIMIT 1"
        found = await self._rows(query, container)
        return _exit(found[0]) if found else None

    async def retained(self, reference: str, since: BootTime) -> list[Retained]:
        """Return containers that removed themselves since then in this boot, newest first: those whose id begins with
        the reference, or that had this name in the default namespace."""
        query = (
            "SELECT container, namespace, name, boot_ns FROM retained WHERE boot_id = ? AND boot_ns >= ? AND "
            "((namespace = 'default' AND name = ?) OR (container >= ? AND container < ?)) ORDER BY boot_ns DESC"
        )
        span = (reference, reference + chr(sys.maxunicode))  # a range can use the index, a prefix match cannot
        found = await self._rows(query, since.boot_id, since.ns, reference, *span)
        return [Retained(id, namespace, name, BootTime(since.boot_id, ns)) for id, namespace, name, ns in found]

    async def forget_retained(self, before: BootTime) -> None:
        """Forget those removed before then or in other boots. Their exits stay, under their full ids."""
        statement, values = "DELETE FROM retained WHERE boot_id <> ? OR boot_ns < ?", (before.boot_id, before.ns)
        await self._write(lambda connection: connection.execute(statement, values).rowcount)

    async def events_after(self, seq: int, limit: int) -> list[Event]:
        """Return at most `limit` stored events with numbers above `seq`, in order."""
        found = await self._rows("SELECT seq, time_ns, body FROM events WHERE seq > ? ORDER BY seq LIMIT ?", seq, limit)
        return [_event(row) for row in found]

    async def first_seq_since(self, time_ns: int) -> int | None:
        """Return the number of the first stored event that is not older than this wall time in ns; None if there is
        none."""
        found = await self._rows("SELECT seq FROM events WHERE time_ns >= ? ORDER BY seq LIMIT 1", time_ns)
        return int(found[0][0]) if found else None

    async def compact(self, keep: Keep, now_ns: int) -> None:
        """Delete events and exits beyond `keep` and return the space to the file system, in steps that let commits
        pass.

        The newest event stays whatever its age, since it carries the numbering. Exits of existing containers stay, too:
        without them a late witness could report a run a second time. So do exits that can still be found by name. Exits
        of execs are deleted: a container may have any number, and what has no row is not watched.
        """
        while await self._write(partial(_delete_events, keep, now_ns), self._note_oldest) == CHUNK:
            pass
        while await self._write(partial(_delete_exits, keep, now_ns)) >= CHUNK:
            pass
        while await self._write(_give_back_pages):
            pass

    async def close(self, limit_seconds: float = 5.0) -> bool:
        """Store what is queued and close the database. Return False if the disk did not answer within the limit, which
        applies to writer and reader separately.

        The reader closes first: the last connection to close merges the log into the database, which needs a writing
        one.
        """
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._close_reader, limit_seconds)
        self._writer.stop()
        return await loop.run_in_executor(None, self._writer.wait_ended, limit_seconds)

    def _close_reader(self, limit_seconds: float) -> None:
        with contextlib.suppress(RuntimeError, TimeoutError):  # closed before; or the disk hangs, like the writer
            dropped = self._reading.submit(self._drop_reader)
            self._reading.shutdown(wait=False)
            dropped.result(limit_seconds)

    def _first_look(self) -> tuple[int, int]:
        oldest, last = self._ask("SELECT min(seq), max(seq) FROM events", ())[0]
        return (1, 0) if last is None else (oldest, last)

    def _note_events(self, events: tuple[Event, ...]) -> None:
        if events:
            self._last = events[-1].seq

    def _note_oldest(self, deleted: int) -> None:
        self._oldest += deleted  # the numbers have no gaps

    async def _write(
        self,
        work: Callable[[sqlite3.Connection], T],
        stored: Callable[[T], None] = lambda result: None,
        *,
        flush: bool = True,
    ) -> T:
        return await self._within_limit(self._writer.submit(work, stored, flush=flush))

    async def _within_limit(self, future: asyncio.Future[T]) -> T:
        try:
            async with asyncio.timeout(self._limit_seconds):
                return await future
        except TimeoutError as error:
            text = f"{self.path}: the disk did not answer within {self._limit_seconds:g} s; exitd goes on by itself"
            raise StoreFailed(text, file=str(self.path)) from error

    async def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            future = asyncio.get_running_loop().run_in_executor(self._reading, self._ask, query, values)
        except RuntimeError as error:
            raise StoreFailed(f"{self.path}: closed", file=str(self.path)) from error
        return await self._within_limit(future)

    def _ask(self, query: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        """Query in the reading thread. Raises StoreFailed."""
        try:
            if self._reader is None:
                self._reader = schema.connect_for_reading(self.path, self._lock_seconds)
                self._reader.text_factory = _text
            return self._reader.execute(query, values).fetchall()
        except sqlite3.Error as error:
            self._drop_reader()
            raise StoreFailed(f"{self.path}: cannot be read ({schema.describe(error)})", file=str(self.path)) from error

    def _drop_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            with contextlib.suppress(sqlite3.Error):
                reader.close()

    def _read_or_log(self, cls: type[T], body: str | bytes) -> T | None:
        try:
            return codec.decode(cls, body)
        except codec.BadRow as error:
            log.error("a stored row cannot be read and is passed over", file=str(self.path), why=str(error))
            return None


def _text(data: bytes) -> str:
    """Decode leniently: text that is not UTF-8 must not make its whole table unreadable."""
    return data.decode("utf-8", "surrogateescape")


def _exit(row: tuple[Any, ...]) -> Exit:
    """Decode a ledger row as far as possible. Its key comes from the columns, since pages are ordered by it."""
    container, run, exec_id, at_ns, body = row
    key = RunKey(container, run, exec_id)
    try:
        return codec.exit_of(key, at_ns, body)
    except codec.BadRow:
        return codec.damaged_exit(key, at_ns)


def _event(row: tuple[Any, ...]) -> Event:
    """Decode an event row as far as possible."""
    seq, time_ns, body = row
    try:
        return codec.event_from(seq, body)
    except codec.BadRow as error:
        return codec.damaged_event(seq, time_ns, str(error))


def _apply(change: Transaction, connection: sqlite3.Connection) -> tuple[Event, ...]:
    """Runs in the writer thread, inside the transaction's savepoint."""
    for id in change.removed:
        connection.execute("DELETE FROM containers WHERE id = ?", (id,))
        connection.execute("DELETE FROM task_execs WHERE container = ?", (id,))
        connection.execute("DELETE FROM meta WHERE key = ?", (f"{DAMAGED}{id}",))
    for id in change.kept_aside:
        copy = "INSERT OR IGNORE INTO meta SELECT ?, body FROM containers WHERE id = ?"
        connection.execute(copy, (f"{DAMAGED}{id}", id))
    for key in change.ended_execs:
        values = (key.container, key.run, key.exec_id)
        connection.execute("DELETE FROM execs WHERE container = ? AND run = ? AND exec = ?", values)
    for container in change.containers:
        _put_container(connection, container)
    for each in change.execs:
        connection.execute("INSERT OR REPLACE INTO execs VALUES (?, ?, ?, ?)", codec.exec_row(each))
    for exit in change.exits:
        _put_exit(connection, exit)
    for retained in change.retained:
        _put_retained(connection, retained)
    tasks = codec.statements(change.task_execs, change.ended_task_execs, change.tombstones)
    for statement, fields in (*tasks, *change.watching):
        connection.execute(statement, fields)
    return tuple(_put_event(connection, event) for event in change.events)


def _put_container(connection: sqlite3.Connection, container: Container) -> None:
    """Only the name can conflict: for a known id this is an update."""
    statement = (
        "INSERT INTO containers (id, namespace, name, body) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE "
        "SET namespace = excluded.namespace, name = excluded.name, body = excluded.body"
    )
    try:
        connection.execute(statement, codec.container_row(container))
    except sqlite3.IntegrityError as error:
        name, namespace = container.spec.name, container.spec.namespace
        text = f"the name {name} is taken in namespace {namespace}; remove or rename that container, or choose another"
        raise NameTaken(text, name=name, namespace=namespace) from error


def _put_exit(connection: sqlite3.Connection, exit: Exit) -> None:
    try:
        connection.execute("INSERT INTO exits VALUES (?, ?, ?, ?, ?, ?)", codec.exit_row(exit))
    except sqlite3.IntegrityError as error:
        raise AlreadyStored(exit) from error


def _put_retained(connection: sqlite3.Connection, one: Retained) -> None:
    values = (one.container, one.namespace, one.name, one.at.boot_id, one.at.ns)
    connection.execute("INSERT OR REPLACE INTO retained VALUES (?, ?, ?, ?, ?)", values)


def _put_event(connection: sqlite3.Connection, event: Event) -> Event:
    """SQLite assigns highest + 1 inside the transaction, so a rollback leaves no gap."""
    row = connection.execute("INSERT INTO events (time_ns, body) VALUES (?, ?)", codec.event_row(event))
    return replace(event, seq=row.lastrowid or 0)


def _delete_events(keep: Keep, now_ns: int, connection: sqlite3.Connection) -> int:
    """Delete a chunk at the old end, never in the middle, whatever the wall clock did. Return the number of deleted
    rows."""
    oldest, last = connection.execute("SELECT min(seq), max(seq) FROM events").fetchone()
    if oldest is None:
        return 0
    young = "SELECT seq FROM events WHERE time_ns >= ? ORDER BY seq LIMIT 1"
    (first_young,) = connection.execute(young, (now_ns - keep.events_age_ns,)).fetchone() or (last,)
    first_kept = min(last, max(first_young, last - keep.events + 1), oldest + CHUNK)
    return connection.execute("DELETE FROM events WHERE seq < ?", (first_kept,)).rowcount


def _delete_exits(keep: Keep, now_ns: int, connection: sqlite3.Connection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM exits").fetchone()
    oldest = (
        "SELECT container, run, exec FROM exits WHERE (exec <> '' OR (container NOT IN (SELECT id FROM containers) "
        "AND container NOT IN (SELECT container FROM retained))) {} "
        "ORDER BY at_ns, container, run, exec LIMIT ?"
    )
    delete = "DELETE FROM exits WHERE (container, run, exec) IN ({})"
    over = min(max(count - keep.exits, 0), CHUNK)
    deleted = connection.execute(delete.format(oldest.format("")), (over,)).rowcount
    aged = delete.format(oldest.format("AND at_ns < ?"))
    return deleted + connection.execute(aged, (now_ns - keep.exits_age_ns, CHUNK)).rowcount


def _give_back_pages(connection: sqlite3.Connection) -> bool:
    """Return free pages to the file system. Return True while there are more."""
    (before,) = connection.execute("PRAGMA freelist_count").fetchone()
    connection.execute(f"PRAGMA incremental_vacuum({CHUNK})").fetchall()
    (after,) = connection.execute("PRAGMA freelist_count").fetchone()
    return bool(0 < after < before)
