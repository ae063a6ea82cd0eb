"""One epoll set for every exit fifo and pidfd, nested in the event loop as a single descriptor.

Ten thousand descriptors cost the loop one; a burst is taken in slices, so that calls in between are served. Fifos are
level-triggered, because what is not read now must wake us again. Pidfds are edge-triggered: a zombie's pidfd stays
readable until somebody reaps it, and would spin.
"""

import asyncio
import contextlib
import os
import select
from collections.abc import Callable

import structlog

from shim import native
from supervisor.model.errnos import NO_PROCESS

SLICE = 256  # events taken in one loop turn

log = structlog.get_logger(__name__)

FIFO = select.EPOLLIN
PIDFD = select.EPOLLIN | select.EPOLLET


class Monitor:
    """Calls back when a descriptor is ready. The caller owns the descriptors and unwatches them before closing."""

    def __init__(self) -> None:
        self._epoll = select.epoll(flags=select.EPOLL_CLOEXEC)
        self._callbacks: dict[int, Callable[[int], None]] = {}
        asyncio.get_running_loop().add_reader(self._epoll.fileno(), self._turn)

    def watch(self, fd: int, events: int, callback: Callable[[int], None]) -> None:
        """`callback(events)` at each readiness. OSError when the kernel refuses; the descriptor is then not watched."""
        self._epoll.register(fd, events)
        self._callbacks[fd] = callback

    def unwatch(self, fd: int) -> None:
        """Repeatable, and never an error: whoever ends a watch has something to tell. After this no callback for `fd`
        comes, not even one of the slice being worked on."""
        if self._callbacks.pop(fd, None) is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(fd)

    def __len__(self) -> int:
        return len(self._callbacks)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._epoll.fileno())
        self._callbacks.clear()
        self._epoll.close()

    def _turn(self) -> None:
        for fd, events in self._epoll.poll(0, SLICE):
            callback = self._callbacks.get(fd)
            if callback is None:
                continue
            try:
                callback(events)
            except Exception:  # one container's trouble must not cost the others their turn
                log.exception("watch callback failed", fd=fd, events=events)


def read_ready(pidfd: int, wait_seconds: float = 0.0) -> bool:
    """Has the process behind the pidfd ended, by then at the latest? (pidfd_open(2): readable then.) By poll: select
    cannot name a descriptor beyond 1023."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(wait_seconds * 1000))


def open_pid(pid: int) -> int | None:
    """A pidfd for whoever has this pid, or None when it is no process's. The caller closes it."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in NO_PROCESS:
            return None
        raise


def open_process(pid: int, started_ticks: int) -> int | None:
    """A pidfd for exactly this process, or None when it is gone. The caller closes it. OSError: neither can be said."""
    fd = open_pid(pid)
    if fd is None:
        return None
    try:
        # Opened first, compared second: if the start time fits now, the descriptor cannot be a stranger's.
        if native.process_stat(pid)[2] == started_ticks:
            return fd
    except ProcessLookupError:
        pass
    except OSError:
        os.close(fd)
        raise
    os.close(fd)
    return None
