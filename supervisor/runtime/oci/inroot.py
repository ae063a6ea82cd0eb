"""Opens a path as a process inside a root file system would see it: no link and no `..` leads out of that root."""

import errno
import os
import stat
from collections.abc import Callable

from shim import native
from supervisor.system import regular

MOST_LINKS = 40  # the kernel's own limit, path_resolution(7)

MaySearch = Callable[[os.stat_result], bool]
Cross = Callable[
    [int], int
]  # takes a descriptor of what was found, and returns one of what is mounted there, or itself


def open_in_root(root: str, path: str, *, may_search: MaySearch | None = None, cross: Cross | None = None) -> int:
    """Return an O_PATH descriptor of `path` below `root`; absolute links start at `root` and `..` stops there.

    The same as openat2(2) with RESOLVE_IN_ROOT and RESOLVE_NO_MAGICLINKS, done step by step from descriptor to
    descriptor, so that a process which changes links meanwhile cannot lead it out. `may_search` is asked about every
    directory passed, `cross` about each file and directory found. The caller closes the descriptor. Raises OSError:
    ENOENT, ENOTDIR, ELOOP, EACCES as the kernel would.
    """
    trail = [os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]
    try:
        _walk(trail, path, may_search, cross)
        return trail.pop()
    finally:
        _shorten(trail, 0)


def read_in_root(root: str, path: str, *, most_bytes: int) -> bytes:
    """Return the first `most_bytes` of a regular file on a disk or in memory.

    Raises OSError for everything else: a fifo, or a link to /proc/kmsg, would block forever. A file on FUSE is read
    only if the root itself is on FUSE, which was not the container's choice.
    """
    found_fd = open_in_root(root, path)
    try:
        return regular.read_all(regular.open_found(found_fd, path, fuse=_is_on_fuse(root)), most_bytes)
    finally:
        os.close(found_fd)


def _is_on_fuse(root: str) -> bool:
    root_fd = os.open(root, os.O_PATH | os.O_CLOEXEC)
    try:
        return native.file_system(root_fd) == regular.FUSE
    finally:
        os.close(root_fd)


def _walk(trail: list[int], path: str, may_search: MaySearch | None, cross: Cross | None) -> None:
    """Follow `path` from the end of `trail`, which holds a descriptor of every directory back to the root."""
    todo = path.split("/")[::-1]
    links = 0
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        directory = os.fstat(trail[-1])
        if may_search and stat.S_ISDIR(directory.st_mode) and not may_search(directory):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)
        if part == "..":
            _shorten(trail, max(1, len(trail) - 1))
            continue
        trail.append(os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=trail[-1]))
        if stat.S_ISLNK(os.fstat(trail[-1]).st_mode):
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            target = os.readlink("", dir_fd=trail[-1])
            _shorten(trail, 1 if target.startswith("/") else len(trail) - 1)
            todo.extend(target.split("/")[::-1])
        elif cross is not None:
            trail[-1] = cross(trail[-1])


def _shorten(trail: list[int], length: int) -> None:
    while len(trail) > length:
        os.close(trail.pop())
