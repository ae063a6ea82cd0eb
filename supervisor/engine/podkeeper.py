"""A pod's policies, kept: members end with their sandbox, come back with the next, and the last one may end it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from supervisor.engine.node import GONE_SECONDS, Node
from supervisor.model import lifecycle, pods
from supervisor.model.errors import ExitdError, NoSuchContainer
from supervisor.model.facts import LIVE, By, Container, Reason
from supervisor.model.pods import Duty

PAUSE_EXIT = By(policy="pause-exit")
NEW_SANDBOX = By(policy="new-sandbox")
LAST_MEMBER = By(policy="last-member")

End = Callable[[str, Reason, By], Awaitable[None]]
Start = Callable[[str, By], Awaitable[object]]
Free = Callable[[Container], None]
Remove = Callable[[str, bool, By], Awaitable[None]]

log = structlog.get_logger(__name__)


class PodKeeper:
    """Looks at a pod after each of its changes and does what `pods.duties` says. It remembers only what it is at: a
    duty that failed is found again at the next look."""

    def __init__(self, node: Node, end: End, start: Start, remove: Remove, free: Free) -> None:
        """`free` helps a pause process to die that waits for others of its pid namespace to be reaped."""
        self._node = node
        self._end = end
        self._start = start
        self._remove = remove
        self._free = free
        self._at: set[str] = set()  # containers something is being done about
        node.on_change = self._changed
        node.on_removing = self._members_gone

    async def forever(self, every_seconds: Callable[[], float]) -> None:
        """The slow loop. A pause process that somebody else has killed may hang in its exit: see `free`."""
        while True:
            await asyncio.sleep(every_seconds())
            self.look_at_all()
            for container in list(self._node.containers.values()):
                if container.spec.pod and container.phase in LIVE and self._node.manager.is_ending(container):
                    self._free(container)

    def look_at_all(self) -> None:
        """After a daemon start, and now and then."""
        for container in list(self._node.containers.values()):
            if container.spec.pod:
                self._look(container.id)

    def _changed(self, container: Container) -> None:
        pod = container.id if container.spec.pod else container.spec.sandbox
        if pod:
            self._look(pod)

    def _look(self, pod_id: str) -> None:
        pause = self._node.containers.get(pod_id)
        if pause is None or pause.spec.pod is None or pod_id in self._node.recovering or self._node.closing:
            return
        for duty, container in pods.duties(pause, members_of(self._node, pod_id)):
            if container.id not in self._at and container.id not in self._node.recovering:
                self._at.add(container.id)
                self._node.spawn(self._do(duty, container, pod_id))

    async def _do(self, duty: Duty, container: Container, pod_id: str) -> None:
        log.info("pod policy", pod=pod_id, duty=duty.value, container=container.id)
        try:
            match duty:
                case Duty.STOP if container.id == pod_id:
                    await self._end(container.id, Reason.STOP, LAST_MEMBER)
                case Duty.STOP:
                    await self._end(container.id, Reason.PAUSE_EXIT, PAUSE_EXIT)
                case Duty.CANCEL:
                    await self._node.apply(container.id, lifecycle.SandboxGone(), patient=True)
                case Duty.REVIVE:
                    await self._start(container.id, NEW_SANDBOX)
                case Duty.REMOVE:
                    with contextlib.suppress(NoSuchContainer):
                        await self._remove(container.id, True, PAUSE_EXIT)
        except (ExitdError, OSError) as error:
            log.warning("pod policy failed", pod=pod_id, duty=duty.value, container=container.id, why=str(error))
        finally:
            self._at.discard(container.id)
            # What changed meanwhile was not looked at for this container.
            asyncio.get_running_loop().call_soon(self._again, container.id, pod_id, duty)

    def _again(self, container_id: str, pod_id: str, duty: Duty) -> None:
        pause, now = self._node.containers.get(pod_id), self._node.containers.get(container_id)
        if pause is None or now is None or pause.spec.pod is None:
            return
        if (duty, now) not in pods.duties(pause, members_of(self._node, pod_id)):
            self._look(pod_id)  # another duty than the one that has just failed: that one waits for the next change

    async def _members_gone(self, pod_id: str) -> None:
        """Before the pod's own files go: its members use them as long as there are any. The duties remove those."""
        while members := members_of(self._node, pod_id):
            await self._node.until(members[0].id, lambda c: c is None, GONE_SECONDS, "its removal with its pod")


def members_of(node: Node, pod_id: str) -> list[Container]:
    """By creation."""
    return node.containers.members(pod_id)
