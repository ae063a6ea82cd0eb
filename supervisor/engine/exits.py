"""The way of an exit, from the four bytes in its fifo to the answer of a Wait. To be read from top to bottom:

    monitor/witness.py         Watch._fifo_ready      the four bytes have made the fifo of one run readable
                               Watch.look             reads the record, and only without one what the others say
    model/evidence.py          judge                  believes the first that knows: a Report
    runtime/oci/watching.py    Watching._exit_seen    passes it to the one that listens
    here                       Exits.exit_seen        holds it until a create, a start or a resume under way is stored

  an ordinary end takes the short way:
                               Exits._is_ordinary     nothing has to be awaited, found out or ended before it
                               Exits._end_ready       all ordinary ends of this turn of the loop
                               Exits._end_together    hands them to the node, some at once
    engine/node.py             Node.end_together      one step for each:
    model/lifecycle.py         step                   Ended: the Exit, its events, and what follows it
    store/database.py          Store.write_ends       one block of them all in the ring (`store/ring.py`), flushed; the
                               loop waits for a quick disk, and goes on beside a slow one

  every other end the long one:
    here                       Exits.end              ends what init left behind, awaits its execs' ends, its pod's, and
                                                      the second count of memory kills
    engine/node.py             Node.apply_until_stored
                                                      the same step, again and again until it is stored:
    store/database.py          Store.commit           one transaction of all that, in the store's own thread

  and both go on:
    engine/node.py             Node._show             it is on the disk, so it is shown
    engine/containers.py       Changes.notify         wakes each Wait of the container whose test holds now
    engine/operations.py       Operations.wait        goes on, and returns the exit of the run that was meant
    api/servicers.py           ContainerServicer.Wait
                                                      makes the reply of it

The event log gets the events at the same moment (`store/events.py`); subscribers and containerd read from there. What
the ring has, the database takes over a moment later (`Node.go_on_after_ends`), and no other step of these containers is
stored before. The step's effects follow: a line in the log, and the clean-up of the run. When that is stored (Cleaned),
the timer of the next run is armed. The end of an exec goes the long way, through `execlife.py`. What another's shim
reports, and what the witnesses say after a daemon start, arrives in `exit_seen`, too; what `recovery.py` has no witness
for (the host was rebooted, the state lost, no init known), in `end`.
"""

import asyncio
import contextlib
from collections.abc import Iterator

import structlog

from supervisor.engine.containers import is_over
from supervisor.engine.node import END_SEEN_SECONDS, Node
from supervisor.model import lifecycle, names
from supervisor.model.errors import ExitdError, NoSuchContainer, StoreFailed, TimedOut, WrongState
from supervisor.model.values import (
    LIVE,
    NEVER_STARTED,
    Container,
    Names,
    Phase,
    Report,
    RunKey,
    Signaled,
    Source,
    Unknown,
)
from supervisor.monitor.kernellog import KnownKills
from supervisor.store import counts
from supervisor.system import room
from supervisor.system.background import retry
from supervisor.system.histogram import Histogram

ENDS_TOGETHER = 40  # in one write, at most
TOGETHER_SECONDS = 30.0  # between the ends of a pause process and of those whom the kernel kills with it, at most

log = structlog.get_logger(__name__)


class SecondWitness:
    """What counts memory kills in a container's cgroup besides the runtime family: here, nothing."""

    async def weigh(self, container: Container, report: Report, known: KnownKills) -> Report:
        """Return the report with the memory kills that can be found out besides."""
        return report

    def weigh_at_once(self, container: Container, report: Report, known: KnownKills) -> Report | None:
        """As `weigh`, without waiting; None where it would take longer."""
        return report


class Exits:
    """Stores the ends of runs. Listens to the runtime families; belongs to the node's event loop."""

    def __init__(self, node: Node, second_witness: SecondWitness | None = None) -> None:
        """`second_witness`: who counts memory kills besides the runtime family."""
        self._node = node
        self._second_witness = second_witness or SecondWitness()
        self._ready: list[tuple[RunKey, Report]] = []  # ordinary ends of this turn of the loop
        self._is_ending = False  # `_end_ready` takes them from there
        self._held: dict[str, asyncio.Future[Report]] = {}  # by container
        self.seen = Histogram()  # from an end, as its witness dates it, until it is known here
        self.stored = Histogram()  # from then on until it is on the disk and shown
        self._since: dict[RunKey, float] = {}  # of ends that are known and not stored
        node.manager.listen(self)

    # -- an exit is known

    def exit_seen(self, key: RunKey, report: Report) -> None:
        """Take the report of an end. One daemon does so once for each end; the store makes that once for ever."""
        if key.exec_id:
            self._node.others.exec_ended(key, report)
            return
        self._note_seen(key, report)
        held = self._held.get(key.container)
        if held is not None:
            if not held.done():
                held.set_result(report)
        elif self._is_ordinary(key, report):
            self._make_ready(key, report)
        else:
            self._end_soon(key, report)

    # -- an ordinary end takes the short way: into the ring with all others of this turn of the loop, and shown

    def _is_ordinary(self, key: RunKey, report: Report) -> bool:
        """Whether nothing has to be awaited, found out or ended before it: a running container whose shim has recorded
        its end, without execs, other steps, or processes that its init may have left behind."""
        node, container = self._node, self._node.containers.get(key.container)
        return (
            container is not None
            and container.run == key.run
            and container.phase is Phase.RUNNING
            and report.source is Source.RECORD
            and container.spec.pid != "pod"
            and not container.damaged
            and not node.closing
            and not node.is_in_a_step(container.id)
            and not node.others.delays_end(container.id)
            and node.manager.of(container).leaves_nothing(container)
        )

    def _make_ready(self, key: RunKey, report: Report) -> None:
        self._node.pending.add(key)
        self._ready.append((key, report))
        if not self._is_ending:
            self._is_ending = True
            self._node.spawn(self._end_ready())

    async def _end_ready(self) -> None:
        """End all that are ready, and those that become so while a slow disk takes the first."""
        try:
            while self._ready:
                some, self._ready = self._ready[:ENDS_TOGETHER], self._ready[ENDS_TOGETHER:]
                await self._end_together(some)
        finally:
            self._is_ending = False
        await self._node.go_on_after_ends()

    async def _end_together(self, some: list[tuple[RunKey, Report]]) -> None:
        ordinary, endings = dict[RunKey, Report](), list[tuple[Container, lifecycle.Ended]]()
        for key, report in some:
            ending = self._ending_of(key, report) if key not in ordinary else None
            if ending is None:  # also a second report of one end, which the step refuses
                self._end_soon(key, report)
            else:
                ordinary[key] = report
                endings.append(ending)
        if not endings:
            return
        is_shown = await self._node.end_together(endings)
        for key, report in ordinary.items():
            if is_shown:
                self._note_stored(key)
            else:
                self._end_soon(key, report)

    def _ending_of(self, key: RunKey, report: Report) -> tuple[Container, lifecycle.Ended] | None:
        """The container and its end; None where that has become, or takes, more than an ordinary one."""
        container = self._node.containers.get(key.container)
        if container is None or not self._is_ordinary(key, report):
            return None
        weighed = self._second_witness.weigh_at_once(container, report, _known_kills(container))
        if weighed is None:
            return None
        limit_bytes = self._memory_limit(container)
        return container, lifecycle.Ended(weighed, limit_bytes, run=key.run, names=self._names(container))

    # -- every other end takes the long way

    def _end_soon(self, key: RunKey, report: Report) -> None:
        self._node.pending.add(key)  # at once: a call that looks meanwhile sees that its phase is not the last word
        self._node.spawn(self.end(key, report))

    async def end(self, key: RunKey, report: Report, *, rebooted: bool = False) -> None:
        """Store an end, however long the store refuses. No client hears of it before. A second one of the same run is
        refused by the step, and one of an earlier run is passed over."""
        container = self._node.containers.get(key.container)
        if container is None or container.run != key.run:
            self._node.pending.discard(key)
            self._since.pop(key, None)
            return
        self._node.pending.add(key)
        left_behind = 0 if rebooted else await self._end_rest(container)
        await self._node.others.before_end(key.container)
        with_sandbox = await room.retry(lambda: self._ended_with_sandbox(container, report))
        weighed = await room.retry(lambda: self._second_witness.weigh(container, report, _known_kills(container)))
        limit_bytes = self._memory_limit(container)
        ended = lifecycle.Ended(
            weighed, limit_bytes, rebooted, with_sandbox, left_behind, run=key.run, names=self._names(container)
        )
        await self._node.apply_until_stored(key.container, ended)
        self._node.pending.discard(key)
        self._note_stored(key)

    async def _end_rest(self, container: Container) -> int:
        """Kill what init has left in its cgroup. Its end is stored whatever becomes of that. Return how many processes
        are known to live on."""
        try:
            return await self._node.manager.of(container).end_rest(container)
        except (ExitdError, OSError) as error:
            log.warning("processes that init has left behind may live on", container=container.id, why=str(error))
            return 0

    async def _ended_with_sandbox(self, member: Container, report: Report) -> bool:
        """Whether the end of its pod's pause process has ended this member. The kernel kills the members first, and the
        pause process dies after them: so that end is awaited, END_SEEN_SECONDS at most, and the times are compared."""
        is_killed = report.status in (Signaled(lifecycle.SIGKILL), Unknown(NEVER_STARTED))
        if member.spec.pid != "pod" or not is_killed or member.asked is not None:
            return False
        containers, run = self._node.containers, member.sandbox_run
        pause = containers.get(member.spec.sandbox)
        if pause is not None and pause.phase in LIVE and pause.run == run:
            if not self._node.manager.of(pause).is_ending(pause):
                return False
            with contextlib.suppress(TimedOut):
                pause = await containers.until(pause.id, is_over(run), END_SEEN_SECONDS, "the end of its pod")
        exit_ = pause.exit if pause is not None else None
        if exit_ is None or exit_.key.run != run:  # it is ending still, or it has gone
            return True
        return abs(exit_.at_ns - report.at_ns) <= TOGETHER_SECONDS * 1e9

    def _names(self, container: Container) -> Names:
        return names.of_container(container, self._node.containers.get(container.spec.sandbox or container.id))

    def _memory_limit(self, container: Container) -> int:
        """The tightest one on it in bytes, its pod's included; 0: none."""
        pause = self._node.containers.get(container.spec.sandbox or container.id)
        of_pod = pause.spec.pod.memory_bytes if pause is not None and pause.spec.pod is not None else 0
        return min((each for each in (container.spec.memory_bytes, of_pod) if each), default=0)

    # -- one that waits for what has to be stored before it

    @contextlib.contextmanager
    def held_back(self, container_id: str) -> Iterator[None]:
        """For the length of the block: an exit of the container that is seen meanwhile is stored after it, or by the
        next daemon where this one is closing. Two blocks for one container hold the same exit; the first to end lets go
        of it."""
        self._held.setdefault(container_id, asyncio.get_running_loop().create_future())
        try:
            yield
        finally:
            held, container = self._held.pop(container_id, None), self._node.containers.get(container_id)
            if held is not None and held.done() and container is not None and not self._node.closing:
                self._end_soon(RunKey(container_id, container.run), held.result())

    def is_held_back(self, container_id: str) -> bool:
        """Whether such a block is running, with or without an exit that waits for its end."""
        return container_id in self._held

    def known(self, container_id: str) -> Report | None:
        """Return the exit that waits for the end of a block of `held_back`; None if there is none yet."""
        held = self._held.get(container_id)
        return held.result() if held is not None and held.done() else None

    async def seen_within(self, container_id: str, seconds: float) -> Report | None:
        """As `known`, but wait for it. Raises KeyError outside of such a block."""
        await asyncio.wait([self._held[container_id]], timeout=seconds)
        return self.known(container_id)

    # -- how long it took

    def _note_seen(self, key: RunKey, report: Report) -> None:
        self._since.setdefault(key, asyncio.get_running_loop().time())
        if not report.at_is_found:
            self.seen.observe((self._node.clock.now_ns() - report.at_ns) / 1e9)

    def _note_stored(self, key: RunKey) -> None:
        since = self._since.pop(key, None)
        if since is not None:
            self.stored.observe(asyncio.get_running_loop().time() - since)

    # -- what else the families report of a run

    def memory_kills_seen(self, key: RunKey, kills: int) -> None:
        """Store the event if init has outlived more memory kills than were reported."""
        self._node.spawn(self._note_memory_kills(key, kills))

    async def _note_memory_kills(self, key: RunKey, kills: int) -> None:
        """What cannot be stored now is stored in the next round of the reconcile loop, or with the exit."""
        node, container = self._node, self._node.containers.get(key.container)
        if container is not None and container.run == key.run and kills > container.oom_told:
            with contextlib.suppress(WrongState, NoSuchContainer, StoreFailed):
                is_seen = node.manager.of(container).sees_init(container)
                seen = lifecycle.OomSeen(key.run, kills, is_init_seen=is_seen, names=self._names(container))
                await node.apply(key.container, seen, patient=True)

    def shim_seen(self, key: RunKey, *, lost: bool) -> None:
        """Count the death of a shim (`lost`), or its adoption, however long the store refuses."""
        self._node.count(counts.SHIM_DEATHS if lost else counts.SHIM_ADOPTIONS, key.container)

    def silence_seen(self, key: RunKey, silent: bool) -> None:
        """Store the event that its shim has become silent, or answers again, however long the store refuses."""
        node, container = self._node, self._node.containers.get(key.container)
        if container is not None and container.run == key.run:
            kind = "unresponsive" if silent else "responsive"
            (event,) = lifecycle.events(container, node.moment(), kind, run=str(key.run))
            node.spawn(retry(lambda: node.note(event), "an event", key.container))


def _known_kills(container: Container) -> KnownKills:
    return KnownKills(container.oom_told, asked_kill=lifecycle.asked_kill(container.asked))
