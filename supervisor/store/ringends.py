"""Which ends have been reported from the ring and are not in the database yet; and how they come there.

`ring-mark` in the database is the number of the newest block that is stored, written with it in one transaction. So a
start knows what is missing, also where retention has deleted what was stored long ago. A start flushes the mark before
the ring's pages are written again: the last exitd may have stored the ends without a flush.

`ring-failed` is the number of a block whose write failed. It may be in the file all the same, but its ends were not
reported from it, and its events' numbers are void. Every transaction after that notes it.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import structlog

from shim.undo import undone_on_failure
from supervisor.model.errors import CannotStart
from supervisor.model.values import Container, Event, Exit, RunKey
from supervisor.store import codec, counts, ring, ringcodec
from supervisor.store.counts import Count
from supervisor.store.ring import Ring, RingFull
from supervisor.store.ringcodec import RingEnd
from supervisor.store.transaction import AlreadyStored, put_container, put_event, put_exit
from supervisor.system.histogram import Histogram

IDENTITY, MARK, FAILED = "ring-identity", "ring-mark", "ring-failed"  # in `meta`
SLOW_SECONDS = 0.005  # of a flush, unless the configuration says otherwise

log = structlog.get_logger(__name__)


class RingEnds:
    """The ring, and the ends that it has and the database has not. Belongs to one event loop."""

    def __init__(self, own: Ring | None, number: int, slow_seconds: Callable[[], float]) -> None:
        """`number`: of the newest block there has been. `slow_seconds`: so long the event loop waits for a flush, and
        not at all after a longer one, until a quicker one; 0: the ring is not used."""
        self._ring = own
        self._slow_seconds = slow_seconds
        self._number = number
        self._ends: dict[RunKey, tuple[RingEnd, Container, int]] = {}  # with its block; oldest first
        self._is_slow = False
        self._under_way = 0  # the number of the block that is being written; 0: there is none
        self._waits_since = 0.0  # perf_counter; 0: the event loop does not wait for the disk
        self.failed = 0  # the number of the block whose write failed; 0: none
        self.writes = Histogram()  # of blocks into the ring

    @property
    def may_begin(self) -> bool:
        """Whether `begin` may be called: there is a ring, which is to be used, and no block under way."""
        return self._ring is not None and not self._under_way and self._slow_seconds() > 0

    def begin(self, ends: Sequence[tuple[RingEnd, Container]]) -> bool:
        """Begin to write ends, each with the container that it leaves, in one block; `has_ended` and `finish` follow.
        Return False when the ring cannot take them."""
        assert self._ring is not None and not self._under_way
        self._number += 1  # first: after an error the block may be in the file all the same
        try:
            self._ring.begin(self._ring.place(self._number, ringcodec.encode(end for end, _ in ends)))
        except RingFull:
            return False
        self._under_way = self._number
        return True

    def has_ended(self, flushing_seconds: float) -> bool:
        """Return whether the write of the block under way has ended; wait for that while it takes no longer than a
        quick disk does. `flushing_seconds`: how long the database has been flushing by now."""
        assert self._ring is not None and self._under_way
        is_slow = self._is_slow or flushing_seconds >= self._slow_seconds()
        self._waits_since = time.perf_counter()
        try:
            return self._ring.has_ended(0 if is_slow else self._slow_seconds())
        finally:
            self._waits_since = 0.0

    @property
    def event_fd(self) -> int:
        """Readable when the write of the block under way has ended."""
        assert self._ring is not None
        return self._ring.event_fd

    def finish(self, ends: Sequence[tuple[RingEnd, Container]]) -> bool:
        """Note what came of the block, whose write has ended. Return whether its ends are on the disk."""
        assert self._ring is not None and self._under_way
        number, self._under_way = self._under_way, 0
        try:
            seconds = self._ring.finish()
        except OSError as error:
            self._give_up(number, error)
            return False
        self._is_slow = seconds > self._slow_seconds()
        self.writes.observe(seconds)
        self._ends.update((end.key, (end, after, number)) for end, after in ends)
        return True

    def await_end(self, seconds: float) -> bool:
        """Wait so long at most for the block under way. Return whether there is none any more. For another thread, when
        the loop has nothing else to do."""
        return not self._under_way or self._ring is None or self._ring.has_ended(seconds)

    def _give_up(self, number: int, error: OSError) -> None:
        log.error("the ring of ends is given up, the database stores them alone", why=error.strerror or str(error))
        self.failed = number
        if self._ring is not None:
            self._ring.close()
            self._ring = None

    @property
    def writing_seconds(self) -> float:
        """How long the event loop has been waiting for the disk; 0 if it does not. For other threads."""
        since = self._waits_since
        return time.perf_counter() - since if since else 0.0

    def unstored(self) -> tuple[RingEnd, ...]:
        """Return the ends that the database has not, oldest first."""
        return tuple(end for end, _, _ in self._ends.values())

    def work(self) -> tuple[tuple[tuple[RingEnd, Container | None], ...], int]:
        """Return what `apply` has to store: every end that is not stored, since the mark covers all blocks below it."""
        return tuple((end, after) for end, after, _ in self._ends.values()), self._newest

    def stored(self, ends: Iterable[tuple[RingEnd, Container | None]]) -> None:
        """Note that the database has these."""
        for end, _ in ends:
            if end.key in self._ends and self._ends[end.key][0] is end:
                del self._ends[end.key]

    def flushed(self, number: int, seconds: float) -> None:
        """Note that what the database has up to this block is on the disk, after a flush that took so long."""
        self._is_slow = seconds > self._slow_seconds()
        if self._ring is not None:
            self._ring.free(number)

    def blocks(self) -> tuple[tuple[Exit, int], ...]:
        """Return the ends that are not stored, each with its block."""
        return tuple((end.exit, block) for end, _, block in self._ends.values())

    @property
    def number(self) -> int:
        """The newest block of which, and before which, everything is in the database."""
        oldest = next(iter(self._ends.values()), None)
        return self._newest if oldest is None else oldest[2] - 1

    @property
    def _newest(self) -> int:
        """The newest block whose ends are known here: one that is under way has a number, and may not be stored."""
        return self._under_way - 1 if self._under_way else self._number

    @property
    def wants_flush(self) -> bool:
        """Whether the database is to be flushed, so that pages of the ring are free again."""
        return self._ring is not None and self._ring.is_half_full

    def close(self) -> None:
        """Repeatable."""
        if self._ring is not None:
            self._ring.close()
            self._ring = None


def opened(database: Path, connection: sqlite3.Connection, slow_seconds: Callable[[], float]) -> RingEnds:
    """Open the ring beside the database, and store the ends that only the ring has. Raises CannotStart,
    sqlite3.Error."""
    path = database.with_suffix(".ring")
    identity, mark, failed = _identity(connection), _number(connection, MARK), _number(connection, FAILED)
    is_there = path.exists()
    try:
        own = Ring(path, identity)
        with undone_on_failure(own.close):
            data = own.read()
    except OSError as error:
        text = f"{path}: {error.strerror}"
        if is_there:
            raise CannotStart(f"{text}; it may have ends that the database has not", file=str(path)) from error
        log.warning("ends are stored by the database alone", why=text)
        return RingEnds(None, mark, slow_seconds)
    try:
        found = [block for block in ring.blocks(data, identity) if block.number > mark and block.number != failed]
        # A start takes a number, too: for a value that stays the same SQLite writes, and flushes, nothing.
        newest = max([mark, failed, *(block.number for block in found)]) + 1
        _store(connection, [end for block in found for end in _ends(path, block)], newest)
    except CannotStart as error:
        own.close()
        raise CannotStart(f"{path}: {error}", file=str(path)) from error
    except sqlite3.Error:
        own.close()
        raise
    return RingEnds(own, newest, slow_seconds)


def _ends(path: Path, block: ring.Block) -> list[RingEnd]:
    try:
        return ringcodec.decode(block.payload)
    except codec.BadRow as error:
        log.error("a block of ends is passed over", file=str(path), number=block.number, why=str(error))
        return []


def _store(connection: sqlite3.Connection, ends: list[RingEnd], mark: int) -> None:
    """Store what the last exitd has reported and not stored, and flush what it has stored without a flush: the ring's
    pages are written again from now on. Raises sqlite3.Error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        apply([(end, None) for end in ends], mark, connection)
        connection.execute("COMMIT")
    except sqlite3.Error:
        connection.execute("ROLLBACK")
        raise
    if ends:
        log.info("ends stored that the last exitd had reported", ends=len(ends))


def apply(ends: Iterable[tuple[RingEnd, Container | None]], mark: int, connection: sqlite3.Connection) -> None:
    """Store ends, and that the blocks up to `mark` are stored, inside a transaction. An end that the database has is
    there with its events, and everything that has followed. Raises sqlite3.Error."""
    for end, after in ends:
        try:
            put_exit(connection, end.exit)
        except AlreadyStored:
            continue
        for event in end.events:
            put_event(connection, event)
        if after is None:
            after = _left(connection, end)
        if after is not None:
            put_container(connection, after)
    _put_number(connection, MARK, mark)


def note_failed(number: int, connection: sqlite3.Connection) -> None:
    """Note, inside a transaction, that this block does not count whatever is in the file. Raises sqlite3.Error."""
    _put_number(connection, FAILED, number)


def _left(connection: sqlite3.Connection, end: RingEnd) -> Container | None:
    """Return the container as the end has left it; None if it has no row that can be read."""
    found = connection.execute("SELECT body FROM containers WHERE id = ?", (end.key.container,)).fetchone()
    try:
        return ringcodec.changed(found[0], end) if found is not None else None
    except codec.BadRow as error:
        log.error("an end is in the ledger and not in its container's row", container=end.key.container, why=str(error))
        return None


def _identity(connection: sqlite3.Connection) -> bytes:
    """Return the identity of the database, which it gets now if it has none."""
    if not _meta(connection, IDENTITY):
        connection.execute("INSERT INTO meta VALUES (?, hex(randomblob(16)))", (IDENTITY,))
    return bytes.fromhex(_meta(connection, IDENTITY))


def _number(connection: sqlite3.Connection, key: str) -> int:
    return int(_meta(connection, key) or 0)


def _put_number(connection: sqlite3.Connection, key: str, number: int) -> None:
    statement = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    connection.execute(statement, (key, str(number)))


def _meta(connection: sqlite3.Connection, key: str) -> str:
    found = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return str(found[0]) if found is not None else ""


# -- what readers get: what is stored, and what is reported and not stored yet


def page(rows: Iterable[Exit], more: Iterable[Exit], limit: int) -> list[Exit]:
    """Return one page of the ledger from its rows and what is not among them yet."""
    found = {exit.key: exit for exit in (*more, *rows)}
    return sorted(found.values(), key=place)[:limit]


def counted(unstored: Iterable[tuple[Exit, int]], connection: sqlite3.Connection, *, named: bool = True) -> list[Count]:
    """Return all counters, with the ends that the database has not taken over yet. Raises sqlite3.Error."""
    connection.execute("BEGIN")  # one view of it: an end may get there meanwhile
    try:
        mark = int(_meta(connection, MARK) or 0)
        return counts.read(connection, [exit for exit, block in unstored if block > mark], named=named)
    finally:
        connection.execute("ROLLBACK")


def place(exit: Exit) -> tuple[int, str, int, str]:
    """Return the key by which the ledger is ordered: time of the end in ns, container, run, exec."""
    return exit.at_ns, exit.key.container, exit.key.run, exit.key.exec_id


def events_page(rows: Iterable[Event], more: Iterable[Event], limit: int) -> list[Event]:
    """Return one page of the event log from its rows and what is not among them yet."""
    found = {event.seq: event for event in (*more, *rows)}
    return [found[seq] for seq in sorted(found)][:limit]
