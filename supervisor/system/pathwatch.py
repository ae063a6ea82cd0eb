"""Watches whether a path may lead to another file than before, or its file was written: editors rename files,
directories are replaced, links are switched (Kubernetes swaps one named ..data). All of these change a look-up on the
way."""

import os
import stat
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from supervisor.model.errors import ExitdError
from supervisor.system.aside import Aside
from supervisor.system.background import Background
from supervisor.system.inotify import (
    IN_ATTRIB,
    IN_CLOSE_WRITE,
    IN_CREATE,
    IN_DELETE,
    IN_ISDIR,
    IN_MOVED_FROM,
    IN_MOVED_TO,
    FileChange,
    Inotify,
    InotifyWatches,
    Item,
)

MOST_LINKS = 40  # the kernel's own limit, path_resolution(7)
MOST_ROUNDS = 5

_MASK = IN_ATTRIB | IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO

Step = tuple[str, str]  # a directory, named without links, and the name that is looked up in it


def steps(path: str) -> tuple[Step, ...]:
    """Return every look-up that opening the absolute path makes, up to the first name that does not exist."""
    found: list[Step] = []
    here, left, links = "/", path.split("/")[::-1], 0
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        if name == "..":
            here = os.path.dirname(here)
            continue
        found.append((here, name))
        below = os.path.join(here, name)
        try:
            mode = os.lstat(below).st_mode
            target = os.readlink(below) if stat.S_ISLNK(mode) else ""
        except OSError:  # it does not exist, or has changed in this moment: opening it will show that
            break
        if not target:
            here = below
            continue
        links += 1
        if links > MOST_LINKS:
            break
        here = "/" if target.startswith("/") else here
        left += target.split("/")[::-1]
    return tuple(found)


class PathWatch:
    """Calls `on_change` in the event loop, now and then once too often. `renew` after each call, then look.

    A file system on the way may hang: all looks and watches are made in threads of `looks`. What stays on the loop is
    the end of a watch, by its number: inotify_rm_watch(2) walks no path and asks no file system.
    """

    def __init__(self, inotify: Inotify, path: str, on_change: Callable[[], None], looks: Aside) -> None:
        self._inotify = inotify
        self._path = path
        self._on_change = on_change
        self._looks = looks
        self._watches = InotifyWatches(inotify)
        self._background = Background()
        self._open = True

    async def renew(self) -> None:
        """Watch the way as it is now. What happens from here on is reported. Raises OSError, with fewer changes
        reported; TimedOut and Busy, with those that were reported before."""
        new = InotifyWatches(self._inotify)
        try:
            await self._looks.run(f"looking at {self._path}", lambda: self._watch_way(new))
        except OSError:
            self._become(new)
            raise
        except BaseException:
            new.close()
            raise
        self._become(new)

    def _become(self, new: InotifyWatches) -> None:
        before, self._watches = self._watches, new
        before.close()
        if not self._open:
            new.close()

    def _watch_way(self, watches: InotifyWatches) -> None:
        for _ in range(MOST_ROUNDS):
            way = steps(self._path)
            with suppress(FileNotFoundError, NotADirectoryError):  # gone since: the next round goes another way
                self._add(way, watches)
                if steps(self._path) == way:
                    return

    def _add(self, way: tuple[Step, ...], watches: InotifyWatches) -> None:
        names: defaultdict[str, set[str]] = defaultdict(set)
        for directory, name in way:
            names[directory].add(name)
        for directory, wanted in names.items():
            watches.add(directory, _MASK, partial(self._changed, directory, frozenset(wanted)))

    def _changed(self, directory: str, names: frozenset[str], item: Item) -> None:
        """One directory's changes: those of names that are not on our way are passed over."""
        if not isinstance(item, FileChange) or not item.name:
            self._on_change()
        elif item.name in names and item.mask & IN_CREATE and not item.mask & IN_ISDIR:
            self._background.spawn(self._made(os.path.join(directory, item.name)))
        elif item.name in names:
            self._on_change()

    async def _made(self, path: str) -> None:
        """A file that is made is empty at first; its being closed is reported, too. A link is whole at once."""
        try:
            is_whole = await self._looks.run(f"looking at {path}", lambda: os.path.islink(path))
        except ExitdError:  # the call that opens it will see
            is_whole = True
        if is_whole and self._open:
            self._on_change()

    def close(self) -> None:
        """Idempotent."""
        self._open = False
        self._watches.close()
