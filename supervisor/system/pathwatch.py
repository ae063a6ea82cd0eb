"""Watches whether a path may lead to another file than before, or its file was written: editors rename files,
directories are replaced, links are switched (Kubernetes swaps one named ..data). All of these change a look-up on the
way."""

import os
import stat
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress

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
    InotifyWatch,
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


def walk(path: str) -> None:
    """Look at everything that `renew` and a watch of the path itself look at. Run it in a thread, before them: it
    returns if no file system on the way hangs, and the kernel has cached the answers then."""
    steps(path)
    with suppress(OSError):  # opening it will show the error
        os.stat(path)


class PathWatch:
    """Calls `on_change` in the event loop, sometimes once too often. Call `renew` after each call, then look."""

    def __init__(self, inotify: Inotify, path: str, on_change: Callable[[], None]) -> None:
        self._inotify = inotify
        self._path = path
        self._on_change = on_change
        self._watches: list[InotifyWatch] = []

    def renew(self) -> None:
        """Watch the present path. Later changes are reported. Raises OSError, with fewer changes reported."""
        before = self._watches
        self._watches = []
        try:
            for _ in range(MOST_ROUNDS):
                way = steps(self._path)
                with suppress(FileNotFoundError, NotADirectoryError):  # gone since: the next round goes another way
                    self._add(way)
                    if steps(self._path) == way:
                        return
        finally:
            for watch in before:
                watch.close()

    def _add(self, way: tuple[Step, ...]) -> None:
        names: defaultdict[str, set[str]] = defaultdict(set)
        for directory, name in way:
            names[directory].add(name)
        for directory, wanted in names.items():
            listener = _Listener(directory, frozenset(wanted), self._on_change)
            self._watches.append(self._inotify.watch(directory, _MASK, listener))

    def close(self) -> None:
        for watch in self._watches:
            watch.close()
        self._watches = []


class _Listener:
    """The changes of one directory: only look-ups on the way are of interest."""

    def __init__(self, directory: str, names: frozenset[str], on_change: Callable[[], None]) -> None:
        self._directory = directory
        self._names = names
        self._on_change = on_change

    def __call__(self, item: Item) -> None:
        if (
            isinstance(item, FileChange)
            and item.name
            and (item.name not in self._names or self._is_being_written(item))
        ):
            return
        self._on_change()

    def _is_being_written(self, change: FileChange) -> bool:
        """A new file is empty at first; closing it is reported, too. A link is complete at once."""
        made = change.mask & IN_CREATE and not change.mask & IN_ISDIR
        return bool(made) and not os.path.islink(os.path.join(self._directory, change.name))
