"""The host goes down: what exitd runs is stopped, all at once and within a limit, and nothing is begun.

The service manager asks for it before it ends anything else. containerd's tasks are among it: containerd leaves them to
the last moment of the host, where no process sees their codes any more, and one that ignores SIGTERM is waited for as
long as systemd waits for a unit. What another program has begun is that program's.

If the host stays up all the same, planned restarts are taken up again after STAY_SECONDS.
"""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from shim.frozen import frozen
from shim.mark import EXITDS_OWN_ID
from supervisor.engine.ending import Ending
from supervisor.engine.node import Node
from supervisor.model.errors import ExitdError, NoSuchContainer
from supervisor.model.values import LIVE, By, Container, Phase, Reason
from supervisor.model.views import StoppedForShutdown

NODE_SHUTDOWN = By(policy="node-shutdown")
KILL_SHARE = 1 / 6  # of the limit, for what comes after the grace: SIGKILL, and the exits on the disk
STAY_SECONDS = 300.0

log = structlog.get_logger(__name__)


@frozen
class StopGroup:
    """What is stopped together, and what after that: a pod's members, and its pause container."""

    first: tuple[Container, ...]
    last: Container | None = None


class NodeShutdown:
    """Implements `supervisor.api.servicers.ShutdownCalls`. Belongs to the node's event loop."""

    def __init__(self, node: Node, ending: Ending, look_at_pods: Callable[[], None]) -> None:
        """`look_at_pods`: called if the host stays up, for the policies of pods rest until then."""
        self._node = node
        self._ending = ending
        self._look_at_pods = look_at_pods
        self._timer: asyncio.TimerHandle | None = None

    async def shut_down_node(self, limit_seconds: float) -> StoppedForShutdown:
        """Stop all at once, each with its own grace as far as the limit allows, members of a pod before its pause
        container. Return within the limit, whatever has become of them. Repeatable."""
        loop = asyncio.get_running_loop()
        self._begin(loop)
        end = loop.time() + limit_seconds
        seen = dict[str, None]()
        # Once more for a run that was about to begin when the others were listed.
        while (live := self._live_but(seen)) and loop.time() < end:
            log.warning("the host goes down, containers are stopped", containers=len(live), seconds=limit_seconds)
            seen |= dict.fromkeys(container.id for container in live)
            await self._stop_all(live, end - limit_seconds * KILL_SHARE, end)
        left = tuple(id for id in seen if _lives(self._node.containers.get(id)))
        if left:
            log.error("containers live on though the host goes down", containers=left)
        return StoppedForShutdown(tuple(id for id in seen if id not in left), left)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._node.going_down = True
        self.close()
        self._timer = loop.call_later(STAY_SECONDS, self._stay)

    def _stay(self) -> None:
        log.warning("the host has not gone down: planned restarts are taken up again, what was stopped is not started")
        self._node.going_down = False
        self._node.arm_again()
        self._look_at_pods()

    def _live_but(self, seen: dict[str, None]) -> list[Container]:
        return [c for c in self._node.containers.values() if c.id not in seen and _lives(c) and _has_begun_here(c)]

    async def _stop_all(self, live: list[Container], kill_at: float, end: float) -> None:
        tasks = [asyncio.create_task(self._stop_group(group, kill_at)) for group in _groups(live)]
        _, late = await asyncio.wait(tasks, timeout=max(0.0, end - asyncio.get_running_loop().time()))
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def _stop_group(self, group: StopGroup, kill_at: float) -> None:
        await asyncio.gather(*(self._stop(container, kill_at) for container in group.first))
        if group.last is not None:
            await self._stop(group.last, kill_at)

    async def _stop(self, container: Container, kill_at: float) -> None:
        left = max(0.0, kill_at - asyncio.get_running_loop().time())
        grace = min(float(container.spec.stop_timeout_seconds), left)
        try:
            await self._ending.by_policy(container.id, Reason.NODE_SHUTDOWN, NODE_SHUTDOWN, grace)
        except NoSuchContainer:
            return  # it has ended, and was to be removed then
        except (ExitdError, OSError) as error:
            log.error("not stopped while the host goes down", container=container.id, why=str(error))


def _lives(container: Container | None) -> bool:
    return container is not None and (container.phase in LIVE or container.phase is Phase.CREATING)


def _has_begun_here(container: Container) -> bool:
    return EXITDS_OWN_ID.fullmatch(container.id) is not None


def _groups(live: Iterable[Container]) -> list[StopGroup]:
    containers = list(live)
    pauses = {container.id: container for container in containers if container.spec.pod}
    alone = [StopGroup((c,)) for c in containers if c.id not in pauses and c.spec.sandbox not in pauses]
    return alone + [
        StopGroup(tuple(c for c in containers if c.spec.sandbox == pod), pause) for pod, pause in pauses.items()
    ]
