"""All processes that exitd watches but does not run. The end of each is reported once, even if exitd restarts
meanwhile.

A stored row says that a process is watched; it is deleted in the commit that stores the end. So the next exitd looks up
what this one watched. What lives, or is a zombie, is watched again; what is gone has ended unseen, since a pidfd dies
with its holder.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial

import structlog

from shim.frozen import field, mutable, replace
from shim.undo import undone_on_failure
from supervisor.engine.node import Storing
from supervisor.external import observe
from supervisor.external.observe import Sight
from supervisor.external.watchlist import WatchList
from supervisor.model import evidence, foreign, names, whose
from supervisor.model.errors import Busy, NoSuchProcess, NotPermitted, StoreFailed
from supervisor.model.evidence import Pending
from supervisor.model.values import NO_NAMES, MemoryKills, Names, Process, Report, RunKey, Source, Unknown
from supervisor.model.watched import FoundProcess, Kind, Observed, Target
from supervisor.model.whose import Owners
from supervisor.monitor import epoll, procfs
from supervisor.monitor.kernellog import KnownKills
from supervisor.monitor.kernelword import KernelWord
from supervisor.runtime.oci import cgroups
from supervisor.runtime.oci.oomwatch import OomWatch
from supervisor.store import codec
from supervisor.store.database import AlreadyStored, Store, Transaction
from supervisor.store.events import EventLog
from supervisor.system import room
from supervisor.system.background import Background
from supervisor.system.clock import Clock
from supervisor.system.inotify import Inotify

MOST_PROCESSES = 20_000
NAMES_SECONDS = 2.0  # that a count waits for the names of a task, which its containerd is being asked
BLIND_SECONDS = (0.25, 0.5, 1.0, 2.0)  # until the next look, if one has failed; the last one is repeated
POLL_SECONDS = 2.0  # v1's counters, which cannot be watched without writing to the cgroup
NAMED_LATER = (Kind.CONTAINERD, Kind.RUNC_ROOT)
ENDED_UNSEEN = "ended-before-watch"

# Of memory kills inside a cgroup: the report, with what else can be found out about them.
SecondWitness = Callable[[Report, str, KnownKills], Awaitable[Report]]

log = structlog.get_logger(__name__)


@mutable
class Eye:
    """The watch of one process. `one` is set once the store has it; `settled` also if storing has failed. `sight` is
    None while there is no room to open a process that an earlier exitd has watched."""

    process: Process
    sight: Sight | None
    target: str
    one: Observed | None = None
    kills: int = 0  # of its cgroup, at the last look
    cgroup: str = ""
    ending: bool = False
    dropped: bool = False
    unwatched: bool = False  # the kernel had no watch for it: it is looked at now and then
    blind: int = 0  # looks that have failed since the last one that has not
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    named: asyncio.Event | None = None  # set once its names are known; None: none are expected
    timer: asyncio.TimerHandle | None = None


class Observer:
    """One per daemon; belongs to its event loop."""

    def __init__(
        self, store: Store, events: EventLog, clock: Clock, storing: Storing, watcher: epoll.Monitor,
        changes: Inotify, watches: WatchList, *, zombie_readable: bool, kernel: KernelWord,
        owns: Callable[[Process], bool], second_witness: SecondWitness | None = None,
    ) -> None:  # fmt: skip
        """`owns`: whether a process is the init of a container of exitd's own. `second_witness`: who counts memory
        kills besides the cgroup."""
        self._store = store
        self._events = events
        self._clock = clock
        self._storing = storing
        self._monitor = watcher
        self._sight = partial(Sight.of, zombie_readable=zombie_readable, kernel=kernel)
        self._eyes: dict[Process, Eye] = {}
        self._counts = Counter[str]()  # of stored eyes, by their watch
        self._runs: dict[str, int] = {}  # the newest run of each watched container
        self._by_key: dict[RunKey, Eye] = {}
        self._numbering = asyncio.Lock()
        self._background = Background()
        self._polling: asyncio.Task[None] | None = None
        self._oom = OomWatch(watcher, changes, lives=self._lives, report=self._outlived, touching=False)
        self._watches = watches
        self.owns = owns
        self._second_witness = second_witness or _nothing_to_add

    def __len__(self) -> int:
        return len(self._eyes)

    def last_seq(self) -> int:
        return self._events.last_seq

    def count(self, target: str) -> int:
        """Return how many processes of this target are watched, and will be reported if exitd dies now."""
        return self._counts[target]

    def watcher_of(self, process: Process) -> str:
        """Return which watch has the process; empty if none has."""
        eye = self._eyes.get(process)
        return eye.target if eye is not None else ""

    def living(self) -> tuple[Observed, ...]:
        """Return all that are watched and whose end is not known."""
        return tuple(eye.one for eye in self._eyes.values() if eye.one is not None and not eye.ending)

    async def load(self, targets: Collection[str]) -> None:
        """Continue with what the last exitd watched for these targets. Rows that an interrupted call has left for
        others are removed."""
        stored = await self._store.load_all(Observed, "observed")
        others = [one for one in stored if one.target not in targets]
        await self._store.commit(Transaction(watching=tuple(codec.over((), others))))
        for one in stored:
            if one.target in targets:
                self._look_up(one)

    def _look_up(self, one: Observed) -> None:
        """Watch it again. Where there is no room to see whether it is there, it counts as watched, and is looked at
        until there is."""
        self._runs[one.container] = max(one.run, self._runs.get(one.container, 0))
        if one.boot_id != self._clock.boot_id():
            return self._end_later(one, evidence.rebooted(one.process, self._clock.now_ns()))
        sight, why = None, ""
        try:
            sight = self._sight(one.process.pid, one.process.started_ticks)
        except (NoSuchProcess, NotPermitted):
            return self._end_later(one, self._away(one.process))
        except (Busy, OSError) as error:
            why = str(error)
        eye = self._opened(Eye(one.process, sight, one.target, kills=one.kills_outlived, cgroup=one.cgroup))
        self._await_names(eye, one.target, one.names)
        self._stored(eye, one)
        if sight is None:
            self._look_later(eye, why)
        else:
            self._watch_or_poll(eye)

    def _away(self, process: Process) -> Report:
        return Report(Unknown(foreign.AWAY), Source.NONE, process, self._clock.now_ns(), at_is_found=True)

    def _watch_or_poll(self, eye: Eye) -> None:
        try:
            self._watch(eye)
        except OSError as error:
            log.error("an end will be noticed late", pid=eye.process.pid, why=str(error))
            eye.unwatched = True

    async def observe(self, found: FoundProcess, targets: Iterable[Target] = ()) -> Observed | None:
        """Watch a process from now on; `targets` are stored with it. Return None if it is watched already, or its end
        was reported.

        Raises BadRequest, NoSuchProcess, NotPermitted as Sight.of; Busy when this exitd watches as many processes as it
        can; OSError when there is no room to look. What is not watched then may be asked for again.
        """
        sight = self._sight(found.pid, found.started_ticks)
        if sight.process in self._eyes or self.owns(sight.process):
            sight.close()
            return None
        if len(self._eyes) >= MOST_PROCESSES:
            sight.close()
            raise Busy(f"{MOST_PROCESSES} processes are watched already; end a watch: exitctl watch --stop")
        eye = self._opened(Eye(sight.process, sight, found.target))
        self._await_names(eye, found.target, found.names)
        with contextlib.ExitStack() as stack:
            stack.callback(self._forget, eye)
            eye.cgroup = observe.cgroup_of(found.pid)
            eye.kills = _kills(eye)
            limit_bytes = cgroups.memory_limit_bytes(eye.cgroup) if eye.cgroup else 0
            try:
                self._watch(eye)
            except OSError as error:
                raise Busy(f"process {found.pid}: {error.strerror}; this machine gives no more watches") from error
            doubt = whose.doubt(found.name, found.writer, eye.cgroup, observe.owners_of(found.pid, eye.cgroup))
            one = await self._store_begun(found, eye, limit_bytes, targets, doubt)
            if one is None:
                return None
            stack.pop_all()
        self._stored(eye, one)
        return one

    def _await_names(self, eye: Eye, where: str, known: Names) -> None:
        """What a container is called is said soon after it is watched: by its engine's interface, or its files."""
        watch = self._watches.get(where)
        if known == NO_NAMES and watch is not None and watch.target.kind in NAMED_LATER:
            eye.named = asyncio.Event()

    def lacks_names(self, container: str) -> bool:
        """Return whether a process of this container is watched whose names are not known."""
        return any(eye.named is not None and not eye.named.is_set() for eye in self._of(container))

    async def name(self, container: str, called: Names) -> None:
        """Note what a watched container is called, for its memory kills and its end; nothing, if it has no names.
        Raises StoreFailed."""
        for eye in self._of(container):
            if eye.one is not None and eye.named is not None and not eye.named.is_set():
                eye.one = replace(eye.one, names=called)
                eye.named.set()
                if not eye.ending and not eye.dropped:  # else its row goes with the end, which has the names
                    watching, counted = tuple(codec.begun((), (eye.one,))), self._counted(eye, eye.one)
                    if called == NO_NAMES and not counted:
                        continue
                    await self._store.commit(Transaction(watching=watching, memory_kills=counted, ahead=True))

    def _of(self, container: str) -> list[Eye]:
        run = self._runs.get(container)
        eye = self._by_key.get(RunKey(container, run)) if run is not None else None
        return [eye] if eye is not None else []

    def _counted(self, eye: Eye, one: Observed) -> tuple[MemoryKills, ...]:
        """Return the memory kills that it has outlived, to be counted under its names; later, where these are not known
        yet."""
        kills = one.kills_outlived - one.kills_before
        if not kills or (eye.named is not None and not eye.named.is_set()):
            return ()
        return (MemoryKills(one.key, kills, names.of_observed(one), self._clock.now_ns()),)

    async def _names_known(self, eye: Eye) -> None:
        """Return when they are, or will not be soon."""
        if eye.named is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(NAMES_SECONDS):
                    await eye.named.wait()

    async def missed(self, found: FoundProcess) -> None:
        """Report a process that began and ended before it could be looked at. Reported once, if its start time
        identifies it."""
        if found.started_ticks is None:
            return
        process = Process(found.pid, found.started_ticks)
        if process in self._eyes:
            return
        run = await self._next_run(found.container, process)
        if run is None:
            return
        report = Report(Unknown(ENDED_UNSEEN), Source.NONE, process, self._clock.now_ns(), at_is_found=True)
        try:
            doubt = whose.doubt(found.name, found.writer, "", Owners())
            await self._commit_end(replace(self._observed(found, process, run), doubt=doubt), report, 0)
        finally:
            self._free(found.container, run)

    async def drop(self, target: str, targets: Iterable[Target]) -> None:
        """Stop watching for this target, except for ends that are known. Raises StoreFailed; then nothing has
        changed."""
        eyes = [eye for eye in self._eyes.values() if eye.target == target and eye.one is not None and not eye.ending]
        gone = tuple(targets)
        events = tuple(foreign.target_event(each, "unwatch", self._clock.now_ns()) for each in gone)
        statements = tuple(codec.over(gone, (eye.one for eye in eyes if eye.one is not None)))
        for eye in eyes:
            eye.dropped = True
        try:
            self._events.publish(await self._store.commit(Transaction(events=events, watching=statements)))
        except StoreFailed:
            for eye in eyes:
                eye.dropped = False
            for eye in eyes:
                self._look(eye)
            raise
        for eye in eyes:
            self._forget(eye)

    async def note(self, target: Target) -> None:
        """Note that a watch has begun."""
        event = foreign.target_event(target, "watch", self._clock.now_ns())
        statements = tuple(codec.begun((target,)))
        self._events.publish(await self._store.commit(Transaction(events=(event,), watching=statements)))

    async def settled(self) -> None:
        """Return when each known end is stored."""
        await self._background.settled()

    async def close(self) -> None:
        """Close. The next exitd goes on watching the processes."""
        await self._background.close()
        if self._polling is not None:
            self._polling.cancel()
        self._oom.close()
        for eye in list(self._eyes.values()):
            self._let_go(eye)

    # -- the beginning

    async def _store_begun(
        self, found: FoundProcess, eye: Eye, limit_bytes: int, targets: Iterable[Target], doubt: str
    ) -> Observed | None:
        run = await self._next_run(found.container, eye.process)
        if run is None:
            return None
        if doubt:
            log.warning("it may be another process than its name says", container=found.container, why=doubt)
        one = replace(self._observed(found, eye.process, run), doubt=doubt)
        one = replace(one, cgroup=eye.cgroup, limit_bytes=limit_bytes, kills_before=eye.kills, kills_outlived=eye.kills)
        event = foreign.watch_event(one, self._clock.now_ns())
        change = Transaction(events=(event,), watching=tuple(codec.begun(targets, (one,))))
        with undone_on_failure(lambda: self._free(found.container, run)):
            self._events.publish(await self._store.commit(change))
        return one

    async def _next_run(self, container: str, process: Process) -> int | None:
        """Reserve the number of the next run until `_free`. None: the end of this process has been reported."""
        async with self._numbering:
            before = self._runs.get(container, 0)  # its end may be stored while the ledger is read
            newest = await self._store.newest_exit(container)
            if foreign.was_reported(newest, process, self._booted_ns()):
                return None
            stored = newest.key.run if newest is not None else 0
            run = self._runs[container] = max(before, stored, self._runs.get(container, 0)) + 1
            return run

    def _free(self, container: str, run: int) -> None:
        """Release the number: it is in the ledger, or was not used."""
        if self._runs.get(container) == run:
            del self._runs[container]

    def _observed(self, found: FoundProcess, process: Process, run: int) -> Observed:
        started_ns = observe.started_ns(process, self._clock.now_ns(), self._clock.boottime_ns())
        names = (found.container, run, found.name, found.namespace, found.target)
        return Observed(process, self._clock.boot_id(), *names, started_ns=started_ns, names=found.names)

    def _booted_ns(self) -> int:
        return self._clock.now_ns() - self._clock.boottime_ns()

    def _opened(self, eye: Eye) -> Eye:
        self._eyes[eye.process] = eye
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll())
        return eye

    def _watch(self, eye: Eye) -> None:
        """Raises OSError when the kernel has no watch for it."""
        assert eye.sight is not None
        self._monitor.watch(eye.sight.pidfd, epoll.PIDFD, lambda _: self._look(eye))

    def _stored(self, eye: Eye, one: Observed) -> None:
        eye.one = one
        self._counts[eye.target] += 1
        self._by_key[one.key] = eye
        eye.settled.set()
        if one.cgroup and not eye.ending:
            self._oom.begin(one.key, one.cgroup)

    # -- the end

    def _look(self, eye: Eye) -> None:
        """See whether it has ended. A look for which there is no room is made again: its pidfd, which is
        edge-triggered, reports an end once."""
        if eye.ending or eye.dropped:
            return
        if eye.timer is not None:
            eye.timer.cancel()
            eye.timer = None
        try:
            seen = self._seen(eye)
        except (Busy, OSError) as error:  # this says nothing about the process
            return self._look_later(eye, str(error))
        eye.blind = 0
        if isinstance(seen, Pending):
            if seen.seconds is not None:
                eye.timer = asyncio.get_running_loop().call_later(seen.seconds, self._look, eye)
            return
        eye.ending = True
        self._background.spawn(self._end(eye, seen))

    def _seen(self, eye: Eye) -> Report | Pending:
        """Read the cgroup first, since it may vanish with the process. Raises Busy, OSError when there is no room for a
        look."""
        if eye.sight is None:
            try:
                eye.sight = self._sight(eye.process.pid, eye.process.started_ticks)
            except (NoSuchProcess, NotPermitted):
                return self._away(eye.process)
            self._watch_or_poll(eye)
        eye.kills = max(eye.kills, _kills(eye), self._oom.seen(eye.one.key) if eye.one is not None else 0)
        return eye.sight.look()

    def _look_later(self, eye: Eye, why: str) -> None:
        if not eye.blind:
            log.warning("a watched process cannot be looked at now, trying again", pid=eye.process.pid, why=why)
        seconds = BLIND_SECONDS[min(eye.blind, len(BLIND_SECONDS) - 1)]
        eye.blind += 1
        eye.timer = asyncio.get_running_loop().call_later(seconds, self._look, eye)

    async def _end(self, eye: Eye, report: Report) -> None:
        await eye.settled.wait()
        await self._names_known(eye)
        if eye.one is None or eye.dropped:
            return
        await self._commit_until_stored(eye.one, report, await self._kills_of(eye.one, report, eye.kills))
        self._forget(eye)
        self._watches.count_exit(eye.target)

    def _end_later(self, one: Observed, report: Report) -> None:
        self._background.spawn(self._end_unwatched(one, report))

    async def _end_unwatched(self, one: Observed, report: Report) -> None:
        await self._commit_until_stored(one, report, await self._kills_of(one, report, one.kills_outlived))
        self._free(one.container, one.run)
        self._watches.count_exit(one.target)

    async def _kills_of(self, one: Observed, report: Report, kills: int) -> int:
        """Return the count at its end; its cgroup may have been removed before it could be read."""
        inner, known = cgroups.inside_or_nowhere(one.cgroup), KnownKills(one.kills_outlived)
        return (await self._second_witness(replace(report, oom_kills=kills), inner, known)).oom_kills

    async def _commit_until_stored(self, one: Observed, report: Report, kills: int) -> None:
        await self._storing.retry(f"{one.container} {one.run}", lambda: self._commit_end(one, report, kills))

    async def _commit_end(self, one: Observed, report: Report, kills: int) -> None:
        exit, events = foreign.end_of(one, report, kills, self._clock.now_ns())
        statements = tuple(codec.over(self._watches.ending_with(one.target), (one,)))
        try:
            numbered = await self._store.commit(
                Transaction(exits=(exit,), events=events, watching=statements), patient=True
            )
        except AlreadyStored:  # by a commit that seemed to have failed
            numbered = await self._store.commit(Transaction(watching=statements), patient=True)
        self._events.publish(numbered)
        log.info("exit", **names.logged(exit))

    def _forget(self, eye: Eye) -> None:
        self._let_go(eye)
        eye.settled.set()
        del self._eyes[eye.process]
        if eye.one is not None:
            self._counts[eye.target] -= 1
            if not self._counts[eye.target]:
                del self._counts[eye.target]
            self._oom.end(eye.one.key)
            self._by_key.pop(eye.one.key, None)
            self._free(eye.one.container, eye.one.run)

    def _let_go(self, eye: Eye) -> None:
        if eye.timer is not None:
            eye.timer.cancel()
            eye.timer = None
        if eye.sight is not None:
            self._monitor.unwatch(eye.sight.pidfd)
            eye.sight.close()

    # -- memory

    async def _poll(self) -> None:
        """Ends when nothing is watched: an exitd that watches nothing does not wake up for it."""
        while self._eyes:
            await asyncio.sleep(POLL_SECONDS)
            try:
                for eye in [eye for eye in self._eyes.values() if eye.unwatched]:
                    self._look(eye)
                await self._oom.look_at_all()
            except Exception:
                log.exception("a look at what is watched failed")

    def _lives(self, key: RunKey) -> bool:
        eye = self._by_key.get(key)
        process = eye.process if eye is not None and not eye.ending else None
        return process is not None and not procfs.is_ending(process) and not procfs.is_killed(process)

    def _outlived(self, key: RunKey, kills: int) -> None:
        eye = self._by_key.get(key)
        if eye is not None and eye.one is not None and kills > eye.one.kills_outlived:
            self._background.spawn(self._report_oom(eye, kills))

    async def _report_oom(self, eye: Eye, kills: int) -> None:
        """If this cannot be stored now, the next look reports it."""
        if eye.one is None or kills <= eye.one.kills_outlived or eye.ending or eye.dropped:
            return
        now, now_ns = replace(eye.one, kills_outlived=kills), self._clock.now_ns()
        event = foreign.oom_event(now, kills, now_ns, init=False)
        counted = self._counted(eye, now)
        eye.one = now  # before the commit: an end that is seen meanwhile was not one of these kills
        with contextlib.suppress(StoreFailed):
            watching = tuple(codec.begun((), (now,)))
            change = Transaction(events=(event,), watching=watching, memory_kills=counted)
            self._events.publish(await self._store.commit(change, patient=True))


async def _nothing_to_add(report: Report, inner: str, known: KnownKills) -> Report:
    """Used when there is no other count of memory kills."""
    return report


def _kills(eye: Eye) -> int:
    """Return the present count; 0 if it cannot be read. Raises OSError when there is no room to look."""
    try:
        return observe.memory_kills(eye.cgroup) or 0
    except (OSError, ValueError) as error:
        if room.is_used_up(error):
            raise
        log.warning("memory kills cannot be read", cgroup=eye.cgroup, why=str(error))
        return 0
