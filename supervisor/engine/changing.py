"""What callers change of a container that is there: its name, its limits, its restart policy.

A change is stored as asked for before the runtime gets it, and as made afterwards. An exitd that is killed in between
has it done at its next start: what the cgroup has is what is stored. A change that the runtime refuses is taken back
there, and forgotten here.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import structlog

from shim.frozen import replace
from supervisor.engine.admission import refuse_other_pods
from supervisor.engine.containers import is_over
from supervisor.engine.node import END_SEEN_SECONDS, GONE_SECONDS
from supervisor.engine.participants import Participant
from supervisor.engine.runs import Runs
from supervisor.model import changes, lifecycle
from supervisor.model.errors import BadRequest, Busy, ExitdError, NoSuchContainer, TimedOut, WrongState
from supervisor.model.limits import Change
from supervisor.model.values import LIVE, By, Container, Phase
from supervisor.runtime.managers import ContainerRuntimes

MOST_RUNS = 10  # that may begin one after another while a change is made
RESTORED = By(policy="recovery")

log = structlog.get_logger(__name__)


class Changing(Participant):
    """Implements `supervisor.api.servicers.ChangeCalls`. Changes of one container are made one after another."""

    def __init__(self, runs: Runs, manager: ContainerRuntimes) -> None:
        self._node = runs.node
        self._containers = runs.node.containers
        self._manager = manager
        self._turns: dict[str, asyncio.Lock] = {}

    async def rename(self, id: str, name: str, by: By) -> None:
        """Raises NameTaken, WrongState."""
        container = await self._containers.find(id)
        _refuse_others(container)
        if container.spec.pod is not None:
            raise WrongState(f"{container.spec.name} is a pod, and keeps its name", id=container.id)
        await self._until_free(container, name)
        self._refuse_sidecars(container, name)
        with self._containers.reserved(container.id, name):
            if self._containers.known(container.id).spec.name != name:  # else a repeated request
                await self._node.apply(container.id, lifecycle.Renamed(name, by), patient=True)

    def _refuse_sidecars(self, container: Container, name: str) -> None:
        """A pod knows its sidecars by their names: one that lost its own, or a member that took it, would change the
        order in which the pod begins and ends."""
        pause = self._containers.get(container.spec.sandbox)
        served = pause.spec.pod.sidecars if pause is not None and pause.spec.pod is not None else ()
        if container.spec.name in served and name != container.spec.name:
            raise WrongState(f"{container.spec.name} is a sidecar of its pod, and keeps its name", id=container.id)
        if name in served and name != container.spec.name:
            raise WrongState(f"{name} is the name of a sidecar of its pod; choose another", id=container.id)

    async def _until_free(self, container: Container, name: str) -> None:
        """Wait for the removal of the name's last holder, if that has begun."""
        holder = self._containers.named(container.spec.namespace, name)
        if holder is not None and holder.phase is Phase.REMOVING:
            await self._containers.until(
                holder.id, lambda c: c is None, GONE_SECONDS, "the removal of its name's last holder"
            )

    async def update(self, id: str, change: Change, by: By) -> None:
        """Raises BadRequest for a change that cannot be, WrongState, and what the runtime's update raises; then nothing
        has changed."""
        container = await self._containers.find(id)
        _refuse_others(container)
        await self._node.whole(self._update(container.id, change, by))

    async def _update(self, container_id: str, change: Change, by: By) -> None:
        async with self._turn(container_id):
            container = await self._settled(container_id)
            await self._refuse_impossible(replace(container, spec=changes.applied(container.spec, change)), change)
            await self._node.apply(container_id, lifecycle.ChangeAsked(change), patient=True)
            await self._carry_out(container_id, change, by)

    async def _refuse_impossible(self, wanted: Container, change: Change) -> None:
        """Raise BadRequest for what would not come to be; nothing has begun then."""
        limits = changes.limits_in(change)
        if wanted.spec.pod is None and limits:
            await self._manager.resources_for(_with(wanted, change), limits)
        elif wanted.spec.pod is not None and limits:
            refuse_other_pods(wanted.spec)
        pause = wanted if wanted.spec.pod is not None else self._containers.get(wanted.spec.sandbox)
        most = pause.spec.pod.cpu_limit_milli if pause is not None and pause.spec.pod is not None else 0
        members = self._containers.members(wanted.id) if pause is wanted else [wanted]
        if over := next((each for each in members if 0 < most < each.spec.cpu_limit_milli), None):
            text = f"cpu_limit_milli: {over.spec.name} has {over.spec.cpu_limit_milli}, its whole pod {most}"
            raise BadRequest(f"{text}; a container cannot have more", field=changes.CPU)

    async def after_find(self, container_id: str) -> None:
        """Make a change that an earlier daemon did not get to the end of."""
        container = self._containers.get(container_id)
        if container is None or container.change is None or container.damaged or container.phase is Phase.REMOVING:
            return
        log.info("going on with an update", container=container_id, change=container.change)
        try:
            async with self._turn(container_id):
                await self._carry_out(container_id, container.change, RESTORED)
        except (ExitdError, OSError) as error:
            log.warning("an update that was under way is taken back", container=container_id, why=str(error))

    @contextlib.asynccontextmanager
    async def _turn(self, container_id: str) -> AsyncIterator[None]:
        turn = self._turns.setdefault(container_id, asyncio.Lock())
        async with turn:
            yield
        if container_id not in self._containers:
            self._turns.pop(container_id, None)

    async def _carry_out(self, container_id: str, change: Change, by: By) -> None:
        """Have the change made. What cannot be is forgotten: no later daemon tries it again."""
        try:
            await self._make(container_id, change, by)
        except (ExitdError, OSError):
            with contextlib.suppress(NoSuchContainer, WrongState):
                await self._node.storing.retry(
                    container_id, lambda: self._node.apply(container_id, lifecycle.ChangeGivenUp(), patient=True)
                )
            raise

    async def _make(self, container_id: str, change: Change, by: By) -> None:
        """Have the runtime set it and store that, again for each run that begins meanwhile."""
        for _ in range(MOST_RUNS):
            container = await self._settled(container_id)
            has_cgroup = container.phase in LIVE or container.spec.pod is not None  # a pod's outlives its runs
            if has_cgroup and changes.limits_in(change) and not await self._set(container, change):
                continue  # that run is over
            with contextlib.suppress(WrongState):
                made = lifecycle.ChangeMade(change, container.run, by)
                await self._node.storing.retry(
                    container_id,
                    lambda: self._node.apply(container_id, made, patient=True),  # noqa: B023
                )
                return
        raise Busy(f"{container_id[:12]} begins one run after another; try again", id=container_id)

    async def _settled(self, container_id: str) -> Container:
        """Return the container when it is neither being made nor being started. Raises NoSuchContainer when it is going
        away, TimedOut."""
        at_work = (Phase.CREATING, Phase.STARTING)
        await self._containers.until(
            container_id, lambda c: c is None or c.phase not in at_work, GONE_SECONDS, "its start"
        )
        container = self._containers.known(container_id)
        if container.phase is Phase.REMOVING:
            raise NoSuchContainer(f"{container.spec.name} is being removed", id=container_id)
        return container

    async def _set(self, container: Container, change: Change) -> bool:
        """Have the runtime set the limits. Return False when the run has ended. Raises what the runtime's update
        raises; then the run has its old limits, as far as they can be set."""
        limits = changes.limits_in(change)
        wanted = _with(replace(container, spec=changes.applied(container.spec, change)), change)
        try:
            await self._put(wanted, limits)
            return True
        except (ExitdError, OSError):
            if container.spec.pod is None and await self._has_ended(container):
                return False
            try:
                await self._put(container, limits)  # half of the new ones may be set
            except (ExitdError, OSError) as error:
                log.warning("half of an update may be in force", container=container.id, why=str(error))
            raise

    async def _put(self, container: Container, limits: tuple[str, ...]) -> None:
        """Put these limits of the container's spec, or of its pod's, in force."""
        if container.spec.pod is not None:
            await self._manager.update_pod(container, limits)
        else:
            resources = await self._manager.resources_for(container, limits)
            await self._manager.of(container).update_container(container, resources)

    async def _has_ended(self, container: Container) -> bool:
        """Return whether the run is over; wait for an end that is on its way."""
        over = is_over(container.run)
        if self._node.is_ending(container):
            with contextlib.suppress(TimedOut):
                await self._containers.until(container.id, over, END_SEEN_SECONDS, "its end")
        return over(self._containers.get(container.id))


def _with(container: Container, change: Change) -> Container:
    """Return the container with the limits of the change as set by an update: no bundle's count for them."""
    return replace(container, changed=(*container.changed, *changes.limits_in(change)))


def _refuse_others(container: Container) -> None:
    """Raise WrongState for what cannot be changed."""
    lifecycle.refuse_damaged(container)
    if container.spec.task is not None:
        raise WrongState(f"{container.spec.name} is a task of containerd's: change it there", id=container.id)
