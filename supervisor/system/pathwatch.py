"""Tells when a path may lead to another file than before, or that file was written: editors that rename, directories
that are replaced, links that are turned over (Kubernetes swaps one named ..data) are all changes of some look-up.
"""

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
    """Every look-up that opening the absolute path makes, the last one possible included: that of what is not there."""
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
        except OSError:  # it is not there, or is no longer what it was a moment ago: whoever opens it will see
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
    """Look at all that `renew` and a watch of the path itself look at. In a thread, before them: it comes back when no
    file system on the way hangs, and what it has found the kernel has at hand then."""
    steps(path)
    with suppress(OSError):  # whoever opens it will see
        os.stat(path)


class PathWatch:
    """Calls `on_change` in the event loop, now and then once too often. `renew` after each call, then look."""

    def __init__(self, inotify: Inotify, path: str, on_change: Callable[[], None]) -> None:
        self._inotify = inotify
        self._path = path
        self._on_change = on_change
        self._watches: list[InotifyWatch] = []

    def renew(self) -> None:
        """Watches the way as it is now. What happens from here on is told. Raises OSError, with fewer changes told."""
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
    """One directory's changes: all but the look-ups on our way are somebody else's."""

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
        """A file that is made is empty at first; its being closed is told too. A link is whole at once."""
        made = change.mask & IN_CREATE and not change.mask & IN_ISDIR
        return bool(made) and not os.path.islink(os.path.join(self._directory, change.name))
