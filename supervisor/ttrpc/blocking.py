"""A ttrpc client without an event loop, for programs that must start fast: one call at a time over a plain socket."""

import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from typing import Self, TypeVar, cast

from google.protobuf.message import Message

from shim.undo import undone_on_failure
from supervisor.ttrpc.connection import ClientConnection
from supervisor.ttrpc.faults import CallFailed, Closed, late
from supervisor.ttrpc.happenings import ClientEvent, Failed, Metadata, Received, Replied, nanoseconds
from supervisor.ttrpc.services import CallKind

CONNECT_SECONDS = 5.0
READ_BYTES = 65_536
M = TypeVar("M", bound=Message)


class BlockingClient:
    """One connection. Calls raise CallFailed as the asyncio client's do; `name` is service/method."""

    def __init__(self, path: str, seconds: float = CONNECT_SECONDS) -> None:
        """Connect. Raises Closed when no server accepts the connection on `path`."""
        self._core = ClientConnection()
        self._events: deque[ClientEvent] = deque()  # of at most one read
        self._socket = connected(path, seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Repeatable."""
        self._socket.close()

    def is_fresh(self) -> bool:
        """Return whether the connection is open, as far as is known, and no unexpected data has come: fit for another
        call."""
        try:
            self._socket.settimeout(0)
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return not self._events
        except OSError:
            return False
        return False

    def call(
        self, name: str, request: Message, response_type: type[M], seconds: float | None, metadata: Metadata = ()
    ) -> M:
        """Make a unary call within `seconds`; None: without a limit."""
        limit = Limit(seconds)
        stream = self._open(name, request, response_type, CallKind.UNARY, limit, metadata)
        event = self._next(stream, limit)
        assert isinstance(event, Replied)
        return cast(M, event.message)

    def stream(
        self,
        name: str,
        request: Message,
        response_type: type[M],
        seconds: float | None,
        *,
        silent_seconds: float | None = None,
        metadata: Metadata = (),
    ) -> Iterator[M]:
        """Call a server-streaming method when the iterator is first advanced. `seconds` limits the whole call and is
        sent to the server; `silent_seconds` limits the wait for each message.

        If the iterator is left before its end, the server is not notified, and what it still sends is dropped.
        """
        limit = Limit(seconds)
        stream = self._open(name, request, response_type, CallKind.SERVER, limit, metadata)
        try:
            while isinstance(event := self._next(stream, limit.and_of(silent_seconds)), Received):
                yield cast(M, event.message)
        finally:
            self._core.forget(stream)

    def _open(
        self,
        name: str,
        request: Message,
        response_type: type[Message],
        kind: CallKind,
        limit: "Limit",
        metadata: Metadata,
    ) -> int:
        stream, data = self._core.open(name, request, response_type, kind, nanoseconds(limit.seconds), metadata)
        with undone_on_failure(self.close):  # half a frame may have been written
            try:
                self._socket.settimeout(limit.left())
                self._socket.sendall(data)
            except TimeoutError as error:
                raise limit.passed() from error
            except OSError as error:
                raise Closed(f"the request could not be sent: {error.strerror or error}") from error
        return stream

    def _next(self, stream: int, limit: "Limit") -> ClientEvent:
        """Return the next event of this stream; what is left of earlier ones is dropped."""
        while True:
            while self._events:
                event = self._events.popleft()
                if event.stream == stream:
                    if isinstance(event, Failed):
                        raise event.error
                    return event
            try:
                self._socket.settimeout(limit.left())
                data = self._socket.recv(READ_BYTES)
            except TimeoutError as error:
                self._core.forget(stream)
                raise limit.passed() from error
            except OSError as error:
                self.close()
                raise Closed(f"the connection has ended: {error.strerror or error}") from error
            if not data:
                self.close()
                raise Closed()
            self._events.extend(self._core.receive(data))


class Limit:
    """A time by which something must have happened, however often it is waited for; None: no limit."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._at = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """Return the seconds left, always more than 0: a socket's limit of 0 would mean not to wait at all. Raises
        TimeoutError when none are left."""
        if self._at is None:
            return None
        if (left := self._at - time.monotonic()) <= 0:
            raise TimeoutError
        return left

    def passed(self) -> CallFailed:
        return late(self.seconds or 0)

    def and_of(self, seconds: float | None) -> "Limit":
        """Return the earlier of the two limits."""
        if seconds is None:
            return self
        other = Limit(seconds)
        return self if self._at is not None and other._at is not None and self._at < other._at else other


def connected(path: str, seconds: float) -> socket.socket:
    """Return a connected socket. The limit also holds for its sends until it is changed. Raises Closed when no server
    accepts."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        # A connect with Python's own limit does not wait in the server's queue; this one does, unix(7).
        limit_sends(made, seconds)
        made.connect(path)
    except OSError as error:
        made.close()
        raise Closed(f"cannot connect to {path}: {error.strerror or error}") from error
    return made


def limit_sends(connection: socket.socket, seconds: float) -> None:
    """Set the limit of sends; 0: none."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(seconds))


def _timeval(seconds: float) -> bytes:
    return struct.pack("@ll", int(seconds), int(seconds % 1 * 1_000_000))
