"""One thread owns the writing connection and commits all waiting changes together, with a single flush.

A change that no client has learned of need not be flushed: SQLite's log keeps it when exitd is killed, though not when
the host loses power (sqlite.org/pragma.html#pragma_synchronous, NORMAL with a write-ahead log).
"""

import asyncio
import contextlib
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import structlog

from shim.frozen import frozen
from supervisor.model.errors import StoreFailed
from supervisor.store import schema
from supervisor.system import threads
from supervisor.system.histogram import Histogram

log = structlog.get_logger(__name__)

T = TypeVar("T")
BATCH = 2000  # changes per flush; beyond that the flush no longer dominates
CHECKPOINT_ROWS = 500  # written since the last one: some 3 MB of log if each came alone. Taken when no job waits
CHECKPOINT_ROWS_MAX = 20 * CHECKPOINT_ROWS  # taken even when jobs wait: the log must not grow forever

ROOM_BYTES = 4 << 20  # of log that exists from the beginning: more than one checkpoint leaves to the next
ZEROS_BYTES = 64 << 10
ZEROS = bytes(ZEROS_BYTES)
ROOM_SHARE = 16  # of the free space on the disk
# What a start writes before it can answer has room in these, also on a disk that others have filled up meanwhile.
KEPT_BYTES = {"-shm": 32 << 10, "-wal": 64 << 10}

# The change itself is at fault, not the disk: the others in the batch go on.
OWN_FAULT = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.DataError, sqlite3.InterfaceError)


@frozen
class Job(Generic[T]):
    """`work` runs in the writer thread inside a savepoint; `stored` is called there once its result is on the disk."""

    work: Callable[[sqlite3.Connection], T]
    stored: Callable[[T], None]
    future: asyncio.Future[T]
    flush: bool


class Writer:
    """The writer thread. All jobs come from one event loop, and their futures are resolved there in order."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock_seconds: float, room_bytes: int = 0) -> None:
        """`connection`: the writing one, which is the writer's from now on. `room_bytes`: size of the log that is made
        before the first job, if the disk has much space."""
        self.flush_seconds = 0.0  # duration of the last COMMIT: log write and fsync
        self.flushes = Histogram()  # of all of them
        self._flush_began = 0.0  # of the one in progress; 0: there is none
        self._path = path
        self._lock_seconds = lock_seconds
        self._connection: sqlite3.Connection | None = connection
        self._queue: queue.SimpleQueue[Job[Any] | None] = queue.SimpleQueue()
        self._room_bytes = room_bytes
        self._closed = False
        self._flushing = True  # as schema.connect leaves it
        self._merged = 0  # how many of the rows that this connection wrote are merged by a checkpoint
        self._thread = threading.Thread(target=self._run, name="exitd-store", daemon=True)
        threads.start(self._thread)

    @property
    def flushing_seconds(self) -> float:
        """How long the flush in progress has taken so far; 0 without one."""
        began = self._flush_began
        return time.perf_counter() - began if began else 0.0

    def submit(
        self, work: Callable[[sqlite3.Connection], T], stored: Callable[[T], None], *, flush: bool = True
    ) -> asyncio.Future[T]:
        """Queue the work. The future resolves once the result is durable; cancelling it does not undo the work.

        Without `flush`, durable means: for all later exitds, until the host goes down.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._closed:
            future.set_exception(StoreFailed(f"{self._path}: closed; nothing more is stored"))
        else:
            self._queue.put(Job(work, stored, future, flush))
        return future

    def stop(self) -> None:
        """End after the jobs queued so far. Call it in the loop that calls `submit`, so that no job comes later."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)

    def wait_ended(self, limit_seconds: float) -> bool:
        """Block, after `stop`, until all queued jobs are done. Return False if the disk did not answer within the
        limit."""
        self._thread.join(limit_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        if self._room_bytes:
            self._make_room()
        last = False
        while not last:
            batch, last = self._next_batch()
            if batch:
                self._turn(batch)
        self._drop_connection()
        if self._room_bytes:
            self._keep_room()

    def _make_room(self) -> None:
        """Give the log its length. Flushing a write that makes a file longer includes the file system's own journal:
        that usually takes twice as long, and sometimes ten times.

        It is filled up with zeros. SQLite reads the first frame that is none as the end of the log
        (sqlite.org/fileformat2.html, 4.1). The lock of a transaction keeps others from writing there."""
        connection = self._connection
        assert connection is not None
        try:
            free = os.statvfs(self._path.parent)
            if free.f_bavail * free.f_frsize < ROOM_SHARE * self._room_bytes:
                return
            connection.execute("BEGIN IMMEDIATE")
            try:
                _fill_up(self._path.with_name(f"{self._path.name}-wal"), self._room_bytes)
            finally:
                connection.execute("ROLLBACK")
        except (OSError, sqlite3.Error) as error:  # whatever it is, the next commit will report it
            log.warning("no room was made for the database's log", file=str(self._path), why=str(error))
            self._drop_connection()

    def _keep_room(self) -> None:
        """Make the files anew that SQLite removes when the last connection to a database closes. They are empty to it:
        a log without its header, and an index that it makes anew at each start."""
        for suffix, length in KEPT_BYTES.items():
            try:
                _reserve(self._path.with_name(self._path.name + suffix), length)
            except FileExistsError:  # another connection is open, or the log could not be merged: both stay
                return
            except OSError as error:
                log.warning("no room was kept for the next start", file=str(self._path) + suffix, why=error.strerror)

    def _next_batch(self) -> tuple[list[Job[Any]], bool]:
        job = self._queue.get()
        batch: list[Job[Any]] = []
        while job is not None:
            batch.append(job)
            if len(batch) == BATCH:
                return batch, False
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _turn(self, batch: list[Job[Any]]) -> None:
        try:
            outcomes = self._transact(batch)
        except sqlite3.Error as error:
            self._drop_connection()
            outcomes = [self._failure(error) for _ in batch]
        except Exception as error:  # one loop turn: after a bug the callers must not wait forever
            self._drop_connection()
            outcomes = [error for _ in batch]
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller is left
            batch[0].future.get_loop().call_soon_threadsafe(_resolve, batch, outcomes)
        self._maybe_checkpoint()

    def _transact(self, batch: list[Job[Any]]) -> list[object]:
        """Commit the batch in one transaction. Raises sqlite3.Error; then nothing of it is stored."""
        connection = self._connection
        if connection is None:
            connection = self._connection = schema.connect(self._path, self._lock_seconds)
        self._set_flushing(connection, any(job.flush for job in batch))
        connection.execute("BEGIN IMMEDIATE")
        attempt = _attempt_alone if len(batch) == 1 else _attempt
        outcomes = [attempt(connection, job.work) for job in batch]
        if connection.in_transaction:
            begun = time.perf_counter()
            self._flush_began = begun if self._flushing else 0.0
            try:
                connection.execute("COMMIT")
            finally:
                self._flush_began = 0.0
            if self._flushing:
                self.flush_seconds = time.perf_counter() - begun
                self.flushes.observe(self.flush_seconds)
        for job, outcome in zip(batch, outcomes, strict=True):
            if not isinstance(outcome, Exception):
                job.stored(outcome)
        return outcomes

    def _set_flushing(self, connection: sqlite3.Connection, flushing: bool) -> None:
        if flushing is not self._flushing:
            connection.execute(f"PRAGMA synchronous={'FULL' if flushing else 'NORMAL'}")
            self._flushing = flushing

    def _drop_connection(self) -> None:
        """Closing rolls back. A new connection has no state from before the disk failed."""
        connection, self._connection, self._merged, self._flushing = self._connection, None, 0, True
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _failure(self, error: sqlite3.Error) -> StoreFailed:
        return StoreFailed(
            f"{self._path}: nothing could be stored ({schema.describe(error)}); free space on its file system or "
            "repair it, exitd goes on by itself",
            file=str(self._path),
        )

    def _maybe_checkpoint(self) -> None:
        connection = self._connection
        if connection is None:
            return
        unmerged = connection.total_changes - self._merged
        if unmerged < (CHECKPOINT_ROWS if self._queue.empty() else CHECKPOINT_ROWS_MAX):
            return
        self._merged = connection.total_changes
        with contextlib.suppress(sqlite3.Error):  # a full disk: everything is still in the log, and is tried again
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _reserve(path: Path, length: int) -> None:
    """Make a file of that length. What is written to it meanwhile stays. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, length)
    finally:
        os.close(fd)


def _fill_up(log_path: Path, length: int) -> None:
    """Raises OSError."""
    fd = os.open(log_path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        present = os.fstat(fd).st_size
        for start in range(present, length, ZEROS_BYTES):
            os.pwrite(fd, memoryview(ZEROS)[: length - start], start)
        if present < length:
            os.fsync(fd)
    finally:
        os.close(fd)


def _attempt(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], object]) -> object:
    """Return the work's result, or its own error with nothing of it stored. Raises sqlite3.Error when the disk
    fails."""
    connection.execute("SAVEPOINT change")
    try:
        result = work(connection)
    except Exception as error:  # returned to the one caller that it belongs to
        if isinstance(error, sqlite3.Error) and not isinstance(error, OWN_FAULT):
            raise
        connection.execute("ROLLBACK TO change")
        result = error
    connection.execute("RELEASE change")
    return result


def _attempt_alone(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], object]) -> object:
    """As `_attempt`, for a batch of one: an error rolls back the transaction, which saves most commits two
    statements."""
    try:
        return work(connection)
    except Exception as error:
        if isinstance(error, sqlite3.Error) and not isinstance(error, OWN_FAULT):
            raise
        connection.execute("ROLLBACK")
        return error


def _resolve(batch: list[Job[Any]], outcomes: list[object]) -> None:
    for job, outcome in zip(batch, outcomes, strict=True):
        if job.future.done():  # its caller was cancelled meanwhile; the change is stored all the same
            continue
        if isinstance(outcome, Exception):
            job.future.set_exception(outcome)
        else:
            job.future.set_result(outcome)
