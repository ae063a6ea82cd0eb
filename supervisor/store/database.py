"""Stores containers, the ledger of exits, and the numbered event log, in one SQLite database.

"Exactly once" is a constraint here: an exit is stored under (container, run, exec), in one transaction with its event
and the decision about what follows.

An ordinary end goes into the ring first (`write_ends`), and is reported from there; the database gets it a moment later
(`take_over_ends`). Until then everything that is read here has it, too. What the ring has when exitd is killed, or the
host loses power, is stored at the next start, before anything is read.
"""

import asyncio
import contextlib
import re
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog

from shim.frozen import frozen, replace
from shim.undo import undone_on_failure
from supervisor.model.errors import StoreFailed
from supervisor.model.execs import Exec
from supervisor.model.taskfacts import TaskExec, Tombstone
from supervisor.model.values import BootTime, Container, Event, Exit, Retained, RunKey, Unknown
from supervisor.store import codec, counts, ringends, schema
from supervisor.store.codec import Damaged
from supervisor.store.counts import Count
from supervisor.store.groupcommit import Writer
from supervisor.store.ringcodec import RingEnd, changes
from supervisor.store.transaction import AlreadyStored as AlreadyStored
from supervisor.store.transaction import Transaction as Transaction
from supervisor.store.transaction import apply
from supervisor.system import room, threads
from supervisor.system.histogram import Durations
from supervisor.system.waitlimit import WaitLimit

T = TypeVar("T")
PAGE = 1000
CHUNK = 1000  # rows deleted, or pages returned, in one transaction of a compaction, so that commits get in between
VOID_KEPT = 10_000  # behind the newest event, void numbers are not asked for
DAY_NS = 24 * 3600 * 10**9
EXIT = "container, run, exec, at_ns, body"  # the columns of a ledger row

log = structlog.get_logger(__name__)


@frozen
class Keep:
    """What a compaction keeps: the rows within both the number and the age."""

    events: int = 50_000
    events_age_ns: int = 7 * DAY_NS
    exits: int = 100_000
    exits_age_ns: int = 90 * DAY_NS
    series: int = 10_000  # counters of single containers, of each kind
    series_age_ns: int = 7 * DAY_NS  # since the last time that one of them has counted


class Store:
    """The database at `path`. Raises CannotStart, with the file untouched, when it is damaged or of a newer version.

    A store belongs to one event loop. Writes go to the writer thread, reads to a reading thread; only `write_ends`
    blocks the loop, for a quick flush. Reads see every acknowledged commit. Every other call raises StoreFailed if the
    disk does not answer within `limit_seconds`. `room_bytes`: size of a write-ahead log that need not grow with each
    commit, see Writer. `slow_seconds`: see RingEnds.
    """

    def __init__(
        self,
        path: Path,
        *,
        lock_seconds: float = 2,
        limit_seconds: float = 30,
        room_bytes: int = 0,
        slow_seconds: Callable[[], float] = lambda: ringends.SLOW_SECONDS,
    ) -> None:
        self.path = path
        self._lock_seconds = lock_seconds
        self._limit = WaitLimit(limit_seconds)
        connection = schema.open_database(path, lock_seconds)
        with undone_on_failure(connection.close):
            self._ring_ends = ringends.opened(path, connection, slow_seconds)
        self._writer = Writer(path, connection, lock_seconds, room_bytes)
        self._finish_late: Callable[[], None] | None = None  # of the block that the loop does not wait for
        self._late_look: asyncio.TimerHandle | None = None  # at it, where the loop cannot be woken by its end
        self._events_under_way: tuple[Event, ...] = ()  # its events
        self._void = list[range]()
        self._reader: sqlite3.Connection | None = None
        self._reading = threads.pool(1, "exitd-store-read")
        self._oldest, self._last = self._reading.submit(self._first_look).result()
        self._given = self._last

    @property
    def loop_flushing_seconds(self) -> float:
        """How long the event loop has been waiting in `write_ends` for the disk; 0 if it is not. For other threads."""
        return self._ring_ends.writing_seconds

    @property
    def flush_seconds(self) -> float:
        """How long the last flush to the disk took."""
        return self._writer.flush_seconds

    def flushes(self) -> dict[str, Durations]:
        """Return how long flushes took so far: the database's, and those of ends into the ring."""
        return {"database": self._writer.flushes.now(), "ring": self._ring_ends.writes.now()}

    def oldest_seq(self) -> int:
        """The number of the oldest stored event; last_seq() + 1 if there is none."""
        return self._oldest

    def last_seq(self) -> int:
        """The number of the newest event on the disk, 0 before the first."""
        return self._last

    def is_void(self, seq: int) -> bool:
        """Return whether this number was given to an event that could not be stored. No other event gets it."""
        return bool(self._void) and any(seq in numbers for numbers in self._void)

    def first_under_way(self) -> int | None:
        """Return the number of the first event on its way into the ring; None if there is none. Later
        numbers may be stored before it."""
        return self._events_under_way[0].seq if self._events_under_way else None

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
        change = replace(change, events=self._numbered(change.events)) if change.events else change
        work = self._noting_failure(partial(apply, change))
        future = self._writer.submit(work, self._note_events, flush=not change.ahead)
        if change.events or not change.ahead:
            future.add_done_callback(partial(self._settled, change, self._ring_ends.number))
        return future

    def _numbered(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        """Give numbers, in the order in which the events are stored. A number is given once."""
        first = self._given + 1
        self._given += len(events)
        return tuple(replace(event, seq=first + at) for at, event in enumerate(events))

    def _settled(self, change: Transaction, block: int, future: asyncio.Future[tuple[Event, ...]]) -> None:
        """`block`: the ring's newest that the database had when the transaction was queued."""
        if future.cancelled():
            return
        if future.exception() is not None:
            self._note_void(change.events)
        elif not change.ahead:
            self._ring_ends.flushed(block, self._writer.flush_seconds)

    def _note_void(self, events: tuple[Event, ...]) -> None:
        """Numbers of one transaction follow each other, and so do those of its repetitions as a rule."""
        if not events:
            return
        numbers = range(events[0].seq, events[-1].seq + 1)
        if self._void and self._void[-1].stop == numbers.start:
            self._void[-1] = range(self._void[-1].start, numbers.stop)
        else:
            self._void = [each for each in self._void if each.stop > self._last - VOID_KEPT] + [numbers]

    # -- ends that are reported before the database has them

    def write_ends(
        self,
        steps: Sequence[tuple[Container, Container, Exit, tuple[Event, ...]]],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> asyncio.Future[tuple[Event, ...] | None] | None:
        """Put ends on the disk, each with its container before and after, and its events. Return the future of the
        events with their numbers, which is done already unless the disk is slow; its result is None when the ring could
        not take them. Return None when the ring cannot take them now: another such write may be under way. `commit`
        stores what it does not take. `meanwhile` is called while the disk is writing, and raises nothing.

        The caller calls `take_over_ends` next, and stores nothing else of these containers before that has succeeded.
        """
        if not self._ring_ends.may_begin:
            return None
        ends, numbered = self._ring_ends_of(steps)
        if not self._ring_ends.begin(ends):
            self._note_void(numbered)  # they are given once, also where the ring is full
            return None
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[Event, ...] | None] = loop.create_future()
        meanwhile()
        if self._ring_ends.has_ended(self._writer.flushing_seconds):
            self._finish_ends(ends, numbered, future)
        else:
            self._events_under_way = numbered
            self._finish_late = partial(self._finish_ends, ends, numbered, future)
            self._look_when_written()
        return future

    def _look_when_written(self) -> None:
        """Have `_look_at_late` called when the block is written that the loop does not wait for."""
        loop = asyncio.get_running_loop()
        try:
            loop.add_reader(self._ring_ends.event_fd, self._look_at_late)
        except OSError as error:  # ENOSPC: max_user_watches
            log.debug("a block of ends is looked at again and again", why=error.strerror)
            self._late_look = loop.call_later(room.AGAIN_SECONDS, self._look_at_late)

    def _look_at_late(self) -> None:
        """Finish the block that the loop does not wait for, if it is written. Repeatable."""
        if self._finish_late is None:
            return
        if not self._ring_ends.await_end(0):
            self._look_when_written()
            return
        asyncio.get_running_loop().remove_reader(self._ring_ends.event_fd)
        finish, self._finish_late = self._finish_late, None
        finish()

    def _finish_ends(
        self,
        ends: Sequence[tuple[RingEnd, Container]],
        numbered: tuple[Event, ...],
        future: asyncio.Future[tuple[Event, ...] | None],
    ) -> None:
        self._events_under_way = ()
        is_written = self._ring_ends.finish(ends)
        if not is_written:
            self._note_void(numbered)
        if not future.done():
            future.set_result(numbered if is_written else None)

    def _ring_ends_of(
        self, steps: Sequence[tuple[Container, Container, Exit, tuple[Event, ...]]]
    ) -> tuple[list[tuple[RingEnd, Container]], tuple[Event, ...]]:
        """Return what the ring gets of each, with the container that it leaves; and all events, which have numbers."""
        ends = [
            (RingEnd(exit, changes(before, after), self._numbered(events)), after)
            for before, after, exit, events in steps
        ]
        return ends, tuple(event for end, _ in ends for event in end.events)

    def take_over_ends(self) -> asyncio.Future[None]:
        """Have the database take over all ends that only the ring has. To be called again when it fails."""
        ends, block = self._ring_ends.work()
        flush = self._ring_ends.wants_flush
        events = tuple(event for end, _ in ends for event in end.events)
        work = self._noting_failure(partial(ringends.apply, ends, block))
        future = self._writer.submit(work, lambda _: self._note_events(events), flush=flush)
        future.add_done_callback(partial(self._taken_over, ends, block if flush else 0))
        return future

    def _noting_failure(self, work: Callable[[sqlite3.Connection], T]) -> Callable[[sqlite3.Connection], T]:
        """Return the work that also notes a block of the ring whose write failed, if there is one. From the first
        transaction after it on, readers pass over the numbers of the block's events, which must not come back then."""
        failed = self._ring_ends.failed
        if not failed:
            return work

        def both(connection: sqlite3.Connection) -> T:
            ringends.note_failed(failed, connection)
            return work(connection)

        return both

    def _taken_over(
        self, ends: tuple[tuple[RingEnd, Container | None], ...], block: int, future: asyncio.Future[None]
    ) -> None:
        if future.cancelled() or future.exception() is not None:
            return
        self._ring_ends.stored(ends)
        if block:
            self._ring_ends.flushed(block, self._writer.flush_seconds)

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

    async def newest_logged_run(self, container: str) -> int:
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
        """Delete those for which the SQL expression holds. Not flushed: after a power cut some may be there again.
        Raises StoreFailed."""
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
        only_in_ring = [exit for exit in self._only_in_ring(id) if _is_wanted(exit, since_ns, unknown, after)]
        found = await self._rows(f"SELECT {EXIT} FROM exits WHERE {' AND '.join(where)} {order}", *values, limit)
        return ringends.page(map(codec.exit_in_row, found), only_in_ring, limit)

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
        if not exec_id and (only_in_ring := [exit for exit in self._only_in_ring(container) if exit.key.run == run]):
            return only_in_ring[0]
        query = f"SELECT {EXIT} FROM exits WHERE container = ? AND run = ? AND exec = ?"
        found = await self._rows(query, container, run, exec_id)
        return codec.exit_in_row(found[0]) if found else None

    async def exec_exit(self, container: str, exec_id: str) -> Exit | None:
        """Return the stored end of this exec, in whichever run it was; None if there is none, or it is no longer
        kept."""
        query = f"SELECT {EXIT} FROM exits WHERE container = ? AND exec = ? ORDER BY run DESC LIMIT 1"
        found = await self._rows(query, container, exec_id)
        return codec.exit_in_row(found[0]) if found else None

    async def newest_exit(self, container: str) -> Exit | None:
        """Return the stored end of the newest run that has one; None if the ledger has no such container."""
        if only_in_ring := self._only_in_ring(container):
            return only_in_ring[-1]
        query = f"SELECT {EXIT} FROM exits WHERE container = ? AND exec = '' ORDER BY run DESC LIMIT 1"
        found = await self._rows(query, container)
        return codec.exit_in_row(found[0]) if found else None

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
        only_in_ring = [event for event in self._events_only_in_ring() if event.seq > seq]
        found = await self._rows("SELECT seq, time_ns, body FROM events WHERE seq > ? ORDER BY seq LIMIT ?", seq, limit)
        return ringends.events_page(map(_event, found), only_in_ring, limit)

    async def first_seq_with_task(self, seq: int, last: int) -> int | None:
        """Return the number of the first stored event about a task of containerd's, or of one that cannot be read,
        above `seq` and up to `last`; None if there is none."""
        only_in_ring = [each.seq for each in self._events_only_in_ring() if each.task is not None]
        query = (
            "SELECT seq FROM events WHERE seq > ? AND seq <= ?"
            " AND CASE WHEN json_valid(body) THEN json_type(body, '$.task') <> 'null' ELSE 1 END"
            " ORDER BY seq LIMIT 1"
        )
        found = [int(number) for (number,) in await self._rows(query, seq, last)]
        return min((*found, *(number for number in only_in_ring if seq < number <= last)), default=None)

    async def first_seq_since(self, time_ns: int) -> int | None:
        """Return the number of the first stored event that is not older than this wall time in ns; None if there is
        none."""
        early = (*self._events_only_in_ring(), *self._events_under_way)
        only_in_ring = [event.seq for event in early if event.time_ns >= time_ns]
        found = await self._rows("SELECT seq FROM events WHERE time_ns >= ? ORDER BY seq LIMIT 1", time_ns)
        return min((*(int(seq) for (seq,) in found), *only_in_ring), default=None)

    def _only_in_ring(self, container: str | None) -> list[Exit]:
        """Return the exits that only the ring has, of one container or of all. To be asked before the database: an end
        may get there meanwhile."""
        return [end.exit for end in self._ring_ends.unstored() if container in (None, end.key.container)]

    def _events_only_in_ring(self) -> list[Event]:
        """As `_only_in_ring`, for the events of all containers."""
        return [event for end in self._ring_ends.unstored() for event in end.events]

    async def counts(self, *, named: bool = True) -> list[Count]:
        """Return every counter; without those by name and reason, unless `named`. What the ledger has ever shown is
        counted, and nothing else."""
        return await self._within_reader(partial(ringends.counted, self._ring_ends.blocks(), named=named))

    async def count(self, name: str, at_ns: int) -> None:
        """Add one to a counter of its own, however long the disk takes. Raises StoreFailed."""
        one = (Count(name, (), 1, at_ns),)
        await self._writer.submit(lambda connection: counts.add(connection, one), lambda _: None, flush=False)

    async def compact(self, keep: Keep, now_ns: int) -> None:
        """Delete events and exits beyond `keep` and return the space to the file system, in steps that let commits
        pass.

        The newest event stays whatever its age, since it carries the numbering. Exits of existing containers stay, too:
        without them a late witness could report a run a second time. So do exits that can still be found by name. Exits
        of execs are deleted: a container may have any number, and what has no row is not watched. Counters stay, except
        for those of single containers (`counts.forget`).
        """
        while (await self._write(partial(_delete_events, keep, now_ns), self._note_oldest))[0]:
            pass
        while await self._write(partial(_delete_exits, keep, now_ns)) >= CHUNK:
            pass
        series = partial(counts.forget, before_ns=now_ns - keep.series_age_ns, most=keep.series)
        await self._write(series, flush=False)
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
        if self._finish_late is not None:  # its ends are stored as the others are, also if no caller waits for them
            loop.remove_reader(self._ring_ends.event_fd)  # it would take the end away from the wait below
            if self._late_look is not None:
                self._late_look.cancel()
            await loop.run_in_executor(None, self._ring_ends.await_end, limit_seconds)
            self._look_at_late()
            if self._finish_late is not None:
                loop.remove_reader(self._ring_ends.event_fd)
                self._finish_late = None
        if self._ring_ends.unstored():
            self.take_over_ends()
        self._writer.stop()
        has_ended = await loop.run_in_executor(None, self._writer.wait_ended, limit_seconds)
        self._ring_ends.close()
        return has_ended

    def _close_reader(self, limit_seconds: float) -> None:
        with contextlib.suppress(RuntimeError, TimeoutError):  # closed before; or the disk hangs, like the writer
            dropped = self._reading.submit(self._drop_reader)
            self._reading.shutdown(wait=False)
            dropped.result(limit_seconds)

    def _first_look(self) -> tuple[int, int]:
        query = "SELECT min(seq), max(seq) FROM events"
        oldest, last = self._ask(lambda connection: connection.execute(query).fetchone())
        return (1, 0) if last is None else (oldest, last)

    def _note_events(self, events: tuple[Event, ...]) -> None:
        if events:
            self._last = max(self._last, events[-1].seq)

    def _note_oldest(self, compacted: tuple[bool, int | None]) -> None:
        _, oldest = compacted
        self._oldest = oldest if oldest is not None else self._last + 1

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
            return await self._limit.of(future)
        except TimeoutError as error:
            text = f"{self.path}: the disk did not answer within {self._limit.seconds:g} s; exitd goes on by itself"
            raise StoreFailed(text, file=str(self.path)) from error

    async def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return await self._within_reader(lambda connection: connection.execute(query, values).fetchall())

    async def _within_reader(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            future = asyncio.get_running_loop().run_in_executor(self._reading, self._ask, work)
        except RuntimeError as error:
            raise StoreFailed(f"{self.path}: closed", file=str(self.path)) from error
        return await self._within_limit(future)

    def _ask(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do it in the reading thread. Raises StoreFailed."""
        try:
            if self._reader is None:
                self._reader = schema.connect_for_reading(self.path, self._lock_seconds)
                self._reader.text_factory = schema.lenient
            return work(self._reader)
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


def _event(row: tuple[Any, ...]) -> Event:
    """Decode an event row as far as possible."""
    seq, time_ns, body = row
    try:
        return codec.event_from(seq, body)
    except codec.BadRow as error:
        return codec.damaged_event(seq, time_ns, str(error))


def _delete_events(keep: Keep, now_ns: int, connection: sqlite3.Connection) -> tuple[bool, int | None]:
    """Delete a chunk at the old end, never in the middle, whatever the wall clock did. Return whether there is another
    chunk, and the oldest event that is left."""
    oldest, last = connection.execute("SELECT min(seq), max(seq) FROM events").fetchone()
    if oldest is None:
        return False, None
    young = "SELECT seq FROM events WHERE time_ns >= ? ORDER BY seq LIMIT 1"
    (first_young,) = connection.execute(young, (now_ns - keep.events_age_ns,)).fetchone() or (last,)
    first_kept = min(last, max(first_young, last - keep.events + 1), oldest + CHUNK)
    connection.execute("DELETE FROM events WHERE seq < ?", (first_kept,))
    (left,) = connection.execute("SELECT min(seq) FROM events").fetchone()
    return first_kept == oldest + CHUNK, left


def _is_wanted(exit: Exit, since_ns: int | None, unknown: bool, after: Exit | None) -> bool:
    """As the ledger's query has it."""
    if since_ns is not None and exit.at_ns < since_ns:
        return False
    if unknown and not isinstance(exit.status, Unknown):
        return False
    return after is None or ringends.place(exit) > ringends.place(after)


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
