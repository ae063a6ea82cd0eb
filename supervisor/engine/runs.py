"""How a run begins: made by the runtime, started, and given up where it does not start."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from shim.frozen import replace
from supervisor.engine.containers import is_ended, is_over
from supervisor.engine.exits import Exits
from supervisor.engine.node import END_SEEN_SECONDS, Node
from supervisor.engine.participants import Participant
from supervisor.model import lifecycle
from supervisor.model.errors import Busy, ExitdError, TimedOut, WrongState
from supervisor.model.lifecycle import Happening
from supervisor.model.values import Asked, By, Container, Phase, Reason, RunKey
from supervisor.runtime import hoststate
from supervisor.system import room
from supervisor.system.background import retry

START_FAILED = By(policy="start-failed")

log = structlog.get_logger(__name__)


Attach = Callable[[Container], Awaitable[Container]]


async def _without_networks(container: Container) -> Container:
    return container


class Runs(Participant):
    """Begins runs, for callers and for restart policies. Belongs to the node's event loop."""

    def __init__(self, node: Node, exits: Exits, attach: Attach = _without_networks) -> None:
        """`attach`: puts a container into its network, see `NetworkService.attach`."""
        self.node = node
        self._attach = attach
        self.exits = exits
        self._containers = node.containers

    # -- made

    async def make(self, container_id: str) -> None:
        """Have the runtime create the run. Raises what that raises; the step is stored either way."""
        with self.exits.held_back(container_id):  # an exit that is quicker than the commit of its init
            try:
                container = await self._joining(self._containers.known(container_id))
                await room.wait_for(room.FOR_ONE, f"a run of {container.spec.name or container_id}")
                await self.node.others.before_make(container_id)
                container = await self._attach(container)
                made = await self.node.manager.of(container).create_container(container)
                step = lifecycle.Made(made.init, made.shim, container.sandbox_run, made.waits_in, container.networks)
                await self.node.apply_until_stored(container_id, step)
            except Exception as error:  # whatever it was: nothing may stay in this phase for ever
                put_off = await self._is_put_off(container_id)
                await self.node.apply_until_stored(
                    container_id, lifecycle.MakeFailed(str(error) or repr(error), put_off)
                )
                raise

    async def _is_put_off(self, container_id: str) -> bool:
        """Return whether this planned run could not be made because the host goes down: systemd refuses scopes from the
        moment of the request on, and asks for an end of the containers a while later."""
        container = self._containers.get(container_id)
        if container is None or not container.restart_count:
            return False
        return self.node.going_down or await asyncio.to_thread(hoststate.system_state) == hoststate.STOPPING

    async def _joining(self, container: Container) -> Container:
        """A member joins the sandbox that its pod has now. Raises WrongState when there is none."""
        if not container.spec.sandbox:
            return container
        pause = self._containers.get(container.spec.sandbox)
        if pause is not None:  # after a daemon start: not before it has been looked up
            pause = await self._containers.find(pause.id)
        if pause is None or pause.phase not in (Phase.RUNNING, Phase.PAUSED):
            name = pause.spec.name if pause is not None else container.spec.sandbox[:12]
            raise WrongState(f"the pod {name} is NotReady, there is nothing to join", id=container.id)
        return replace(container, sandbox_run=pause.run)

    # -- started

    async def launch(self, container_id: str, *, until_stored: bool = False, key: str = "") -> None:
        """Have the runtime start the run. An exit seen meanwhile is held back, so that started comes before exited.

        `until_stored`: no caller asks again when the store refuses. `key`: of containerd's request, which may come
        again.

        Raises WrongState, after the end is stored, where init has ended by now: its directory is about to be removed,
        and a runtime's start would make it again.
        """
        if self.exits.is_held_back(container_id):
            raise WrongState(f"{container_id[:12]} is being started", id=container_id)
        run = self._containers.known(container_id).run
        if RunKey(container_id, run) in self.node.pending:
            with contextlib.suppress(TimedOut):
                await self._containers.until(container_id, is_over(run), END_SEEN_SECONDS, "its end")
            raise WrongState(f"{container_id[:12]}: its init ended before it was started", id=container_id)
        with self.exits.held_back(container_id), self.node.turning(container_id):
            asked = lifecycle.StartAsked(By(), key)
            if not until_stored:
                await self.node.apply(container_id, asked)
            elif not await self.node.apply_until_stored(container_id, asked):
                return
            await self.start_made(self._containers.known(container_id))

    async def start_made(self, container: Container) -> None:
        """As `launch`, for a run whose start is stored as asked for. The caller holds back its exits."""
        try:
            await self.node.manager.of(container).start_process(container)
        except (ExitdError, OSError) as error:
            if not await self._began(container):
                await self.give_up_start(container, str(error))
                raise
        await self.node.apply_until_stored(container.id, self.started(container))

    def started(self, container: Container) -> Happening:
        """Return the happening of its start, at this moment."""
        return lifecycle.Started(self.node.clock.boottime_ns(), self.node.manager.of(container).is_unseen(container))

    async def _began(self, container: Container) -> bool:
        """A start that failed, or was killed, may have done its work all the same: the runtime's state says. So may one
        whose container was over, its shim's delete and all, before start had returned: then how it ended says it.
        """
        family = self.node.manager.of(container)
        with contextlib.suppress(Busy, TimedOut):
            if await family.has_begun(container):
                return True
        if self.exits.known(container.id) is None:
            try:
                word = await family.state_process(container)
            except (ExitdError, OSError):
                return False
            if word == "running":
                return True
            if word in ("stopped", "absent") and not is_ended(self._containers.get(container.id)):
                await self.exits.seen_within(container.id, END_SEEN_SECONDS)
        return self.ended_begun(container)

    def ended_begun(self, container: Container) -> bool:
        """Whether its end is known, waits to be stored, and is that of its program."""
        report = self.exits.known(container.id)
        return report is not None and lifecycle.had_begun(container, report)

    # -- given up

    async def give_up_start(self, container: Container, why: str) -> None:
        """Give up a start that does not come: store it as failed, and kill init, unless it has ended."""
        await self.node.apply_until_stored(container.id, lifecycle.StartFailed(why))
        if self.exits.known(container.id) is None:
            await self._end_unstarted(container)

    async def _end_unstarted(self, container: Container) -> None:
        asked = Asked(Reason.KILL, START_FAILED, lifecycle.SIGKILL)
        try:
            await self.node.apply(container.id, lifecycle.EndAsked(asked))
        except ExitdError:
            return
        try:
            await self._kill_unstarted(container)
        except (ExitdError, OSError):  # no room to signal it: no caller asks again
            again = retry(lambda: self._kill_unstarted(container), "kill after a failed start", container.id)
            self.node.spawn(again)

    async def _kill_unstarted(self, container: Container) -> None:
        """Nothing when that run is over by now, or has no process."""
        now = self._containers.get(container.id)
        if now is None or now.run != container.run or is_ended(now):
            return
        with contextlib.suppress(WrongState):
            await self.node.manager.of(container).kill_process(container, lifecycle.SIGKILL)

    # -- begun again

    async def due(self, container_id: str) -> None:
        """Begin the restart policy's next run. What fails is stored as a failed create or start; no caller hears of
        it."""
        if self.node.closing or not await self.node.apply_until_stored(container_id, lifecycle.Again(None)):
            return
        try:
            await self.make(container_id)
            await self.launch(container_id, until_stored=True)
        except Exception as error:
            log.warning("restart failed", container=container_id, why=str(error) or repr(error))
