"""The rows about pods: many made at once over the bare runtime calls they need, and what stays in memory for each."""

import contextlib
from collections.abc import Callable, Sequence

from bench.figures import EXITD
from bench.pods import BarePods, ContainerdPods, Exitd, PodmanPods, PodPeer
from bench.rows import Bench
from supervisor.compare.harness import at_once, few_at_once, in_turns, private_of

# What stays with a pod of two: by whom, how many processes, in words.
STAYS = {EXITD: (2, "two shims"), PodmanPods.name: (2, "two conmons"), ContainerdPods.name: (1, "one shim")}


def pod_create(bench: Bench) -> None:
    """From the first call until all pods are Ready and their members run; over bare runc in the same round."""
    count = bench.count(100, 4)
    with contextlib.ExitStack() as stack:
        peers = _peers(bench, stack)
        named = {peer.name: peer for peer in peers}
        took = in_turns(list(named), bench.count(5, 1), lambda who: _made(bench, named[who], count), warm_up=0)
    bare = took[BarePods.name]
    for name, seconds in took.items():
        what = f"{count} pods of pause and 1 until all run"
        bench.add("pod-create", what, name, "s", seconds, note="all at once")
        if name != BarePods.name:
            over = [one / other for one, other in zip(seconds, bare, strict=True)]
            goal = 1.2 if name == EXITD else None
            bench.add("pod-create", "the same over bare runc", name, "x", over, goal=goal)


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
    seconds, _ = at_once(peer.make, ids)
    wrong = [id for id in ids if not peer.is_up(id)]
    if wrong:
        raise RuntimeError(f"{peer.name}: not running: {wrong}")
    few_at_once(peer.clean, ids)
    return seconds


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
            few_at_once(peer.clean, ids)


def _memory(bench: Bench, who: str, pods: Sequence[Sequence[int]]) -> None:
    wanted, note = STAYS[who]
    found = sorted({len(pids) for pids in pods})
    if found != [wanted]:
        raise RuntimeError(f"{who}: {found} processes stay with a pod, not {wanted}")
    sizes = [float(private_of(pids)) for pids in pods]
    what = f"private memory of what stays with a pod, {len(pods)} running"
    goal = 80 if who == EXITD else None
    bench.add("pod-memory", what, who, "kB", sizes, goal=goal, note=note)


POD_ROWS: dict[str, Callable[[Bench], None]] = {"pod-create": pod_create, "pod-memory": pod_memory}
