"""Every run and every exec that this daemon watches: what wakes it, which witnesses are asked, and how lost shims are
replaced."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Coroutine, Sequence

import structlog

from shim import fields, launch, native
from shim.record import Record
from shim.undo import undone_on_failure
from supervisor.model import evidence
from supervisor.model.errors import ExitdError, ShimFailed, TimedOut
from supervisor.model.values import Container, Process, Report, RunKey
from supervisor.monitor import control, epoll, keeper, rundir
from supervisor.monitor.earlyholds import EarlyHolds, opened
from supervisor.monitor.kernelword import KernelWord
from supervisor.monitor.mending import Mend
from supervisor.monitor.shims import Shims
from supervisor.monitor.witness import Senses, ShimWatch, Watch
from supervisor.runtime.oci import bundle, cgroups, rest
from supervisor.runtime.oci.oomwatch import OomWatch
from supervisor.runtime.oci.runplan import Place
from supervisor.runtime.sandbox import NoProcess, RunListener
from supervisor.system.inotify import Inotify
from supervisor.system.together import Together

KEEPER_TRIES, KEEPER_REST_SECONDS = 30, 1.0  # for a successor of a dead keeper; the service manager may start it
REGISTER_AT_ONCE = 16
COUNTED_ROUNDS = 20  # of the reconcile loop: ten minutes

log = structlog.get_logger(__name__)


class Watching:
    """One per daemon; belongs to its event loop. `cgroups`: each container's cgroup; `executes`: whether its init
    becomes the program; `own_pids`: whether it has a pid namespace of its own; `shim_cgroups`: the cgroup for a
    container's shims, if its client named one."""

    def __init__(
        self,
        watcher: epoll.Monitor,
        keeper_line: keeper.Keeper,
        changes: Inotify,
        *,
        zombie: bool,
        kernel: KernelWord,
        early: EarlyHolds | None = None,
    ) -> None:
        """`zombie`: this process may read wait statuses of other processes' zombies (probe.zombie). `early`: what is
        held already of what will be looked up."""
        self.cgroups: dict[str, str] = {}
        self.executes: dict[str, bool] = {}
        self.own_pids: dict[str, bool] = {}
        self.shim_cgroups: dict[str, str] = {}
        self._kernel = kernel
        self._early = early or EarlyHolds(kernel)
        self._places: dict[str, tuple[str, str]] = {}  # a container's cgroup, and the same as `cgroups.place` has it
        self.keeper = keeper_line
        self.shims = Shims(watcher, keeper_line, self._move_shim)
        self._watches: dict[RunKey, Watch] = {}
        self._listener: RunListener | None = None
        self._oom = OomWatch(watcher, changes, lives=self._lives, report=self._killed_for_memory)
        self._tasks: set[asyncio.Task[None]] = set()
        self._adoptions: dict[asyncio.Task[None], RunKey] = {}
        self._finding: asyncio.Task[None] | None = None
        self._keepers_lost = 0
        self._registered_after = 0  # so many lost keepers the newest one was seen to know each run that can register
        self._own_files = Together()
        self._counted = COUNTED_ROUNDS  # rounds in which the keeper was asked for a number only; the first looks at all
        self._unregistered: set[RunKey] = set()  # runs whose shims cannot register
        self._asked: dict[RunKey, asyncio.Task[None]] = {}  # whether a keeper will journal an end; done: it will not
        self._senses = Senses(
            monitor=watcher,
            zombie_readable=zombie,
            kernel=kernel,
            now_ns=time.time_ns,
            entry=self._entry,
            entry_is_coming=self._entry_is_coming,
            oom_kills=self.oom_kills,
            on_exit=self._exit_seen,
            on_shim_lost=self._shim_died,
            on_begin=self._begun,
            on_over=self._oom.end,
        )

    def listen(self, listener: RunListener) -> None:
        self._listener = listener

    def get(self, key: RunKey) -> Watch | None:
        return self._watches.get(key)

    def shim_gone(self, key: RunKey) -> asyncio.Event | None:
        """Return the event that is set when its output is complete and its shim has left; None if it is not watched."""
        watch = self._watches.get(key)
        return watch.output_over if watch is not None else None

    def output_read(self, key: RunKey) -> asyncio.Event | None:
        """Return the event that is set when no shim waits any more for readers of the output, of a run or an exec; None
        if it is not watched."""
        watch = self._watches.get(key)
        return watch.output_read if watch is not None else None

    def kill_stopped_shim(self, key: RunKey) -> bool:
        """Kill its shim if it is stopped: the keeper then gets its zombies. Return False if no shim is stopped."""
        watch = self._watches.get(key)
        return watch is not None and watch.kill_stopped_shim()

    def add(
        self, key: RunKey, directory: rundir.RunDirectory, init: Process | None = None, *, executes: bool = True
    ) -> Watch:
        """Add a watch that has not begun."""
        watch = self._watches[key] = Watch(key, directory, self._senses, init=init, executes=executes)
        return watch

    def mark_shared(self, new: Watch) -> None:
        """Note whether the cgroup is shared, before the new run's processes are in it: if it has those of another run
        or unknown ones, they must not be ended with init. Raises OSError when an earlier mark cannot be read."""
        own, known = self.cgroups[new.key.container], set[int]()
        place = self._place(new.key.container, own)
        has_strangers = False
        for watch in [*self._watches.values()]:  # all that run: what is done for each must take next to no time
            other = self.cgroups.get(watch.key.container)
            if other is None or watch.key.exec_id or watch.reported or watch.key.container == new.key.container:
                continue
            others_place = self._place(watch.key.container, other)
            is_below, is_above = place.startswith(others_place), others_place.startswith(place)
            if not is_below and not is_above:
                continue
            if is_below:
                rest.mark_shared(watch.directory.path, new.key.container)
            if is_above:
                rest.mark_shared(new.directory.path, watch.key.container)
            known.update(cgroups.pids(other))
            has_strangers = has_strangers or rest.STRANGERS in rest.sharers(watch.directory.path)
        if not bundle.is_ours(own) and (has_strangers or not known.issuperset(cgroups.pids(own))):
            rest.mark_shared(new.directory.path)

    def hold(self, watch: Watch, created: launch.Created) -> Process:
        """Watch the init that its shim reported. Return it."""
        watch.init = Process(created.pid, created.started)
        watch.init_fd = created.pidfd
        watch.is_unheld = created.pidfd < 0  # it was lost on its way: this process had no room for a descriptor
        watch.begin()
        self._look_for_shim(watch)
        return watch.init

    async def take_up(self, watch: Watch, init: Process) -> None:
        """Watch an init that was found without its shim's report; its end may be reported before this returns. Raises
        OSError when there is no room to look for its shim; may be repeated then."""
        watch.drop_shim()
        self.shims.find(watch)
        watch.init, watch.is_unheld = init, True
        watch.begin()
        watch.look()
        self._look_for_shim(watch)

    def find(
        self, key: RunKey, directory: rundir.RunDirectory, init: Process, *, executes: bool = True, tty: bool = False
    ) -> Watch:
        """Watch what an earlier daemon has begun. Its end may be reported before this returns."""
        watch = self.add(key, directory, init, executes=executes)
        watch.has_one_output = tty
        watch.init_fd, parent, watch.executed = self._held(init)
        self.shims.find(watch)
        if watch.shim is not None and watch.shim_fd >= 0 and watch.shim.pid == parent:
            watch.init_parent = watch.shim  # it lives now, so it has been the process of that pid all the time
        if key.container in self.shim_cgroups:
            self.spawn(self._move_shim(watch))  # an earlier daemon may have ended before it did
        watch.begin()
        watch.look()
        self._look_for_shim(watch)
        return watch

    def _held(self, init: Process) -> tuple[int, int, bool]:
        """Return its pidfd, its parent's pid, and whether it has executed a program. -1, 0 and False if it had been
        reaped before this daemon first looked; no parent if it has been reaped since. Raises OSError."""
        held = self._early.take(init)
        if held is None:
            held = opened(init)
            return (held.pidfd, held.parent, held.executed) if held is not None else (-1, 0, False)
        with undone_on_failure(lambda: self._let_go(init, held.pidfd)):
            try:
                parent, started, executed = native.process_origin(init.pid)
            except ProcessLookupError:
                return held.pidfd, 0, held.executed
        is_its = started == init.started_ticks
        return held.pidfd, parent if is_its else 0, held.executed or (is_its and executed)

    def _let_go(self, init: Process, pidfd: int) -> None:
        self._kernel.let_go(init, pidfd)
        os.close(pidfd)

    def inits_of(self, container_id: str) -> set[int]:
        """Return the pids of its known inits."""
        return {w.init.pid for key, w in self._watches.items() if key.container == container_id and w.init is not None}

    async def keepers_word(self, key: RunKey) -> Process | NoProcess:
        """Return what the keeper, the next subreaper, knows of an exec whose shim is dead and has not named its
        process. If the keeper has had the exec from the beginning, nothing more can be known. Raises OSError when there
        is no room to ask."""
        try:
            known = await self._known_to_keeper(key)
            if (entry := self._entry(key)) is not None:
                return Process(entry.pid, entry.started)
            if known is None or known.number("doubtful"):
                return NoProcess.UNKNOWN
            if pid := known.number("init_pid"):
                return Process(pid, known.number("init_started"))
            return NoProcess.NEVER_BEGAN
        except (keeper.KeeperSilent, launch.KeeperRefused) as error:
            if (without_room := keeper.used_up(error)) is not None:
                raise without_room from error
            return NoProcess.UNKNOWN  # also of a keeper of an older version
        except (keeper.JournalUnread, fields.BadMessage):
            return NoProcess.UNKNOWN

    async def _known_to_keeper(self, key: RunKey) -> fields.Message | None:
        """Ask more than once: the keeper's list may move while it is read."""
        for _ in range(3):
            for message in await self.keeper.runs():
                if _key_of(message) == key:
                    return message
        return None

    async def name(self, key: RunKey, init: Process, path: str) -> None:
        """Note init as the shim would have: for the keeper, for a replacement shim, and for the next daemon."""
        facts = [*launch.key(key.container, key.run, key.exec_id), ("pid", init.pid), ("started", init.started_ticks)]
        oom = cgroups.oom_counter_path(self.cgroups[key.container]) or ""
        with contextlib.suppress(keeper.KeeperSilent, launch.KeeperRefused):
            await self.keeper.ask(fields.encode("exitd-register", [*facts, ("oom", oom)]))
        rundir.leave_created(path, init)

    def drop(self, key: RunKey) -> None:
        """Stop watching a run or an exec, and close what is held of it. Nothing happens if it is not watched."""
        watch = self._watches.pop(key, None)
        self._unregistered.discard(key)
        if (asking := self._asked.pop(key, None)) is not None:
            asking.cancel()
        if watch is not None:
            watch.close()

    def news(self) -> None:
        """The keeper has a new journal entry: look at the runs without a shim, whose exit it may be."""
        for watch in list(self._watches.values()):
            if watch.shim_fd < 0:
                watch.look()

    def look_at_all(self) -> None:
        """Called by the reconcile loop: finds an end that no event reported, and mends what a run's output needs."""
        for watch in list(self._watches.values()):
            if not watch.surely_lives():
                watch.look()
            self._mend(watch)

    def _mend(self, watch: Watch) -> None:
        """Once the end is reported, `drain` has what is left of the output written. Before there is an init, the run is
        being made."""
        key = watch.key
        is_adopted = key in self._adoptions.values()
        match watch.mend(is_open=watch.init is not None and not watch.reported and not is_adopted):
            case Mend.COPIES:
                self.shims.ask_for_copies(watch)
            case Mend.SHIM:
                self.shim_lost(key)

    async def look_at_memory(self) -> None:
        """Called by the reconcile loop: finds memory kills that no event reported."""
        await self._oom.look_at_all()

    def _shim_died(self, key: RunKey) -> None:
        """Called once for each shim."""
        self._note_shim(key, lost=True)
        self.shim_lost(key)

    def _note_shim(self, key: RunKey, *, lost: bool) -> None:
        if self._listener is not None:
            self._listener.shim_seen(key, lost=lost)

    def shim_lost(self, key: RunKey) -> None:
        """Init goes on under the keeper; a replacement shim goes on with its output."""
        task = self.spawn(self._adopt(key))
        self._adoptions[task] = key
        task.add_done_callback(lambda _: self._adoptions.pop(task, None))

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Do the work in the background; it is broken off when this daemon ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _move_shim(self, watch: ShimWatch) -> None:
        """Move the shim to the cgroup that its container's client named, if any. Repeatable. A refusal is logged, and
        the run goes on."""
        cgroup, shim = self.shim_cgroups.get(watch.key.container), watch.shim
        if not cgroup or shim is None:
            return
        try:
            await asyncio.to_thread(cgroups.join, cgroup, shim)
        except OSError as error:
            key = watch.key
            log.warning("shim not moved", container=key.container, exec=key.exec_id, cgroup=cgroup, why=error.strerror)

    def _look_for_shim(self, watch: Watch) -> None:
        """Look for the shim. One that is gone has either done its work, or must be replaced."""
        if watch.has_no_shim():
            watch.look()
            if not watch.reported and (watch.init_fd >= 0 or watch.is_unheld):
                self._shim_died(watch.key)

    async def _adopt(self, key: RunKey) -> None:
        watch = self._watches.get(key)
        if watch is None or watch.reported:
            return
        if await self.shims.replace(watch) and not watch.closed:
            self._note_shim(key, lost=False)

    async def drain(self, key: RunKey, path: str) -> None:
        """Let a replacement write what a killed shim has left in the pipes, after the end and before the keeper forgets
        the run. `path` is the run's directory."""
        if begun := [task for task, of in self._adoptions.items() if of == key]:  # before the end was seen
            await asyncio.wait(begun)
        watch = self._watches.get(key) or self._ended_before(key, path)
        if watch is not None and (not watch.has_output_left() or not await self.shims.replace(watch)):
            watch.settle_output()

    async def settle(self, key: RunKey, path: str) -> None:
        """After the end is reported: let its shim go on, kill one that is stuck, and drain what a killed one has
        left."""
        watch = self._watches.get(key)
        if watch is not None:
            watch.say_reported()
        if watch is not None and watch.shim_is_stuck:
            with contextlib.suppress(TimedOut):  # `leave` tries again
                await self.shims.leave(watch)
        await self.drain(key, path)

    async def leave(self, key: RunKey, path: str, limit_seconds: float) -> None:
        """Wait until the run's shim is gone and its output as complete as it can be; the keeper closes its copies of
        the streams only then. The shim may have been killed without a report until now. Repeatable."""
        await self.shims.leave(self._watches.get(key), limit_seconds)
        await self.drain(key, path)
        watch = self._watches.get(key)
        await self.shims.leave(watch, limit_seconds)
        if watch is not None:
            watch.settle_output()
        await self.keeper.acknowledge(key.container, key.run, key.exec_id)

    def _ended_before(self, key: RunKey, path: str) -> Watch | None:
        """An earlier daemon has stored the end. Return None if only the clean-up is left."""
        watch = Watch(key, rundir.RunDirectory(path), self._senses, reported=True)
        if rundir.created(path) is None or not watch.has_output_left() or self.shims.is_there(path):
            return None
        self._watches[key] = watch
        return watch

    def keeper_lost(self) -> None:
        """Let the shims that live register with the next keeper."""
        self._keepers_lost += 1
        if self._finding is None or self._finding.done():
            self._finding = asyncio.get_running_loop().create_task(self._find_keepers())

    async def _find_keepers(self) -> None:
        """Begin again if another keeper has been lost meanwhile."""
        seen = 0
        while seen != self._keepers_lost:
            seen = self._keepers_lost
            await self._find_keeper()

    async def _find_keeper(self) -> None:
        for _ in range(KEEPER_TRIES):
            with contextlib.suppress(keeper.KeeperSilent, launch.KeeperRefused, fields.BadMessage):
                await self._register_rest(await self.keeper.runs())
                return
            await asyncio.sleep(KEEPER_REST_SECONDS)

    async def _register_rest(self, known: Sequence[fields.Message]) -> int:
        """Ask the shims of runs that the keeper does not know, as after the death of its predecessor, to give it copies
        of their descriptors. They do so after their answer: whether it then knows the run shows at the next time.
        Return how many had to be asked."""
        keys = {_key_of(message) for message in known}
        lost = [watch for watch in self._watches.values() if watch.key not in keys and self._can_register(watch)]
        places = asyncio.Semaphore(REGISTER_AT_ONCE)
        await asyncio.gather(*(self._register(watch, places) for watch in lost))
        return len(lost)

    def _can_register(self, watch: Watch) -> bool:
        return watch.shim_fd >= 0 and watch.lives() and watch.key not in self._unregistered

    async def _register(self, watch: Watch, places: asyncio.Semaphore) -> None:
        key = watch.key
        try:
            async with places, control.opened(watch.directory.path) as line:
                was_asked = await line.register()
        except ExitdError as error:  # the next round of the reconcile loop asks again
            log.warning("not asked to register", container=key.container, run=key.run, why=str(error))
            return
        if was_asked:
            log.info("asked to register", container=key.container, run=key.run, exec=key.exec_id)
            return
        self._unregistered.add(key)
        if len(self._unregistered) == 1:
            log.warning("shims of an older version cannot register with a new keeper: their death would cost output")

    async def acknowledge_strangers(self, needed: Callable[[], frozenset[RunKey]]) -> int:
        """Acknowledge runs that the keeper still knows but that are not needed, since their acknowledgement was lost.
        Return their number. `needed` is asked after the keeper, so that it contains runs that begin meanwhile.

        As long as the keeper knows as many as are needed it is asked for their number only, but for each
        COUNTED_ROUNDS-th time: one that is too many may stand for one that is missing. Not if it has given copies of
        the output of each, or they came with its shim: then it knows each one, and no other. After the death of a
        keeper it is asked for all until no run is missing: a shim may fail to register, and one that has ended may
        do so too late."""
        lost = self._keepers_lost
        try:
            is_sure = self._registered_after == lost
            is_known = is_sure and (self._counted < COUNTED_ROUNDS or all(map(self._was_known, needed())))
            if is_known and await self.keeper.run_count() == len(needed()):
                self._counted = self._counted + 1 if self._counted < COUNTED_ROUNDS else 0
                return 0
            known = await self.keeper.runs()
        except (keeper.KeeperSilent, launch.KeeperRefused, fields.BadMessage):
            return 0
        self._counted = 0
        if not await self._register_rest(known):
            self._registered_after = lost
        live = needed()
        stale = [message for message in known if _key_of(message) not in live]
        for message in stale:
            await self.keeper.acknowledge(message.get("id"), message.number("run"), message.get("exec"))
        return len(stale)

    def _was_known(self, key: RunKey) -> bool:
        """Return whether a keeper knew the run, which shows in the copies at hand."""
        watch = self._watches.get(key)
        return watch is not None and not watch.misses_copies()

    def _place(self, container_id: str, path: str) -> str:
        """Return what `cgroups.place` does; taken apart once, since each new run is compared with all others."""
        known = self._places.get(container_id)
        if known is None or known[0] != path:
            known = self._places[container_id] = path, cgroups.place(path)
        return known[1]

    async def keeper_knows(self, key: RunKey) -> bool:
        """Return whether the keeper watches the run. Raises ShimFailed when it does not answer."""
        try:
            return await self._known_to_keeper(key) is not None
        except (keeper.KeeperSilent, launch.KeeperRefused, fields.BadMessage) as error:
            raise ShimFailed(f"the keeper does not say whether it knows {key.container}: {error}") from error

    async def learn(self, container: Container, place: Place) -> None:
        """Read the container's configuration, unless it is known, so that `cgroup_of` need not: an adopted container's
        belongs to its caller, whose file system may hang. Raises TimedOut, Busy."""
        if container.id in self.cgroups and container.id in self.executes:
            return

        def read() -> tuple[str, bool, bool]:
            directory = rundir.path_of(place.state, container.id, container.run)
            return *bundle.learned(container, place.root), rest.has_own_pids(directory)

        if bundle.is_adopted(container, place.root):
            what = f"reading {container.spec.bundle}/config.json"
            cgroup, executes, own_pids = await place.looking.run(what, read, container.id)
        else:
            cgroup, executes, own_pids = await self._own_files.read(read)
        self.cgroups.setdefault(container.id, cgroup)
        self.executes.setdefault(container.id, executes)
        self.own_pids.setdefault(container.id, own_pids)

    def cgroup_of(self, container: Container, root: str) -> str:
        """Return what `learn` has found; for a container that exitd has made itself it works without `learn`, too."""
        if container.id not in self.cgroups:
            self.cgroups[container.id] = bundle.cgroups_path(container, root)
        return self.cgroups[container.id]

    def executes_of(self, container: Container) -> bool:
        """Return whether its init becomes the program by execve(2); True if that is not known. Call `learn` before."""
        return self.executes.get(container.id, True)

    def forget(self, container_id: str) -> None:
        """Forget what was known of it besides its runs."""
        for known in (self.cgroups, self.executes, self.own_pids, self.shim_cgroups, self._places):
            known.pop(container_id, None)

    def oom_kills(self, key: RunKey) -> int:
        """Return the memory kills in the container's cgroup so far."""
        path = self.cgroups.get(key.container)
        return max((cgroups.oom_kills(path) or 0) if path else 0, self._oom.seen(RunKey(key.container, key.run)))

    def close(self) -> None:
        for task in (*self._tasks, *([self._finding] if self._finding is not None else [])):
            task.cancel()
        for watch in self._watches.values():
            watch.close()
        self._watches.clear()
        self._oom.close()

    def _begun(self, key: RunKey) -> None:
        if not key.exec_id:  # an exec's memory is its container's
            self._oom.begin(key, self.cgroups[key.container])

    def report(self, key: RunKey, report: Report) -> None:
        """Report the end of something that is not watched."""
        self._exit_seen(key, report)

    def _exit_seen(self, key: RunKey, report: Report) -> None:
        assert self._listener is not None
        self._listener.exit_seen(key, report)

    def _lives(self, key: RunKey) -> bool:
        watch = self._watches.get(key)
        return watch is not None and watch.lives()

    def _killed_for_memory(self, key: RunKey, kills: int) -> None:
        assert self._listener is not None
        self._listener.memory_kills_seen(key, kills)

    def _entry(self, key: RunKey) -> Record | None:
        return self.keeper.entry(key.container, key.run, key.exec_id)

    def _entry_is_coming(self, key: RunKey) -> bool:
        """Return whether a keeper may still journal the end of an init that another process has reaped; True until it
        has said so. The run is looked at again when it has."""
        if key not in self._asked:
            self._asked[key] = self.spawn(self._await_entry(key))
        return not self._asked[key].done()

    async def _await_entry(self, key: RunKey) -> None:
        """Return once no keeper will. One that stands still, or is being renewed, may."""
        while await self._will_journal(key):  # noqa: ASYNC110 - of what it cannot know it sends no news
            await asyncio.sleep(evidence.ENTRY_RETRY_SECONDS)
        if (watch := self._watches.get(key)) is not None:
            asyncio.get_running_loop().call_soon(watch.look)

    async def _will_journal(self, key: RunKey) -> bool:
        """Return whether a keeper may journal the end; True also while it cannot be asked."""
        try:
            known = await self._known_to_keeper(key)
        except keeper.KeeperSilent:
            return await asyncio.to_thread(self.keeper.is_there)
        except launch.KeeperRefused as error:
            log.debug("the keeper does not say what it watches", container=key.container, why=str(error))
            return keeper.used_up(error) is not None
        except fields.BadMessage:
            return False
        return known is not None and known.get("watched") == "1"

    async def entry_awaited(self, key: RunKey) -> None:
        """Return once it is known that the keeper has journalled the run's end, or will not; at once where that is not
        asked, and at the latest when the end is reported without it."""
        asking, watch = self._asked.get(key), self._watches.get(key)
        while asking is not None and watch is not None and not asking.done() and not watch.reported:
            await asyncio.wait([asking], timeout=evidence.ENTRY_RETRY_SECONDS)


def _key_of(message: fields.Message) -> RunKey:
    """Return the key of a run in the keeper's list."""
    return RunKey(message.get("id"), message.number("run"), message.get("exec"))


def pidfd_of(process: Process) -> int:
    """Return -1 if it has ended."""
    fd = epoll.open_process(process.pid, process.started_ticks)
    return -1 if fd is None else fd
