"""Reads the kernel's log: from one descriptor, in a separate thread, for a limited time."""

import asyncio
import contextlib
import os
import threading
import time
from collections import deque

import structlog

from supervisor.model.values import Process, Report
from supervisor.monitor import kernellog
from supervisor.system import threads

PATH = "/dev/kmsg"
FIRST_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO: the log uses the pids of this namespace
RECORD_BYTES = 8192  # the longest record; the kernel refuses a smaller buffer
RECORDS_MAX = 100_000  # in one read of the log
FEW_RECORDS = 16  # read at once, on the event loop
KILLS_MAX = 4096  # kept, the newest
LIMIT_SECONDS = 2.0
TICKS = os.sysconf("SC_CLK_TCK")

log = structlog.get_logger(__name__)


def has_the_logs_numbers() -> bool:
    """Return whether this process sees the same pids as the log."""
    return os.stat("/proc/self/ns/pid").st_ino == FIRST_PID_NAMESPACE


def readable(path: str = PATH) -> bool:
    """Return whether this process may read the log, and sees the same pids as the log."""
    if not has_the_logs_numbers():
        return False
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        return True
    return False


class KernelLog:
    """The log, one per daemon. It is opened early and read on demand, so a later lack of descriptors does no harm."""

    def __init__(self, path: str = PATH) -> None:
        self._path = path
        self._fd = -1
        with contextlib.suppress(OSError):
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._is_ours = self._fd >= 0 and has_the_logs_numbers()
        self._warned = False
        self._reader = kernellog.Reader()
        self._kills: deque[kernellog.MemoryKill] = deque(maxlen=KILLS_MAX)
        self._thread = threads.pool(1, "kmsg")
        self._reading = threading.Lock()

    def weigh_at_once(self, report: Report, inner: str, known: kernellog.KnownKills) -> Report | None:
        """As `weigh`, without waiting; None when there is more to read than FEW_RECORDS, or a thread reads it."""
        if report.init is None or not kernellog.is_wanted(report, known):
            return report
        if not self._reading.acquire(blocking=False):
            return None
        try:
            is_read = self._read_on(FEW_RECORDS)
        finally:
            self._reading.release()
        return self._with_kills(report, inner, known, report.init) if is_read else None

    async def weigh(self, report: Report, inner: str, known: kernellog.KnownKills) -> Report:
        """Return the report, with what the log adds to its count of memory kills. Without a log, or if reading takes
        too long, the report is returned unchanged."""
        if report.init is None or not kernellog.is_wanted(report, known):
            return report
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                await asyncio.get_running_loop().run_in_executor(self._thread, self.read)
        except TimeoutError:
            log.warning("the kernel's log was not read in time", path=self._path, seconds=LIMIT_SECONDS)
            return report
        return self._with_kills(report, inner, known, report.init)

    def _with_kills(self, report: Report, inner: str, known: kernellog.KnownKills, init: Process) -> Report:
        since = began(init) if self._kills else kernellog.Since(0, 0)
        return kernellog.with_kills(report, tuple(self._kills), init, inner, known, since)

    def read(self) -> tuple[kernellog.MemoryKill, ...]:
        """Return all kills known by now. The first call blocks for the length of the log."""
        with self._reading:
            self._read_on(RECORDS_MAX)
            return tuple(self._kills)

    def _read_on(self, most: int) -> bool:
        """Read at most so many records. Return whether there are no more."""
        if not self._is_ours and not self._warned:
            self._warned = True
            log.warning("memory kills are known from counters alone: the kernel's log cannot be read", path=self._path)
        for _ in range(most if self._is_ours else 0):
            try:
                record = os.read(self._fd, RECORD_BYTES)
            except BrokenPipeError:  # records were overwritten before they were read; the next one exists
                continue
            except OSError:  # BlockingIOError: there are no more records
                return True
            if not record:
                return True
            if (kill := self._reader.read(record)) is not None:
                self._kills.append(kill)
        return not self._is_ours

    def close(self) -> None:
        self._thread.shutdown()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def began(process: Process) -> kernellog.Since:
    """The log uses the processor's own clock, or a host's: one of the kernel's two clocks is close to it."""
    age_seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - process.started_ticks / TICKS
    clocks = (time.CLOCK_MONOTONIC, time.CLOCK_MONOTONIC_RAW)
    return kernellog.since(max(0.0, age_seconds), (time.clock_gettime_ns(clock) // 1000 for clock in clocks))
