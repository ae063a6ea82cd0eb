"""The row about CRI: a pod's container ends, and the next one is started in its place."""

import contextlib
import statistics

from bench.cri import CriNode, CriPod
from bench.figures import EXITD
from bench.peers import Containerd
from bench.rows import Bench, settle
from supervisor.compare.harness import in_turns

PAIR = (EXITD, Containerd.name)
GOAL = 1.1  # over containerd's shim, with so many busy loops


def exit_restart(bench: Bench) -> None:
    """From the kill of a container's init until the next container of the pod has been started."""
    if not bench.has(Containerd.name):
        return
    node = bench.shared(CriNode)
    with contextlib.ExitStack() as stack:
        pods = {who: stack.enter_context(contextlib.closing(CriPod(node, who, bench.id()))) for who in PAIR}

        def one(who: str) -> tuple[float, float]:
            settle()
            return pods[who].restart()

        _add(bench, in_turns(PAIR, bench.count(40, 2), one), bench.load)
        with bench.crowded() as load:
            took = in_turns(PAIR, bench.count(20, 2), one)
        _add(bench, took, load, GOAL)


def _add(bench: Bench, took: dict[str, list[tuple[float, float]]], load: str, goal: float | None = None) -> None:
    """As it is, and as a quotient of two of the same round."""
    what = "init killed until the next container of its pod is started, by CRI"
    for who, samples in took.items():
        seen = statistics.median(seen for seen, _ in samples)
        values = [started for _, started in samples]
        bench.add("exit-restart", what, who, "ms", values, note=f"exit seen after {seen:.1f}", load=load)
    over = [ours / theirs for (_, ours), (_, theirs) in zip(took[EXITD], took[Containerd.name], strict=True)]
    bench.add("exit-restart", f"{what}, over containerd's shim", EXITD, "x", over, goal=goal, load=load)


CRI_ROWS = {"exit-restart": exit_restart}
