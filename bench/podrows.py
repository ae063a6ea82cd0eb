"""The rows about pods: many made at once over the bare runtime calls they need, and what stays in memory for each."""

import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from bench.figures import EXITD, Figure
from bench.pods import BarePods, ContainerdPods, Exitd, PodmanPods, PodPeer
from bench.rows import Bench
from supervisor.compare.machine import private_kb

CLEANED_AT_ONCE = 4
# What stays with a pod of two: by whom, how many processes, in words.
STAYS = {EXITD: (2, "two shims"), PodmanPods.name: (2, "two conmons"), ContainerdPods.name: (1, "one shim")}


def pod_create(bench: Bench) -> None:
    """From the first call until all pods are Ready and their members run; over bare runc in the same round."""
    count = bench.count(100, 4)
    with contextlib.ExitStack() as stack:
        peers = _peers(bench, stack)
        took: dict[str, list[float]] = {peer.name: [] for peer in peers}
        for number in range(bench.count(5, 1)):
            for peer in (*peers[number % len(peers) :], *peers[: number % len(peers)]):
                took[peer.name].append(_made(bench, peer, count))
    bare = took[BarePods.name]
    for name, seconds in took.items():
        what = f"{count} pods of pause and 1 until all run"
        bench.figures.append(Figure("pod-create", what, name, bench.load, "s", tuple(seconds), note="all at once"))
        if name != BarePods.name:
            over = tuple(one / other for one, other in zip(seconds, bare, strict=True))
            goal = 1.15 if name == EXITD else None
            bench.figures.append(Figure("pod-create", "the same over bare runc", name, bench.load, "x", over, goal))


def _peers(bench: Bench, stack: contextlib.ExitStack) -> list[PodPeer]:
    """exitd and bare runc, and whoever else is here."""
    exitd = Exitd(bench.scratch)
    stack.callback(exitd.close)
    template = exitd.template()
    found: list[PodPeer] = [exitd, BarePods(bench.scratch, template)]
    wanted: dict[str, Callable[[], PodPeer]] = {
        PodmanPods.name: lambda: PodmanPods(bench.scratch),
        ContainerdPods.name: lambda: ContainerdPods(bench.scratch, template),
    }
    for name, make in wanted.items():
        if bench.has(name):
            found.append(stack.enter_context(contextlib.closing(make())))
    return found


def _made(bench: Bench, peer: PodPeer, count: int) -> float:
    """Seconds until all of them run, each asked for by a thread of its own; then they are looked at, and removed."""
    ids = [bench.id() for _ in range(count)]
    for id in ids:
        peer.prepare(id)
    with ThreadPoolExecutor(count) as pool:
        begun = time.perf_counter()
        list(pool.map(peer.make, ids))
        seconds = time.perf_counter() - begun
    wrong = [id for id in ids if not peer.is_up(id)]
    if wrong:
        raise RuntimeError(f"{peer.name}: not running: {wrong}")
    _clean(peer, ids)
    return seconds


def _clean(peer: PodPeer, ids: Sequence[str]) -> None:
    with ThreadPoolExecutor(CLEANED_AT_ONCE) as pool:
        list(pool.map(peer.clean, ids))


def pod_memory(bench: Bench) -> None:
    """Private memory of what stays with a pod of pause and one member."""
    count = bench.count(20, 2)
    with contextlib.ExitStack() as stack:
        for peer in _peers(bench, stack):
            ids = [bench.id() for _ in range(count)]
            for id in ids:
                peer.prepare(id)
                peer.make(id)
            if peer.name in STAYS:
                _memory(bench, peer.name, [peer.monitors(id) for id in ids])
            _clean(peer, ids)


def _memory(bench: Bench, who: str, pods: Sequence[Sequence[int]]) -> None:
    wanted, note = STAYS[who]
    found = sorted({len(pids) for pids in pods})
    if found != [wanted]:
        raise RuntimeError(f"{who}: {found} processes stay with a pod, not {wanted}")
    sizes = tuple(float(sum(sum(private_kb(pid)) for pid in pids)) for pids in pods)
    what = f"private memory of what stays with a pod, {len(pods)} running"
    goal = 80 if who == EXITD else None
    bench.figures.append(Figure("pod-memory", what, who, bench.load, "kB", sizes, goal, note))


POD_ROWS: dict[str, Callable[[Bench], None]] = {"pod-create": pod_create, "pod-memory": pod_memory}
