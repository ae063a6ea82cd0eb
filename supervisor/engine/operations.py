"""What callers ask of containers, in terms of the node's steps: short stories with limits, each safe to ask again."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import structlog

from shim.frozen import frozen, replace
from supervisor.config.settings import Config
from supervisor.engine.admission import Admission
from supervisor.engine.containers import Containers, exit_of, is_over
from supervisor.engine.ending import Ending, made
from supervisor.engine.eventfilter import EventFilter
from supervisor.engine.health_checks import Prober
from supervisor.engine.lastwords import LastWords
from supervisor.engine.ledger import Ledger
from supervisor.engine.node import GONE_SECONDS
from supervisor.engine.runs import Runs
from supervisor.engine.views import Views
from supervisor.model import filters, lifecycle, pods
from supervisor.model.errors import ExitdError, NoSuchContainer, RuntimeFailed, ShuttingDown, TimedOut, WrongState
from supervisor.model.health import ProbeResult, is_being_ended
from supervisor.model.pods import PodState
from supervisor.model.values import (
    LIVE,
    Asked,
    By,
    CheckKind,
    Container,
    Exit,
    HealthStatus,
    LogDriver,
    Phase,
    Reason,
    RunKey,
    Spec,
)
from supervisor.model.views import View
from supervisor.runtime.managers import ContainerRuntimes
from supervisor.store.events import Item, Matching
from supervisor.streams import logs
from supervisor.streams.logline import READERS
from supervisor.system import room

PAUSE_TRIES = 3
SETTLE_SECONDS = 3.0  # how long a reader of a log waits for the last output of a run that has ended

log = structlog.get_logger(__name__)


@frozen
class Settings:
    """What the daemon was started with, and what is in force at this moment."""

    root: str
    state: str
    starts_keeper: bool = True
    now: Callable[[], Config] = Config


class Operations:
    """Implements `supervisor.api.servicers.OperationCalls`."""

    def __init__(
        self,
        runs: Runs,
        manager: ContainerRuntimes,
        admission: Admission,
        ending: Ending,
        prober: Prober,
        views: Views,
        ledger: Ledger,
        last_words: LastWords,
    ) -> None:
        self._runs = runs
        self._node = runs.node
        self._containers = runs.node.containers
        self._manager = manager
        self._last_words = last_words
        self._admission = admission
        self._ending = ending
        self._prober = prober
        self._views = views
        self._ledger = ledger

    async def create(self, spec: Spec, by: By, *, replaces: bool = False) -> Container:
        """Make a container. `replaces`: exitd's own of that name, running or not, is removed first, but not before the
        request is found to be one that can be met."""
        container_id = secrets.token_hex(32)
        await room.wait_for(room.FOR_ONE, f"the container {spec.name or container_id[:12]}")
        spec = await self._admission.admit(spec, container_id)
        try:
            self._refuse_going_down(spec)
            if replaces:
                await self._remove_named(spec.name, spec.namespace, by)
            container = await self._node.add(spec, container_id)
        except BaseException:  # also when it is cancelled
            await self._node.others.discarded(container_id)
            raise
        try:
            await self._runs.make(container.id)
        except (ExitdError, OSError):
            # The name must be free when the caller hears of it: the next try may use it at once.
            with contextlib.suppress(TimedOut):
                await self._gone(container.id)
            raise
        return self._containers.known(container.id)

    async def start(self, id: str, by: By, prepare: bool = False) -> Container:
        """Start the container's run; of a container that has ended, a new one. One that runs is returned as it is.
        `prepare`: the next run is made and not started. Raises what `Containers.find` raises; ShuttingDown; WrongState,
        also for a task of containerd's that has run once; TimedOut while the last run is not cleaned up; what
        `Runs.make` and `Runs.launch` raise."""
        container = await self._containers.find(id)
        if container.phase in (Phase.RUNNING, Phase.PAUSED):
            return container
        self._refuse_going_down(container.spec)
        if container.phase in (Phase.EXITED, Phase.RESTARTING):
            await self._again(container, by)
        if prepare:
            return await made(self._containers, container)
        await self._runs.launch(container.id)
        return self._containers.get(container.id, container)

    def _refuse_going_down(self, spec: Spec) -> None:
        """Raises ShuttingDown. Which tasks begin is containerd's decision."""
        if self._node.going_down and spec.task is None:
            raise ShuttingDown(f"{spec.name or 'the container'} is not begun: the host is going down")

    async def _again(self, container: Container, by: By) -> None:
        if container.spec.task is not None:
            raise WrongState(f"{container.spec.name} is containerd's: a task runs once; make a new one there")
        await self._containers.until(
            container.id, lambda c: c is None or c.clean, GONE_SECONDS, "the end of the last run"
        )
        await self._node.apply(container.id, lifecycle.Again(by))
        await self._runs.make(container.id)

    async def stop(self, id: str, timeout_seconds: int | None, by: By, signal: int = 0) -> Container:
        """End the run with the stop signal, and with SIGKILL `timeout_seconds` later (None: the container's own limit;
        0: at once). `signal`: instead of its stop signal; 0: that. No restart policy begins another run. Returns once
        the exit is stored. Raises what `Containers.find` raises, and what `Ending.end` raises."""
        container = await made(self._containers, await self._containers.find(id))
        if container.phase in LIVE:
            grace = container.spec.stop_timeout_seconds if timeout_seconds is None else timeout_seconds
            await self._ending.end(container, Reason.STOP, by, grace, signal)
        # It may have ended by itself a moment before it could be asked to, and its next run be planned, or begun.
        while (now := self._containers.get(container.id)) is not None and not _is_stopped(now):
            with contextlib.suppress(WrongState, NoSuchContainer):
                await self._node.apply(now.id, lifecycle.StopAsked(by))
                continue
            return await self.stop(container.id, timeout_seconds, by, signal)
        return self._containers.get(container.id, container)

    async def kill(self, id: str, signal: int, everyone: bool, by: By) -> None:
        """Send a signal to init; with `everyone` to all processes. A container that waits for its restart has no
        process: a signal that would stop it cancels the restart. Raises what `Containers.find` raises; WrongState when
        there is nothing to signal."""
        container = await made(self._containers, await self._containers.find(id))
        if container.phase is Phase.RESTARTING and lifecycle.stops(container.spec, signal):
            with contextlib.suppress(WrongState):  # its timer was quicker: there is a process to signal, or will be
                await self._node.apply(container.id, lifecycle.StopAsked(by, Reason.KILL))
                return
            return await self.kill(container.id, signal, everyone, by)
        if container.phase not in LIVE:
            raise WrongState(f"{id} is {container.phase.value}, there is nothing to signal", id=container.id)
        await self._ending.signal(container, Asked(Reason.KILL, by, signal), everyone=everyone)

    async def restart(self, id: str, timeout_seconds: int | None, by: By, signal: int = 0) -> Container:
        container = await self.stop(id, timeout_seconds, by, signal)
        return await self.start(container.id, by)

    async def pause(self, id: str, by: By) -> None:
        """Freeze all processes, between two probes. Returns once that is stored. Raises what `Containers.find` raises;
        WrongState unless it runs; RuntimeFailed after PAUSE_TRIES attempts."""
        container = await self._running(id, Phase.RUNNING)
        await self._node.whole(self._pause(container))

    async def _pause(self, container: Container) -> None:
        """A runtime gives up after less than a second, in which a crowd of busy processes may not have come to rest."""
        pause = self._manager.of(container).pause_container
        async with self._prober.resting(container.id):
            for tries_left in reversed(range(PAUSE_TRIES)):
                try:
                    return await self._freeze(pause, container, lifecycle.Paused())
                except RuntimeFailed:
                    now = self._containers.get(container.id)
                    if not tries_left or now is None or now.phase is not Phase.RUNNING or is_being_ended(now):
                        raise

    async def resume(self, id: str, by: By) -> None:
        """Let a frozen container go on. Returns once that is stored. Raises what `Containers.find` raises; WrongState
        unless it is paused."""
        container = await self._running(id, Phase.PAUSED)
        await self._node.whole(self._resume(container))

    async def _resume(self, container: Container) -> None:
        with self._runs.exits.held_back(container.id):  # what ends as soon as it is thawed has gone on before
            await self._freeze(self._manager.of(container).resume_container, container, lifecycle.Resumed())

    async def _freeze(
        self, work: Callable[[Container], Awaitable[None]], container: Container, done: lifecycle.Happening
    ) -> None:
        """What the runtime has done is stored, however long that takes: a container whose phase is not what it is can
        neither be paused nor resumed. It may have done it and say that it failed."""
        with self._node.turning(container.id):
            try:
                await work(container)
            except (ExitdError, OSError):
                if not await self._is_done(container, done):
                    raise
            apply = self._node.apply
            await self._node.storing.retry(container.id, lambda: apply(container.id, done, patient=True))

    async def _is_done(self, container: Container, done: lifecycle.Happening) -> bool:
        with contextlib.suppress(ExitdError, OSError):
            return await self._manager.of(container).is_paused(container) is isinstance(done, lifecycle.Paused)
        return False

    async def _running(self, id: str, phase: Phase) -> Container:
        container = await self._containers.find(id)
        lifecycle.refuse_damaged(container)
        if container.phase is not phase:
            raise WrongState(f"{id} is {container.phase.value}, not {phase.value}", id=container.id)
        return container

    async def remove(self, id: str, force: bool, by: By, *, volumes: bool = False) -> None:
        """Remove a container; a pod with its members, which go first. `volumes`: its anonymous ones, too."""
        found = await self._containers.find(id)
        if found.spec.pod:
            if not force and pods.state(found.phase) is PodState.READY:
                raise WrongState(f"the pod {found.spec.name} is Ready; stop it first, or use force", id=found.id)
            await each_member(self._containers, found.id, lambda member: self._remove(member.id, True, by, volumes))
        await self._remove(found.id, force, by, volumes)

    async def _remove_named(self, name: str, namespace: str, by: By) -> None:
        found = self._containers.named(namespace, name)
        if found is not None:
            with contextlib.suppress(NoSuchContainer):
                await self.remove(found.id, True, by)

    async def _remove(self, id: str, force: bool, by: By, volumes: bool) -> None:
        found: Container | None = await self._containers.find(id)
        if found is not None and found.spec.task is not None and not force:
            name = found.spec.name
            there = f"remove it there (ctr task delete {name}); with force it goes here alone"
            raise WrongState(f"{name} is a task of containerd's: {there}", id=found.id)
        # Again when something else was quicker: a restart's timer, another caller, the end itself.
        while found is not None and found.phase is not Phase.REMOVING:
            with contextlib.suppress(NoSuchContainer):
                await self._remove_once(found, force, by, volumes)
            container_id = found.id
            found = self._containers.get(container_id)
        if found is not None:
            await self._gone(found.id)

    async def _remove_once(self, container: Container, force: bool, by: By, volumes: bool) -> None:
        if container.phase in (Phase.STARTING, Phase.RUNNING, Phase.PAUSED, Phase.RESTARTING) and not force:
            phase = container.phase.value
            raise WrongState(f"{container.spec.name} is {phase}; stop it first, or use force", id=container.id)
        if container.phase is Phase.CREATING:
            await made(self._containers, container)
        elif container.phase in LIVE:
            await self._ending.end(container, Reason.KILL, by, 0)
        else:
            with contextlib.suppress(WrongState):
                await self._node.apply(container.id, lifecycle.RemoveAsked(by, volumes=volumes))

    async def _gone(self, container_id: str) -> None:
        await self._containers.until(container_id, lambda c: c is None, GONE_SECONDS, "its removal")

    def listing(self, all: bool, filters_: tuple[str, ...]) -> tuple[list[View], int]:
        """Return the containers that match all filters (`KEY=VALUE`), and the number of the next event. Without `all`,
        one that is not up is left out, unless a filter asks for such. Raises BadRequest; NoSuchContainer, AmbiguousId
        for one that `before` or `since` names."""
        wanted = filters.parse(filters_, filters.CONTAINER_KEYS)
        wanted = wanted.resolved(lambda reference: self._containers.resolve(reference).created_ns)
        shown = [
            self._views.of(c)
            for c in self._containers.values()
            if (all or _is_up(c) or wanted.shows_ended) and wanted.matches_container(c)
        ]
        return shown, self._node.events.last_seq + 1

    async def inspect(self, id: str) -> View:
        """Return the container with what its probes have seen and where its mounts are on this machine. Raises what
        `Containers.find` raises."""
        container = await self._containers.find(id)
        seen = self._prober.seen_all(container.id)
        view = self._views.of(container)
        sources = self._views.mount_sources(container)
        return replace(view, health=seen.get(CheckKind.CHECK), probes=seen, mount_sources=sources)

    async def run_check(self, id: str) -> tuple[ProbeResult, HealthStatus]:
        """As `Prober.probe_now`. Raises what `Containers.find` raises; WrongState when it does not run, or has no
        health check."""
        container = await self._running(id, Phase.RUNNING)
        if container.spec.health is None:
            raise WrongState(f"{container.spec.name} has no health check", id=container.id)
        return await self._prober.probe_now(container)

    async def pids(self, id: str) -> tuple[int, ...]:
        """Return the pids of all processes of the container; none if it does not run. Raises what `Containers.find`
        raises, and what its runtime raises."""
        container = await self._containers.find(id)
        return await self._manager.of(container).pids(container) if container.phase in LIVE else ()

    async def wait(self, id: str, condition: str, run: int) -> Exit | None:
        """Return the exit of a run once it is stored; of a container that is gone, from the ledger. `condition`:
        exited; next-exit, which for a run that has ended is that of the next one; removed, which waits until the
        container is gone. `run` 0: the current one. None: it is gone, and that run has no stored exit. Raises
        NoSuchContainer, AmbiguousId, Recovering; WrongState when the run never began."""
        try:
            container = await self._containers.find(id)
        except NoSuchContainer:
            return await self._ledger.exit_of(id, run)
        if condition == "removed":
            await self._containers.until(container.id, lambda c: c is None, None, "its removal")
            return await self._ledger.exit_of(container.id, 0)
        wanted = run or container.run
        if condition == "next-exit" and not run and is_over(wanted)(container):
            wanted = container.run + 1
        now = await self._containers.until(container.id, is_over(wanted), None, "its exit")
        last = exit_of(now)
        if last is not None and (
            last.key.run == wanted or (condition == "exited" and not run and last.key.run < wanted)
        ):
            return last  # of the newest run that got as far as having one
        if now is not None and (last is None or last.key.run < wanted):
            raise WrongState(f"run {wanted} of {id} never began: {now.error}", id=container.id)
        return await self._ledger.exit_of(container.id, wanted)

    async def subscribe(
        self,
        from_seq: int | None,
        since_ns: int | None,
        until_ns: int | None,
        filters_: tuple[str, ...],
        follow: bool,
    ) -> AsyncIterator[Item]:
        """As `EventLog.subscribe`, with filters as words (`KEY=VALUE`); times are wall time in ns. Raises BadRequest,
        Compacted."""
        asked = filters.parse(filters_, filters.EVENT_KEYS)
        wanted: Matching = asked
        if asked.asks_of_containers:
            wanted = EventFilter(asked, self._containers.values(), self._containers.get)
        source = await self._node.events.subscribe(
            from_seq, wanted, since_ns=since_ns, until_ns=until_ns, follow=follow
        )
        async with aclosing(source):
            async for item in source:
                yield item

    async def exits(self, since_ns: int | None, unknown: bool, id: str) -> AsyncIterator[Exit]:
        """Yield the stored exits since this wall time in ns: only `unknown` ones, or all; of one container (its id, its
        name or the beginning of an id), or of all for an empty `id`. Raises AmbiguousId, StoreFailed."""
        if id:
            id = await self._known_id(id)
        async for page in self._node.store.exit_pages(since_ns, unknown, id or None):
            for each in page:
                yield each

    async def _known_id(self, reference: str) -> str:
        with contextlib.suppress(NoSuchContainer):
            return self._containers.resolve(reference).id
        return await self._ledger.id_of(reference)

    async def log_source(self, id: str) -> logs.LogSource:
        """Return where the log is, and how to wait until it is complete. Raises what `Containers.find` raises;
        WrongState for a log that cannot be read here."""
        container = await self._containers.find(id)
        driver = container.spec.log.driver
        if driver is None or driver not in READERS:
            raise WrongState(_no_log(container), id=container.id)

        async def complete(run: int) -> None:
            await self._output_complete(container.id, run)

        async def settled(run: int) -> None:
            if is_over(run)(self._containers.get(container.id)):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SETTLE_SECONDS):
                        await complete(run)

        where = logs.WantedLog(self._views.log_path(container), driver, is_ours=not container.spec.log.path)
        run = self._containers.known(container.id).run
        return logs.LogSource(where, complete, settled, run, lambda: self._last_words.listening(container.id))

    async def _output_complete(self, container_id: str, run: int) -> None:
        """The run has ended and its shim, which wrote the log, has left."""
        await self._containers.until(container_id, is_over(run), None, "its exit")
        gone = self._manager.shim_gone(RunKey(container_id, run))
        if gone is not None:
            await gone.wait()


async def each_member(containers: Containers, pod_id: str, act: Callable[[Container], Awaitable[object]]) -> None:
    """Do it to all at once, whatever becomes of each, and raise the first error. One that is gone is no error."""
    results = await asyncio.gather(*map(act, containers.members(pod_id)), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, NoSuchContainer):
            raise result


def _no_log(container: Container) -> str:
    """What to do instead of reading a log that exitd does not have."""
    name, driver = container.spec.name, container.spec.log.driver
    if driver is LogDriver.JOURNALD:
        query = f"CONTAINER_ID_FULL={container.id}"
        return f"{name} writes to the journal (log driver journald); read it with: journalctl {query}"
    return f"{name} keeps no log (log driver {driver}); see what it writes from now on: exitctl attach {name}"


def _is_up(container: Container) -> bool:
    return container.phase in (Phase.STARTING, Phase.RUNNING, Phase.PAUSED, Phase.RESTARTING)


def _is_stopped(container: Container) -> bool:
    """It neither runs nor will by itself."""
    return container.phase is Phase.REMOVING or (container.phase is Phase.EXITED and container.stopped_by_user)
