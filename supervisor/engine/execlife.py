"""The owner of all execs: what happens to one goes through `execs.step`, is stored, and only then acted on.

Beside the node, whose store, events and clock it uses: the end of a container waits here for those of its execs, and so
does the clean-up of its run.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Iterable

import structlog

from shim.frozen import field, mutable, replace
from supervisor.engine import remains
from supervisor.engine.exits import SecondWitness
from supervisor.engine.node import Node, StepTurn
from supervisor.engine.participants import Participant
from supervisor.model import evidence, execs, lifecycle, names
from supervisor.model.errors import ExitdError, NoSuchExec, TimedOut, WrongState
from supervisor.model.execs import Exec, ExecHappening, ExecPhase, ExecSpec
from supervisor.model.lifecycle import SIGKILL, refuse_damaged
from supervisor.model.values import (
    LIVE,
    Asked,
    By,
    Container,
    Exit,
    Phase,
    Process,
    Reason,
    Report,
    RunKey,
    Signaled,
    Source,
    Unknown,
)
from supervisor.monitor.kernellog import KnownKills
from supervisor.runtime.sandbox import ExecManagers, NoProcess
from supervisor.store import salvage
from supervisor.store.database import AlreadyStored, Transaction
from supervisor.system import room
from supervisor.system.background import retry
from supervisor.system.clock import boot_now

BEFORE_END_SECONDS = 1.0  # what a container's stored end waits for those of its execs
BEFORE_TASK_END_SECONDS = 5.0  # a task's: what comes later is not published to containerd any more
STUCK_SECONDS = 3.0  # until an exec that has ended with its container is looked after: a stopped shim's zombie is read
GONE_SECONDS = 20.0  # what one try of a run's clean-up waits for its execs
NOTHING_ELSE = Transaction()
HELD_SECONDS = 12.0  # how long the output of an exec that has ended waits for the client that wanted to attach

log = structlog.get_logger(__name__)


@mutable
class Live:
    """One exec, from before its row is stored until nothing of it is left."""

    exec: Exec
    container: Container
    turn: StepTurn = field(default_factory=StepTurn)
    over: asyncio.Event = field(default_factory=asyncio.Event)  # its end is stored, or it has failed to begin
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    hurry: asyncio.Event = field(default_factory=asyncio.Event)  # no client is to attach any more
    making: bool = False
    held: Report | None = None  # an end that was quicker than the commit of its beginning
    found: bool = True  # False: of an earlier daemon, and not looked up yet
    timer: asyncio.TimerHandle | None = None

    @property
    def key(self) -> RunKey:
        return self.exec.key

    @property
    def name(self) -> str:
        return f"{self.key.container}/{self.key.exec_id}"


class Execs(Participant):
    """Belongs to one event loop; no locks around its maps. The steps of one exec are in turn."""

    def __init__(self, node: Node, manager: ExecManagers, second_witness: SecondWitness | None = None) -> None:
        """`second_witness`: as for the ends of runs."""
        self._node = node
        self._manager = manager
        self._second_witness = second_witness or SecondWitness()
        self._live: dict[str, dict[str, Live]] = {}

    # -- who there is

    def of(self, container_id: str) -> tuple[Exec, ...]:
        """Return the execs of the container that have not ended."""
        if container_id not in self._live:
            return ()
        return tuple(live.exec for live in self._of(container_id) if not live.over.is_set())

    def keys(self) -> Iterable[RunKey]:
        """Return the keys of all whose end is not stored."""
        return [live.key for lives in self._live.values() for live in lives.values() if not live.over.is_set()]

    def unfound(self) -> Iterable[tuple[str, Process]]:
        """Return container id and process of each that an earlier daemon has begun on this boot, and that is not looked
        up yet."""
        boot_id = self._node.clock.boot_id()
        for live in (live for lives in self._live.values() for live in lives.values() if not live.found):
            if live.exec.init is not None and live.exec.boot_id == boot_id and not live.over.is_set():
                yield live.key.container, live.exec.init

    def get(self, container_id: str, exec_id: str) -> Live | None:
        return self._live.get(container_id, {}).get(exec_id)

    def _of(self, container_id: str) -> list[Live]:
        return list(self._live.get(container_id, {}).values())

    def _add(self, live: Live) -> None:
        self._live.setdefault(live.key.container, {})[live.key.exec_id] = live

    def _drop(self, live: Live) -> None:
        of_container = self._live.get(live.key.container, {})
        of_container.pop(live.key.exec_id, None)
        if not of_container:
            self._live.pop(live.key.container, None)

    # -- steps

    async def _apply(self, live: Live, happening: ExecHappening, *, patient: bool = False) -> Exec:
        """Do one step: store it, publish its events, act on it. WrongState, StoreFailed leave all as it was. `patient`:
        see Node.apply."""
        await live.turn.take(live.name, patient=patient)
        try:
            step = execs.step(live.exec, happening, self._node.moment())
            if step.exec is not None:
                await self._commit(step.exec, step, patient=patient)
                live.exec = step.exec
                self._act(live, step.exec)
            else:
                self._drop(live)
                live.gone.set()
        finally:
            live.turn.give_back()
        log.debug("exec step", container=live.key.container, exec=live.key.exec_id, happening=happening)
        return live.exec

    async def _commit(self, now: Exec, step: execs.ExecStep, *, patient: bool) -> None:
        ended = now.phase is ExecPhase.EXITED
        rows, gone = (() if ended else (now,)), ((now.key,) if ended else ())
        try:
            change = Transaction(exits=step.exits, events=step.events, execs=rows, ended_execs=gone)
            numbered = await self._node.store.commit(change, patient=patient)
        except AlreadyStored:  # a commit that was thought to have failed: all is in but the end of the row
            numbered = await self._node.store.commit(Transaction(ended_execs=gone), patient=patient)
        self._node.events.publish(numbered)

    def _act(self, live: Live, now: Exec) -> None:
        self._disarm(live)
        if now.phase is ExecPhase.EXITED:
            live.over.set()
            self._node.spawn(self._clean_up(live))
            if now.exit is not None:
                log_it = log.debug if now.by.policy else log.info
                log_it("exec exit", exec=now.key.exec_id, **names.logged(now.exit))
        else:
            self._arm(live)

    async def _apply_until_stored(self, live: Live, happening: ExecHappening) -> bool:
        """A step that no caller can repeat: tried until it is stored. False: it was refused, something was quicker."""
        try:
            await self._node.storing.retry(live.name, lambda: self._apply(live, happening, patient=True))
            return True
        except WrongState as error:
            log.debug("step refused", exec=live.name, why=str(error))
            return False

    # -- an exec begins

    async def begin(
        self, container: Container, spec: ExecSpec, by: By, id: str = "", beside: Transaction = NOTHING_ELSE
    ) -> Exec:
        """Begin an exec, and return when it runs. Its row comes first, in one transaction with `beside`. `id`: empty
        for a new one. Raises WrongState when the container cannot have one; Busy when there is no room for it."""
        await room.wait_for(room.FOR_ONE, f"an exec in {container.spec.name}")
        self._refuse_unless_running(container)
        e = execs.born(container, id or secrets.token_hex(16), spec, by, self._node.moment())
        live = Live(e, container, making=True)
        self._add(live)
        try:
            await self._node.store.commit(replace(beside, execs=(e,), ahead=not beside.events))
        except (ExitdError, asyncio.CancelledError):
            self._drop(live)
            live.over.set()
            live.gone.set()
            taken_back = Transaction(ended_execs=(e.key,))  # the commit may get through yet
            self._node.spawn(retry(lambda: self._node.store.commit(taken_back), "taking back an exec", container.id))
            raise
        return await self._make(live)

    async def _make(self, live: Live) -> Exec:
        try:
            made = await self._manager.of(live.container).create_exec(live.container, live.exec)
            await self._apply_until_stored(live, execs.ExecMade(made.init, made.shim, made.oom_kills, made.unseen))
            if made.init is None:
                live.held = live.held or self._unseen()
            else:
                self._node.spawn(self._kill_if_container_ended(live))
            return live.exec
        except Exception as error:  # whatever it was: nothing may stay in this phase for ever
            await self._apply_until_stored(live, execs.ExecMakeFailed(str(error) or repr(error)))
            if isinstance(error, ExitdError):
                with contextlib.suppress(OSError):  # no room to look
                    self._refuse_unless_running(live.container, error)
            raise
        finally:
            live.making = False
            if live.held is not None and not self._node.closing:
                self._end_soon(live, live.held)

    def _refuse_unless_running(self, container: Container, cause: ExitdError | None = None) -> None:
        """WrongState, or NoSuchContainer, when the container is not (or no longer) one to run something in."""
        now, name = self._node.containers.known(container.id), container.spec.name
        refuse_damaged(now)
        if now.phase is Phase.PAUSED:
            raise WrongState(f"{name} is paused; resume it first", id=now.id, phase=now.phase.value) from cause
        if now.phase is not Phase.RUNNING:
            raise WrongState(f"{name} is {now.phase.value}; an exec needs a running container", id=now.id) from cause
        if now.run != container.run or self._node.is_ending(now):
            raise WrongState(f"{name} has ended", id=now.id) from cause

    async def _kill_if_container_ended(self, live: Live) -> None:
        """Its container may have ended while it was made."""
        if not live.over.is_set() and await room.retry(lambda: self._ends_with_container(live)):
            await self._kill_with_container(live)

    # -- an exec is to end

    async def kill(self, live: Live, number: int, everyone: bool, by: By) -> None:
        """Recorded first: should the daemon die in between, the exit still carries its reason. WrongState."""
        e = await self._apply(live, execs.ExecEndAsked(Asked(Reason.KILL, by, number)))
        await self._manager.of(live.container).signal_exec(live.container, e, number, everyone=everyone)

    def _arm(self, live: Live) -> None:
        seconds = execs.seconds_left(live.exec, boot_now(self._node.clock))
        if seconds is not None and not (live.exec.asked and live.exec.asked.reason is Reason.TIMEOUT):
            loop = asyncio.get_running_loop()
            live.timer = loop.call_later(seconds, lambda: self._node.spawn(self._time_out(live)))

    def _disarm(self, live: Live) -> None:
        if live.timer is not None:
            live.timer.cancel()
            live.timer = None

    async def _time_out(self, live: Live) -> None:
        live.timer = None
        log_it = log.debug if live.exec.by.policy else log.info
        log_it("exec has reached its limit", container=live.key.container, exec=live.key.exec_id)
        if await self._apply_until_stored(live, execs.ExecEndAsked(Asked(Reason.TIMEOUT, execs.TIMEOUT, SIGKILL))):
            await self._end_whole(live)

    async def _end_whole(self, live: Live) -> None:
        """Until it is over: its limit has passed, and no caller asks again."""

        async def kill() -> None:
            if not live.over.is_set():
                with contextlib.suppress(WrongState):  # it has no process any more
                    await self._manager.of(live.container).signal_exec(
                        live.container, live.exec, SIGKILL, everyone=True
                    )

        await retry(kill, "kill of an exec past its limit", live.key.container)

    # -- an exec has ended

    def exec_ended(self, key: RunKey, report: Report) -> None:
        live = self.get(key.container, key.exec_id)
        if live is None or live.over.is_set():
            return
        if live.making:
            live.held = live.held or report
        else:
            self._end_soon(live, report)

    def _end_soon(self, live: Live, report: Report) -> None:
        self._node.pending.add(live.key)
        self._node.spawn(self._end(live, report))

    async def _end(self, live: Live, report: Report) -> None:
        """Stores an end, however long the store refuses; a second witness of it is no news."""
        self._node.pending.add(live.key)
        e = live.exec
        known = KnownKills(e.oom_before, e.oom_before, asked_kill=lifecycle.asked_kill(e.asked))
        report = await room.retry(lambda: self._second_witness.weigh(live.container, report, known))
        is_killed = report.status == Signaled(SIGKILL)
        with_container = is_killed and await room.retry(lambda: self._ends_with_container(live))
        await self._apply_until_stored(live, execs.ExecEnded(report, with_container))
        self._node.pending.discard(live.key)

    async def _ends_with_container(self, live: Live) -> bool:
        """OSError: there is no room to look."""
        now = self._node.containers.get(live.key.container)
        if now is None or now.run != live.key.run or now.phase not in LIVE:
            return True
        return self._node.manager.of(now).is_ending(now)

    async def _clean_up(self, live: Live) -> None:
        """Until it has worked. Output for which a client was to attach waits for it a while."""
        key, e = live.key, live.exec
        await retry(lambda: self._manager.settle_exec(key), "settling an exec", key.container)
        shim_gone = self._manager.shim_gone(key)
        if e.spec.attach and e.exit is not None and shim_gone is not None:
            await _first_of(shim_gone, live.hurry, HELD_SECONDS)
        await retry(
            lambda: self._manager.of(live.container).delete_exec(live.container, e),
            "clean-up of an exec",
            key.container,
        )
        await self._apply(live, execs.ExecCleaned())

    # -- the container of execs ends

    def delays_end(self, container_id: str) -> bool:
        return any(not live.over.is_set() for live in self._live.get(container_id, {}).values())

    async def before_end(self, container_id: str) -> None:
        """The ends of a container's execs come before its own in the log, if they come soon. In a pid namespace of its
        own they are dying with it; elsewhere they are killed now, or once they are made. The runtime may have made one
        of a process that has the number of the dead init."""
        lives = [live for live in self._of(container_id) if not live.over.is_set()]
        for live in lives:
            await self._kill_with_container(live)
        is_task = any(live.container.spec.task is not None for live in lives)
        await _within(BEFORE_TASK_END_SECONDS if is_task else BEFORE_END_SECONDS, [live.over for live in lives])

    async def _kill_with_container(self, live: Live) -> None:
        """A container's end is stored whatever becomes of its execs."""
        try:
            await self._manager.of(live.container).signal_exec(live.container, live.exec, SIGKILL, everyone=False)
        except (ExitdError, OSError) as error:
            log.debug("exec not killed before its container's end", exec=live.name, why=str(error))

    async def before_clean_up(self, container_id: str) -> None:
        """Nothing of the execs is left when this returns: their directories lie in the run's. TimedOut."""
        lives = self._of(container_id)
        for live in lives:
            live.hurry.set()
        if not await _within(STUCK_SECONDS, [live.over for live in lives]):
            self.unstick(container_id)
        if not await _within(GONE_SECONDS, [live.gone for live in lives]):
            left = [live.key.exec_id for live in lives if not live.gone.is_set()]
            raise TimedOut(f"{len(left)} execs are not gone, {left[0]} for one", id=container_id)
        await self._delete_leaked_execs(container_id)

    async def _delete_leaked_execs(self, container_id: str) -> None:
        """What was stored as ended by a daemon that was killed before the clean-up."""
        container = self._node.containers.get(container_id)
        if container is not None:
            await self._manager.of(container).delete_leaked_execs(container, self._live.get(container_id, {}).keys())

    def _may_have_leaked_execs(self, container_id: str) -> bool:
        """Return True also where that cannot be seen: the clean-up says so, and the container is found all the same."""
        container = self._node.containers.get(container_id)
        if container is None:
            return False
        try:
            return bool(self._manager.of(container).leaked_execs(container, self._live.get(container_id, {}).keys()))
        except OSError:
            return True

    def unstick(self, container_id: str) -> None:
        """An init does not die before all others in its pid namespace are reaped: shims that are stopped are killed,
        and the keeper reaps for them."""
        for live in self._of(container_id):
            self._manager.kill_stopped_shim(live.key)

    # -- after a daemon start

    async def load(self, state: str = "") -> None:
        """Once the node has the containers, and before they are looked up: a call that waits for one of these finds it.
        `state`: the directory that has what is left of one whose row cannot be read."""
        stored, damaged = await self._node.store.load_execs()
        containers = self._node.containers
        for row in damaged:
            if (owner := containers.get(row.id)) is not None and salvage.is_possible_exec(row):
                init = await asyncio.to_thread(remains.init_of_exec, state, row)
                e = salvage.exec_(row, init, owner, self._node.clock.boot_id())
                log.error("an exec's row cannot be read", container=row.id, exec=row.exec_id, why=e.error)
                self._add(Live(e, owner, found=False))
            else:
                log.error("an exec's row cannot be read, passed over", container=ascii(row.id)[:200], why=row.why)
        lost = []
        for e in stored:
            if e.key.container in containers:
                self._add(Live(e, containers[e.key.container], found=False))
            else:
                lost.append(e.key)
        if lost:
            log.warning("execs of containers that are gone, dropped", execs=len(lost))
            await self._node.store.commit(Transaction(ended_execs=tuple(lost)))

    async def find_rest(self) -> None:
        """Those of containers that need no looking up."""
        for container_id in [id for id in self._live if id not in self._node.containers.recovering]:
            self._node.spawn(self.find(container_id))

    async def before_find(self, container_id: str) -> None:
        await self.find(container_id)

    async def find(self, container_id: str) -> None:
        """The container's execs, found again. Repeatable after an error: ExitdError, OSError."""
        if execs_there := self._of(container_id):
            looks = await asyncio.gather(*map(self._find_once, execs_there), return_exceptions=True)
            for error in filter(None, looks):  # all have come to an end before one is looked up again
                raise error
        if self._may_have_leaked_execs(container_id):
            self._node.spawn(retry(lambda: self._delete_leaked_execs(container_id), "clean-up of execs", container_id))

    async def _find_once(self, live: Live) -> None:
        if not live.found:
            await self._find(live)
            live.found = True

    async def _find(self, live: Live) -> None:
        rebooted = live.exec.boot_id != self._node.clock.boot_id()
        if live.exec.phase is ExecPhase.CREATING:
            await self._settle_making(live, rebooted=rebooted)
        e = live.exec
        if e.phase is ExecPhase.EXITED:
            return
        if rebooted:
            await self._end(live, evidence.rebooted(e.init, self._node.clock.now_ns()))
        elif e.init is None:
            await self._end(live, self._unseen())
        else:
            await self._manager.of(live.container).connect_exec(live.container, e)
            await self._go_on(live)

    async def _settle_making(self, live: Live, *, rebooted: bool) -> None:
        """Its making went on without the daemon. What has begun is an exec, whether or not its caller has heard of it;
        only what never has, has failed. Before a reboot it may have begun and ended."""
        begun = (
            NoProcess.UNKNOWN
            if rebooted
            else await self._manager.of(live.container).begun_exec(live.container, live.exec)
        )
        if begun is NoProcess.NEVER_BEGAN:
            await self._apply_until_stored(live, execs.ExecMakeFailed("the daemon ended while it was being made"))
        else:
            init = begun if isinstance(begun, Process) else None
            await self._apply_until_stored(live, execs.ExecMade(init, None, live.container.oom_told, unseen=True))

    def _unseen(self) -> Report:
        """The end of one of which no process is known."""
        now_ns = self._node.clock.now_ns()
        return Report(Unknown(evidence.MONITORS_KILLED), Source.NONE, None, now_ns, at_is_found=True)

    async def _go_on(self, live: Live) -> None:
        """A limit that has passed, or was being enforced when the daemon ended, is enforced now."""
        if live.over.is_set() or live.key in self._node.pending:
            return
        if live.exec.asked is not None and live.exec.asked.reason is Reason.TIMEOUT:
            self._node.spawn(self._end_whole(live))
        else:
            self._arm(live)

    # -- waiting

    def directory_of(self, live: Live) -> str:
        return self._manager.directory_of(live.key)

    async def wait(self, live: Live) -> Exit:
        """Return the exit once it is stored. Raises NoSuchExec when the exec has failed to begin."""
        await live.over.wait()
        if live.exec.exit is None:
            raise NoSuchExec(f"exec {live.key.exec_id} never ran: {live.exec.error}", id=live.key.container)
        return live.exec.exit


async def _within(seconds: float, events: Iterable[asyncio.Event]) -> bool:
    """Whether all of them are set by then."""
    events = [event for event in events if not event.is_set()]
    if not events:
        return True
    try:
        async with asyncio.timeout(seconds):
            for event in events:
                await event.wait()
    except TimeoutError:
        return False
    return True


async def _first_of(one: asyncio.Event, other: asyncio.Event, seconds: float) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in (one, other)]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
