"""A report as a comparison might find it: drawn by lot, always by the same. No figure in it was measured."""

import random
from collections.abc import Iterable

from supervisor.compare.facts import CompareReport, Fault, Latency, Memory, Restart, Storm, Way

FIFO, WAIT = "shim per container, exit fifo", "shim per pod, Wait"
WAYS = (
    Way("exitd-runc", "exitd + runc", FIFO),
    Way("exitd-crun", "exitd + crun", FIFO),
    Way("exitd-shimv2", "exitd + shim-runc-v2", WAIT),
    Way("containerd-runc", "containerd + runc", WAIT),
    Way("containerd-exitd", "containerd + exitd", "relay per pod, shim per container, exit fifo"),
    Way("podman", "podman", "conmon per container, exit file"),
    Way("conmon", "conmon alone", "conmon per container, exit file", "conmon is not on this machine's PATH"),
)
TAKING = tuple(way.key for way in WAYS if not way.why_not)
# Private kB of each shim of a member, of the pod; ms of a start, of an exit; ms for each of the live at a restart.
SHAPES = {
    "exitd-runc": (36, 36, 46, 3.6, 0.4),
    "exitd-crun": (36, 36, 21, 3.4, 0.4),
    "exitd-shimv2": (150, 2450, 62, 4.6, 2.1),
    "containerd-runc": (170, 2380, 58, 5.0, 2.6),
    "containerd-exitd": (36, 70, 61, 6.2, 1.1),
    "podman": (330, 330, 190, 12, 0.02),
}
PER_CONTAINER = ("exitd-runc", "exitd-crun", "containerd-exitd", "podman")
CONDITIONS = (
    ("kernel", "Linux 6.18.0"),
    ("machine", "2 processors, 4 GB"),
    ("system", "Debian 12"),
    ("runtimes", "runc 1.1.5, crun 1.8.1"),
    ("others", "containerd 1.6.20, podman 4.3.1"),
    ("exitd", "0.5.0"),
    ("state directory", "tmpfs"),
    ("database", "ext4"),
    ("pods, members, rounds", "20 pods, 1 to 32 members, 5 rounds"),
    ("idle before each part", "97 to 100 %"),
)
PARTS = {
    "exitd-runc": ("daemon", "shim", "keeper"),
    "exitd-crun": ("daemon", "shim", "keeper"),
    "exitd-shimv2": ("daemon", "shim"),
    "containerd-runc": ("containerd", "shim"),
    "containerd-exitd": ("daemon", "shim", "keeper", "containerd", "relay"),
    "podman": ("conmon",),
}


def made_up(storm: int = 1000, rounds: int = 5, seed: int = 6) -> CompareReport:
    lot = random.Random(seed)
    return CompareReport(
        CONDITIONS,
        WAYS,
        memory=tuple(_memory(lot, way, members) for way in TAKING for members in (1, 2, 4, 8, 16, 32)),
        latencies=tuple(_latencies(lot)),
        storms=tuple(_storm(lot, way, count, rounds) for count in (100, storm) for way in TAKING),
        restarts=tuple(_restart(lot, way, live) for way in TAKING for live in (50, 200)),
        faults=tuple(_faults(lot)),
        rest=(0.97, 1.0, 0.99),
    )


def _memory(lot: random.Random, way: str, members: int) -> Memory:
    member, pod, *_ = SHAPES[way]
    private = tuple(round((pod + member * members) * lot.lognormvariate(0, 0.04), 1) for _ in range(20))
    processes = members + 1 if way in PER_CONTAINER else 1
    if way == "containerd-exitd":
        processes += 1
    pss = tuple(round(each * 1.1 + 60, 1) for each in private)
    kernel = None if way == "podman" else round(90.0 * processes + 30 * members, 1)
    return Memory(way, members, processes, private, pss, round(members * lot.uniform(12, 30), 1), kernel)


def _latencies(lot: random.Random) -> Iterable[Latency]:
    for way in TAKING:
        for what, typical in zip(("start", "exit"), SHAPES[way][2:4], strict=True):
            for load, times, spread in (("idle", 1.0, 0.18), ("busy", 1.35, 0.5)):
                ms = (typical * times * lot.lognormvariate(0, spread) for _ in range(200))
                yield Latency(way, what, load, tuple(round(each, 3) for each in ms))


def _storm(lot: random.Random, way: str, count: int, rounds: int) -> Storm:
    each_ms = SHAPES[way][3] / 4

    def one() -> tuple[float, ...]:
        now, came = SHAPES[way][3], []
        for _ in range(count):
            now += each_ms * lot.expovariate(1)
            came.append(round(now, 3))
        return tuple(came)

    return Storm(way, count, tuple(one() for _ in range(rounds)))


def _restart(lot: random.Random, way: str, live: int) -> Restart:
    ms = tuple(round(400 + live * SHAPES[way][4] * lot.uniform(0.8, 1.3), 1) for _ in range(5))
    ended = live // 2
    bad = {"exitd-shimv2": (4, 0, 0), "containerd-runc": (0, 3, 1), "podman": (0, 0, 2)}.get(way, (0, 0, 0))
    return Restart(way, live, ms, ended, ended - sum(bad), *bad)


def _faults(lot: random.Random) -> Iterable[Fault]:
    for way in TAKING:
        for victim in PARTS[way]:
            for act in ("kill", "stop"):
                yield from (_fault(lot, way, victim, act) for _ in range(3))


def _fault(lot: random.Random, way: str, victim: str, act: str) -> Fault:
    if victim not in ("shim", "conmon") or way in ("exitd-runc", "exitd-crun", "containerd-exitd"):
        return Fault(way, victim, act, "exit 43", "exit 43", "right")
    if way == "exitd-shimv2":
        return Fault(way, victim, act, "exit 43", "unknown: shim-lost", "unknown")
    if act == "kill":
        return Fault(way, victim, act, "exit 43", lot.choice(("exit 137", "exit 137", "exit 255")), "wrong")
    return Fault(way, victim, act, "exit 43", "nothing within 10 s", "lost")
