"""Directories of hostile content removed: of any depth, with any names and flags, while others may still write there.

Nothing is followed, and nothing outside is touched: every step names one entry of a directory that is held open. A
directory that is not empty is moved to the top before it is emptied, so that two descriptors do for any depth, and no
step relies on `..`, which a process that writes there could turn to another place.
"""

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fcntl import ioctl

GET_FLAGS, SET_FLAGS = 0x80086601, 0x40086602  # FS_IOC_GETFLAGS and FS_IOC_SETFLAGS, ioctl_iflags(2)
LOCKED = 0x10 | 0x20  # FS_IMMUTABLE_FL and FS_APPEND_FL
MOST_ROUNDS = 64  # over one directory: more would mean that others fill it as fast as it is emptied
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str) -> None:
    """Remove the directory and all that is in it. Repeatable: it goes on where an earlier one was broken off, and it is
    no error if nothing is there.

    Raises OSError for what cannot be removed, and for another file system below it."""
    try:
        top_fd = os.open(path, DIRECTORY)
    except FileNotFoundError:
        return
    try:
        _Removal(top_fd).empty()
    finally:
        os.close(top_fd)
    with suppress(FileNotFoundError):
        os.rmdir(path)


class _Removal:
    """One removal: its top directory, and the directories in it that are to be emptied."""

    def __init__(self, top_fd: int) -> None:
        self._top_fd, self._device = top_fd, os.fstat(top_fd).st_dev
        self._prefix, self._moved = f".gone-{secrets.token_hex(8)}-", 0
        self._full: list[str] = []

    def empty(self) -> None:
        self._clear_once(self._top_fd)
        while self._full:
            name = self._full.pop()
            with suppress(FileNotFoundError), self._opened(name) as fd:
                self._clear(fd)
                _unlocked(self._top_fd, name, os.rmdir)

    @contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        fd = os.open(name, DIRECTORY, dir_fd=self._top_fd)
        try:
            if os.fstat(fd).st_dev != self._device:
                raise OSError(errno.EXDEV, "another file system is mounted there", name)
            yield fd
        finally:
            os.close(fd)

    def _clear(self, fd: int) -> None:
        for _ in range(MOST_ROUNDS):
            if not self._clear_once(fd):
                return
        raise OSError(errno.ENOTEMPTY, "others write there all the time")

    def _clear_once(self, fd: int) -> bool:
        """Remove what is in the directory, but note directories that are not empty, which are moved to the top first.
        Return whether there was anything."""
        found = False
        with os.scandir(fd) as entries:
            for entry in entries:
                found = True
                with suppress(FileNotFoundError):
                    if not entry.is_dir(follow_symlinks=False):
                        _unlocked(fd, entry.name, os.unlink)
                    elif not _removed_empty(fd, entry.name):
                        self._full.append(entry.name if fd == self._top_fd else self._move_up(fd, entry.name))
        return found

    def _move_up(self, fd: int, name: str) -> str:
        self._moved += 1
        up = f"{self._prefix}{self._moved}"

        def move(name: str, *, dir_fd: int) -> None:
            os.rename(name, up, src_dir_fd=dir_fd, dst_dir_fd=self._top_fd)

        _unlocked(fd, name, move)
        return up


def _removed_empty(fd: int, name: str) -> bool:
    """Remove the directory if it is empty."""
    try:
        _unlocked(fd, name, os.rmdir)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _unlocked(fd: int, name: str, act: Callable[..., None]) -> None:
    """Do it to an entry of the directory; if that is not permitted, once more without the flags that forbid it."""
    try:
        act(name, dir_fd=fd)
    except PermissionError:
        _unlock(fd)
        with suppress(OSError):  # the second attempt has the better error
            entry_fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            try:
                _unlock_entry(entry_fd)
            finally:
                os.close(entry_fd)
        act(name, dir_fd=fd)


def _unlock_entry(path_fd: int) -> None:
    """Open what the descriptor names, and nothing that was put into its place: of a device, a look would be an act."""
    kind = stat.S_IFMT(os.fstat(path_fd).st_mode)
    if kind in (stat.S_IFREG, stat.S_IFDIR):
        fd = os.open(f"/proc/self/fd/{path_fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _unlock(fd)
        finally:
            os.close(fd)


def _unlock(fd: int) -> None:
    with suppress(OSError):  # a file system without flags has forbidden it for another reason
        flags = bytearray(8)
        ioctl(fd, GET_FLAGS, flags)
        found = int.from_bytes(flags[:4], "little")
        if found & LOCKED:
            ioctl(fd, SET_FLAGS, (found & ~LOCKED).to_bytes(8, "little"))
