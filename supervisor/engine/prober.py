"""Health checks, kept: a probe now and then in every running container that has a check, and what follows from it.

What follows is `health.step`'s to say. The status is stored with the container and told as an event when it becomes
another one; results are kept here, and begin anew with the daemon.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import structlog

from supervisor.engine.node import Node
from supervisor.engine.probing import HEALTH
from supervisor.model import health, lifecycle
from supervisor.model.checks import HealthSpec, HealthStatus, OnUnhealthy
from supervisor.model.errors import ExitdError, NoSuchContainer, StoreFailed, WrongState
from supervisor.model.facts import By, Container, Phase, Reason
from supervisor.model.health import DropProbe, Froze, Happening, Health, Probe, Probed, Result, Skipped, Thawed, Tick

REST_SECONDS = 5.0  # what a pause waits for the end of a probe

RunProbe = Callable[[Container, HealthSpec], Awaitable[Result | None]]
End = Callable[[str, Reason, By, float | None], Awaitable[None]]

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Check:
    """Of one run. Over, it only keeps what was seen."""

    run: int
    health: Health
    timer: asyncio.TimerHandle | None = None
    probing: asyncio.Task[None] | None = None
    resting: bool = False  # its container is about to be paused
    acting: bool = False  # its container is being ended: nobody needs to be asked how it is
    over: bool = False


class Prober:
    """Belongs to the node's event loop."""

    def __init__(self, node: Node, run_probe: RunProbe, end: End) -> None:
        """`run_probe` runs one to its end, or to its time limit; cancelled, it ends the probe. None: it says nothing of
        the container. `end` ends a container within a grace period, None being the container's own."""
        self._node = node
        self._run_probe = run_probe
        self._end = end
        self._checks: dict[str, _Check] = {}
        self._others, node.on_change = node.on_change, self._changed

    def seen(self, container_id: str) -> Health | None:
        """Of the newest run with a check; None: nothing since the daemon's start."""
        check = self._checks.get(container_id)
        return check.health if check is not None else None

    @contextlib.asynccontextmanager
    async def resting(self, container_id: str) -> AsyncIterator[None]:
        """No probe is under way and none begins for the length of the block, so that none is frozen in the middle: it
        could not be ended then. Goes on afterwards if the container runs."""
        check = self._checks.get(container_id)
        if check is None or check.over or check.health.paused:
            yield
            return
        probing, check.resting = check.probing, True
        self._hear(container_id, check, Froze())
        try:
            if probing is not None:
                await asyncio.wait([probing], timeout=REST_SECONDS)
            yield
        finally:
            check.resting = False
            container = self._node.containers.get(container_id)
            if container is not None:
                self._changed_run(container)

    def close(self) -> None:
        """Probes under way come to their own end, and nobody hears of it."""
        for check in self._checks.values():
            _rest(check)

    def _changed(self, container: Container) -> None:
        self._others(container)
        self._changed_run(container)

    def _changed_run(self, container: Container) -> None:
        if container.spec.health is None or container.id in self._node.recovering or self._node.closing:
            return
        check = self._checks.get(container.id)
        if check is not None and check.run != container.run:
            _rest(check)
            check = None
        match container.phase:
            case Phase.RUNNING | Phase.PAUSED if check is None:
                self._begin(container, container.spec.health)
            case Phase.RUNNING if check is not None and check.health.paused and not check.resting:
                self._hear(container.id, check, Thawed())
            case Phase.PAUSED if check is not None and not check.health.paused:
                self._hear(container.id, check, Froze())
            case Phase.REMOVING:
                self._checks.pop(container.id, None)
        if check is not None and container.phase not in (Phase.RUNNING, Phase.PAUSED):
            _rest(check)

    def _begin(self, container: Container, spec: HealthSpec) -> None:
        now_ns = self._node.clock.boottime_ns()
        status = container.health or HealthStatus.STARTING
        begun = health.begin(spec, container.started_boot_ns or now_ns, now_ns, status)
        check = self._checks[container.id] = _Check(container.run, begun)
        if container.phase is Phase.PAUSED:
            self._hear(container.id, check, Froze())
        self._arm(container.id, check)

    def _hear(self, container_id: str, check: _Check, happening: Happening) -> None:
        step = health.step(check.health, happening, self._node.clock.boottime_ns())
        log.debug("health", container=container_id, happening=happening, action=step.action)
        check.health = step.health
        match step.action:
            case Probe():
                check.probing = asyncio.get_running_loop().create_task(self._probe(container_id, check))
            case DropProbe() if check.probing is not None:
                check.probing.cancel()
                check.probing = None
            case OnUnhealthy() as action:
                check.acting = True
                self._node.spawn(self._act(container_id, check, action))
        self._arm(container_id, check)

    def _arm(self, container_id: str, check: _Check) -> None:
        """The next tick, if there is something for it to begin."""
        if check.timer is not None:
            check.timer.cancel()
            check.timer = None
        waits = check.health.paused or check.health.probing_since_ns is not None
        if not (waits or check.acting or check.over):
            seconds = max(0.0, (check.health.due_ns - self._node.clock.boottime_ns()) / 1e9)
            loop = asyncio.get_running_loop()
            check.timer = loop.call_later(seconds, self._hear, container_id, check, Tick())

    async def _probe(self, container_id: str, check: _Check) -> None:
        happening: Happening = Skipped()
        try:
            container = self._node.known(container_id)
            result = await self._run_probe(container, check.health.spec)
            # What an end has taken along says nothing of health.
            if result is not None and not self._node.is_ending(container):
                happening = Probed(result)
        except (WrongState, NoSuchContainer, StoreFailed, OSError) as error:
            log.debug("probe skipped", container=container_id, why=str(error))
        except Exception:  # a bug, and no reason never to probe again
            log.exception("probe failed", container=container_id)
        if check.probing is asyncio.current_task():  # and not dropped just now
            check.probing = None
            self._hear(container_id, check, happening)
            await self._tell(container_id, check)

    async def _tell(self, container_id: str, check: _Check) -> None:
        """What cannot be stored now is told after the next probe."""
        seen, container = check.health, self._node.containers.get(container_id)
        if container is None or container.run != check.run or container.health is seen.status:
            return
        with contextlib.suppress(WrongState, NoSuchContainer, StoreFailed):
            await self._node.apply(
                container_id, lifecycle.HealthSeen(check.run, seen.status, seen.failing_streak), patient=True
            )
            log.info("health", container=container_id, status=seen.status.value, failing_streak=seen.failing_streak)

    async def _act(self, container_id: str, check: _Check, action: OnUnhealthy) -> None:
        await self._tell(container_id, check)  # before its consequence
        now = self._node.containers.get(container_id)
        if now is not None and now.run == check.run and now.phase is Phase.RUNNING:
            log.info("unhealthy", container=container_id, action=action.value)
            try:
                await self._end(container_id, Reason.HEALTH, HEALTH, 0.0 if action is OnUnhealthy.KILL else None)
            except (ExitdError, OSError) as error:
                log.warning("unhealthy, and not ended", container=container_id, why=str(error))
        check.acting = False
        self._arm(container_id, check)


def _rest(check: _Check) -> None:
    check.over = True
    if check.timer is not None:
        check.timer.cancel()
    if check.probing is not None:
        check.probing.cancel()
    check.timer = check.probing = None
