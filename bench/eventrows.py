"""What the kernel's process events cost whoever listens to them while strangers fork."""

import asyncio
import os
import pathlib
import resource
import subprocess
import time
from dataclasses import dataclass

from bench.figures import EXITD
from bench.rows import Bench
from supervisor.compare.harness import in_turns
from supervisor.model.values import Process
from supervisor.monitor.epoll import Monitor
from supervisor.monitor.kernelword import ByEvents
from supervisor.monitor.procevents import MOST_EXACT

NUMBER_BASE = 1 << 22  # beyond every pid: what is held is nobody
SOURCE = pathlib.Path(__file__).with_name("forker.c")
FORKERS = 2  # at once, each with its part
OFFERED = 10_000  # forks a second, of all together
EACH = 10_000  # ends, that processor time is given for


@dataclass(frozen=True, slots=True)
class Listened:
    """One turn: the processor's seconds of this process and of the forkers, the seconds that the forks took, and how
    often the kernel had dropped events."""

    used: float
    forkers_used: float
    took: float
    losses: int


class _Counting(ByEvents):
    losses = 0

    def _lose(self, error: OSError) -> None:
        self.losses += 1
        super()._lose(error)


def procevents(bench: Bench) -> None:
    """In turns: nobody listens; a listener holds few processes, whose numbers its filter has; it holds so many that it
    gets every end on the machine."""
    if not bench.has("cc"):
        return
    count, rounds = bench.count(5 * OFFERED, 500), bench.count(7, 1)
    forker = _built(bench)
    ways = {"nobody listens": 0, "20 processes held": 20, f"{MOST_EXACT + 1} processes held": MOST_EXACT + 1}
    turns = in_turns(list(ways), rounds, lambda way: asyncio.run(_listening(forker, ways[way], count)), warm_up=0)
    for way, found in turns.items():
        reached = [count / each.took for each in found]
        note = f"{OFFERED:,} a second offered by {FORKERS} forkers, {count:,} in all"
        bench.add("procevents", "forks and ends reached", way, "/s", reached, note=note)
        forkers = [each.forkers_used * 1000 * EACH / count for each in found]
        name = "processor time of 10,000 forks and ends to the forkers"
        bench.add("procevents", name, way, "ms", forkers)
        if ways[way]:
            _of_listener(bench, f"{EXITD}, {way}", found, count)


def _of_listener(bench: Bench, who: str, found: list[Listened], count: int) -> None:
    losses = f"events were dropped {sum(each.losses for each in found)} times"
    own = [each.used * 1000 * EACH / count for each in found]
    name = "processor time of 10,000 ends to the listener"
    bench.add("procevents", name, who, "ms", own, note=losses)
    share = [each.used * 1000 / each.took for each in found]
    name = "processor time of a second at that rate to the listener"
    bench.add("procevents", name, who, "ms", share)


def _built(bench: Bench) -> str:
    program = f"{bench.scratch.root_place('forker')}/forker"
    subprocess.run(["cc", "-std=gnu11", "-O2", "-o", program, str(SOURCE)], check=True, timeout=60)
    return program


async def _listening(forker: str, held: int, count: int) -> Listened:
    monitor, pidfd = Monitor(), os.pidfd_open(os.getpid())
    word = _Counting(monitor) if held else None
    try:
        for number in range(held):
            assert word is not None
            word.hold(Process(NUMBER_BASE + number, 0), pidfd)
        words = (forker, str(count // FORKERS), str(OFFERED // FORKERS))
        before, begun = (_used(resource.RUSAGE_SELF), _used(resource.RUSAGE_CHILDREN)), time.monotonic()
        forks = [await asyncio.create_subprocess_exec(*words, stdin=subprocess.DEVNULL) for _ in range(FORKERS)]
        ended = [await each.wait() for each in forks]
        if any(ended):
            raise RuntimeError(f"a forker could not go on: {ended}")
        took, used = time.monotonic() - begun, _used(resource.RUSAGE_SELF) - before[0]
        forkers_used = _used(resource.RUSAGE_CHILDREN) - before[1]
        return Listened(used, forkers_used, took, word.losses if word is not None else 0)
    finally:
        if word is not None:
            word.close()
        os.close(pidfd)
        monitor.close()


def _used(whose: int) -> float:
    usage = resource.getrusage(whose)
    return usage.ru_utime + usage.ru_stime


EVENT_ROWS = {"procevents": procevents}
