"""Many inits that are killed in one moment, and when the first and the last of their exits is reported."""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.figures import EXITD
from bench.ours import TREE
from bench.peers import Containerd
from bench.rows import Bench, settle
from bench.tasks import Node
from supervisor.compare.harness import few_at_once, in_turns
from supervisor.compare.machine import LIMIT_SECONDS, until, wait_readable
from supervisor.compare.way import WayContainer

FIRST_GOAL_MS, LAST_GOAL_MS = 10.0, 45.0  # of the smaller storm
QUOTIENT_GOAL = 0.8  # of the larger one
HIGHEST = -20  # the priority, nice(1)


class Way(Protocol):
    """Who runs the containers, and where the client asks for their ends."""

    name: str
    client: str  # what bench.storm calls it
    socket: str

    def start(self, id: str) -> WayContainer: ...
    def is_asked(self, count: int) -> bool:
        """So many ends are waited for, by the word of who is asked."""

    def clean(self, container: WayContainer) -> None: ...


class ByApi:
    """exitd's own API: a Wait over ttrpc for each."""

    name, client = f"{EXITD}: API", EXITD

    def __init__(self, node: Node) -> None:
        self._node, self.socket = node, f"{node.daemon.state}/exitd.ttrpc"

    def start(self, id: str) -> WayContainer:
        return self._node.daemon.start_one(self._node.client)

    def is_asked(self, count: int) -> bool:
        return int(self._node.client.info().settings["waiters"]) == count

    def clean(self, container: WayContainer) -> None:
        container.close()
        self._node.client.remove(container.id, force=True)


class ByContainerd:
    """containerd's own shim: a subscriber of its events."""

    name = client = Containerd.name

    def __init__(self, node: Node) -> None:
        self._node, self.socket = node, node.address

    def start(self, id: str) -> WayContainer:
        return self._node.run_one(self.name, id)

    def is_asked(self, count: int) -> bool:
        return True  # the client says that it is asked once its subscription has brought an event

    def clean(self, container: WayContainer) -> None:
        self._node.end_one(container)


@dataclass(frozen=True, slots=True)
class Storm:
    """Milliseconds, all but the client's processor time from the first kill on."""

    first: float
    last: float
    killed: float  # the last kill has returned
    used: float  # by the client


def storm(bench: Bench) -> None:
    """A few tens of inits, with every core busy as well, and hundreds."""
    if not bench.has(Containerd.name):
        return
    node = bench.shared(Node)
    ways: dict[str, Way] = {way.name: way for way in (ByApi(node), ByContainerd(node))}
    few, many = bench.count(50, 3), bench.count(500, 6)
    for load in bench.loads():
        _storms(bench, ways, few, bench.count(5, 1), (FIRST_GOAL_MS, LAST_GOAL_MS, None), load)
    _storms(bench, ways, many, bench.count(3, 1), (None, None, QUOTIENT_GOAL), bench.load)


def _storms(
    bench: Bench, ways: Mapping[str, Way], count: int, rounds: int,
    goals: tuple[float | None, float | None, float | None], load: str,
) -> None:  # fmt: skip
    """`goals`: for the first end, for the last one, and for that over containerd's shim."""
    took = in_turns(list(ways), rounds, lambda who: _storm(bench, ways[who], count), warm_up=0)
    for who, storms in took.items():
        mine = goals[:2] if who == ByApi.name else (None, None)
        killed, used = _median(storms, "killed"), _median(storms, "used")
        note = f"all killed after {killed:.1f}, the client's processor time {used:.0f}"
        for which, goal in zip(("first", "last"), mine, strict=True):
            what = f"{count} inits killed at once until the {which} exit is reported"
            values = [float(getattr(each, which)) for each in storms]
            bench.add("storm", what, who, "ms", values, goal=goal, note=note, load=load)
    pairs = zip(took[ByApi.name], took[ByContainerd.name], strict=True)
    what = f"{count} inits killed at once until the last exit is reported, over containerd's shim"
    over = [ours.last / theirs.last for ours, theirs in pairs]
    bench.add("storm", what, ByApi.name, "x", over, goal=goals[2], load=load)


def _median(storms: Sequence[Storm], name: str) -> float:
    return statistics.median(float(getattr(each, name)) for each in storms)


def _storm(bench: Bench, way: Way, count: int) -> Storm:
    """All of them made, waited for, killed, reported and removed."""
    containers = few_at_once(way.start, [bench.id() for _ in range(count)])
    with _client(way, [each.id for each in containers]) as client:
        until(lambda: way.is_asked(count), f"{count} pending Waits", step=0.05)
        settle()
        pidfds = [each.pidfd for each in containers]
        with _first_of_all():
            begun = time.monotonic()
            for pidfd in pidfds:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            killed = time.monotonic()
        out, _ = client.communicate(timeout=2 * LIMIT_SECONDS)
    answer = json.loads(out.splitlines()[-1])
    if answer["answered"] != count or answer["wrong"]:
        raise RuntimeError(f"{way.name}: of {count} ends: {answer}")
    few_at_once(way.clean, containers)
    first, last = ((answer[name] - begun) * 1000 for name in ("first", "last"))
    return Storm(first, last, (killed - begun) * 1000, answer["used_ms"])


@contextlib.contextmanager
def _first_of_all() -> Iterator[None]:
    """This thread (on Linux setpriority(2) is for one) before everybody else: those who notice the first ends would run
    between two kills, and the moment would last as long as they do."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, HIGHEST)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


@contextlib.contextmanager
def _client(way: Way, ids: Sequence[str]) -> Iterator["subprocess.Popen[str]"]:
    """One that has asked for all; gone after the block."""
    command = [sys.executable, "-m", "bench.storm", way.client, way.socket, *ids]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=TREE, bufsize=1) as client:
        assert client.stdout is not None
        try:
            wait_readable(client.stdout.fileno(), "the client's `asked`")
            client.stdout.readline()
            yield client
        finally:
            client.kill()


STORM_ROWS = {"storm": storm}
