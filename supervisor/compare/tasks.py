"""The ways through containerd's API: one shim per pod that is asked to wait, or exitd behind its relays."""

import contextlib
from collections.abc import Mapping, Sequence

from supervisor.compare import podspec
from supervisor.compare.containerdapi import ApiError, ExitFeed, NoSuchTask
from supervisor.compare.daemon import Daemon
from supervisor.compare.group import ProcessGroup
from supervisor.compare.machine import Scratch, Work, end_process, parent_of, until, wait_readable
from supervisor.compare.server import EXITD_RUNTIME, RUNC_RUNTIME, WayServer, finding_exitd
from supervisor.compare.way import NO_ANSWER_SECONDS, Wait, WayAnswer, WayContainer, WayPod, number_answer

RUNTIMES = {"containerd-runc": RUNC_RUNTIME, "containerd-exitd": EXITD_RUNTIME}
EVENT_SECONDS = 1.0  # for an event when no Wait can be answered any more


class ContainerdTasksWay:
    """containerd, its tasks run by `key`'s runtime; with an exitd of their own where that wants one."""

    def __init__(self, scratch: Scratch, key: str) -> None:
        self._scratch, self._runtime = scratch, RUNTIMES[key]
        self._exitd: Daemon | None = None
        with contextlib.ExitStack() as steps:  # the last one first
            self.group = ProcessGroup(key)
            steps.callback(self.group.remove)
            environment = {}
            if key == "containerd-exitd":
                self._exitd = Daemon(scratch.state_place("ce"), scratch.root_place("ce"), self.group.words())
                self._exitd.start()
                steps.callback(self._exitd.close)
                environment = finding_exitd(self._exitd.state)
            place = scratch.state_place(key)
            self._server = WayServer(place, scratch.root_place(key), self.group.words(), environment)
            self._server.start()
            steps.callback(self._server.close)
            self._connect()
            steps.callback(lambda: self._connected.close())
            self._steps = steps.pop_all()

    def prepare(self, id: str, works: Sequence[Work]) -> podspec.PodSpecs:
        return podspec.pod_specs(self._scratch, id, works, cri=True)

    def start(self, prepared: object) -> WayPod:
        assert isinstance(prepared, podspec.PodSpecs)
        return podspec.start(prepared, lambda id, spec: WayContainer(id, self._api.run(self._runtime, id, spec)).hold())

    def begin_wait(self, container: WayContainer) -> Wait:
        pending = self._api.begin_wait(container.id)
        return lambda seconds: number_answer(pending(seconds))

    def answer(self, container: WayContainer, seconds: float = NO_ANSWER_SECONDS) -> WayAnswer:
        """Return what Wait answers; or else the code of the event that everybody else gets."""
        try:
            return number_answer(self._api.begin_wait(container.id)(seconds))
        except (ApiError, TimeoutError) as error:
            with contextlib.suppress(TimeoutError):
                until(lambda: self._exits.heard(container.id) is not None, "an event", EVENT_SECONDS)
            number = self._exits.heard(container.id)
            if number is not None:
                return number_answer(number, f"{number} (event; Wait: {_short(error)})")
            return WayAnswer(_short(error), None)

    def answers_for(self, containers: Sequence[WayContainer]) -> bool:
        return all(self._api.runs(container.id) for container in containers)

    def end(self, pod: WayPod) -> None:
        for container in reversed(pod.containers):  # a shim leaves with its first container
            if container.pidfd < 0:  # this was called before, and failed
                continue
            container.end()
            wait_readable(container.pidfd, f"the end of {container.id}")
            with contextlib.suppress(ApiError, TimeoutError):
                self._api.begin_wait(container.id)(NO_ANSWER_SECONDS)
            until(lambda id=container.id: self._api.discard(id), f"containerd to let go of {container.id}", step=0.02)  # type: ignore[misc]
            container.close()

    def beside(self, pod: WayPod) -> list[int]:
        return sorted({*(parent_of(container.pid) for container in pod.containers), *self._server.relays(pod.pause.id)})

    def daemons(self) -> list[int]:
        own = [self._server.process.pid]
        return own if self._exitd is None else [*own, self._exitd.process.pid, *self._exitd.keepers()]

    def victims(self, pod: WayPod) -> Mapping[str, int]:
        found = {"containerd": self._server.process.pid, "shim": parent_of(pod.members[0].pid)}
        if self._exitd is not None:
            found |= {"daemon": self._exitd.process.pid}
            found.update(("keeper", pid) for pid in self._exitd.keepers())
            found.update(("relay", pid) for pid in self._server.relays(pod.pause.id))
        return found

    def kill_daemon(self) -> bool:
        self._connected.close()
        self._server.kill()
        return True

    def start_daemon(self) -> None:
        if self._exitd is not None and self._exitd.process.poll() is not None:
            self._exitd.start()
        if self._server.process.poll() is not None:
            self._connected.close()
            self._server.start()
            self._connect()

    def close(self) -> None:
        self._steps.close()
        for pid in self._server.relays():
            end_process(pid)

    def _connect(self) -> None:
        with contextlib.ExitStack() as steps:
            self._api = steps.enter_context(contextlib.closing(self._server.api()))
            self._exits: ExitFeed = steps.enter_context(contextlib.closing(self._api.exits()))
            self._connected = steps.pop_all()


def _short(error: Exception) -> str:
    return "not found" if isinstance(error, NoSuchTask) else str(error).splitlines()[0]
