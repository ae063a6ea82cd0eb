"""Pods kept in memory behind the fake daemon's socket: what play and the pod commands are tested against."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.model.errors import ExitdError, NameTaken, NoSuchContainer
from tests.supervisor.cli.fake_daemon import LIMIT_SECONDS, FakeDaemon

READY, NOT_READY = "SANDBOX_READY", "SANDBOX_NOTREADY"


class FakePods:
    """`done` are the changes in their order, by name. `before` is called before each, with its words, `after` after a
    pod is made; they may raise.
    `ends` are the exits that a container's runs will have; one without any goes on until its pod is stopped."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self.pods: dict[str, pb.Pod] = {}
        self.done: list[str] = []
        self.before: Callable[[str], None] = lambda _: None
        self.after: Callable[[str], None] = lambda _: None
        self.ends: dict[str, list[pb.Exit]] = {}
        self.stopped = threading.Event()
        self._made = 0
        daemon.started.set()
        for name in ("RunPod", "StopPod", "RemovePod", "ListPods", "InspectPod", "CreateContainer", "Start", "Wait"):
            setattr(daemon.answers, name, getattr(self, f"_{name}"))

    def add(self, name: str, created: int = 1, **fields: Any) -> pb.Pod:
        """A pod that is there already."""
        state = fields.pop("state", READY)
        spec = pb.ContainerSpec(name=name, namespace="default", runtime="runc", **fields)
        return self._keep(spec, pb.PodSpec(name=name, namespace="default", uid=f"u-{name}"), state, created)

    def _keep(self, spec: pb.ContainerSpec, own: pb.PodSpec, state: str, created: int) -> pb.Pod:
        spec.pod.CopyFrom(own)
        pause = pb.Container(id=self._id(), spec=spec, run=1, created_at=Timestamp(seconds=1_700_000_000 + created))
        pod = pb.Pod(id=pause.id, spec=own, state=state, pause=pause)
        self.pods[pod.id] = pod
        return pod

    def _id(self) -> str:
        self._made += 1
        return f"{self._made:02x}".ljust(64, "0")

    def _note(self, words: str) -> None:
        self.before(words)
        self.done.append(words)

    def _RunPod(self, request: pb.RunPodRequest) -> pb.RunPodReply:
        spec = request.spec
        name = spec.name or spec.pod.name
        if any(pod.pause.spec.name == name for pod in self.pods.values()):
            raise NameTaken(f"the name {name} is taken")
        self._note(f"run {name}")
        spec.name = name
        pod = self._keep(spec, spec.pod, READY, 100 + self._made)
        self.after(f"run {name}")
        return pb.RunPodReply(pod=pod)

    def _find(self, word: str) -> pb.Pod:
        for pod in self.pods.values():
            if pod.pause.spec.name == word or pod.id.startswith(word):
                return pod
        raise NoSuchContainer(f"no container {word}")

    def _StopPod(self, request: pb.StopPodRequest) -> pb.StopPodReply:
        pod = self._find(request.id)
        grace = f" {request.timeout_seconds}" if request.HasField("timeout_seconds") else ""
        self._note(f"stop {pod.spec.name}{grace}")
        pod.state = NOT_READY
        self.stopped.set()
        return pb.StopPodReply(pod=pod)

    def _RemovePod(self, request: pb.RemovePodRequest) -> pb.RemovePodReply:
        pod = self._find(request.id)
        self._note(f"remove {pod.spec.name}{' by force' if request.force else ''}")
        del self.pods[pod.id]
        return pb.RemovePodReply()

    def _ListPods(self, request: pb.ListPodsRequest) -> pb.ListPodsReply:
        return pb.ListPodsReply(pods=self.pods.values())

    def _InspectPod(self, request: pb.InspectPodRequest) -> pb.InspectPodReply:
        return pb.InspectPodReply(pod=self._find(request.id))

    def _CreateContainer(self, request: pb.CreateContainerRequest) -> pb.CreateContainerReply:
        self._note(f"create {request.spec.name}")
        made = pb.Container(id=self._id(), spec=request.spec, run=1)
        self.pods[request.spec.sandbox].members.append(made)
        return pb.CreateContainerReply(container=made)

    def _members(self) -> Iterator[pb.Container]:
        for pod in self.pods.values():
            yield from pod.members

    def _Start(self, request: pb.StartRequest) -> pb.StartReply:
        container = next(member for member in self._members() if member.id == request.id)
        self._note(f"start {container.spec.name}")
        return pb.StartReply(container=container)

    def _Wait(self, request: pb.WaitRequest) -> pb.WaitReply:
        if request.id in self.pods:
            return self._wait_pod(self.pods[request.id])
        container = next(member for member in self._members() if member.id == request.id)
        ends = self.ends.get(container.spec.name, [])
        if not ends:
            assert self.stopped.wait(LIMIT_SECONDS)
        return pb.WaitReply(exit=ends[request.run - 1]) if ends else pb.WaitReply()

    def _wait_pod(self, pod: pb.Pod) -> pb.WaitReply:
        if any(member.spec.name not in self.ends for member in pod.members):
            assert self.stopped.wait(LIMIT_SECONDS)
        return pb.WaitReply(members=[self.ends[m.spec.name][-1] for m in pod.members if m.spec.name in self.ends])


def failing(words: str, error: ExitdError) -> Callable[[str], None]:
    """For `before`: these words fail."""

    def before(now: str) -> None:
        if now == words:
            raise error

    return before
