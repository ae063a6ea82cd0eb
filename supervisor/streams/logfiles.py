"""The files of one log as one: the current one and the rotated ones, read in order even while they are rotated.

PATH.2, PATH.1, PATH                  exitd-shim's rotation: each moves up by one, then PATH is made anew
PATH.20261121-230000, PATH            the kubelet's: PATH gets the time as its ending, and is reopened later

A file is identified by its inode, whatever its name becomes, and is held open until it has been read.
"""

import errno
import hashlib
import heapq
import os
import stat
from collections.abc import Generator, Iterator, Sequence
from enum import Enum

from shim.frozen import frozen
from shim.patterns import LatePattern
from shim.undo import undone_on_failure
from supervisor.model.errors import WrongState
from supervisor.streams.logline import MAX_LINE_BYTES, Item, Parser, Read, Tail

CHUNK_BYTES = 64 * 1024  # read at once: bounds what a fast writer makes us hold
TURN_LINES = 512  # looked at in one step
HEAD_BYTES = 4096  # of a file's first line: by that it is known again

_OLDER = LatePattern(r"\.(?:([1-9][0-9]{0,2})|([0-9]{8}-[0-9]{6}))")
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW


class Named(Enum):
    """How a file of a log is called."""

    CURRENT = 0
    BY_NUMBER = 1
    BY_TIME = 2


@frozen
class LogPlace:
    """A place in a log between two of its entries. A file is known again by its inode, and by the digest of its
    beginning, since an inode may be another file's later. Inode 0: before the first file of a log without any."""

    device: int = 0
    inode: int = 0
    offset: int = 0
    digest: bytes = b""


@frozen
class LogFile:
    """An open file of a log."""

    fd: int
    inode: tuple[int, int]  # with its device
    named: Named  # when it was opened

    def last_written_ns(self) -> int:
        return os.fstat(self.fd).st_mtime_ns

    def close(self) -> None:
        os.close(self.fd)


def open_all(path: str) -> list[LogFile]:
    """Open every file of the log, oldest first. They are opened in the opposite order, so that a file renamed meanwhile
    is found twice rather than missed; its place is where it was found last, since files made after it may have the
    names before. One that was deleted meanwhile is left out, since its place is not known; but if it was opened last,
    and no file was found twice, it is the oldest. Raises OSError when one cannot be read, WrongState when the current
    file is a link."""
    found: dict[tuple[int, int], LogFile] = {}

    def close() -> None:
        for file in found.values():
            file.close()

    with undone_on_failure(close):
        is_moved = False
        for file in _opened(path):
            if before := found.pop(file.inode, None):
                before.close()
                is_moved = True
            found[file.inode] = file
        newer = [*found.values()] if is_moved else [*found.values()][:-1]
        for file in [file for file in newer if not os.fstat(file.fd).st_nlink]:
            found.pop(file.inode).close()
    oldest_first = [*found.values()][::-1]
    current, numbered, timed = ([file for file in oldest_first if file.named is named] for named in Named)
    return [*heapq.merge(numbered, timed, key=LogFile.last_written_ns), *current]


def _opened(path: str) -> Iterator[LogFile]:
    """Yield the newest first, some twice. The directory is read only after the current file is open."""
    if file := _open(path, Named.CURRENT):
        yield file
    most, times = _older(path)
    number = misses = 0
    # In the middle of a rotation one number is missing; and files may have gone up since they were counted.
    while number < most or misses < 2 or number < (most := _older(path)[0]):
        number += 1
        if file := _open(f"{path}.{number}", Named.BY_NUMBER):
            yield file
        misses = 0 if file else misses + 1
    for time in times:
        if file := _open(f"{path}.{time}", Named.BY_TIME):
            yield file


def _older(path: str) -> tuple[int, list[str]]:
    """Return the highest number, and the times, newest first."""
    folder, name = os.path.split(path)
    try:
        matches = [_OLDER.fullmatch(each, len(name)) for each in os.listdir(folder or ".") if each.startswith(name)]
    except FileNotFoundError:
        return 0, []
    most = max((int(match[1]) for match in matches if match and match[1]), default=0)
    return most, sorted((match[2] for match in matches if match and match[2]), reverse=True)


def _open(path: str, named: Named) -> LogFile | None:
    """Return None if it does not exist or is no regular file. Raises WrongState when the current one is a link."""
    try:
        fd = os.open(path, _FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP and named is Named.CURRENT:
            raise WrongState(f"the log {path} is a link, and links are not followed; remove it") from error
        if error.errno in (errno.ELOOP, errno.ENXIO):
            return None
        raise
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        os.close(fd)
        return None
    return LogFile(fd, (found.st_dev, found.st_ino), named)


class Chain:
    """A log as far as it has been read. Follows its path through rotation, replacement, truncation, and recreation."""

    def __init__(self, path: str, read: Read, after: LogPlace | None = None) -> None:
        """`after`: where to begin. `gap`: that place is gone, and the log is read from its present beginning."""
        self._path = path
        self._read = read
        self._files = open_all(path)  # the first is being read, the others are newer
        self._begin()
        self.files = len(self._files)
        self.gap = after is not None and not self._seek(after)

    def place(self) -> LogPlace:
        """Return the place behind the last entry that was returned."""
        if not self._files:
            return LogPlace()
        file = self._files[0]
        offset = os.lseek(file.fd, 0, os.SEEK_CUR) - self._parser.unfinished_bytes
        return LogPlace(*file.inode, offset, _digest(file.fd, offset))

    def _seek(self, after: LogPlace) -> bool:
        """Return False if the file of that place is not there any more."""
        if not after.inode:
            return True
        for index, file in enumerate(self._files):
            if file.inode == (after.device, after.inode) and _digest(file.fd, after.offset) == after.digest:
                for _ in range(index):
                    self._files.pop(0).close()
                os.lseek(file.fd, after.offset, os.SEEK_SET)
                self._remember()
                return True
        return False

    def _begin(self) -> None:
        self._parser = Parser(self._read)
        self._sealed = False  # the first file is complete: its successor has data
        self._head = b""

    def skipping_to(self, tail: Tail) -> Iterator[None]:
        """What is read next is the tail's first line, once the iterator is used up; each step is a short one."""
        index, offset = len(self._files) - 1, self._size(-1)
        for count, (at_index, at, line) in enumerate(lines_backwards([file.fd for file in self._files])):
            wanted = tail.wants(self._read(line))
            if wanted is False:
                break
            if wanted:
                index, offset = at_index, at
            if count % TURN_LINES == 0:
                yield
        for _ in range(index):
            self._files.pop(0).close()
        if self._files:
            os.lseek(self._files[0].fd, offset, os.SEEK_SET)
            self._remember()

    def _size(self, index: int) -> int:
        return os.fstat(self._files[index].fd).st_size if self._files else 0

    def read(self) -> tuple[bool, list[Item]]:
        """Read the next portion. Return whether there was any, and its entries. At the end of the log there is none for
        now."""
        data = os.read(self._files[0].fd, CHUNK_BYTES) if self._files else b""
        if data:
            self._remember()
            return True, self._parser.feed(data)
        return self._moved_on(), []

    def _remember(self) -> None:
        if not self._head.endswith(b"\n") and len(self._head) < HEAD_BYTES:
            self._head = _head(self._files[0].fd)

    def _moved_on(self) -> bool:
        """At the end of the first file: return whether there is now something else to read."""
        if not self._files:
            self._files = open_all(self._path)
            self._begin()
            return bool(self._files)
        if not self._sealed:
            if self._begins_anew():
                return True
            self._files += self._newer()
            # One more look at this file then: it may have grown until its successor was begun.
            self._sealed = any(self._size(index) for index in range(1, len(self._files)))
            return self._sealed
        self._files.pop(0).close()
        self._begin()
        return True

    def _begins_anew(self) -> bool:
        """Return whether the file was truncated and rewritten with other contents. The same first line means that a
        replacement shim repeats, byte for byte, what its predecessor had not finished; then reading waits at the
        present position."""
        fd = self._files[0].fd
        if self._size(0) >= os.lseek(fd, 0, os.SEEK_CUR):
            return False
        if self._head.startswith(_head(fd)):
            return False
        os.lseek(fd, 0, os.SEEK_SET)
        self._begin()
        return True

    def _newer(self) -> list[LogFile]:
        """Return the files that are newer than those already open."""
        here = self._files[-1]
        try:
            there = os.stat(self._path, follow_symlinks=False)
        except FileNotFoundError:
            pass
        else:
            if (there.st_dev, there.st_ino) == here.inode:
                return []
        found = open_all(self._path)
        inodes = [file.inode for file in found]
        if here.inode in inodes:
            old = found[: inodes.index(here.inode) + 1]
        else:  # it was removed, by rotation or by hand
            old = [file for file in found if file.last_written_ns() < here.last_written_ns()]
        held = {file.inode for file in (*old, *self._files)}
        newer = [file for file in found if file.inode not in held]
        for file in found:
            if file not in newer:
                file.close()
        return newer

    def close(self) -> None:
        while self._files:
            self._files.pop().close()


def _head(fd: int) -> bytes:
    """Return the first line, or the beginning of a long one."""
    line, newline, _ = os.pread(fd, HEAD_BYTES, 0).partition(b"\n")
    return line + newline


def _digest(fd: int, offset: int) -> bytes:
    """Return what tells a file from another that has its inode later: a digest of the first bytes before the offset,
    which do not change while it grows."""
    return hashlib.blake2b(os.pread(fd, min(offset, HEAD_BYTES), 0), digest_size=16).digest()


def lines_backwards(log_fds: Sequence[int]) -> Iterator[tuple[int, int, bytes]]:
    """Yield complete lines from the last to the first: the index of the file, the line's offset, and its bytes without
    the newline. Reads no more than is asked for, and ends at a line that is too long."""
    for index in reversed(range(len(log_fds))):
        if not (yield from _backwards_in(index, log_fds[index])):
            return


def _backwards_in(index: int, log_fd: int) -> Generator[tuple[int, int, bytes], None, bool]:
    """Return whether it reached the beginning of the file."""
    end = os.fstat(log_fd).st_size
    rest = b""  # the beginning of the block read before: the end of this block's last line
    torn = True  # what follows the file's last newline is no complete line
    while end > 0:
        start = max(0, end - CHUNK_BYTES)
        block = os.pread(log_fd, end - start, start) + rest
        rest, *whole = block.split(b"\n")
        at = start + len(block)
        for line in reversed(whole):
            at -= len(line)
            if not torn:
                yield index, at, line
            torn = False
            at -= 1
        end = start
        if len(rest) > MAX_LINE_BYTES:
            return False
    if not torn:
        yield index, 0, rest
    return True
