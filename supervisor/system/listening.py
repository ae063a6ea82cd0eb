"""Listening unix sockets that leave descriptors for exitd's own work, however many clients there are.

The kernel gives each new descriptor the lowest free number (accept(2)). A connection with too high a number is closed
at once, so no client ever holds one of the highest numbers, which remain for what is opened, read and started for a
container. gRPC accepts by itself and may get any number; so the number of its connections is limited instead.
"""

import asyncio
import os
import resource
import socket
import stat
import sys
from collections.abc import Callable
from contextlib import suppress

import structlog

from supervisor.model.errors import Busy

PAUSE_SECONDS = 0.25
LOG_SECONDS = 60.0  # between two log lines about the same socket
AT_ONCE = 64  # connections accepted or refused in one turn of the loop
_NOBODY = (BlockingIOError, InterruptedError, ConnectionAbortedError)

log = structlog.get_logger(__name__)


def limit() -> int:
    """Return how many descriptors this process may have: getrlimit(2)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft


def kept(limit: int) -> int:
    """Return how many descriptors are reserved for exitd's own work."""
    return min(max(limit // 8, 32), 1024)


def grpc_connections(limit: int) -> int:
    """Return how many connections gRPC may accept."""
    return max(min(limit // 8, 16_384), 1)


def client_ceiling(limit: int) -> int:
    """Return the limit below which clients' descriptors are."""
    return limit - kept(limit) - grpc_connections(limit)


def peer_ceiling(limit: int) -> int:
    """Return the limit below which the descriptors of shims and relays are: clients cannot shut them out."""
    return limit - kept(limit) // 2


def check_room() -> None:
    """Refuse a call that would hold descriptors for its client when only the reserved ones are left. Raises Busy."""
    try:
        lowest = os.dup(0)
    except OSError:
        lowest = sys.maxsize
    else:
        os.close(lowest)
    if lowest >= client_ceiling(limit()):
        raise Busy(f"exitd has no descriptors for more streams, of {limit()}: end some, or raise its LimitNOFILE=")


def bound(path: str, mode: int) -> socket.socket:
    """Return a unix socket, bound but not listening, so that no client can connect before the mode is set.

    An existing socket file is replaced: hold a lock. Raises OSError.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                os.unlink(path)
        listening.bind(path)
        os.chmod(path, mode)
    except OSError:
        listening.close()
        raise
    return listening


class Listener:
    """Accepts connections on the running loop until `close`. asyncio's own server, if there are no descriptors, tries
    `backlog` times and logs a traceback each time."""

    def __init__(
        self, listening: socket.socket, protocol: Callable[[], asyncio.Protocol], *, backlog: int, ceiling: int
    ) -> None:
        """Takes ownership of `listening`, which is bound. `ceiling`: see client_ceiling. Raises OSError."""
        self._loop = asyncio.get_running_loop()
        self._socket = listening
        self._protocol = protocol
        self._ceiling = ceiling
        self._again: asyncio.TimerHandle | None = None
        self._silent_until = 0.0
        self._beginning: set[asyncio.Task[object]] = set()
        listening.setblocking(False)
        listening.listen(backlog)
        self._loop.add_reader(listening, self._take)

    def close(self) -> None:
        """Repeatable. Accepted connections remain."""
        if self._again is not None:
            self._again.cancel()
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()
        for task in self._beginning:
            task.cancel()

    def _take(self) -> None:
        refused = False
        for _ in range(AT_ONCE):
            try:
                connection, _ = self._socket.accept()
            except _NOBODY:
                break
            except OSError as error:  # EMFILE, ENFILE, ENOBUFS, ENOMEM: waiting clients go on waiting
                self._pause(os.strerror(error.errno or 0))
                return
            if connection.fileno() < self._ceiling:
                self._begin(connection)
            else:
                connection.close()
                refused = True
        if refused:
            self._pause("the rest of the descriptors is kept for containers; who connects is refused")

    def _begin(self, connection: socket.socket) -> None:
        task: asyncio.Task[object] = self._loop.create_task(
            self._loop.connect_accepted_socket(self._protocol, connection)
        )
        self._beginning.add(task)
        task.add_done_callback(self._begun)

    def _begun(self, task: asyncio.Task[object]) -> None:
        self._beginning.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a connection could not begin", exc_info=error)

    def _pause(self, why: str) -> None:
        """Stop accepting for a moment: the socket stays readable while a client waits, and polling it would cost a
        core."""
        self._loop.remove_reader(self._socket)
        self._again = self._loop.call_later(PAUSE_SECONDS, self._go_on)
        now = self._loop.time()
        if now >= self._silent_until:
            self._silent_until = now + LOG_SECONDS
            path = self._socket.getsockname()
            log.warning("no descriptors for more connections", socket=path, limit=limit(), why=why)

    def _go_on(self) -> None:
        try:
            self._loop.add_reader(self._socket, self._take)
        except OSError as error:  # the kernel has no memory for it
            self._pause(str(error))
