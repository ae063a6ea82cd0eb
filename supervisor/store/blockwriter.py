"""Writes one block at a time into a file, flushed, and need not be waited for: a thread that has nothing of Python's
does it. The thread of the event loop goes on while the disk is writing, and is held up by no disk.

io_submit(2) was tried instead: on ext4 it waits itself, for the journal, once the disk hangs.
"""

import os
import select

from shim import native
from shim.undo import undone_on_failure

FLAGS = os.O_RDWR | os.O_DSYNC | os.O_NOFOLLOW | os.O_CLOEXEC


class BlockWriter:
    """One write at a time. `event_fd` is readable from the end of a write until `finish` is called."""

    def __init__(self, path: str, most_bytes: int) -> None:
        """Open a file that is there. `most_bytes`: of one write. Raises OSError."""
        self.event_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        with undone_on_failure(lambda: os.close(self.event_fd)):
            self._fd = os.open(path, FLAGS)
            with undone_on_failure(lambda: os.close(self._fd)):
                self._thread = native.BlockThread(self._fd, self.event_fd, most_bytes)
        self._ends = select.poll()
        self._ends.register(self.event_fd, select.POLLIN)
        self._size = 0  # of the write under way; 0: there is none

    def begin(self, data: bytes, offset: int) -> None:
        """Begin a write. The last one is finished."""
        assert not self._size, "one write at a time"
        self._thread.begin(data, offset)
        self._size = len(data)

    def has_ended(self, seconds: float) -> bool:
        """Wait so long at most for the write under way. Return whether it has ended."""
        return bool(self._ends.poll(seconds * 1000))

    def finish(self) -> float:
        """Return how many seconds the write that has ended took; its data is on the disk. Raises OSError, after which
        it may be there, too."""
        size, self._size = self._size, 0
        os.eventfd_read(self.event_fd)
        written, seconds = self._thread.written()
        if written != size:
            raise OSError(f"{written} of {size} bytes written")
        return seconds

    def close(self) -> None:
        """Give everything back. A write that a hanging disk has not ended keeps its thread, its memory and the
        descriptors until this process ends. Repeatable."""
        if self._size or self.event_fd < 0:
            return
        self._thread.close()
        os.close(self._fd)
        os.close(self.event_fd)
        self.event_fd = -1
