"""How a run is ended: the stop signal, grace, SIGKILL, and a search for what keeps its init from dying of that."""

import asyncio
import contextlib
from dataclasses import replace

import structlog

from supervisor.engine.containers import Containers, is_ended, is_made, is_over
from supervisor.engine.execlife import Execs
from supervisor.engine.node import END_SEEN_SECONDS, GONE_SECONDS, Node
from supervisor.model import lifecycle
from supervisor.model.errors import TimedOut, WrongState
from supervisor.model.values import LIVE, Asked, By, Container, Phase, Reason, RunKey
from supervisor.runtime.managers import ContainerRuntimes

STUCK_SECONDS = 2.0  # from SIGKILL to the search for what keeps init from dying
DEATH_SECONDS = 10.0  # from then to the stored exit

log = structlog.get_logger(__name__)


async def made(containers: Containers, container: Container) -> Container:
    """Return the container once a create that is under way has come to something. Raises TimedOut, NoSuchContainer."""
    await containers.until(container.id, is_made, GONE_SECONDS, "its create")
    return containers.known(container.id)


class Ending:
    """Ends runs, for callers and for policies."""

    def __init__(self, node: Node, manager: ContainerRuntimes, execs: Execs) -> None:
        self._node = node
        self._containers = node.containers
        self._manager = manager
        self._execs = execs

    async def by_policy(self, id: str, reason: Reason, by: By, grace_seconds: float | None = None) -> None:
        """What a policy ends: as `stop`, and nobody's wish but the policy's. No grace: the container's own. One that is
        ending by itself is not said to have been ended by the policy."""
        container = await made(self._containers, await self._containers.find(id))
        if self._node.is_ending(container):
            with contextlib.suppress(TimedOut):
                await self._containers.until(container.id, is_over(container.run), END_SEEN_SECONDS, "its end")
                return
        if container.phase in LIVE:
            grace = container.spec.stop_timeout_seconds if grace_seconds is None else grace_seconds
            await self.end(container, reason, by, grace)

    async def end(self, container: Container, reason: Reason, by: By, grace_seconds: float, signal: int = 0) -> None:
        """The stop signal, grace, SIGKILL; returns once the exit is stored. An init that was not started, or is
        frozen, does not hear anything but SIGKILL. `signal`: instead of the container's own stop signal."""
        asked = Asked(reason, by, signal or container.spec.stop_signal)
        deaf = container.phase in (Phase.CREATED, Phase.PAUSED)
        if reason is not Reason.KILL and grace_seconds > 0 and not deaf and await self._heard(container, asked):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_seconds):
                    await self._containers.until(container.id, is_ended, None, "its end")
                    return
        await self.signal(container, replace(asked, signal=lifecycle.SIGKILL))
        with contextlib.suppress(TimedOut):
            await self._containers.until(container.id, is_ended, STUCK_SECONDS, "its end after SIGKILL")
            return
        self.unstick(container)
        await self._containers.until(container.id, is_ended, DEATH_SECONDS, "its end after SIGKILL")

    async def _heard(self, container: Container, asked: Asked) -> bool:
        """False: whoever is to pass the signal on does not answer. There is no grace to wait for then, and SIGKILL has
        other ways."""
        try:
            await self.signal(container, asked)
        except TimedOut as error:
            log.warning("the stop signal did not get through, SIGKILL follows", container=container.id, why=str(error))
            return False
        return True

    async def signal(self, container: Container, asked: Asked, *, everyone: bool = False) -> None:
        """Recorded first: should the daemon die in between, the exit still carries its reason. Nothing is signalled
        whose end is on its way; that may be of before this daemon, and there was never anybody to signal."""
        try:
            current = await self._node.apply(container.id, lifecycle.EndAsked(asked))
            assert current is not None
            await self._manager.of(current).kill_process(current, asked.signal, everyone=everyone)
        except WrongState:
            if not (is_ended(self._containers.get(container.id)) or self._node.is_ending(container)):
                raise

    def unstick(self, container: Container) -> None:
        """The first process of a pid namespace dies when all others in it are reaped: execs, and the members of its pod
        and theirs. A shim that is stopped reaps none of them: it is killed, and the keeper does."""
        members = self._containers.members(container.id)
        for member in members:
            if member.spec.pid == "pod":
                self._manager.kill_stopped_shim(RunKey(member.id, member.run))
        for each in (container, *members):
            self._execs.unstick(each.id)
