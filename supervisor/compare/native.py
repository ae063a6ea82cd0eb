"""The ways through exitd's own API: a shim and an exit fifo for each container, or the shims of others."""

import contextlib
from collections.abc import Mapping, Sequence

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen
from supervisor.api.answers import status_of
from supervisor.api.client import Unreachable
from supervisor.compare import podspec
from supervisor.compare.daemon import Daemon
from supervisor.compare.group import ProcessGroup
from supervisor.compare.machine import Scratch, Work, parent_of, until
from supervisor.compare.way import NO_ANSWER_SECONDS, Wait, WayAnswer, WayContainer, WayPod, words_of
from supervisor.model.errors import NoSuchContainer, ShuttingDown, TimedOut
from supervisor.monitor import rundir


@frozen
class PreparedNative:
    """Bundles: the pause container's, and its members'."""

    id: str
    pause: str
    members: tuple[str, ...]


class Native:
    """`runtime` is what exitd is asked to run them with."""

    def __init__(self, scratch: Scratch, key: str, runtime: str) -> None:
        self._scratch, self._runtime = scratch, runtime
        with contextlib.ExitStack() as steps:  # the last one first
            self.group = ProcessGroup(key)
            steps.callback(self.group.remove)
            self._daemon = Daemon(scratch.state_place(key), scratch.root_place(key), self.group.words())
            self._daemon.start()
            steps.callback(self._daemon.close)
            self._client = self._daemon.client()
            steps.callback(lambda: self._client.close())
            self._steps = steps.pop_all()

    def prepare(self, id: str, works: Sequence[Work]) -> PreparedNative:
        specs = podspec.pod_specs(self._scratch, id, works).containers
        pause, *members = (podspec.write(spec, f"{self._scratch.root}/bundles/{name}") for name, spec in specs.items())
        return PreparedNative(id, pause, tuple(members))

    def start(self, prepared: object) -> WayPod:
        assert isinstance(prepared, PreparedNative)
        spec = pb.ContainerSpec(bundle=prepared.pause, name=prepared.id, runtime=self._runtime)
        pod = self._client.run_pod(spec)
        members = []
        for bundle in prepared.members:
            own = self._client.create(pb.ContainerSpec(bundle=bundle, sandbox=pod.id))
            members.append(WayContainer(own.id, self._client.start(own.id).init.pid))
        pause = WayContainer(pod.id, pod.pause.init.pid)
        return WayPod(pod.id, pause.hold(), tuple(member.hold() for member in members))

    def begin_wait(self, container: WayContainer) -> Wait:
        waiting = self._client.begin_wait(container.id)

        def wait(seconds: float) -> WayAnswer:
            try:
                return answer_of(waiting.result(seconds))
            except TimedOut as error:
                raise TimeoutError(f"{container.id}: {error}") from error

        return wait

    def answer(self, container: WayContainer, seconds: float = NO_ANSWER_SECONDS) -> WayAnswer:
        answers: list[WayAnswer] = []

        def asked() -> bool:
            with contextlib.suppress(Unreachable, ShuttingDown):
                answers.append(self._asked_once(container, seconds))
            return bool(answers)

        try:
            until(asked, "an answer", seconds)
        except TimeoutError as error:
            return WayAnswer(str(error), None)
        return answers[0]

    def answers_for(self, containers: Sequence[WayContainer]) -> bool:
        listed = {one.id: one for one in self._client.list(all_of_them=True)}
        found = [listed[container.id] for container in containers if container.id in listed]
        running = [one for one in found if one.phase == pb.PHASE_RUNNING and not one.recovering]
        return len(running) == len(containers)

    def end(self, pod: WayPod) -> None:
        for container in pod.containers:
            container.end()
        self._client.remove_pod(pod.id, force=True)
        for container in pod.containers:
            container.close()

    def beside(self, pod: WayPod) -> list[int]:
        shims = {parent_of(container.pid) for container in pod.containers}
        if "." in self._runtime:  # and a pump for the streams of each
            paths = (rundir.path_of(self._daemon.state, container.id, 1) for container in pod.containers)
            shims |= {pump.pid for pump in map(rundir.lock_holder, paths) if pump is not None}
        return sorted(shims)

    def daemons(self) -> list[int]:
        return [self._daemon.process.pid, *self._daemon.keepers()]

    def victims(self, pod: WayPod) -> Mapping[str, int]:
        found = {"daemon": self._daemon.process.pid, "shim": parent_of(pod.members[0].pid)}
        if "." in self._runtime:  # the shims of others have no keeper
            return found
        until(lambda: self._daemon.keepers(), "a keeper in place of one that was killed")
        return {**found, "keeper": self._daemon.keeper()}

    def kill_daemon(self) -> bool:
        self._daemon.kill()
        return True

    def start_daemon(self) -> None:
        if self._daemon.process.poll() is not None:
            self._client.close()  # it would go on waiting for the one that is gone
            self._daemon.start()
            self._client = self._daemon.client()

    def close(self) -> None:
        self._steps.close()

    def _asked_once(self, container: WayContainer, seconds: float) -> WayAnswer:
        try:
            return answer_of(self._client.begin_wait(container.id).result(seconds))
        except (TimedOut, NoSuchContainer) as error:
            return WayAnswer(str(error), None)


def answer_of(exit_: pb.Exit | None) -> WayAnswer:
    """Return the answer in exitd's own words."""
    if exit_ is None:
        return WayAnswer("no exit", None)
    status = status_of(exit_)
    return WayAnswer(f"{words_of(status)} ({exit_.source})", status)
