"""What is done once at most in each run: after its start, and before its stop signal.

That a hook is about to begin is stored first. An exitd that dies while one is under way leaves it to itself, and the
next one takes it for done: a hook that is done twice may do more harm than one that is cut short. One that this machine
has no room for, or whose container is frozen, was not begun: it is tried again.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import structlog

from supervisor.engine.node import Node
from supervisor.engine.participants import Participant
from supervisor.model import health, lifecycle
from supervisor.model.errors import Busy, ExitdError, NoSuchContainer, StoreFailed, WrongState
from supervisor.model.health import ProbeResult
from supervisor.model.values import (
    SECOND_NS,
    By,
    Container,
    HealthSpec,
    HookAction,
    HookKind,
    HookStage,
    Phase,
    Reason,
)
from supervisor.system import room

POST_START_SECONDS = 600.0
POST_START = By(policy="post-start")
ANSWER_SECONDS = 30.0  # of a hook over the network
AGAIN_SECONDS = 1.0  # until what could not be begun is tried again

T = TypeVar("T")

RunCheck = Callable[[Container, HealthSpec], Awaitable[ProbeResult | None]]

log = structlog.get_logger(__name__)


class HookRunner:
    """Runs hooks, each as a check whose result says whether it has worked."""

    def __init__(self, node: Node, run: RunCheck) -> None:
        """`run`: as of Probing."""
        self._node = node
        self._run = run

    async def once(self, container: Container, hook: HookKind, action: HookAction, seconds: float) -> bool | None:
        """Run the hook within the limit. Return whether it has worked; None where it had been begun before, or the
        run has ended. That a hook after the start is done is stored only if it has worked: else the end of the run is
        next. Raises StoreFailed: it was not begun."""
        if not await self._begun(container, hook, seconds):
            return None
        worked = await self._done(container, hook, action, seconds)
        if worked or hook is HookKind.PRE_STOP:
            with contextlib.suppress(WrongState, NoSuchContainer):  # its run has ended meanwhile
                happening = lifecycle.HookMoved(container.run, hook, HookStage.DONE)
                apply = self._node.apply
                await self._node.storing.retry(container.id, lambda: apply(container.id, happening, patient=True))
        return worked

    async def _begun(self, container: Container, hook: HookKind, seconds: float) -> bool:
        """Store that it is about to begin. Return False where it is not to. Raises StoreFailed."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            try:
                await self._node.apply(container.id, lifecycle.HookMoved(container.run, hook, HookStage.BEGUN))
                return True
            except (WrongState, NoSuchContainer):
                return False
            except StoreFailed:
                if loop.time() + AGAIN_SECONDS >= end:
                    raise
            await asyncio.sleep(AGAIN_SECONDS)

    async def _done(self, container: Container, hook: HookKind, action: HookAction, seconds: float) -> bool:
        """What it says of its failure is in the log; a hook that fails is no reason not to go on."""
        if not action.args and action.http is None:
            await asyncio.sleep(min(action.sleep_seconds, seconds))
            return True
        where = {"container": container.id, "hook": hook.value}
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            try:
                await self.until_thawed(container, end - loop.time())
                left = max(0.0, end - loop.time())
                limit = min(left, ANSWER_SECONDS) if action.http is not None else left
                check = HealthSpec(action.args, timeout_ns=max(1, int(limit * SECOND_NS)), http=action.http)
                result = await self._run(container, check)
                break
            except (ExitdError, OSError) as error:
                again = _was_not_begun(error, action) and loop.time() + AGAIN_SECONDS < end
                log.warning("a hook could not be run", **where, why=str(error), again=again)
                if not again:
                    return False
            await asyncio.sleep(AGAIN_SECONDS)
        if result is not None and result.failed:
            log.warning("a hook has failed", **where, timed_out=result.timed_out)
        return result is None or not result.failed

    async def until_thawed(self, container: Container, seconds: float | None) -> None:
        """Raises TimedOut."""
        run = container.run
        await self._node.containers.until(
            container.id, lambda c: c is None or c.run != run or c.phase is not Phase.PAUSED, seconds, "its thaw"
        )


def _was_not_begun(error: ExitdError | OSError, action: HookAction) -> bool:
    """Return whether it failed for a reason that passes, before any process or connection of it was there."""
    if isinstance(error, WrongState):
        return error.metadata.get("phase") == Phase.PAUSED.value
    return isinstance(error, (Busy, StoreFailed)) or (action.http is not None and room.is_used_up(error))


EndRun = Callable[[str, Reason, By, float | None, int], Awaitable[None]]


class HookKeeper(Participant):
    """Runs the hook of each run that has just begun. One that fails ends the run, and the restart policy decides."""

    def __init__(self, node: Node, runner: HookRunner, end: EndRun) -> None:
        self._node = node
        self._runner = runner
        self._end = end
        self._at: set[tuple[str, int]] = set()

    def changed(self, container: Container) -> None:
        action, key = container.spec.hooks.post_start, (container.id, container.run)
        if action is None or container.phase is not Phase.RUNNING or container.post_start is HookStage.DONE:
            return
        if key in self._at or container.id in self._node.containers.recovering or self._node.closing:
            return
        self._at.add(key)
        self._node.spawn(self._post_start(container, action))

    async def _post_start(self, container: Container, action: HookAction) -> None:
        try:
            if container.post_start is HookStage.BEGUN:  # by an exitd before this one
                happening = lifecycle.HookMoved(container.run, HookKind.POST_START, HookStage.DONE)
                await self._node.apply_until_stored(container.id, happening)
                return
            if await self._retried(container, partial(self._once, container, action)) is False:
                await self._retried(
                    container, partial(self._end, container.id, Reason.HEALTH, POST_START, None, container.run)
                )
        finally:
            self._at.discard((container.id, container.run))

    async def _once(self, container: Container, action: HookAction) -> bool | None:
        await self._runner.until_thawed(container, None)
        return await self._runner.once(container, HookKind.POST_START, action, POST_START_SECONDS)

    async def _retried(self, container: Container, work: Callable[[], Awaitable[T]]) -> T | None:
        """Return what the work returns, which is done again after a failure while the run goes on; None: it does not,
        or its end has begun."""
        while (now := self._node.containers.get(container.id)) is not None and now.run == container.run:
            if (
                now.phase not in (Phase.RUNNING, Phase.PAUSED)
                or health.is_being_ended(now)
                or self._node.is_ending(now)
            ):
                break
            try:
                return await work()
            except (ExitdError, OSError) as error:
                log.warning("after its start", container=container.id, why=str(error))
            await asyncio.sleep(AGAIN_SECONDS)
        return None
