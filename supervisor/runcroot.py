"""The containers of a runtime's state directory, runc's or crun's: DIR/ID/state.json or DIR/ID/status. Only read.

Both put the file in its place whole, by rename(2), before the container's program runs. New directories are told by
inotify, and so is the file in one that has none yet. Everything is looked at again now and then, and when the kernel
lost changes.
"""

import asyncio
import contextlib
import os
import re
from collections.abc import Awaitable, Callable

import structlog

from supervisor import foreign
from supervisor.errors import BadRequest, ExitdError, NoSuchProcess, NotPermitted
from supervisor.inotify import IN_CLOSE_WRITE, IN_CREATE, IN_MOVED_TO, Change, Inotify, Item, Watch
from supervisor.pathwatch import PathWatch
from supervisor.watched import Found, Target

AGAIN_SECONDS = 30.0
FIRST_SECONDS = 10.0
MOST_BYTES = 1 << 20  # of a state file
MOST_WATCHES = 1000  # of directories without a state file
ID = re.compile(r"[A-Za-z0-9_+.-]{1,1024}")  # what runc and crun take for one
SLICE = 50  # containers looked at in one turn of the loop

log = structlog.get_logger(__name__)


class RuncRoot:
    """One directory. `observe` and `missed` are the observer's."""

    def __init__(
        self,
        target: Target,
        changes: Inotify,
        observe: Callable[[Found], Awaitable[object]],
        missed: Callable[[Found], Awaitable[object]],
    ) -> None:
        self.trouble = ""
        self._root = target.where
        self._changes = changes
        self._observe = observe
        self._missed = missed
        self._path = PathWatch(changes, target.where, self._everything)
        self._top: Watch | None = None
        self._empty: dict[str, Watch] = {}  # directories without a state file
        self._read: dict[str, tuple[int, int]] = {}  # whose state was taken in: inode and time of the file
        self._news: dict[str, None] = {}  # names in the order of their changes
        self._all = True
        self._fresh = False  # what is found now has come while this was looking
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Returns when what is there now has been looked at, or after a while."""
        first = asyncio.Event()
        self._task = asyncio.create_task(self._forever(first))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                await first.wait()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._path.close()
        for watch in (self._top, *self._empty.values()):
            if watch is not None:
                watch.close()

    async def _forever(self, first: asyncio.Event) -> None:
        while True:
            try:
                await self._turn()
                self._fresh = True
            except Exception:  # a directory of somebody else's may hold anything
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
        if everything:
            names = self._names()
        for number, name in enumerate(filter(ID.fullmatch, names), start=1):
            await self._look(name)
            if number % SLICE == 0:
                await asyncio.sleep(0)

    def _names(self) -> list[str]:
        """Watched first, listed second: nothing comes in between."""
        before, self._top = self._top, None
        try:
            self._path.renew()
            self._top = self._changes.watch(self._root, IN_CREATE | IN_MOVED_TO, self._changed)
            names = os.listdir(self._root)
            self.trouble = ""
        except OSError as error:
            names, self.trouble = [], f"{self._root}: {error.strerror}"
        finally:
            if before is not None:
                before.close()
        for name in [name for name in self._empty if name not in names]:
            self._empty.pop(name).close()
        self._read = {name: seen for name, seen in self._read.items() if name in names}
        return names

    def _everything(self) -> None:
        self._all = True
        self._wake.set()

    def _changed(self, item: Item) -> None:
        if not isinstance(item, Change) or not item.name:
            return self._everything()
        self._news[item.name] = None
        self._wake.set()

    async def _look(self, name: str) -> None:
        """The file is looked for again once its directory is watched."""
        there, found = self._open(name)
        if not there and self._watch(name):
            _, found = self._open(name)
        if found is None:
            return
        try:
            await self._observe(found)
        except (NoSuchProcess, NotPermitted):
            if self._fresh:
                await self._told_missed(found)
        except BadRequest as error:
            log.warning("a state that names no process", container=found.container, why=str(error))
        except ExitdError as error:
            self._read.pop(name, None)  # with the next look at everything
            self.trouble = str(error)

    def _open(self, name: str) -> tuple[bool, Found | None]:
        """Whether there is a state file, and what it says, if that is new."""
        for file_name in foreign.STATE_FILES:
            try:
                with open(f"{self._root}/{name}/{file_name}", encoding="utf-8", errors="replace") as file:
                    status = os.fstat(file.fileno())
                    seen = (status.st_ino, status.st_mtime_ns)
                    new = self._read.get(name) != seen
                    found = foreign.state_found(self._root, name, file.read(MOST_BYTES)) if new else None
                    self._read[name] = seen
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (OSError, foreign.BadState) as error:
                log.debug("a state that cannot be read", directory=self._root, name=name, why=str(error))
                return False, None
            if (watch := self._empty.pop(name, None)) is not None:
                watch.close()
            return True, found
        return False, None

    def _watch(self, name: str) -> bool:
        if name in self._empty or len(self._empty) >= MOST_WATCHES:
            return False
        with contextlib.suppress(OSError):  # no directory, or gone again
            listener = _Listener(name, self._changed_below)
            mask = IN_MOVED_TO | IN_CLOSE_WRITE
            self._empty[name] = self._changes.watch(f"{self._root}/{name}", mask, listener)
            return True
        return False

    def _changed_below(self, name: str, item: Item) -> None:
        if isinstance(item, Change) and item.name and item.name not in foreign.STATE_FILES:
            return
        self._news[name] = None
        self._wake.set()

    async def _told_missed(self, found: Found) -> None:
        with contextlib.suppress(ExitdError):  # the store refuses; health says so
            await self._missed(found)


class _Listener:
    def __init__(self, name: str, tell: Callable[[str, Item], None]) -> None:
        self._name = name
        self._tell = tell

    def __call__(self, item: Item) -> None:
        self._tell(self._name, item)
