"""Overlays that are out of sight, until the kernel has let go of them in a thread of their own.

With the last reference to an overlay the kernel writes out the whole file system of its upper layer, which has exitd's
database and all other files, and the thread that drops that reference waits. A layer is removed before: its own pages
need not be written any more.
"""

import os
import threading
from queue import SimpleQueue

from supervisor.system import threads

MOST_HELD = 64  # with more of them, a removal waits: the disk is slower than removals come


class Unmounted:
    """Descriptors, each the last reference to an overlay, closed one after the other. Raises CannotStart when there is
    no room for the thread."""

    def __init__(self) -> None:
        self._fds: SimpleQueue[int] = SimpleQueue()
        threads.start(threading.Thread(target=_close_forever, args=(self._fds,), name="unmounted", daemon=True))

    def let_go(self, fd: int) -> None:
        """Close the descriptor, soon and in the other thread; at once if too many wait for that."""
        if self._fds.qsize() < MOST_HELD:
            self._fds.put(fd)
        else:
            os.close(fd)


def _close_forever(fds: "SimpleQueue[int]") -> None:
    while True:
        os.close(fds.get())
