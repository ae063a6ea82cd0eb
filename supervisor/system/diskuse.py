"""What a directory of hostile content takes of the disk, as du(1) counts it: blocks, and a file of several names once.

Nothing is followed, nothing but directories is opened, and there is a bound of time, of entries and of depth: what lies
behind it is not counted, and the answer says so.
"""

import os
import time
from collections.abc import Callable

from shim.frozen import frozen, mutable

BLOCK_BYTES = 512  # of st_blocks, stat(2)
MOST_SECONDS = 10.0
MOST_ENTRIES = 2_000_000
MOST_DEPTH = 128  # each level that is open takes a descriptor
TURN_ENTRIES = 1024  # from one look at the clock to the next
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@frozen
class Usage:
    """Bytes on the disk. `complete` is False if there is more that was not counted."""

    size_bytes: int = 0
    complete: bool = True

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.size_bytes + other.size_bytes, self.complete and other.complete)


@mutable
class LookBudget:
    """What all looks of one request may take together."""

    entries: int = MOST_ENTRIES
    until: float = 0.0  # of `clock`
    clock: Callable[[], float] = time.monotonic

    def take(self) -> bool:
        """Return whether one more entry may be looked at."""
        self.entries -= 1
        if self.entries % TURN_ENTRIES == 0 and self.clock() >= self.until:
            self.entries = 0
        return self.entries > 0


def budget(seconds: float = MOST_SECONDS, entries: int = MOST_ENTRIES) -> LookBudget:
    return LookBudget(entries, time.monotonic() + seconds)


def of_tree(path: str, left: LookBudget) -> Usage:
    """Return what the directory and all below it take, on its own file system; nothing if it is not there. What comes
    and goes meanwhile may be counted or not."""
    try:
        fd = os.open(path, DIRECTORY)
    except FileNotFoundError:
        return Usage()
    except OSError:
        return Usage(complete=False)
    return _Look(left).of(fd)


def of_files(paths: list[str]) -> Usage:
    """Return what these files take; those that are not there, nothing."""
    total = 0
    for path in paths:
        try:
            total += os.stat(path, follow_symlinks=False).st_blocks * BLOCK_BYTES
        except FileNotFoundError:
            continue
    return Usage(total)


class _Look:
    """One look at a tree: depth first, with the directories open on the way down."""

    def __init__(self, left: LookBudget) -> None:
        self._left = left
        self._seen: set[int] = set()  # inodes of files with more names than one
        self._blocks = 0
        self._complete = True

    def of(self, top_fd: int) -> Usage:
        """Takes the descriptor."""
        top = os.fstat(top_fd)
        self._blocks += top.st_blocks
        ways: list[tuple[int, list[str]]] = []  # each directory on the way, and those in it that are still to come
        try:
            ways.append((top_fd, self._count(top_fd, top.st_dev)))
            while ways:
                fd, inside = ways[-1]
                if not inside:
                    os.close(ways.pop()[0])
                elif len(ways) > MOST_DEPTH:
                    self._complete, ways[-1] = False, (fd, [])
                else:
                    self._go_into(ways, fd, inside.pop(), top.st_dev)
        finally:
            for fd, _ in ways:
                os.close(fd)
        return Usage(self._blocks * BLOCK_BYTES, self._complete)

    def _go_into(self, ways: list[tuple[int, list[str]]], fd: int, name: str, device: int) -> None:
        try:
            below_fd = os.open(name, DIRECTORY, dir_fd=fd)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError:  # no descriptor left, a link in its place
            self._complete = False
            return
        ways.append((below_fd, []))
        if os.fstat(below_fd).st_dev == device:
            ways[-1] = (below_fd, self._count(below_fd, device))

    def _count(self, fd: int, device: int) -> list[str]:
        """Count what is in the directory, and return the names of the directories among it."""
        inside = []
        with os.scandir(fd) as entries:
            for entry in entries:
                if not self._left.take():
                    self._complete = False
                    return []
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if found.st_dev != device or (found.st_nlink > 1 and self._is_known(entry, found)):
                    continue
                self._blocks += found.st_blocks
                if entry.is_dir(follow_symlinks=False):
                    inside.append(entry.name)
        return inside

    def _is_known(self, entry: "os.DirEntry[str]", found: os.stat_result) -> bool:
        if entry.is_dir(follow_symlinks=False):
            return False
        known = found.st_ino in self._seen
        self._seen.add(found.st_ino)
        return known
