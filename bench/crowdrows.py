"""The end of an init among hundreds of execs that are just being begun, when it is killed and when that is reported."""

import contextlib
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from bench.figures import EXITD
from bench.peers import Containerd
from bench.rows import Bench
from bench.tasks import Node
from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.compare.containerdapi import ApiError, ExitFeed
from supervisor.compare.harness import WayNotice, in_turns
from supervisor.compare.machine import LIMIT_SECONDS
from supervisor.compare.way import WayContainer
from supervisor.model.errors import ExitdError

KILL_AFTER_SECONDS, QUICK_KILL_SECONDS = 2.0, 0.2
GOAL_MS = 1000.0
ARGS = ("sleep", "1000")


class Way(Protocol):
    """How a container, execs in it and its end are asked for."""

    name: str
    goal: float | None

    def start(self, id: str) -> WayContainer: ...
    def exec(self, container: WayContainer, number: int) -> object:
        """ExitdError, ApiError: not any more."""

    def listening(self, container: WayContainer) -> Callable[[], float]:
        """Before the end; what it returns blocks until that is reported, and returns when. TimeoutError."""

    def clean(self, container: WayContainer) -> None: ...


class ByContainerd:
    """A task of one runtime, its end reported by containerd's event."""

    def __init__(self, node: Node, who: str, exits: ExitFeed, process: dict[str, Any]) -> None:
        self.name, self.goal = who, GOAL_MS if who == EXITD else None
        self._node, self._exits, self._process = node, exits, process

    def start(self, id: str) -> WayContainer:
        return self._node.run_one(self.name, id)

    def exec(self, container: WayContainer, number: int) -> None:
        self._node.api.exec(container.id, f"e{number}", self._process)

    def listening(self, container: WayContainer) -> Callable[[], float]:
        return lambda: self._exits.of(container.id)[0]

    def clean(self, container: WayContainer) -> None:
        self._node.end_one(container)


class ByApi:
    """A container of exitd's own API, its end reported by the answer to a Wait."""

    def __init__(self, node: Node) -> None:
        self.name: str = f"{EXITD}: API"
        self.goal: float | None = GOAL_MS
        self._daemon, self._client, self._stub = node.daemon, node.client, node.daemon.stub()

    def start(self, id: str) -> WayContainer:
        return self._daemon.start_one(self._client)

    def exec(self, container: WayContainer, number: int) -> pb.Exec:
        return self._client.exec(container.id, pb.ExecSpec(args=ARGS))

    def listening(self, container: WayContainer) -> Callable[[], float]:
        request = pb.WaitRequest(id=container.id)
        notice: WayNotice[pb.WaitReply] = WayNotice(lambda seconds: self._stub.Wait(request, timeout=seconds))

        def reported_at() -> float:
            if not notice.result().exit.signal:
                raise TimeoutError(f"no exit of {container.id}")
            return notice.at

        return reported_at

    def clean(self, container: WayContainer) -> None:
        container.close()
        self._client.remove(container.id, force=True)


def crowd_exit(bench: Bench) -> None:
    """So many execs are asked for at once; seconds later, while they are being begun, init is killed."""
    if not bench.has(Containerd.name):
        return
    node, count, rounds = bench.shared(Node), bench.count(500, 5), bench.count(5, 1)
    process = {"args": ARGS, "cwd": "/", "env": ["PATH=/usr/bin:/bin"], "user": {"uid": 0, "gid": 0}}
    with contextlib.closing(node.api.exits()) as exits:
        ways: list[Way] = [ByApi(node), *(ByContainerd(node, who, exits, process) for who in (EXITD, Containerd.name))]
        by_name = {way.name: way for way in ways}
        took = in_turns(list(by_name), rounds, lambda name: _killed(bench, by_name[name], count), warm_up=0)
    what = f"init killed among {count} execs until its exit is reported"
    for way in ways:
        begun = [execs for _, execs in took[way.name]]
        unreported = sum(ms >= LIMIT_SECONDS * 1000 for ms, _ in took[way.name])
        note = f"{min(begun)} to {max(begun)} execs had begun; {unreported} not reported within {LIMIT_SECONDS:.0f} s"
        values = [ms for ms, _ in took[way.name]]
        bench.add("crowd-exit", what, way.name, "ms", values, goal=way.goal, note=note)


def _killed(bench: Bench, way: Way, count: int) -> tuple[float, int]:
    """Milliseconds, those of the limit where it was not reported, and how many execs had begun."""
    container = way.start(bench.id())
    with ThreadPoolExecutor(count) as pool:
        reported_at = way.listening(container)
        asking: list[Future[object]] = [pool.submit(way.exec, container, number) for number in range(count)]
        time.sleep(QUICK_KILL_SECONDS if bench.quick else KILL_AFTER_SECONDS)
        killed = time.perf_counter()
        signal.pidfd_send_signal(container.pidfd, signal.SIGKILL)
        try:
            ms = (reported_at() - killed) * 1000
        except TimeoutError:
            ms = LIMIT_SECONDS * 1000
    refusals = [error for each in asking if (error := each.exception()) is not None]
    if others := [error for error in refusals if not isinstance(error, (ExitdError, ApiError))]:
        raise others[0]
    way.clean(container)
    return ms, count - len(refusals)


CROWD_ROWS = {"crowd-exit": crowd_exit}
