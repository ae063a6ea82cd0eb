"""What programs use of the processor, whoever their parents are and however short they live: by a cgroup for all."""

import contextlib
import os
import pathlib
import resource
import time
from collections.abc import Callable, Iterator

from supervisor.compare.machine import CGROUP, until

METER = "meter"
CPUCLOCK_SCHED = 2  # in the lowest bits of such a number: the scheduler's count


@contextlib.contextmanager
def metered() -> Iterator[Callable[[], float]]:
    """For a block: this process and all that is begun in it share a cgroup above that of the containers. What has been
    used since then, in milliseconds, without this process. A block inside another one counts the same."""
    top, before, read = _hierarchy()
    parent = pathlib.Path(f"{top}{CGROUP}")
    own = parent / METER
    if before == f"{CGROUP}/{METER}":
        yield lambda: read(parent) - _own_ms()
        return
    own.mkdir(parents=True, exist_ok=True)
    (own / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield lambda: read(parent) - _own_ms()
    finally:
        pathlib.Path(f"{top}{before}/cgroup.procs").write_text(str(os.getpid()))
        until(lambda: not (own / "cgroup.procs").read_text(), "the end of what was measured")
        own.rmdir()


def of_process_ms(pid: int) -> float:
    """What all threads of a process have used, those that have ended included, in milliseconds.

    Source: clock_getcpuclockid(3), whose number of a process's clock is made of its pid so.
    """
    return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED) * 1000


def _hierarchy() -> tuple[str, str, Callable[[pathlib.Path], float]]:
    """The one that counts processor time: where it is, where this process is in it, how it is read."""
    lines = [line.split(":", 2) for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()]
    for _, controllers, path in lines:
        if "cpuacct" in controllers.split(","):
            return f"/sys/fs/cgroup/{controllers}", path, _read_v1
    return "/sys/fs/cgroup", lines[-1][2], _read_v2


def _read_v1(directory: pathlib.Path) -> float:
    return int((directory / "cpuacct.usage").read_text()) / 1e6


def _read_v2(directory: pathlib.Path) -> float:
    """The first line is `usage_usec N`."""
    return int((directory / "cpu.stat").read_text().split()[1]) / 1e3


def _own_ms() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) * 1000
