"""Writes one block at a time into a file, flushed, and need not be waited for.

On ext4 and xfs the kernel does that by itself: a direct write into a file that has all of its blocks begins the disk's
work, and the caller goes on (io_submit(2), open(2) O_DIRECT). On other file systems io_submit may wait for the disk, so
that a thread does it.
"""

import concurrent.futures
import os
import select
from typing import Protocol

import structlog

from shim import native
from shim.undo import undone_on_failure
from supervisor.system import threads

EXT4, XFS = 0xEF53, 0x58465342  # f_type of statfs(2)
FLAGS = os.O_RDWR | os.O_DSYNC | os.O_NOFOLLOW | os.O_CLOEXEC

log = structlog.get_logger(__name__)


class Disk(Protocol):
    """How a write is begun, and what comes of it. `written` is called when the eventfd has shown its end."""

    def begin(self, data: bytes, offset: int) -> None:
        """Raises OSError."""

    def written(self) -> int:
        """Return the bytes that were written. Raises OSError."""

    def close(self) -> None:
        """No write is under way."""


class BlockWriter:
    """One write at a time. `event_fd` is readable from the end of a write until `written` is called."""

    def __init__(self, path: str, most_bytes: int) -> None:
        """Open a file that is there, and has all of its bytes. `most_bytes`: of one write, whole pages. Raises
        OSError, CannotStart."""
        self.event_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        with undone_on_failure(lambda: os.close(self.event_fd)):
            self._disk = _disk(path, self.event_fd, most_bytes)
        self._ends = select.poll()
        self._ends.register(self.event_fd, select.POLLIN)
        self._size = 0  # of the write under way; 0: there is none

    def begin(self, data: bytes, offset: int) -> None:
        """Begin a write, of whole pages to a whole page. Raises OSError, after which the data may be in the file."""
        assert not self._size, "one write at a time"
        self._disk.begin(data, offset)
        self._size = len(data)

    def has_ended(self, seconds: float) -> bool:
        """Wait so long at most for the write under way. Return whether it has ended."""
        return bool(self._ends.poll(seconds * 1000))

    def finish(self) -> None:
        """Return when the write that has ended is on the disk. Raises OSError, after which the data may be in the
        file."""
        size, self._size = self._size, 0
        os.eventfd_read(self.event_fd)
        written = self._disk.written()
        if written != size:
            raise OSError(f"{written} of {size} bytes written")

    def close(self) -> None:
        """Give everything back. What a hanging disk still writes keeps its descriptor, and its memory, until this
        process ends. Repeatable."""
        if self._size or self.event_fd < 0:
            return
        self._disk.close()
        os.close(self.event_fd)
        self.event_fd = -1


class ByKernel:
    """A write that the kernel does by itself."""

    def __init__(self, path: str, event_fd: int, most_bytes: int) -> None:
        """Raises OSError where the kernel does not."""
        self._event_fd = event_fd
        self._fd = os.open(path, FLAGS | os.O_DIRECT)
        with undone_on_failure(lambda: os.close(self._fd)):
            self._write = native.Write(most_bytes)

    def begin(self, data: bytes, offset: int) -> None:
        self._write.begin(self._fd, self._event_fd, data, offset)

    def written(self) -> int:
        return self._write.written()

    def close(self) -> None:
        self._write.close()
        os.close(self._fd)


class ByThread:
    """A write in a thread of its own."""

    def __init__(self, path: str, event_fd: int) -> None:
        """Raises OSError, CannotStart."""
        self._event_fd = event_fd
        self._fd = os.open(path, FLAGS)
        with undone_on_failure(lambda: os.close(self._fd)):
            self._thread = threads.pool(1, "exitd-store-ring")
        self._writing: concurrent.futures.Future[int] | None = None

    def begin(self, data: bytes, offset: int) -> None:
        self._writing = self._thread.submit(os.pwrite, self._fd, data, offset)
        self._writing.add_done_callback(lambda _: os.eventfd_write(self._event_fd, 1))

    def written(self) -> int:
        assert self._writing is not None
        return self._writing.result()

    def close(self) -> None:
        self._thread.shutdown(wait=False)
        os.close(self._fd)


def _disk(path: str, event_fd: int, most_bytes: int) -> Disk:
    if is_written_by_kernel(path):
        try:
            return ByKernel(path, event_fd, most_bytes)
        except OSError as error:  # fs.aio-max-nr are in use, or this kernel has no io_submit
            log.info("a thread writes it, since the kernel does not by itself", file=path, why=str(error))
    return ByThread(path, event_fd)


def is_written_by_kernel(path: str) -> bool:
    """Return whether a direct write to this file waits for nothing, by its file system. Raises OSError."""
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return native.file_system(fd) in (EXT4, XFS)
    finally:
        os.close(fd)
