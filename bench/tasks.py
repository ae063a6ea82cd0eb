"""Tasks of two runtimes under one containerd of our own: exitd behind its relay, and containerd's own shim."""

import contextlib
import hashlib
import signal
import time
from typing import Any

from google.protobuf.message import Message

from bench.cpumeter import metered
from bench.figures import EXITD
from bench.ours import Daemon
from bench.peers import Containerd
from protos.containerd import task_pb2
from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.compare import podspec
from supervisor.compare.containerdapi import ExitFeed
from supervisor.compare.harness import killed
from supervisor.compare.machine import LIMIT_SECONDS, SLEEP, Scratch, Work, end_process
from supervisor.compare.server import EXITD_RUNTIME, NAMESPACE, RUNC_RUNTIME, finding_exitd
from supervisor.compare.way import WayContainer, WayPod
from supervisor.ttrpc.services import CallKind
from supervisor.ttrpc.single import SingleCall

RUNTIMES = {EXITD: EXITD_RUNTIME, Containerd.name: RUNC_RUNTIME}
SOCKETS = "/run/containerd/s"  # of the shims of every containerd
PENDING_SECONDS = 0.02  # until a Wait that was sent is pending


class Node(Containerd):
    """The containerd and the exitd that its relays find. What all of it uses of the processor is metered."""

    def __init__(self, scratch: Scratch) -> None:
        with contextlib.ExitStack() as steps:  # the last one first
            self.used_ms = steps.enter_context(metered())
            self.daemon = steps.enter_context(contextlib.closing(Daemon(scratch, "t")))
            super().__init__(scratch, "node", tells=False, environment=finding_exitd(self.daemon.state))
            steps.callback(self._end_relays)
            steps.callback(super().close)
            self.client = steps.enter_context(self.daemon.client())
            self.api = steps.enter_context(contextlib.closing(self._server.api()))
            self._numbers = iter(range(1_000_000))
            self._steps = steps.pop_all()

    def close(self) -> None:
        self._steps.close()

    def ctr(self, *words: str) -> tuple[str, ...]:
        """The command."""
        return tuple(self._command(*words))

    def ctr_run(self, who: str, id: str, config: str) -> tuple[str, ...]:
        """The command that runs a config.json to its end and leaves nothing."""
        root = ("--runc-root", f"{self._place}/runc") if who != EXITD else ()
        how = ("--rm", "--runtime", RUNTIMES[who], "--fifo-dir", f"{self._place}/fifo")
        return self.ctr("run", *how, *root, "--config", config, id)

    def ctr_exec(self, id: str, *args: str) -> tuple[str, ...]:
        exec_id = f"e{next(self._numbers)}"
        return self.ctr("task", "exec", "--fifo-dir", f"{self._place}/fifo", "--exec-id", exec_id, id, *args)

    def run_one(self, who: str, id: str, work: Work = SLEEP) -> WayContainer:
        """One that sleeps, as a rule."""
        return self._run(who, id, podspec.member_spec(self._scratch, id, work, {})).hold()

    def end_one(self, container: WayContainer) -> None:
        """Killed, if it lives, and removed."""
        container.end()
        container.close()
        self._removed(container.id)

    def run_pod(self, who: str, id: str, members: int) -> WayPod:
        """A pause container and members in its network, ipc and uts namespaces, with the annotations that CRI gives."""
        specs = podspec.pod_specs(self._scratch, id, [SLEEP] * members, cri=True)
        return podspec.start(specs, lambda name, spec: self._run(who, name, spec))

    def end_pod(self, pod: WayPod) -> None:
        for container in reversed(pod.containers):  # a shim leaves with its first container
            self.api.kill(container.id, signal.SIGKILL)
            self._removed(container.id)

    def shims_of(self, who: str) -> list[int]:
        """The processes that containerd has started for tasks of this runtime, and what stands behind them."""
        return [*self.daemon.shims(), *self.relays()] if who == EXITD else self.monitors()

    def relays(self) -> list[int]:
        """The processes of these that stand between containerd and exitd, one for each pod."""
        return self._server.relays()

    def socket_of(self, id: str) -> str:
        """Where the shim that was started for this task listens."""
        return f"{SOCKETS}/{hashlib.sha256(f'{self.address}/{NAMESPACE}/{id}'.encode()).hexdigest()}"

    def flush_ms(self) -> float:
        """How long exitd's last commit took."""
        return float(self.client.info().settings["flush_seconds"]) * 1000

    def _end_relays(self) -> None:
        for pid in self.relays():
            end_process(pid)

    def _run(self, who: str, id: str, spec: podspec.Spec) -> WayContainer:
        self._ids.add(id)
        return WayContainer(id, self.api.run(RUNTIMES[who], id, spec))

    def _removed(self, id: str) -> None:
        code = self.api.remove(id)
        self._ids.discard(id)
        if code != 128 + signal.SIGKILL:
            raise RuntimeError(f"containerd says that {id} ended with {code}")


class Told:
    """A Peer: a task of one runtime, its end reported by containerd's event."""

    def __init__(self, node: Node, who: str, exits: ExitFeed) -> None:
        self.name = who
        self._node, self._exits = node, exits

    def start(self, id: str) -> WayContainer:
        return self._node.run_one(self.name, id)

    def end(self, container: WayContainer) -> float:
        begun = time.perf_counter()
        container.kill()
        at, code = self._exits.of(container.id)
        _check(code)
        return (at - begun) * 1000

    def clean(self, container: WayContainer) -> None:
        self._node.end_one(container)


class Waited:
    """A Peer: the end is the reply to a Wait over ttrpc, of whoever containerd has started for the task."""

    def __init__(self, node: Node, who: str, name: str) -> None:
        self.name = name
        self._node, self._who = node, who

    def start(self, id: str) -> WayContainer:
        return self._node.run_one(self._who, id)

    def end(self, container: WayContainer) -> float:
        request = task_pb2.WaitRequest(id=container.id)
        socket = self._node.socket_of(container.id)
        took, reply = answered(socket, "containerd.task.v2.Task/Wait", request, task_pb2.WaitResponse, container)
        _check(reply.exit_status)
        return took

    def clean(self, container: WayContainer) -> None:
        self._node.end_one(container)


class WaitedApi:
    """A Peer: the same of exitd's own API, without containerd."""

    def __init__(self, node: Node, name: str) -> None:
        self.name = name
        self.flushes: list[float] = []
        self._daemon, self._client, self._node = node.daemon, node.client, node

    def start(self, id: str) -> WayContainer:
        return self._daemon.start_one(self._client)

    def end(self, container: WayContainer) -> float:
        request = pb.WaitRequest(id=container.id)
        socket = f"{self._daemon.state}/exitd.ttrpc"
        took, reply = answered(socket, "exitd.v1.Exitd/Wait", request, pb.WaitReply, container)
        _check(128 + reply.exit.signal)
        self.flushes.append(self._node.flush_ms())
        return took

    def clean(self, container: WayContainer) -> None:
        container.close()
        self._client.remove(container.id, force=True)


def answered(
    socket: str, name: str, request: Message, reply_type: type[Any], container: WayContainer
) -> tuple[float, Any]:
    """Asks for a Wait, lets it arrive, kills init; milliseconds until the reply, and the reply."""
    call: SingleCall[Any] = SingleCall(socket, name, CallKind.UNARY, reply_type, request, seconds=LIMIT_SECONDS)
    try:
        time.sleep(PENDING_SECONDS)
        return killed(container, call.receive)
    finally:
        call.cancel()


def _check(code: int) -> None:
    if code != 128 + signal.SIGKILL:
        raise ValueError(f"{code} is reported for a SIGKILL")
