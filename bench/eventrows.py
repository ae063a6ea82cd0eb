"""What the kernel's process events cost whoever listens to them while strangers fork."""

import asyncio
import os
import resource
import subprocess
import time

from bench.figures import EXITD
from bench.rows import Bench
from supervisor.compare.harness import in_turns
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
    found = in_turns(list(ways), rounds, lambda way: asyncio.run(_listening(ways[way], count)), warm_up=0)
    for way, samples in found.items():
        own, took = ([value * EACH / count * 1000 for value in values] for values in zip(*samples, strict=True))
        note = f"a shell's subshells, one after the other, {count} of them"
        name = "processor time of 10,000 ends to the listener"
        if ways[way]:
            bench.add("procevents", name, f"{EXITD}, {way}", "ms", own)
        name = "10,000 forks and ends"
        bench.add("procevents", name, way, "ms", took, note=note)


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
