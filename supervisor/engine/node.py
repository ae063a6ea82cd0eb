"""The one owner of state: what happens goes through lifecycle.step, is stored, shown, and only then acted on."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any

import structlog

from supervisor.engine.containers import Containers
from supervisor.engine.participants import Participant, Participants
from supervisor.model import lifecycle, names
from supervisor.model.errors import ExitdError, NameTaken, NoSuchContainer, StoreFailed, WrongState
from supervisor.model.lifecycle import Happening, Moment, Step
from supervisor.model.restart import Backoff
from supervisor.model.values import (
    BootTime,
    Container,
    Event,
    Exit,
    Phase,
    RunKey,
    Spec,
)
from supervisor.runtime.sandbox import ContainerManagers
from supervisor.store.database import AlreadyStored, Store, Transaction
from supervisor.store.events import EventLog
from supervisor.system.background import Background, retry
from supervisor.system.clock import Clock, boot_now
from supervisor.system.histogram import Histogram
from supervisor.system.waitlimit import WaitLimit

# -- what must be stored


RETRY_SECONDS = 1.0
SLOW_SECONDS = 30.0  # a commit that takes longer is no reason to begin another, and one for health to hear of it

log = structlog.get_logger(__name__)


class Storing:
    """Knows whose commits are being refused, by name. `report_health` is called with False when there are any, and with
    True when there are none any more."""

    def __init__(self, report_health: Callable[[bool], None]) -> None:
        self._report_health = report_health
        self._refused: set[str] = set()
        self._slow = WaitLimit(SLOW_SECONDS)

    async def retry(self, name: str, commit: Callable[[], Awaitable[object]]) -> None:
        """Repeat the commit however long the store refuses. What else `commit` raises is the caller's, and no refusal
        any more.

        `commit` has to be a patient one: what is given up while the disk is at work may get through yet, and a second
        try of it would store its events twice.
        """
        while True:
            try:
                await self._slowly(name, commit())
                return self._note(name, refused=False)
            except StoreFailed as error:
                log.error("commit refused, trying again", of=name, why=str(error))
                self._note(name, refused=True)
            except ExitdError:
                self._note(name, refused=False)
                raise
            await asyncio.sleep(RETRY_SECONDS)

    async def _slowly(self, name: str, commit: Awaitable[object]) -> None:
        self._slow.begin(commit, lambda: self._note_slow(name))
        try:
            await commit
        finally:
            self._slow.end(commit)

    def _note_slow(self, name: str) -> None:
        log.error("commit takes long, waiting for it", of=name, seconds=SLOW_SECONDS)
        self._note(name, refused=True)

    def _note(self, name: str, *, refused: bool) -> None:
        before = bool(self._refused)
        (self._refused.add if refused else self._refused.discard)(name)
        if bool(self._refused) != before:
            self._report_health(not self._refused)


class StepTurn:
    """The steps of one container, or of one exec: one is stored after the other."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._there = 0  # how many have the turn, or wait for it

    @property
    def is_taken(self) -> bool:
        """Whether a caller has the turn, or waits for it."""
        return self._there > 0

    async def take(self, of: str, *, patient: bool) -> None:
        """Wait while an earlier step is being stored, and no longer than SLOW_SECONDS unless patient; then call
        `give_back`. Raises StoreFailed: the earlier step takes longer than that."""
        self._there += 1
        try:
            if self._there == 1:
                await self._lock.acquire()
            else:
                async with _soon(of, patient=patient):
                    await self._lock.acquire()
        except BaseException:
            self._there -= 1
            raise

    def give_back(self) -> None:
        self._there -= 1
        self._lock.release()


@contextlib.asynccontextmanager
async def _soon(of: str, *, patient: bool) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(None if patient else SLOW_SECONDS):
            yield
    except TimeoutError as error:
        raise StoreFailed(f"{of}: what happened before is still being stored; the disk is slow, try again") from error


def _ring_step(before: Container, step: Step) -> tuple[Container, Container, Exit, tuple[Event, ...]]:
    """Return the step of an end as `Store.write_ends` takes it."""
    (exit,) = step.exits
    assert step.container is not None and not (step.retained or step.tombstones)
    return before, step.container, exit, step.events


# -- the node


GONE_SECONDS = 30.0  # how long a call waits for what is being removed or cleaned
ANSWER_SECONDS = 0.004  # after ends have been shown, until the rest of the work with them begins
STORM_ENDS = 8  # so many of which the rest is not done are a storm
STORM_LOOK_SECONDS = 0.05  # a storm is over when fewer than that have come in this time
STORM_SECONDS = 2.0  # how long the rest waits at most
END_SEEN_SECONDS = 5.0  # from an init's end to the first witness's word, a stopped shim's patience included


class Node:
    """Containers, and everything that happens to them. Belongs to one event loop; no locks around its maps.

    A container's steps are in turn: the next one sees what the last one stored. The lock for that is held across a
    commit and never across a runtime command.
    """

    def __init__(
        self,
        store: Store,
        events: EventLog,
        manager: ContainerManagers,
        clock: Clock,
        *,
        report_health: Callable[[bool], None],
        backoff: Callable[[], Backoff] = Backoff,
    ) -> None:
        """`report_health`: see Storing. `backoff`: between two runs, as the configuration of the moment has it."""
        self.containers = Containers()
        self.store = store
        self.events = events
        self.manager = manager
        self.clock = clock
        self.pending: set[RunKey] = set()  # exits that are known and not stored yet
        self.storing = Storing(report_health)
        self.backoff = backoff
        self.others = Participants()
        self.frozen: set[str] = set()  # containers that exitd itself has frozen, or is about to, and soon thaws
        self.closing = False
        self.going_down = False  # the host is: see `nodeshutdown.py`
        self._turns: dict[str, StepTurn] = {}
        self._in_ring: dict[str, asyncio.Event] = {}  # ends that only the ring has, by container; set when stored
        self._after_ends: list[tuple[str, lifecycle.Effect]] = []
        self._being_written = dict[str, asyncio.Event]()  # by container: its end is on its way into the ring
        self._ends_shown = 0  # before the database had them, so far
        self._ends_gone_on = 0  # and with how many of them it has gone on
        self._is_going_on = False
        self._is_take_over_queued = True  # of all of them, by the database
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.background = Background()
        self.cleanups = Histogram()  # from an end that is stored until nothing of its run is left

    def join(self, *parts: Participant) -> None:
        """Set who else has a share in what happens to containers, in this order. Call it once, before anything happens
        to one."""
        self.others = Participants(*parts)

    # -- steps

    def moment(self) -> Moment:
        """Return what a step needs of this moment: wall clock and boot time, both in ns, and the backoff in force."""
        return Moment(self.clock.now_ns(), boot_now(self.clock), self.backoff())

    async def apply(self, container_id: str, happening: Happening, *, patient: bool = False) -> Container | None:
        """Do one step: store it, show it, begin its effects. WrongState, NoSuchContainer, StoreFailed leave all as it
        was.

        `patient`: however long the store takes; for a step that is applied again after StoreFailed.
        """
        self.containers.known(container_id)  # a lock for one that is gone would stay for ever
        turn = self._turns.get(container_id) or self._turns.setdefault(container_id, StepTurn())
        await turn.take(container_id, patient=patient)
        try:
            await self._until_stored(container_id, patient=patient)
            step = lifecycle.step(self.containers.known(container_id), happening, self.moment())
            await self._commit(container_id, step, patient=patient)
            self._show(container_id, step.container)
        finally:
            turn.give_back()
        log.debug("step", container=container_id, happening=happening, effects=step.effects)
        for effect in step.effects:
            self._perform(container_id, effect)
        return step.container

    @contextlib.contextmanager
    def turning(self, container_id: str) -> Iterator[None]:
        """For a start, a pause or a resume, from before the runtime does it until it is shown. What is cut off has no
        end: what has become of it is for the next daemon to find out. Raises ExitdError: it must not be begun."""
        self.others.turning(container_id)
        try:
            yield
        except Exception:
            self.others.turned(container_id)
            raise
        self.others.turned(container_id)

    async def _commit(self, container_id: str, step: Step, *, patient: bool) -> None:
        kept = (step.container,) if step.container is not None else ()
        removed = () if kept else (container_id,)
        try:
            stored = (step.exits, step.events, step.retained)
            change = Transaction(
                *(kept, removed, *stored), tombstones=step.tombstones, ahead=step.ahead, memory_kills=step.memory_kills
            )
            numbered = await self.store.commit(change, patient=patient)
        except AlreadyStored:  # a commit that was thought to have failed: exit and events are in, all but the row
            change = Transaction(kept, removed, retained=step.retained, tombstones=step.tombstones)
            numbered = await self.store.commit(change, patient=patient)
        self.events.publish(numbered)

    def _show(self, container_id: str, container: Container | None) -> None:
        if container is None:
            self.containers.pop(container_id, None)
            self._turns.pop(container_id, None)
        else:
            self.containers[container_id] = container
        self.containers.changes.notify(container_id, container)
        if container is not None:
            self.others.changed(container)

    # -- ends that are shown before the database has them

    def is_in_a_step(self, container_id: str) -> bool:
        """Whether a step of the container is being stored, or waits for that."""
        turn = self._turns.get(container_id)
        is_written = container_id in self._in_ring or container_id in self._being_written
        return is_written or (turn is not None and turn.is_taken)

    async def end_together(self, endings: Sequence[tuple[Container, lifecycle.Ended]]) -> bool:
        """Put the ends of runs that are in no step on the disk by one write, and show them; with a quick disk that
        takes one turn of the loop. Return False when the store cannot take them in this way now; then nothing has
        happened."""
        steps = self._ends_of(endings)
        writing = self.store.write_ends(
            [_ring_step(before, step) for before, step in steps], meanwhile=partial(self._prepare, steps)
        )
        if writing is None:
            return False
        if not writing.done():
            return await self._shown_late(steps, writing)
        return self._show_written(steps, writing.result())

    def _prepare(self, steps: Sequence[tuple[Container, lifecycle.Step]]) -> None:
        """Raises nothing: what is not prepared is done when it is needed."""
        try:
            for _, step in steps:
                for exit in step.exits:
                    self.others.being_stored(exit)
        except Exception:  # a bug there must cost no end its report
            log.exception("nothing could be prepared for ends on their way to the disk")

    async def _shown_late(
        self,
        steps: Sequence[tuple[Container, lifecycle.Step]],
        writing: asyncio.Future[tuple[Event, ...] | None],
    ) -> bool:
        """The loop goes on while the disk takes its time. These containers are in a step until then."""
        written = asyncio.Event()
        self._being_written |= dict.fromkeys((before.id for before, _ in steps), written)
        try:
            return self._show_written(steps, await writing)
        finally:
            for before, _ in steps:
                del self._being_written[before.id]
            written.set()

    def _show_written(
        self, steps: Sequence[tuple[Container, lifecycle.Step]], numbered: tuple[Event, ...] | None
    ) -> bool:
        """Show ends whose block is written. Return False if it could not be (`numbered` is None)."""
        if numbered is None:
            return False
        self._show_ends(steps, numbered)
        return True

    def _ends_of(self, endings: Sequence[tuple[Container, lifecycle.Ended]]) -> list[tuple[Container, lifecycle.Step]]:
        moment = self.moment()
        return [(container, lifecycle.step(container, ended, moment)) for container, ended in endings]

    def _show_ends(self, steps: Sequence[tuple[Container, lifecycle.Step]], numbered: tuple[Event, ...]) -> None:
        self._ends_shown += len(steps)
        self._is_take_over_queued = False
        for before, step in steps:
            self._in_ring[before.id] = asyncio.Event()
            self._after_ends += [(before.id, effect) for effect in step.effects]
            self.pending.discard(RunKey(before.id, before.run))
        for before, step in steps:
            self._show(before.id, step.container)
        self.events.publish(numbered)

    async def go_on_after_ends(self) -> None:
        """Do what can wait until the clients have their answers. If it is broken off, the store has the ends stored
        when it closes, and the next daemon does the rest."""
        if self._is_going_on:
            return  # together with those that are waited for
        self._is_going_on = True
        try:
            await self._until_storm_is_over()
        finally:
            self._is_going_on = False
        self._ends_gone_on = self._ends_shown
        self._take_over_ends()
        effects, self._after_ends = self._after_ends, []
        for container_id, effect in effects:
            self._perform(container_id, effect)

    async def _until_storm_is_over(self) -> None:
        """Let the ends that come now be shown first: clean-ups, a runtime's delete each, would take the processors from
        the shims that record ends and from exitd, which reports them."""
        loop = asyncio.get_running_loop()
        until = loop.time() + STORM_SECONDS
        while loop.time() < until:
            shown = self._ends_shown
            is_storm = shown - self._ends_gone_on >= STORM_ENDS
            await asyncio.sleep(STORM_LOOK_SECONDS if is_storm else ANSWER_SECONDS)
            if self._ends_shown - shown < (STORM_ENDS if is_storm else 1):
                return

    def _take_over_ends(self) -> None:
        """Have the database take over what only the ring has."""
        if self._is_take_over_queued:
            return
        self._is_take_over_queued = True
        self.spawn(self._until_taken_over(dict(self._in_ring), self.store.take_over_ends()))

    async def _until_taken_over(self, ends: dict[str, asyncio.Event], first: asyncio.Future[None]) -> None:
        tries = iter([first])
        await self.storing.retry("reported ends", lambda: next(tries, None) or self.store.take_over_ends())
        for container_id, stored in ends.items():
            if self._in_ring.get(container_id) is stored:
                del self._in_ring[container_id]
            stored.set()

    async def _until_stored(self, container_id: str, *, patient: bool) -> None:
        """Wait for the container's last end to be in the database: nothing of it is stored before that."""
        if (written := self._being_written.get(container_id)) is not None:
            async with _soon(container_id, patient=patient):
                await written.wait()
        stored = self._in_ring.get(container_id)
        if stored is not None:
            self._take_over_ends()
            async with _soon(container_id, patient=patient):
                await stored.wait()

    async def add(self, spec: Spec, container_id: str = "") -> Container:
        """Make a container in its first phase. Wait for a name whose holder is being removed."""
        holder = self.containers.named(spec.namespace, spec.name, task=spec.task is not None)
        if holder is not None and holder.phase is Phase.REMOVING:
            await self.containers.until(
                holder.id, lambda c: c is None, GONE_SECONDS, "the removal of its name's last holder"
            )
            holder = self.containers.named(spec.namespace, spec.name, task=spec.task is not None)
        if holder is not None:
            raise NameTaken(f"the name {spec.name} is taken by {holder.id[:12]}; remove it or choose another")
        container = lifecycle.born(container_id or secrets.token_hex(32), spec, self.moment())
        self.containers[container.id] = container  # before the commit: a call that looks meanwhile finds the name taken
        self.manager.begin_preparing(container)
        try:
            await self.store.commit(Transaction((container,), ahead=True))
        except (ExitdError, asyncio.CancelledError):
            del self.containers[container.id]
            self.spawn(self._take_back(container.id))  # the commit may get through yet, and would hold the name
            raise
        return container

    async def adopt(self, container: Container, events: tuple[Event, ...]) -> None:
        """Take in a container that another program has begun, as it was found. Raises StoreFailed, NameTaken: it is
        none of ours yet."""
        self.containers[container.id] = container  # before the commit, as in `add`
        try:
            numbered = await self.store.commit(Transaction((container,), events=events))
        except (ExitdError, asyncio.CancelledError):
            del self.containers[container.id]
            raise
        self.events.publish(numbered)
        self._show(container.id, container)

    async def replace_damaged(self, container: Container) -> None:
        """Store what was made of a row that cannot be read, in its place; the row is kept beside it. Raises
        StoreFailed."""
        events = lifecycle.events(container, self.moment(), "damaged", why=container.damaged)
        self.events.publish(
            await self.store.commit(Transaction((container,), events=events, kept_aside=(container.id,)))
        )
        self._show(container.id, container)

    async def note(self, event: Event) -> None:
        """Store an event that changes nothing. Raises StoreFailed: it is not stored, however slow the disk was."""
        self.events.publish(await self.store.commit(Transaction(events=(event,)), patient=True))

    def count(self, name: str, container_id: str = "") -> None:
        """Add one to a counter of the store's, in the background and however long the store refuses."""
        now_ns = self.clock.now_ns()
        if not self.closing:
            self.spawn(retry(lambda: self.store.count(name, now_ns), "a counter", container_id))

    async def _take_back(self, container_id: str) -> None:
        """Behind a commit that was given up: whatever came of it, there is no such container."""
        await self._discard(container_id)
        await retry(lambda: self.store.commit(Transaction(removed=(container_id,))), "taking it back", container_id)

    # -- effects

    def _perform(self, container_id: str, effect: lifecycle.Effect) -> None:
        match effect:
            case lifecycle.CleanUp():
                self.spawn(self._clean_up(container_id))
            case lifecycle.ArmTimer(at):
                self._arm(container_id, at)
            case lifecycle.CancelTimer():
                self._cancel_timer(container_id)
            case lifecycle.Discard():
                self.spawn(self._remove_files(container_id))
            case lifecycle.LogExit(exit):
                asyncio.get_running_loop().call_soon(_log_exit, exit)

    def resume_effects(self, container: Container) -> None:
        """Do what a daemon before this one had stored and not finished."""
        if not container.clean:
            self._perform(container.id, lifecycle.CleanUp())
        elif container.phase is Phase.REMOVING:
            self._perform(container.id, lifecycle.Discard())
        elif container.phase is Phase.RESTARTING and container.restart_at is not None:
            self._perform(container.id, lifecycle.ArmTimer(container.restart_at))

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Begin background work. It is cancelled when the node closes; an exception that it raises is logged."""
        self.background.spawn(work)

    async def whole(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work to its end, also when the caller goes away meanwhile; return or raise as it does."""
        outcome = asyncio.get_running_loop().create_future()
        self.spawn(_settled(work, outcome))
        await outcome

    async def settle_pause(self, container: Container) -> None:
        """Store the true phase after a pause or a resume of which the end was not seen. Raises ExitdError, OSError: it
        cannot be found out."""
        paused = await self.manager.of(container).is_paused(container)
        if paused is not (container.phase is Phase.PAUSED):
            log.warning("found paused" if paused else "found resumed", container=container.id)
            # WrongState, NoSuchContainer: it has ended meanwhile
            with contextlib.suppress(WrongState, NoSuchContainer), self.turning(container.id):
                await self.apply(container.id, lifecycle.Paused() if paused else lifecycle.Resumed(), patient=True)

    async def _clean_up(self, container_id: str) -> None:
        """Until it has worked: run n + 1 is not made, and the id is not free, while anything of run n lives."""
        container, begun = self.containers.get(container_id), asyncio.get_running_loop().time()
        if container is None:
            return
        await retry(lambda: self.manager.of(container).settle(container), "settling", container_id)
        await retry(lambda: self.others.before_clean_up(container_id), "clean-up of execs", container_id)
        await retry(lambda: self.manager.of(container).delete_process(container), "clean-up", container_id)
        await retry(lambda: self.others.after_clean_up(container_id), "clean-up of its network", container_id)
        await self.apply_until_stored(container_id, lifecycle.Cleaned())
        self.cleanups.observe(asyncio.get_running_loop().time() - begun)

    async def _remove_files(self, container_id: str) -> None:
        await retry(lambda: self.others.removing(container_id), "removal of what stands on it", container_id)
        await self._discard(container_id)
        await self.apply_until_stored(container_id, lifecycle.Removed())

    async def _discard(self, container_id: str) -> None:
        container = self.containers.get(container_id)
        may_be_pod = container is None or container.spec.pod is not None or bool(container.damaged)
        discard = self.manager.discard
        await retry(lambda: discard(container_id, is_pod=may_be_pod), "removal of files", container_id)
        await retry(lambda: self.others.discarded(container_id), "what others held of it", container_id)

    async def apply_until_stored(self, container_id: str, happening: Happening) -> bool:
        """Try a step that no caller can repeat until it is stored; no client sees it before. Return False if it was
        refused."""
        try:
            await self.storing.retry(container_id, lambda: self.apply(container_id, happening, patient=True))
            return True
        except ExitdError as error:
            log.warning("step refused", container=container_id, why=str(error))
            return False

    def _arm(self, container_id: str, at: BootTime) -> None:
        self._cancel_timer(container_id)
        seconds = at.seconds_after(boot_now(self.clock))
        loop = asyncio.get_running_loop()
        self._timers[container_id] = loop.call_later(seconds, lambda: self.spawn(self._due(container_id)))

    def _cancel_timer(self, container_id: str) -> None:
        timer = self._timers.pop(container_id, None)
        if timer is not None:
            timer.cancel()

    async def _due(self, container_id: str) -> None:
        self._timers.pop(container_id, None)
        if not self.going_down:
            await self.others.due(container_id)

    def arm_again(self) -> None:
        """Arm the timers of all planned restarts, after a time in which none was acted on."""
        for container in self.containers.values():
            if container.phase is Phase.RESTARTING and container.clean and container.restart_at is not None:
                self._arm(container.id, container.restart_at)

    def is_ending(self, container: Container) -> bool:
        """Whether its run has ended, stored or not, or is about to."""
        return RunKey(container.id, container.run) in self.pending or self.manager.of(container).is_ending(container)

    async def close(self) -> None:
        """Break off what was begun here. Containers live on."""
        self.closing = True
        for timer in self._timers.values():
            timer.cancel()
        await self.background.close()


async def _settled(work: Coroutine[Any, Any, None], outcome: asyncio.Future[None]) -> None:
    """Hand the work's outcome to the caller, if it still waits."""
    try:
        await work
    except asyncio.CancelledError:
        outcome.cancel()
        raise
    except Exception as error:
        if not outcome.done():
            return outcome.set_exception(error)
        log.warning("failed, and no caller waits any more", why=str(error) or repr(error))
    if not outcome.done():
        outcome.set_result(None)


def _log_exit(exit: Exit) -> None:
    log.info("exit", **names.logged(exit))
