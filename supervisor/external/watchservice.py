"""What callers ask exitd to watch: pids, a containerd's socket, a runtime's directory, or all that this machine has.
Kept over restarts."""

import asyncio
import os
import stat
from collections.abc import Callable, Mapping, Sequence

import structlog

from supervisor.external import observe
from supervisor.external.nodesearch import NodeSearch
from supervisor.external.observer import Observer
from supervisor.external.watchlist import WatchEntry, WatchList, WatchSource
from supervisor.model import foreign
from supervisor.model.errors import BadRequest, Busy, CannotWatch, ExitdError, NoSuchProcess, NoSuchWatch, WrongState
from supervisor.model.values import By
from supervisor.model.watched import NODE, Kind, Target, WatchView
from supervisor.store.database import Store
from supervisor.system.aside import Aside
from supervisor.system.clock import Clock

MOST_TARGETS = 64
MOST_PIDS = 10_000
MOST_PATH = 4096
PATHS = (Kind.CONTAINERD, Kind.RUNC_ROOT)
NEEDS = "watching what others run needs Linux 6.15, or the process events connector"

log = structlog.get_logger(__name__)


class WatchService:
    """The registry of watches, one per daemon. `sources` make the WatchSource for each kind of target with a path."""

    def __init__(
        self,
        observer: Observer,
        watches: WatchList,
        store: Store,
        clock: Clock,
        sources: Mapping[Kind, Callable[[Target], WatchSource]],
        blind: str = "",
        looks: Aside | None = None,
    ) -> None:
        """`watches`: the observer's. `blind`: why this kernel does not report how processes end; empty if it does.
        `looks`: threads for the paths that callers name."""
        self._observer = observer
        self._store = store
        self._clock = clock
        self._sources = sources
        self._blind = f"{blind}; {NEEDS}" if blind else ""
        self._watches = watches
        self._turn = asyncio.Lock()
        self._looks = looks or Aside()
        self._beginning: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Continue the watches of an earlier exitd. Returns when the processes known then are watched; the search for
        more begins in the background."""
        stored = {target.where: target for target in await self._store.load_all(Target, "watches")}
        lost = [each for each in stored.values() if each.found_by and each.found_by not in stored]
        for target in stored.values():
            if target not in lost:
                self._watches[target.where] = WatchEntry(target)
        await self._observer.load(self._watches.keys())
        for target in lost:  # no caller can know why it is watched, or would end it
            await self._drop_lost(target)
        if any(watch.target.kind is not Kind.PID for watch in self._watches.values()):
            self._beginning = asyncio.create_task(self._begin_again())

    async def _drop_lost(self, target: Target) -> None:
        log.warning("a watch without the one that has found it is ended", where=target.where, found_by=target.found_by)
        try:
            await self._observer.drop(target.where, (target,))
        except ExitdError as error:  # the next exitd tries again
            log.warning("its end is not stored", where=target.where, why=str(error))

    async def begun(self) -> None:
        """Return when what was loaded has been looked at, or that has failed."""
        if self._beginning is not None:
            await asyncio.wait((self._beginning,))

    async def watch(self, kind: Kind, where: str, by: By) -> WatchView:
        """Watch a target. Repeating the call returns the same watch.

        Raises CannotWatch when this kernel does not report ends; BadRequest, NoSuchProcess, NotPermitted, WrongState
        when the target cannot be watched, or is watched otherwise; Busy when enough is watched; TimedOut when it is on
        a file system that hangs; OSError when there is no room to look. After an error nothing new is watched.
        """
        self._check_kernel()
        if kind in PATHS and where not in self._watches:
            await self._looks.run(f"looking at {where}", lambda: _check_path(kind, where), where)
        async with self._turn:
            known = self._watches.get(where)
            if known is None:
                target = Target(kind, where, self._clock.now_ns(), by)
                known = await (self._begin_pid(target) if kind is Kind.PID else self._begin(target))
        if isinstance(known.source, NodeSearch):
            await known.source.searched()
        return self._view(known)

    async def watch_node(self) -> None:
        """Watch all that this machine has, because the configuration says so."""
        try:
            await self.watch(Kind.NODE, NODE, By())
        except (ExitdError, OSError) as error:
            log.error("what this machine runs is not watched", why=str(error))

    def watches(self) -> list[WatchView]:
        """Return all watches, oldest first."""
        return [self._view(watch) for watch in sorted(self._watches.values(), key=lambda each: each.target.since_ns)]

    def totals(self) -> tuple[tuple[str, str, int], ...]:
        """Return target, kind and number of processes of each watch; of single processes together, without a target."""
        watches = self._watches.values()
        pids = sum(self._observer.count(each.target.where) for each in watches if each.target.kind is Kind.PID)
        found = ((each.target.where, each.target.kind) for each in watches if each.target.kind is not Kind.PID)
        rest = tuple((where, kind.value, self._observer.count(where)) for where, kind in found)
        return (*rest, ("", Kind.PID.value, pids)) if pids else rest

    def last_seq(self) -> int:
        return self._observer.last_seq()

    async def end(self, where: str) -> WatchView:
        """End a watch, and before it those that it has found: a daemon that is killed between two goes on with it. What
        has ended by now is still reported. Raises NoSuchWatch; StoreFailed, and the watch goes on."""
        async with self._turn:
            watch = self._watches.get(where)
            if watch is None:
                raise NoSuchWatch(f"nothing is watched by the name {where}; exitctl watch --list shows what is")
            view = self._view(watch)
            await _close(watch)  # it finds no more
            try:
                for each in [each for each in self._watches.values() if each.target.found_by == where]:
                    await self._end(each)
                await self._end(watch)
            except BaseException:
                if watch.source is None:
                    await self._begin_source(watch)
                raise
            return view

    async def _end(self, watch: WatchEntry) -> None:
        where = watch.target.where
        await _close(watch)
        try:
            await self._observer.drop(where, (watch.target,))
        except ExitdError:
            await self._begin_source(watch)
            raise
        self._watches.pop(where, None)
        await _close(watch)  # a watch that was beginning meanwhile

    async def close(self) -> None:
        if self._beginning is not None:
            self._beginning.cancel()
            await self.begun()
        for watch in self._watches.values():
            await _close(watch)
        await self._observer.close()

    # -- the beginning of one

    async def _begin_pid(self, target: Target) -> WatchEntry:
        pid = int(target.where)
        if pid == os.getpid():
            raise BadRequest("that is exitd itself; its service manager sees its end")
        self._room(MOST_PIDS, pids=True)
        with observe.Sight.of(pid) as sight:  # opened before it is reported as watched
            process = sight.process
        if self._observer.owns(process):
            raise WrongState(f"process {pid} is of a container of exitd's own: exitctl wait, exitctl events")
        if other := self._observer.watcher_of(process):
            raise WrongState(f"process {pid} is watched already, with all of {other}: exitctl events, exitctl exits")
        found = foreign.process_found(pid, observe.cgroup_of(pid), observe.command_of(pid))
        watch = self._watches[target.where] = WatchEntry(target)
        try:
            begun = await self._observer.observe(found, (target,))
        except BaseException:
            self._watches.pop(target.where, None)
            raise
        if begun is None:
            self._watches.pop(target.where, None)
            raise NoSuchProcess(f"process {pid} has ended, and that is in the ledger: exitctl exits", pid=str(pid))
        return watch

    async def _watch_found(self, kind: Kind, where: str, by: Target) -> None:
        """Watch a source that the watch `by` has found. Raises as `watch`."""
        if where in self._watches:
            return
        await self._looks.run(f"looking at {where}", lambda: _check_path(kind, where), where)
        async with self._turn:
            if where not in self._watches and by.where in self._watches:
                await self._begin(Target(kind, where, self._clock.now_ns(), by.by, found_by=by.where))

    async def _drop_gone(self, by: Target) -> None:
        """End the watches of directories that `by` has found, that are gone, and that have no process. Raises as `end`,
        TimedOut, Busy."""
        found = [
            each.where
            for each in (watch.target for watch in self._watches.values())
            if each.found_by == by.where and each.kind is Kind.RUNC_ROOT and not self._observer.count(each.where)
        ]
        gone = await self._looks.run("looking for directories that are gone", lambda: _missing_of(found))
        async with self._turn:
            for where in gone:
                watch = self._watches.get(where)
                if watch is not None and watch.target.found_by == by.where and not self._observer.count(where):
                    await self._end(watch)

    async def _begin(self, target: Target) -> WatchEntry:
        self._room(MOST_TARGETS, pids=False)
        await self._observer.note(target)
        watch = self._watches[target.where] = WatchEntry(target)
        await self._begin_source(watch)
        return watch

    async def _begin_source(self, watch: WatchEntry) -> None:
        if watch.target.kind is not Kind.PID and self._watches.get(watch.target.where) is watch:
            watch.source = self._source_of(watch.target)
            await watch.source.begin()

    def _source_of(self, target: Target) -> WatchSource:
        if target.kind is Kind.NODE:
            return NodeSearch(target, self._watch_found, self._drop_gone)
        return self._sources[target.kind](target)

    async def _begin_again(self) -> None:
        try:
            self._check_kernel()
        except CannotWatch as error:
            log.error("what others run cannot be watched any more", why=str(error))
            return
        waiting = [self._begin_source(watch) for watch in self._watches.values()]
        await asyncio.gather(*waiting)

    def _room(self, most: int, *, pids: bool) -> None:
        if sum((watch.target.kind is Kind.PID) is pids for watch in self._watches.values()) >= most:
            raise Busy(f"{most} such watches are the most; end one: exitctl watch --stop")

    def _check_kernel(self) -> None:
        if self._blind:
            raise CannotWatch(self._blind)

    def _view(self, watch: WatchEntry) -> WatchView:
        trouble = watch.source.trouble if watch.source is not None else self._blind
        return WatchView(watch.target, self._observer.count(watch.target.where), watch.exits, trouble)


async def _close(watch: WatchEntry) -> None:
    source, watch.source = watch.source, None
    if source is not None:
        await source.close()


def _missing_of(paths: Sequence[str]) -> list[str]:
    """In a thread."""
    return [path for path in paths if not os.path.lexists(path)]


def _check_path(kind: Kind, where: str) -> None:
    """Check the path, in a thread, since it is a caller's. Raises BadRequest."""
    if not os.path.isabs(where) or len(os.fsencode(where)) > MOST_PATH or os.path.normpath(where) != where:
        raise BadRequest(f"{where!r} must be an absolute path without . and ..")
    try:
        mode = os.stat(where).st_mode
    except OSError as error:
        raise BadRequest(f"{where}: {error.strerror}") from error
    if kind is Kind.CONTAINERD and not stat.S_ISSOCK(mode):
        raise BadRequest(
            f"{where} is no socket; containerd's is /run/containerd/containerd.sock, unless configured otherwise"
        )
    if kind is Kind.RUNC_ROOT and not stat.S_ISDIR(mode):
        raise BadRequest(f"{where} is no directory; runc's own is /run/runc, crun's /run/crun")
