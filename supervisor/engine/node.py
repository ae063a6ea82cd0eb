"""The one owner of state: what happens goes through lifecycle.step, is stored, shown, and only then acted on."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

import structlog

from supervisor.engine.containers import Containers, is_ended, is_over
from supervisor.engine.participants import Participant, Participants
from supervisor.model import lifecycle
from supervisor.model.errors import Busy, ExitdError, NameTaken, NoSuchContainer, StoreFailed, TimedOut, WrongState
from supervisor.model.lifecycle import Happening, Moment, Step
from supervisor.model.restart import Backoff
from supervisor.model.values import (
    LIVE,
    NEVER_STARTED,
    Asked,
    BootTime,
    By,
    Container,
    Event,
    Exit,
    Phase,
    Reason,
    Report,
    RunKey,
    Signaled,
    Spec,
    Unknown,
)
from supervisor.monitor.kernellog import KnownKills
from supervisor.runtime.sandbox import ContainerManagers
from supervisor.store.database import AlreadyStored, Store, Transaction
from supervisor.store.events import EventLog
from supervisor.system import room
from supervisor.system.background import Background, insist
from supervisor.system.clock import Clock, boot_now

# -- what must be stored


RETRY_SECONDS = 1.0
SLOW_SECONDS = 30.0  # a commit that takes longer is no reason to begin another, and one for health to hear of it

log = structlog.get_logger(__name__)


class Storing:
    """Whose commits are being refused, by name. `report_health` is called with False when there are any, and with True
    when there are none any more."""

    def __init__(self, report_health: Callable[[bool], None]) -> None:
        self._report_health = report_health
        self._refused: set[str] = set()

    async def surely(self, name: str, commit: Callable[[], Awaitable[object]]) -> None:
        """However long the store refuses. What else `commit` raises is the caller's, and no refusal any more.

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
        slow = asyncio.get_running_loop().call_later(SLOW_SECONDS, self._note_slow, name)
        try:
            await commit
        finally:
            slow.cancel()

    def _note_slow(self, name: str) -> None:
        log.error("commit takes long, waiting for it", of=name, seconds=SLOW_SECONDS)
        self._note(name, refused=True)

    def _note(self, name: str, *, refused: bool) -> None:
        before = bool(self._refused)
        (self._refused.add if refused else self._refused.discard)(name)
        if bool(self._refused) != before:
            self._report_health(not self._refused)


@contextlib.asynccontextmanager
async def in_turn(turn: asyncio.Lock, of: str, *, patient: bool) -> AsyncIterator[None]:
    """One step after the other: the block is held up while an earlier step is being stored, and no longer than
    SLOW_SECONDS unless it is patient. Raises StoreFailed: the earlier step takes longer than that."""
    try:
        async with asyncio.timeout(None if patient else SLOW_SECONDS):
            await turn.acquire()
    except TimeoutError as error:
        raise StoreFailed(f"{of}: what happened before is still being stored; the disk is slow, try again") from error
    try:
        yield
    finally:
        turn.release()


# -- the node


GONE_SECONDS = 30.0  # how long a call waits for what is being removed or cleaned
TOGETHER_SECONDS = 30.0  # between the ends of a pause process and of those whom the kernel kills with it, at most
END_SEEN_SECONDS = 5.0  # from an init's end to the first witness's word, a stopped shim's patience included
START_FAILED = By(policy="start-failed")

# Of memory kills in the container's cgroup: the report, with what else can be found out about them.
SecondWitness = Callable[[Container, Report, KnownKills], Awaitable[Report]]


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
        second_witness: SecondWitness | None = None,
    ) -> None:
        """`report_health`: see Storing. `backoff`: between two runs, as the configuration of the moment has it.
        `second_witness`: who counts memory kills besides the runtime family."""
        self.containers = Containers()
        self.store = store
        self.events = events
        self.manager = manager
        self.clock = clock
        self.pending: set[RunKey] = set()  # exits that are known and not stored yet
        self.storing = Storing(report_health)
        self.backoff = backoff
        self.others = Participants()
        self.second_witness = second_witness or _nothing_to_add
        self.closing = False
        self._turns: dict[str, asyncio.Lock] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._held: dict[str, asyncio.Future[Report]] = {}  # by container while its start is under way
        self.background = Background()
        manager.listen(self)

    def join(self, *parts: Participant) -> None:
        """Who else has a share in what happens to containers, in this order. Once, before anything happens to one."""
        self.others = Participants(*parts)

    # -- steps

    def moment(self) -> Moment:
        return Moment(self.clock.now_ns(), boot_now(self.clock), self.backoff())

    async def apply(self, container_id: str, happening: Happening, *, patient: bool = False) -> Container | None:
        """One step: stored, shown, its effects begun. WrongState, NoSuchContainer, StoreFailed leave all as it was.

        `patient`: however long the store takes; for a step that is applied again after StoreFailed.
        """
        self.containers.known(container_id)  # a lock for one that is gone would stay for ever
        turn = self._turns.setdefault(container_id, asyncio.Lock())
        async with in_turn(turn, container_id, patient=patient):
            step = lifecycle.step(self.containers.known(container_id), happening, self.moment())
            await self._commit(container_id, step, patient=patient)
            self._show(container_id, step.container)
        log.debug("step", container=container_id, happening=happening, effects=step.effects)
        for effect in step.effects:
            self._perform(container_id, effect)
        return step.container

    async def _commit(self, container_id: str, step: Step, *, patient: bool) -> None:
        kept = (step.container,) if step.container is not None else ()
        removed = () if kept else (container_id,)
        try:
            told = (step.exits, step.events, step.retained)
            change = Transaction(kept, removed, *told, tombstones=step.tombstones, ahead=step.ahead)
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
        self.containers.changes.tell(container_id, container)
        if container is not None:
            self.others.changed(container)

    async def add(self, spec: Spec, container_id: str = "") -> Container:
        """A container in its first phase. A name whose holder is being removed is waited for."""
        holder = self.containers.named(spec.namespace, spec.name, task=spec.task is not None)
        if holder is not None and holder.phase is Phase.REMOVING:
            await self.containers.until(
                holder.id, lambda c: c is None, GONE_SECONDS, "the removal of its name's last holder"
            )
            holder = self.containers.named(spec.namespace, spec.name, task=spec.task is not None)
        if holder is not None:
            raise NameTaken(f"the name {spec.name} is taken by {holder.id[:12]}; remove it or choose another")
        container = lifecycle.born(container_id or secrets.token_hex(32), spec, self.moment())
        self.containers[container.id] = container  # before the commit: whoever looks meanwhile finds the name taken
        self.manager.begin_preparing(container)
        try:
            await self.store.commit(Transaction((container,), ahead=True))
        except (ExitdError, asyncio.CancelledError):
            del self.containers[container.id]
            self.spawn(self._take_back(container.id))  # the commit may get through yet, and would hold the name
            raise
        return container

    async def adopt(self, container: Container, events: tuple[Event, ...]) -> None:
        """A container that somebody else has begun, as it was found. StoreFailed, NameTaken: it is none of ours yet."""
        self.containers[container.id] = container  # before the commit, as in `add`
        try:
            numbered = await self.store.commit(Transaction((container,), events=events))
        except (ExitdError, asyncio.CancelledError):
            del self.containers[container.id]
            raise
        self.events.publish(numbered)
        self._show(container.id, container)

    async def replace_damaged(self, container: Container) -> None:
        """Store what was made of a row that cannot be read, in its place; the row is kept beside it. StoreFailed."""
        told = lifecycle.events(container, self.moment(), "damaged", why=container.damaged)
        self.events.publish(await self.store.commit(Transaction((container,), events=told, kept_aside=(container.id,))))
        self._show(container.id, container)

    async def note(self, event: Event) -> None:
        """An event that changes nothing. StoreFailed: it is not stored, however slow the disk was."""
        self.events.publish(await self.store.commit(Transaction(events=(event,)), patient=True))

    async def _take_back(self, container_id: str) -> None:
        """Behind a commit that was given up: whatever came of it, there is no such container."""
        await self._discard(container_id)
        await insist(lambda: self.store.commit(Transaction(removed=(container_id,))), "taking it back", container_id)

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
        """What a daemon before this one had stored and not finished."""
        if not container.clean:
            self._perform(container.id, lifecycle.CleanUp())
        elif container.phase is Phase.REMOVING:
            self._perform(container.id, lifecycle.Discard())
        elif container.phase is Phase.RESTARTING and container.restart_at is not None:
            self._perform(container.id, lifecycle.ArmTimer(container.restart_at))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.background.spawn(work)

    async def whole(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work to its end, also when the caller goes away meanwhile; return or raise as it does."""
        outcome = asyncio.get_running_loop().create_future()
        self.spawn(_settled(work, outcome))
        await outcome

    async def settle_pause(self, container: Container) -> None:
        """Its phase is what is true, after a pause or a resume of which nobody saw the end. ExitdError, OSError: nobody
        can tell what is."""
        paused = await self.manager.of(container).is_paused(container)
        if paused is not (container.phase is Phase.PAUSED):
            log.warning("found paused" if paused else "found resumed", container=container.id)
            with contextlib.suppress(WrongState, NoSuchContainer):  # it has ended meanwhile
                await self.apply(container.id, lifecycle.Paused() if paused else lifecycle.Resumed(), patient=True)

    async def _clean_up(self, container_id: str) -> None:
        """Until it has worked: run n + 1 is not made, and the id is not free, while anything of run n lives."""
        container = self.containers.get(container_id)
        if container is None:
            return
        await insist(lambda: self.manager.of(container).settle(container), "settling", container_id)
        await insist(lambda: self.others.before_clean_up(container_id), "clean-up of execs", container_id)
        await insist(lambda: self.manager.of(container).delete_process(container), "clean-up", container_id)
        await self._surely(container_id, lifecycle.Cleaned())

    async def _remove_files(self, container_id: str) -> None:
        await insist(lambda: self.others.removing(container_id), "removal of what stands on it", container_id)
        await self._discard(container_id)
        await self._surely(container_id, lifecycle.Removed())

    async def _discard(self, container_id: str) -> None:
        await insist(lambda: self.manager.discard(container_id), "removal of files", container_id)
        await insist(lambda: self.others.discarded(container_id), "what others held of it", container_id)

    async def _surely(self, container_id: str, happening: Happening) -> bool:
        """A step that no caller can repeat: tried until it is stored, nobody is told before. False: it was refused."""
        try:
            await self.storing.surely(container_id, lambda: self.apply(container_id, happening, patient=True))
            return True
        except ExitdError as error:
            log.warning("step refused", container=container_id, why=str(error))
            return False

    def _arm(self, container_id: str, at: BootTime) -> None:
        self._cancel_timer(container_id)
        seconds = at.seconds_after(boot_now(self.clock))
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
            container = await self._joining(self.containers.known(container_id))
            await room.wait_for(room.FOR_ONE, f"a run of {container.spec.name or container_id}")
            await self.others.before_make(container_id)
            made = await self.manager.of(container).create_container(container)
            await self._surely(container_id, lifecycle.Made(made.init, made.shim, container.sandbox_run, made.waits_in))
        except Exception as error:  # whatever it was: nothing may stay in this phase for ever
            await self._surely(container_id, lifecycle.MakeFailed(str(error) or repr(error)))
            raise
        finally:
            self.release(container_id)

    async def _joining(self, container: Container) -> Container:
        """A member joins the sandbox that its pod has now. WrongState when there is none."""
        if not container.spec.sandbox:
            return container
        pause = self.containers.get(container.spec.sandbox)
        if pause is not None:  # after a daemon start: not before it has been looked up
            pause = await self.containers.find(pause.id)
        if pause is None or pause.phase not in (Phase.RUNNING, Phase.PAUSED):
            name = pause.spec.name if pause is not None else container.spec.sandbox[:12]
            raise WrongState(f"the pod {name} is NotReady, there is nothing to join", id=container.id)
        return replace(container, sandbox_run=pause.run)

    async def launch(self, container_id: str, *, surely: bool = False, key: str = "") -> None:
        """The runtime's start. An exit seen meanwhile waits, so that started comes before exited. `surely`: nobody is
        there to ask again when the store refuses."""
        if container_id in self._held:
            raise WrongState(f"{container_id[:12]} is being started", id=container_id)
        self.hold(container_id)
        try:
            asked = lifecycle.StartAsked(By(), key)
            if not surely:
                await self.apply(container_id, asked)
            elif not await self._surely(container_id, asked):
                return
            await self.start_made(self.containers.known(container_id))
        finally:
            self.release(container_id)

    async def start_made(self, container: Container) -> None:
        try:
            await self.manager.of(container).start_process(container)
        except (ExitdError, OSError) as error:
            if not await self._began(container):
                await self.give_up_start(container, str(error))
                raise
        await self._surely(container.id, self.started(container))

    def started(self, container: Container) -> Happening:
        """Its start counts now."""
        return lifecycle.Started(self.clock.boottime_ns(), self.manager.of(container).is_unseen(container))

    async def give_up_start(self, container: Container, why: str) -> None:
        """Init waits for a start that does not come: stored as failed, and init is killed, unless it has ended."""
        await self._surely(container.id, lifecycle.StartFailed(why))
        if not self.held(container.id):
            await self._end_unstarted(container)

    async def _began(self, container: Container) -> bool:
        """A start that failed, or was killed, may have done its work all the same: the runtime's state says. So may one
        whose container was over, its shim's delete and all, before start had returned: then how it ended says it.
        """
        with contextlib.suppress(Busy):
            if await room.patiently(
                lambda: self.manager.of(container).has_begun(container), f"a look at {container.spec.name}"
            ):
                return True
        if not self.held(container.id):
            try:
                word = await self.manager.of(container).state_process(container)
            except (ExitdError, OSError):
                return False
            if word == "running":
                return True
            if word in ("stopped", "absent") and not is_ended(self.containers.get(container.id)):
                await asyncio.wait([self._held[container.id]], timeout=END_SEEN_SECONDS)
        return self.ended_begun(container)

    def ended_begun(self, container: Container) -> bool:
        """Its end is known, waits to be stored, and is that of its program."""
        return self.held(container.id) and lifecycle.had_begun(container, self._held[container.id].result())

    async def _end_unstarted(self, container: Container) -> None:
        asked = Asked(Reason.KILL, START_FAILED, lifecycle.SIGKILL)
        try:
            await self.apply(container.id, lifecycle.EndAsked(asked))
        except ExitdError:
            return
        try:
            await self._kill_unstarted(container)
        except (ExitdError, OSError):  # no room to signal it: no caller asks again
            again = insist(lambda: self._kill_unstarted(container), "kill after a failed start", container.id)
            self.spawn(again)

    async def _kill_unstarted(self, container: Container) -> None:
        """Nothing when that run is over by now, or has no process."""
        now = self.containers.get(container.id)
        if now is None or now.run != container.run or is_ended(now):
            return
        with contextlib.suppress(WrongState):
            await self.manager.of(container).kill_process(container, lifecycle.SIGKILL)

    # -- the end of a run

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
            self._end_soon(RunKey(container_id, container.run), report.result())

    def exit_seen(self, key: RunKey, report: Report) -> None:
        held = self._held.get(key.container)
        if key.exec_id:
            self.others.exec_ended(key, report)
        elif held is None:
            self._end_soon(key, report)
        elif not held.done():
            held.set_result(report)

    def _end_soon(self, key: RunKey, report: Report) -> None:
        self.pending.add(key)  # at once: whoever looks meanwhile sees that its phase is not the last word
        self.spawn(self.end(key, report))

    def is_ending(self, container: Container) -> bool:
        """Its run has ended, whether or not that is stored, or is about to."""
        return RunKey(container.id, container.run) in self.pending or self.manager.of(container).is_ending(container)

    def memory_kills_seen(self, key: RunKey, kills: int) -> None:
        self.spawn(self._tell_oom(key, kills))

    async def _tell_oom(self, key: RunKey, kills: int) -> None:
        """What cannot be stored now is told by the next round of the reconcile loop, or with the exit."""
        container = self.containers.get(key.container)
        if container is not None and container.run == key.run and kills > container.oom_told:
            with contextlib.suppress(WrongState, NoSuchContainer, StoreFailed):
                seen = lifecycle.OomSeen(key.run, kills, is_init_seen=self.manager.of(container).sees_init(container))
                await self.apply(key.container, seen, patient=True)

    def silence_seen(self, key: RunKey, silent: bool) -> None:
        """The event is stored, however long the store refuses."""
        container = self.containers.get(key.container)
        if container is not None and container.run == key.run:
            kind = "unresponsive" if silent else "responsive"
            (event,) = lifecycle.events(container, self.moment(), kind, run=str(key.run))
            self.spawn(insist(lambda: self.note(event), "an event", key.container))

    async def end(self, key: RunKey, report: Report, *, rebooted: bool = False) -> None:
        """Stores an end, however long the store refuses; nobody is told before. A second witness of it is no news."""
        container = self.containers.get(key.container)
        if container is None or container.run != key.run:
            self.pending.discard(key)
            return
        self.pending.add(key)
        left_behind = 0 if rebooted else await self._end_rest(container)
        await self.others.before_end(key.container)
        with_sandbox = await room.surely(lambda: self._ended_with_sandbox(container, report))
        known = KnownKills(container.oom_told, asked_kill=lifecycle.asked_kill(container.asked))
        seen = report
        report = await room.surely(lambda: self.second_witness(container, seen, known))
        limit_bytes = self._memory_limit(container)
        happening = lifecycle.Ended(report, limit_bytes, rebooted, sandbox_ended=with_sandbox, left_behind=left_behind)
        await self._surely(key.container, happening)
        self.pending.discard(key)

    async def _end_rest(self, container: Container) -> int:
        """Its end is stored whatever becomes of them. How many are known to live on."""
        try:
            return await self.manager.of(container).end_rest(container)
        except (ExitdError, OSError) as error:
            log.warning("whoever init has left behind may live on", container=container.id, why=str(error))
            return 0

    def _memory_limit(self, container: Container) -> int:
        """The tightest one on it, its pod's included; 0: none."""
        pause = self.containers.get(container.spec.sandbox or container.id)
        of_pod = pause.spec.pod.memory_bytes if pause is not None and pause.spec.pod is not None else 0
        return min((each for each in (container.spec.memory_bytes, of_pod) if each), default=0)

    async def _ended_with_sandbox(self, member: Container, report: Report) -> bool:
        """Whether the end of its pod's pause process has ended this one: the kernel kills whoever is in its pid
        namespace, and has it die after them. So it is waited for, and the two times are compared."""
        is_killed = report.status in (Signaled(lifecycle.SIGKILL), Unknown(NEVER_STARTED))
        if member.spec.pid != "pod" or not is_killed or member.asked is not None:
            return False
        pause, run = self.containers.get(member.spec.sandbox), member.sandbox_run
        if pause is not None and pause.phase in LIVE and pause.run == run:
            if not self.manager.of(pause).is_ending(pause):
                return False
            with contextlib.suppress(TimedOut):
                pause = await self.containers.until(pause.id, is_over(run), END_SEEN_SECONDS, "the end of its pod")
        exit_ = pause.exit if pause is not None else None
        if exit_ is None or exit_.key.run != run:  # it is ending still, or it has gone
            return True
        return abs(exit_.at_ns - report.at_ns) <= TOGETHER_SECONDS * 1e9

    async def close(self) -> None:
        """Containers live on; what was begun here is broken off."""
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
        log.warning("failed, and nobody waits any more", why=str(error) or repr(error))
    if not outcome.done():
        outcome.set_result(None)


async def _nothing_to_add(container: Container, report: Report, known: KnownKills) -> Report:
    """Where nobody else counts memory kills."""
    return report


def _log_exit(exit: Exit) -> None:
    log.info("exit", container=exit.key.container, run=exit.key.run, status=str(exit.status), source=exit.source)
