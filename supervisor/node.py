"""The one owner of state: what happens goes through `lifecycle.step`, is stored, shown, and only then acted on."""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import structlog

from supervisor import lifecycle
from supervisor.background import Background, insist
from supervisor.changes import Changes, Test
from supervisor.clock import Clock, boot_now
from supervisor.errors import (
    AmbiguousId,
    ExitdError,
    NameTaken,
    NoSuchContainer,
    Recovering,
    StoreFailed,
    TimedOut,
    WrongState,
)
from supervisor.events import EventLog
from supervisor.facts import LIVE, Asked, By, Container, Exit, Phase, Reason, Report, RunKey, Spec
from supervisor.lifecycle import Happening, Moment, Step
from supervisor.sandbox import ContainerManager
from supervisor.store import AlreadyStored, Change, Store

RETRY_SECONDS = 1.0  # a refused commit of an exit
RECOVERY_SECONDS = 60.0  # how long a call waits for a container that is being looked up
GONE_SECONDS = 30.0  # how long a call waits for what is being removed or cleaned
END_SEEN_SECONDS = 5.0  # from an init's end to the first witness's word, a stopped shim's patience included

log = structlog.get_logger(__name__)


class Node:
    """Containers, and everything that happens to them. Belongs to one event loop; no locks around its maps.

    A container's steps are in turn: the next one sees what the last one stored. The lock for that is held across a
    commit and never across a runtime command.
    """

    def __init__(self, store: Store, events: EventLog, manager: ContainerManager, clock: Clock) -> None:
        self.store = store
        self.events = events
        self.manager = manager
        self.clock = clock
        self.containers: dict[str, Container] = {}
        self.changes = Changes()
        self.recovering: dict[str, asyncio.Event] = {}
        self.pending: set[RunKey] = set()  # exits that are known and not stored yet
        self.refused: set[str] = set()  # containers with a step that the store refuses
        self.on_health: Callable[[bool], None] = lambda serving: None
        self.closing = False
        self._turns: dict[str, asyncio.Lock] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._held: dict[str, asyncio.Future[Report]] = {}  # by container while its start is under way
        self.background = Background()
        manager.listen(self._exit_seen)

    # -- steps

    def moment(self) -> Moment:
        return Moment(self.clock.now_ns(), boot_now(self.clock))

    async def apply(self, container_id: str, happening: Happening) -> Container | None:
        """One step: stored, shown, its effects begun. WrongState, NoSuchContainer, StoreFailed leave all as it was."""
        self.known(container_id)  # a lock for one that is gone would stay for ever
        async with self._turns.setdefault(container_id, asyncio.Lock()):
            step = lifecycle.step(self.known(container_id), happening, self.moment())
            await self._commit(container_id, step)
            self._show(container_id, step.container)
        log.debug("step", container=container_id, happening=happening, effects=step.effects)
        for effect in step.effects:
            self._perform(container_id, effect)
        return step.container

    async def _commit(self, container_id: str, step: Step) -> None:
        kept = (step.container,) if step.container is not None else ()
        removed = () if kept else (container_id,)
        try:
            numbered = await self.store.commit(Change(kept, removed, step.exits, step.events))
        except AlreadyStored:  # a commit that was thought to have failed: exit and events are in, all but the row
            numbered = await self.store.commit(Change(kept, removed))
        self.events.publish(numbered)

    def _show(self, container_id: str, container: Container | None) -> None:
        if container is None:
            self.containers.pop(container_id, None)
            self._turns.pop(container_id, None)
        else:
            self.containers[container_id] = container
        self.changes.tell(container_id, container)

    async def add(self, spec: Spec) -> Container:
        """A container in its first phase. A name whose holder is being removed is waited for."""
        holder = self.by_name(spec.namespace, spec.name)
        if holder is not None and holder.phase is Phase.REMOVING:
            await self.until(holder.id, lambda c: c is None, GONE_SECONDS, "the removal of its name's last holder")
            holder = self.by_name(spec.namespace, spec.name)
        if holder is not None:
            raise NameTaken(f"the name {spec.name} is taken by {holder.id[:12]}; remove it or choose another")
        container = lifecycle.born(secrets.token_hex(32), spec, self.moment())
        container = replace(container, spec=replace(spec, name=spec.name or container.id[:12]))
        self.containers[container.id] = container  # before the commit: whoever looks meanwhile finds the name taken
        self.manager.begin_preparing(container)
        try:
            await self.store.commit(Change((container,)))
        except (ExitdError, asyncio.CancelledError):
            del self.containers[container.id]
            self.spawn(self._take_back(container.id))  # the commit may get through yet, and would hold the name
            raise
        return container

    async def _take_back(self, container_id: str) -> None:
        """Behind a commit that was given up: whatever came of it, there is no such container."""
        await insist(lambda: self.manager.discard(container_id), "removal of files", container_id)
        while not self.closing:
            try:
                await self.store.commit(Change(removed=(container_id,)))
                return
            except StoreFailed:
                await asyncio.sleep(RETRY_SECONDS)

    # -- effects

    def _perform(self, container_id: str, effect: lifecycle.Effect) -> None:
        match effect:
            case lifecycle.CleanUp():
                self.spawn(self._clean_up(container_id))
            case lifecycle.ArmTimer(at):
                self._arm(container_id, at.boot_id, at.ns)
            case lifecycle.CancelTimer():
                self._cancel_timer(container_id)
            case lifecycle.Discard():
                self.spawn(self._remove_files(container_id))
            case lifecycle.WakeWaiters(exit):
                asyncio.get_running_loop().call_soon(_log_exit, exit)  # after those who were woken when it was shown
            case lifecycle.Settle() | lifecycle.Forget():
                pass  # settled at the beginning of CleanUp, in its order; forgotten when it was shown

    def resume_effects(self, container: Container) -> None:
        """What a daemon before this one had stored and not finished."""
        if not container.clean:
            self._perform(container.id, lifecycle.CleanUp())
        elif container.phase is Phase.REMOVING:
            self._perform(container.id, lifecycle.Discard())
        elif container.phase is Phase.RESTARTING and container.restart_at is not None:
            self._perform(container.id, lifecycle.ArmTimer(container.restart_at))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.background.spawn(work)

    async def _clean_up(self, container_id: str) -> None:
        """Until it has worked: run n + 1 is not made, and the id is not free, while anything of run n lives."""
        container = self.containers.get(container_id)
        if container is None:
            return
        await self.manager.settle(container)
        await insist(lambda: self.manager.delete_process(container), "clean-up", container_id)
        await self._surely(container_id, lifecycle.Cleaned())

    async def _remove_files(self, container_id: str) -> None:
        await insist(lambda: self.manager.discard(container_id), "removal of files", container_id)
        await self._surely(container_id, lifecycle.Removed())

    async def _surely(self, container_id: str, happening: Happening) -> bool:
        """A step that no caller can repeat: tried until it is stored, nobody is told before. False: it was refused."""
        while True:
            try:
                await self.apply(container_id, happening)
                self._storing(container_id, True)
                return True
            except StoreFailed as error:
                log.error("commit refused, trying again", container=container_id, why=str(error))
                self._storing(container_id, False)
                await asyncio.sleep(RETRY_SECONDS)
            except ExitdError as error:
                log.warning("step refused", container=container_id, why=str(error))
                self._storing(container_id, True)
                return False

    def _storing(self, container_id: str, works: bool) -> None:
        """Health says NOT_SERVING while something that has happened cannot be stored."""
        before = bool(self.refused)
        (self.refused.discard if works else self.refused.add)(container_id)
        if bool(self.refused) != before:
            self.on_health(not self.refused)

    def _arm(self, container_id: str, boot_id: str, at_ns: int) -> None:
        self._cancel_timer(container_id)
        now = boot_now(self.clock)
        seconds = max(0.0, (at_ns - now.ns) / 1e9) if now.boot_id == boot_id else 0.0
        loop = asyncio.get_running_loop()
        self._timers[container_id] = loop.call_later(seconds, lambda: self.spawn(self._run_again(container_id)))

    def _cancel_timer(self, container_id: str) -> None:
        timer = self._timers.pop(container_id, None)
        if timer is not None:
            timer.cancel()

    async def _run_again(self, container_id: str) -> None:
        self._timers.pop(container_id, None)
        if self.closing or not await self._surely(container_id, lifecycle.Again(None)):
            return
        try:
            await self.make(container_id)
            await self.launch(container_id, surely=True)
        except Exception as error:  # stored as a failed create or start; nobody else is there to hear of it
            log.warning("restart failed", container=container_id, why=str(error) or repr(error))

    # -- a run

    async def make(self, container_id: str) -> None:
        """The runtime's create. The error is the caller's; the step is stored either way."""
        self.hold(container_id)  # an exit that is quicker than the commit of its init
        try:
            made = await self.manager.create_container(self.known(container_id))
            await self._surely(container_id, lifecycle.Made(made.init, made.shim))
        except Exception as error:  # whatever it was: nothing may stay in this phase for ever
            await self._surely(container_id, lifecycle.MakeFailed(str(error) or repr(error)))
            raise
        finally:
            self.release(container_id)

    async def launch(self, container_id: str, *, surely: bool = False) -> None:
        """The runtime's start. An exit seen meanwhile waits, so that started comes before exited. `surely`: nobody is
        there to ask again when the store refuses."""
        if container_id in self._held:
            raise WrongState(f"{container_id[:12]} is being started", id=container_id)
        self.hold(container_id)
        try:
            asked = lifecycle.StartAsked(By())
            if not surely:
                await self.apply(container_id, asked)
            elif not await self._surely(container_id, asked):
                return
            await self.start_made(self.known(container_id))
        finally:
            self.release(container_id)

    async def start_made(self, container: Container) -> None:
        try:
            await self.manager.start_process(container)
        except (ExitdError, OSError) as error:
            if not await self._began(container):
                await self._surely(container.id, lifecycle.StartFailed(str(error)))
                await self._end_unstarted(container)
                raise
        await self._surely(container.id, lifecycle.Started(self.clock.boottime_ns()))

    async def _began(self, container: Container) -> bool:
        """A start that failed, or was killed, may have done its work all the same: the runtime's state says. So may one
        whose container was over, its shim's delete and all, before start had returned.
        """
        try:
            word = await self.manager.state_process(container)
        except (ExitdError, OSError):
            return False
        if word in ("stopped", "absent") and not is_ended(self.containers.get(container.id)):
            await asyncio.wait([self._held[container.id]], timeout=END_SEEN_SECONDS)
        return word == "running" or self.held(container.id)

    async def _end_unstarted(self, container: Container) -> None:
        asked = Asked(Reason.KILL, By(policy="start-failed"), lifecycle.SIGKILL)
        with contextlib.suppress(ExitdError):
            await self.apply(container.id, lifecycle.EndAsked(asked))
            await self.manager.kill_process(container, lifecycle.SIGKILL)

    def hold(self, container_id: str) -> None:
        """Exits of this container wait until `release`."""
        self._held.setdefault(container_id, asyncio.get_running_loop().create_future())

    def held(self, container_id: str) -> bool:
        report = self._held.get(container_id)
        return report is not None and report.done()

    def release(self, container_id: str) -> None:
        report = self._held.pop(container_id, None)
        container = self.containers.get(container_id)
        if report is not None and report.done() and container is not None and not self.closing:
            self.spawn(self.end(RunKey(container_id, container.run), report.result()))

    def _exit_seen(self, key: RunKey, report: Report) -> None:
        held = self._held.get(key.container)
        if held is None:
            self.spawn(self.end(key, report))
        elif not held.done():
            held.set_result(report)

    async def end(self, key: RunKey, report: Report, *, rebooted: bool = False) -> None:
        """Stores an end, however long the store refuses; nobody is told before. A second witness of it is no news."""
        container = self.containers.get(key.container)
        if container is None or container.run != key.run:
            return
        happening = lifecycle.Ended(report, container.spec.memory_bytes, rebooted)
        self.pending.add(key)
        await self._surely(key.container, happening)
        self.pending.discard(key)

    # -- finding

    def known(self, container_id: str) -> Container:
        container = self.containers.get(container_id)
        if container is None:
            raise NoSuchContainer(f"no container {container_id}", id=container_id)
        return container

    def by_name(self, namespace: str, name: str) -> Container | None:
        if not name:
            return None
        found = (c for c in self.containers.values() if c.spec.name == name and c.spec.namespace == namespace)
        return next(found, None)

    def resolve(self, reference: str) -> Container:
        """By full id, by name, or by a prefix of the id that only one has."""
        exact = self.containers.get(reference) or self.by_name("default", reference)
        if exact is not None:
            return exact
        found = [c for c in self.containers.values() if reference and c.id.startswith(reference)]
        if len(found) > 1:
            raise AmbiguousId(f"{reference} is the beginning of {len(found)} ids; give more of it", id=reference)
        if not found:
            raise NoSuchContainer(f"no container {reference}; `exitctl ps -a` lists all", id=reference)
        return found[0]

    async def get(self, reference: str) -> Container:
        """`resolve`, once the container has been looked up after a daemon start."""
        container = self.resolve(reference)
        looked_up = self.recovering.get(container.id)
        if looked_up is not None:
            try:
                async with asyncio.timeout(RECOVERY_SECONDS):
                    await looked_up.wait()
            except TimeoutError as error:
                raise Recovering(f"{reference} is still being looked up; try again", id=container.id) from error
            container = self.resolve(container.id)
        return container

    async def until(self, container_id: str, test: Test, seconds: float | None, what: str) -> Container | None:
        """Waits for a state. TimedOut names what did not come."""
        try:
            async with asyncio.timeout(seconds):
                return await self.changes.until(container_id, self.containers.get(container_id), test)
        except TimeoutError as error:
            raise TimedOut(f"{container_id[:12]}: {what} took longer than {seconds:.0f} s", id=container_id) from error

    async def close(self) -> None:
        """Containers live on; what was begun here is broken off."""
        self.closing = True
        for timer in self._timers.values():
            timer.cancel()
        await self.background.close()


def _log_exit(exit: Exit) -> None:
    log.info("exit", container=exit.key.container, run=exit.key.run, status=str(exit.status), source=exit.source)


def is_ended(container: Container | None) -> bool:
    return container is None or (container.phase not in LIVE and container.phase is not Phase.CREATING)


def is_over(run: int) -> Test:
    """The exit of this run, or of a later one, is stored; or it has failed to begin, and none follows by itself."""
    return lambda c: (
        c is None
        or (c.exit is not None and c.exit.key.run >= run)
        or (c.run >= run and c.phase in (Phase.EXITED, Phase.REMOVING))
    )


def exit_of(container: Container | None) -> Exit | None:
    return container.exit if container is not None else None
