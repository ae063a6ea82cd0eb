"""What is done once at most in each run: after its start, and before its stop signal.

That a hook is about to begin is stored first. An exitd that dies while one is under way leaves it to itself, and the
next one takes it for done: a hook that is done twice may do more harm than one that is cut short.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from supervisor.engine.node import Node
from supervisor.engine.participants import Participant
from supervisor.model import lifecycle
from supervisor.model.errors import ExitdError, NoSuchContainer, WrongState
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

POST_START_SECONDS = 600.0
POST_START = By(policy="post-start")
ANSWER_SECONDS = 30.0  # of a hook over the network

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
        run has ended. Raises StoreFailed: it was not begun."""
        moved = lifecycle.HookMoved(container.run, hook, HookStage.BEGUN)
        try:
            await self._node.apply(container.id, moved)
        except (WrongState, NoSuchContainer):
            return None
        worked = await self._done(container, hook, action, seconds)
        with contextlib.suppress(WrongState, NoSuchContainer):  # its run has ended meanwhile
            happening = lifecycle.HookMoved(container.run, hook, HookStage.DONE)
            apply = self._node.apply
            await self._node.storing.surely(container.id, lambda: apply(container.id, happening, patient=True))
        return worked

    async def _done(self, container: Container, hook: HookKind, action: HookAction, seconds: float) -> bool:
        """What it says of its failure is in the log; a hook that fails is no reason not to go on."""
        if not action.args and action.http is None:
            await asyncio.sleep(min(action.sleep_seconds, seconds))
            return True
        limit = min(seconds, ANSWER_SECONDS) if action.http is not None else seconds
        check = HealthSpec(action.args, timeout_ns=max(1, int(limit * SECOND_NS)), http=action.http)
        where = {"container": container.id, "hook": hook.value}
        try:
            result = await self._run(container, check)
        except (ExitdError, OSError) as error:
            log.warning("a hook could not be run", **where, why=str(error))
            return False
        if result is not None and result.failed:
            log.warning("a hook has failed", **where, timed_out=result.timed_out)
        return result is None or not result.failed


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
                await self._node.surely(container.id, happening)
                return
            worked = await self._runner.once(container, HookKind.POST_START, action, POST_START_SECONDS)
            now = self._node.containers.get(container.id)
            if worked is False and now is not None and now.run == container.run and not self._node.is_ending(now):
                await self._end(container.id, Reason.HEALTH, POST_START, None, container.run)
        except (ExitdError, OSError) as error:
            log.warning("after its start", container=container.id, why=str(error))
        finally:
            self._at.discard((container.id, container.run))
