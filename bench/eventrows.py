"""What the kernel's process events cost whoever listens to them while strangers fork."""

import asyncio
import os
import resource
import subprocess
import time

from bench.figures import EXITD, Figure
from bench.rows import Bench
from supervisor.model.values import Process
from supervisor.monitor.epoll import Monitor
from supervisor.monitor.kernelword import ByEvents
from supervisor.monitor.procevents import MOST_EXACT

NUMBER_BASE = 1 << 22  # beyond every pid: what is held is nobody
FORKS = "i=0; while [ $i -lt $0 ]; do (:); i=$((i+1)); done"
EACH = 10_000


def procevents(bench: Bench) -> None:
    """In turns: nobody listens; a listener holds few processes, whose numbers its filter has; it holds so many that it
    gets every end on the machine."""
    count, rounds = bench.count(EACH, 500), bench.count(7, 1)
    ways = {"nobody listens": 0, "20 processes held": 20, f"{MOST_EXACT + 1} processes held": MOST_EXACT + 1}
    own: dict[str, list[float]] = {way: [] for way in ways}
    took: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, held in ways.items():
            used, seconds = asyncio.run(_listening(held, count))
            own[way].append(used * EACH / count * 1000)
            took[way].append(seconds * EACH / count * 1000)
    for way in ways:
        note = f"a shell's subshells, one after the other, {count} of them"
        name = "processor time of 10,000 ends to the listener"
        if ways[way]:
            bench.figures.append(Figure("procevents", name, f"{EXITD}, {way}", bench.load, "ms", tuple(own[way])))
        name = "10,000 forks and ends"
        bench.figures.append(Figure("procevents", name, way, bench.load, "ms", tuple(took[way]), note=note))


async def _listening(held: int, count: int) -> tuple[float, float]:
    """This process's own seconds of the processor, and the time that the forks took."""
    monitor, pidfd = Monitor(), os.pidfd_open(os.getpid())
    word = ByEvents(monitor) if held else None
    try:
        for number in range(held):
            assert word is not None
            word.hold(Process(NUMBER_BASE + number, 0), pidfd)
        forks = await asyncio.create_subprocess_exec("sh", "-c", FORKS, str(count), stdin=subprocess.DEVNULL)
        before, begun = _used(), time.monotonic()
        await forks.wait()
        return _used() - before, time.monotonic() - begun
    finally:
        if word is not None:
            word.close()
        os.close(pidfd)
        monitor.close()


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


EVENT_ROWS = {"procevents": procevents}
