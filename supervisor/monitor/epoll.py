"""One epoll set for every exit fifo and pidfd, nested in the event loop as a single descriptor.

The loop watches one descriptor instead of ten thousand, and a burst is handled in slices, between which calls are
served. Fifos are level-triggered, because unread bytes must wake the loop again. Pidfds are edge-triggered: the pidfd
of a zombie stays readable until the zombie is reaped, and would keep the loop busy.
"""

import asyncio
import contextlib
import os
import select
from collections.abc import Callable

import structlog

from shim import native
from supervisor.model.errnos import NO_PROCESS

SLICE = 256  # events handled in one turn of the loop

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
        """Call `callback(events)` each time the descriptor is ready. Raises OSError when the kernel refuses to watch
        it."""
        self._epoll.register(fd, events)
        self._callbacks[fd] = callback

    def unwatch(self, fd: int) -> None:
        """Stop watching a descriptor. Repeatable, and never raises, so that the caller can always report its result. No
        callback for `fd` comes after this, not even from the slice in progress."""
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
            except Exception:  # a failure with one container must not stop the callbacks of others
                log.exception("watch callback failed", fd=fd, events=events)


def read_ready(pidfd: int, wait_seconds: float = 0.0) -> bool:
    """Return whether the process behind the pidfd has ended within `wait_seconds` (pidfd_open(2): it is readable then).
    Uses poll, since select cannot name descriptors beyond 1023."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(wait_seconds * 1000))


def lives(pidfd: int | None) -> bool:
    """Whether the process of a descriptor, as `open_pid` and `open_process` give it, is there and has not ended. The
    descriptor is closed."""
    if pidfd is None:
        return False
    try:
        return not read_ready(pidfd)
    finally:
        os.close(pidfd)


def open_pid(pid: int) -> int | None:
    """Return a pidfd for the process that now has this pid, or None if there is none. The caller closes it. Raises
    OSError."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in NO_PROCESS:
            return None
        raise


def open_process(pid: int, started_ticks: int) -> int | None:
    """Return a pidfd for exactly this process, or None if it has ended. The caller closes it. Raises OSError when
    neither is certain."""
    fd = open_pid(pid)
    if fd is None:
        return None
    try:
        # Opened first, compared second: if the start time fits now, the descriptor cannot be another process's.
        if native.process_stat(pid)[2] == started_ticks:
            return fd
    except ProcessLookupError:
        pass
    except OSError:
        os.close(fd)
        raise
    os.close(fd)
    return None
