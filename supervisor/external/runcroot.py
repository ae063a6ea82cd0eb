"""The containers of a runtime's state directory, runc's or crun's: DIR/ID/state.json or DIR/ID/status. Read only.

Both runtimes put the complete file in place with rename(2) before the container's program runs. inotify reports new
directories, and the file in one that has none yet. Everything is looked at again now and then, and when the kernel lost
changes.

The owner of such a directory can put anything there: it is listed and read in separate threads. What an engine calls a
container is read in others, once the container is watched: its bundle may be on a file system that hangs.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from shim.frozen import frozen, replace
from shim.patterns import LatePattern
from supervisor.external.enginenames import EngineNames
from supervisor.model import enginefiles, foreign, whose
from supervisor.model.errors import BadRequest, Busy, ExitdError, NoSuchProcess, NotPermitted, TimedOut
from supervisor.model.values import NO_NAMES, Names
from supervisor.model.watched import FoundProcess, Target
from supervisor.system import regular, room
from supervisor.system.aside import Aside
from supervisor.system.background import Background
from supervisor.system.inotify import IN_CLOSE_WRITE, IN_CREATE, IN_MOVED_TO, FileChange, Inotify, InotifyWatches, Item
from supervisor.system.pathwatch import PathWatch

AGAIN_SECONDS = 30.0
FIRST_SECONDS = 10.0
MOST_BYTES = 1 << 20  # of a state file
MOST_WATCHES = 1000  # of directories without a state file
ID = LatePattern(r"[A-Za-z0-9_+.-]{1,1024}")  # ids that runc and crun accept
SLICE = 50  # containers handled in one turn of the loop
READ_SECONDS = 10.0  # that reading them may take together
NAMES_AT_ONCE = 4
MISSED_NAMES_SECONDS = 2.0  # that the report of a missed end waits for names
ROOM_SECONDS = 1.0  # until the next look at a container for which there was no room

log = structlog.get_logger(__name__)

Mark = tuple[int, int]  # of a file: inode and modification time


@frozen
class StateFile:
    """What one container's state file says now, if it was read."""

    mark: Mark | None = None  # None: there is no file, or it cannot be read
    found: FoundProcess | None = None  # None: nothing new
    why: str = ""  # why it cannot be read
    bundle: str = ""  # whose files may have its names


class RuncRoot:
    """One directory. `observe` and `missed` are the observer's."""

    def __init__(
        self,
        target: Target,
        changes: Inotify,
        observe: Callable[[FoundProcess], Awaitable[object]],
        missed: Callable[[FoundProcess], Awaitable[object]],
        lacks_names: Callable[[str], bool] = lambda container: False,
        name: Callable[[str, Names], Awaitable[object]] | None = None,
    ) -> None:
        """`lacks_names`, `name`: also the observer's; without them containers are called by their ids."""
        self.trouble = ""
        self._root = target.where
        self._changes = changes
        self._observe = observe
        self._missed = missed
        self._aside = Aside(most_at_once=1, limit_seconds=READ_SECONDS)
        self._names = EngineNames()
        self._lacks_names, self._name = lacks_names, name
        self._naming = Background()
        self._names_aside = Aside(most_at_once=NAMES_AT_ONCE, limit_seconds=READ_SECONDS)
        self._names_turn = asyncio.Semaphore(NAMES_AT_ONCE)  # so that the limit begins with the turn
        self._path = PathWatch(changes, target.where, self._everything, self._aside)
        self._top = InotifyWatches(changes)
        self._empty: dict[str, InotifyWatches] = {}  # directories without a state file, the longest watched first
        self._listed = frozenset[str]()  # when everything was looked at last
        self._read: dict[str, Mark] = {}  # whose state was taken in
        self._old = set[FoundProcess]()  # there at the beginning, and not looked at yet: if gone, it may have been then
        self._news: dict[str, None] = {}  # names in the order of their changes
        self._all = True
        self._fresh = False  # what is found now has appeared while this watched
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Return when the present containers have been looked at, or after a limit."""
        first = asyncio.Event()
        self._task = asyncio.create_task(self._forever(first))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                await first.wait()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._naming.close()
        self._path.close()
        for watches in (self._top, *self._empty.values()):
            watches.close()

    async def _forever(self, first: asyncio.Event) -> None:
        while True:
            try:
                await self._turn()
                self._fresh = True
            except Exception:  # another user's directory may contain anything
                log.exception("looking at a runtime's directory failed", directory=self._root)
                self._all = True
            first.set()
            try:
                async with asyncio.timeout(AGAIN_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                self._all = True

    async def _turn(self) -> None:
        self._wake.clear()
        everything, self._all = self._all, False
        names, self._news = list(self._news), {}
        new = frozenset(names)
        if everything:
            names, before = await self._directories(), self._listed
            new = frozenset(names) - before
            if not self.trouble:  # what could not be listed is not gone, and is not new when it can be
                self._listed = frozenset(names)
        names = list(filter(ID.fullmatch, names))
        for start in range(0, len(names), SLICE):
            for name, state in (await self._states(names[start : start + SLICE])).items():
                await self._look(name, state, is_new=name in new)

    async def _states(self, names: list[str]) -> dict[str, StateFile]:
        """Return the states; none if the directory hangs, which is noted in `trouble`."""
        known = {name: self._read.get(name) for name in names}
        try:
            return await self._aside.run(
                f"reading {self._root}", lambda: {name: self._state(name, known[name]) for name in names}
            )
        except (TimedOut, Busy) as error:
            self.trouble, self._all = str(error), True
            return {}

    def _state(self, name: str, known: Mark | None) -> StateFile:
        """In a thread."""
        return read_state(self._root, name, known)

    async def _directories(self) -> list[str]:
        """Watched first, listed second: nothing comes in between. While it hangs, the watches that there are stay."""
        new = InotifyWatches(self._changes)
        with contextlib.ExitStack() as undo:
            undo.callback(new.close)
            try:
                await self._path.renew()
                names = await self._aside.run(f"listing {self._root}", lambda: self._listed_in(new))
                self.trouble = ""
            except OSError as error:
                names, self.trouble = [], f"{self._root}: {error.strerror}"
            except (TimedOut, Busy) as error:
                self.trouble, self._all = str(error), True
                return [*self._read]
            undo.pop_all()
        before, self._top = self._top, new
        before.close()
        for name in [name for name in self._empty if name not in names]:
            self._empty.pop(name).close()
        self._read = {name: seen for name, seen in self._read.items() if name in names}
        return names

    def _listed_in(self, watches: InotifyWatches) -> list[str]:
        """In a thread."""
        watches.add(self._root, IN_CREATE | IN_MOVED_TO, self._changed)
        return os.listdir(self._root)

    def _everything(self) -> None:
        self._all = True
        self._wake.set()

    def _changed(self, item: Item) -> None:
        if not isinstance(item, FileChange) or not item.name:
            return self._everything()
        self._news[item.name] = None
        self._wake.set()

    async def _look(self, name: str, state: StateFile, *, is_new: bool) -> None:
        if state.mark is None and self._may_watch(name, is_new=is_new):
            state = await self._watched(name) or state
        found = self._taken_in(name, state)
        if found is None:
            return
        try:
            await self._observed(found, state.bundle)
        except BadRequest as error:
            log.warning("a state that names no process", container=found.container, why=str(error))
        except (ExitdError, OSError) as error:
            self._look_again(name, found, error)
        else:
            self._old.discard(found)
            if self._lacks_names(found.container):
                self._naming.spawn(self._name_later(found, state.bundle))

    async def _name_later(self, found: FoundProcess, bundle: str) -> None:
        """Without an answer it is called by its id: an end does not wait for names that do not come."""
        async with self._names_turn:
            names = await self._names_of(found, bundle)
        try:
            if self._name is not None:
                await self._name(found.container, names)
        except ExitdError as error:
            log.warning("the names of a container are not stored yet", container=found.container, why=str(error))

    async def _names_of(self, found: FoundProcess, bundle: str, seconds: float | None = None) -> Names:
        try:
            work = partial(self._names.of_bundle, bundle, found.name, found.writer)
            return await self._names_aside.run(f"reading the names of {found.container}", work, seconds=seconds)
        except (TimedOut, Busy) as error:
            log.warning("the names of a container are not known", container=found.container, why=str(error))
            return NO_NAMES

    async def _observed(self, found: FoundProcess, bundle: str) -> None:
        """Have it watched, or its end reported as missed if it has appeared while this watched. Raises BadRequest; else
        ExitdError, OSError where neither was done."""
        try:
            await self._observe(found)
        except (NoSuchProcess, NotPermitted):
            if self._fresh and found not in self._old:
                names = await self._names_of(found, bundle, MISSED_NAMES_SECONDS) if bundle else NO_NAMES
                await self._missed(replace(found, names=names))

    def _look_again(self, name: str, found: FoundProcess, error: ExitdError | OSError) -> None:
        """Its state counts as not read: it is taken in when everything is looked at again; soon, if there was no room
        for it."""
        self._read.pop(name, None)
        if not self._fresh:
            self._old.add(found)
        if not self.trouble:
            log.warning("a container is not watched yet", container=found.container, why=str(error))
        self.trouble = str(error)
        if room.lacks_room(error):
            asyncio.get_running_loop().call_later(ROOM_SECONDS, self._changed_again, name)

    def _taken_in(self, name: str, state: StateFile) -> FoundProcess | None:
        if state.why:
            log.debug("a state that cannot be read", directory=self._root, name=name, why=state.why)
        if state.mark is None:
            return None
        self._read[name] = state.mark
        if (watch := self._empty.pop(name, None)) is not None:
            watch.close()
        return state.found

    def _may_watch(self, name: str, *, is_new: bool) -> bool:
        return name not in self._empty and (len(self._empty) < MOST_WATCHES or is_new)

    async def _watched(self, name: str) -> StateFile | None:
        """The file is looked for again once its directory is watched. None: it is not watched.

        Where as many are watched as may be, it takes the place of the one that has been watched longest: its file comes
        at once, or the directory is no container's."""
        watches, listener = InotifyWatches(self._changes), _Listener(name, self._changed_below)

        def work() -> StateFile:
            watches.add(f"{self._root}/{name}", IN_MOVED_TO | IN_CLOSE_WRITE, listener)
            return self._state(name, self._read.get(name))

        with contextlib.ExitStack() as undo:
            undo.callback(watches.close)
            try:
                state = await self._aside.run(f"reading {self._root}/{name}", work)
            except OSError:  # no directory, gone again, or no watch for one more
                return None
            except (TimedOut, Busy) as error:
                self.trouble, self._all = str(error), True
                return None
            undo.pop_all()
        if len(self._empty) >= MOST_WATCHES:
            self._empty.pop(next(iter(self._empty))).close()
        self._empty[name] = watches
        return state

    def _changed_below(self, name: str, item: Item) -> None:
        if isinstance(item, FileChange) and item.name and item.name not in foreign.STATE_FILES:
            return
        self._changed_again(name)

    def _changed_again(self, name: str) -> None:
        self._news[name] = None
        self._wake.set()


def read_state(root: str, name: str, known: Mark | None) -> StateFile:
    """Read one state file; runs in a thread. `known`: the mark of a state that was read before. Never follows a
    link."""
    for file_name in foreign.STATE_FILES:
        try:
            fd = regular.open_path(f"{root}/{name}/{file_name}", follow=False)
            status = os.fstat(fd)
            mark = (status.st_ino, status.st_mtime_ns)
            text = regular.read_all(fd, MOST_BYTES).decode(errors="replace")
            writer = _writer(status, f"{root}/{name}", root)
            if mark == known:
                return StateFile(mark)
            found = foreign.state_found(root, name, text, writer)
            return StateFile(mark, found, bundle=enginefiles.bundle_in(text))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, foreign.BadState) as error:
            return StateFile(why=str(error))
    return StateFile()


def _writer(file: os.stat_result, *directories: str) -> int:
    """Return the uid that can have put it there. Raises OSError when the directory is gone."""
    found = (file, *map(os.stat, directories))
    return whose.writer_of([(each.st_uid, each.st_mode) for each in found])


class _Listener:
    def __init__(self, name: str, report: Callable[[str, Item], None]) -> None:
        self._name = name
        self._report = report

    def __call__(self, item: Item) -> None:
        self._report(self._name, item)
