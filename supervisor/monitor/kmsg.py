"""The kernel's log as it is read: on and on from one descriptor, in a thread of its own, never for long."""

import asyncio
import contextlib
import os
import time
from collections import deque

import structlog

from supervisor.model.values import Process, Report
from supervisor.monitor import kernellog
from supervisor.system import threads

PATH = "/dev/kmsg"
FIRST_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO: the log has the numbers of this one
RECORD_BYTES = 8192  # the longest one; the kernel refuses less room than it needs
RECORDS_MAX = 100_000  # in one look
KILLS_MAX = 4096  # kept, the newest
LIMIT_SECONDS = 2.0
TICKS = os.sysconf("SC_CLK_TCK")

log = structlog.get_logger(__name__)


def has_the_logs_numbers() -> bool:
    """Whether this process knows the processes in the log by the same numbers."""
    return os.stat("/proc/self/ns/pid").st_ino == FIRST_PID_NAMESPACE


def readable(path: str = PATH) -> bool:
    """Whether this process may read the log, and knows the processes in it by the same numbers."""
    if not has_the_logs_numbers():
        return False
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        return True
    return False


class KernelLog:
    """One per daemon. It is opened at once and read when it is needed: a daemon short of descriptors has it, too."""

    def __init__(self, path: str = PATH) -> None:
        self._path = path
        self._fd = -1
        with contextlib.suppress(OSError):
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._warned = False
        self._reader = kernellog.Reader()
        self._kills: deque[kernellog.Kill] = deque(maxlen=KILLS_MAX)
        self._thread = threads.pool(1, "kmsg")

    async def weigh(self, report: Report, inner: str, known: kernellog.KnownKills) -> Report:
        """The report, with what the log adds to its count of memory kills. Without a log, or with one that is not read
        in time, it stays as it is."""
        if report.init is None or not kernellog.is_wanted(report, known):
            return report
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                kills = await asyncio.get_running_loop().run_in_executor(self._thread, self.read)
        except TimeoutError:
            log.warning("the kernel's log was not read in time", path=self._path, seconds=LIMIT_SECONDS)
            return report
        return kernellog.with_kills(report, kills, report.init, inner, known, began(report.init))

    def read(self) -> tuple[kernellog.Kill, ...]:
        """All kills that are known by now. Blocks for the length of a log at the first time."""
        is_ours = self._fd >= 0 and has_the_logs_numbers()
        if not is_ours and not self._warned:
            self._warned = True
            log.warning("memory kills are known from counters alone: the kernel's log cannot be read", path=self._path)
        for _ in range(RECORDS_MAX if is_ours else 0):
            try:
                record = os.read(self._fd, RECORD_BYTES)
            except BrokenPipeError:  # records were overwritten before they were read; the next one is there
                continue
            except OSError:  # BlockingIOError: this was all
                break
            if not record:
                break
            if (kill := self._reader.read(record)) is not None:
                self._kills.append(kill)
        return tuple(self._kills)

    def close(self) -> None:
        self._thread.shutdown()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def began(process: Process) -> kernellog.Since:
    """The log goes by the processor's own clock, or by a host's: of the kernel's two, one is near."""
    age_seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - process.started_ticks / TICKS
    clocks = (time.CLOCK_MONOTONIC, time.CLOCK_MONOTONIC_RAW)
    return kernellog.since(max(0.0, age_seconds), (time.clock_gettime_ns(clock) // 1000 for clock in clocks))
