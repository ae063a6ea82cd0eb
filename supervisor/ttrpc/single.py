"""One call of any kind on its own connection, for programs with threads but no event loop.

ttrpc cannot cancel a call, but ending its connection does. And a client that does not read holds up no other call.
"""

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar, cast

from google.protobuf.message import Message

from supervisor.ttrpc.blocking import CONNECT_SECONDS, READ_BYTES, connected, limit_sends
from supervisor.ttrpc.connection import ClientConnection
from supervisor.ttrpc.faults import CallFailed, Closed, late
from supervisor.ttrpc.happenings import ClientEvent, Failed, Received, Replied, StreamEnded, nanoseconds
from supervisor.ttrpc.services import CallKind

M = TypeVar("M", bound=Message)


class SingleCall(Generic[M]):
    """The call begins in the constructor. All methods may be called from any thread; one at a time sends, and one
    receives."""

    def __init__(
        self,
        path: str,
        name: str,
        kind: CallKind,
        response_type: type[M],
        request: Message | None = None,
        *,
        seconds: float | None = None,
    ) -> None:
        """As BlockingClient's calls; `request` is None if this side streams. Raises CallFailed, Closed."""
        self._core = ClientConnection()
        self._stream, data = self._core.open(name, request, response_type, kind, nanoseconds(seconds))
        self._events: deque[ClientEvent] = deque()
        self._seconds = seconds
        self._ends_at = None if seconds is None else time.monotonic() + seconds
        self._sending = threading.Lock()
        self._receiving = threading.Lock()
        self._state = threading.Lock()  # held for moments only
        self._users = 0  # threads inside the kernel: until they have returned, the descriptor must not be closed
        self._over = False
        self._failure: CallFailed | None = None
        self._socket = connected(path, CONNECT_SECONDS)
        try:
            self._socket.sendall(data)
            limit_sends(self._socket, 0)
        except OSError as error:
            self._socket.close()
            raise Closed(f"the request could not be sent: {error.strerror or error}") from error

    def send(self, message: Message) -> bool:
        """Send a message; waits while the server does not read. Return False if the call has ended: the message is
        lost."""
        with self._sending:
            return self._send(lambda: self._core.send(self._stream, message))

    def end(self) -> bool:
        """End this side's stream. Repeatable."""
        with self._sending:
            return self._send(lambda: self._core.end(self._stream))

    def receive(self, seconds: float | None = None) -> M | None:
        """Return the next message; None if the call has succeeded, or this side has cancelled it. Raises TimeoutError
        after `seconds`, with the call unchanged; CallFailed with the call's error, each time it is called."""
        wait_until = None if seconds is None else time.monotonic() + seconds
        with self._receiving:
            while not self._events:
                if self._failure is not None:
                    raise self._failure
                if not self._read(wait_until):
                    return None
            return self._taken(self._events.popleft())

    def send_last(self, message: Message, seconds: float) -> None:
        """Send a message, and wait up to `seconds` for the end of the call, which is ended then in any case; what comes
        until then is dropped."""
        wait_until = time.monotonic() + seconds
        try:
            if self._sending.acquire(timeout=seconds):
                try:
                    with self._using() as connection:
                        limit_sends(connection, seconds)
                    self._send(lambda: self._core.send(self._stream, message))
                finally:
                    self._sending.release()
            # The receiver releases the connection after each message; its last one is the end.
            while (left := wait_until - time.monotonic()) > 0 and self._receiving.acquire(timeout=left):
                try:
                    self._events.clear()
                    if not self._read(wait_until):
                        break
                finally:
                    self._receiving.release()
        except (CallFailed, TimeoutError):
            pass  # ended, or too late
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Give the call up: threads inside a method return. Repeatable."""
        with self._state:
            if self._over:
                return
            self._over = True
            if self._users:
                self._shut()
            else:
                self._socket.close()

    def _taken(self, event: ClientEvent) -> M | None:
        match event:
            case Received(_, message, _):
                return cast(M, message)
            case Replied(_, message, _):
                self.cancel()
                return cast(M, message)
            case Failed(_, error):
                raise self._failed(error)
            case StreamEnded():
                self.cancel()
        return None

    def _read(self, wait_until: float | None) -> bool:
        """Read what is there, within the limits. Return False if the call has ended, by this side or the server."""
        try:
            with self._using() as connection:
                self._wait_readable(connection, wait_until)
                data = connection.recv(READ_BYTES)
        except ConnectionError:
            data = b""
        except Closed:
            return False
        if not data:
            if self._over:
                return False
            raise self._failed(Closed())
        self._events.extend(self._core.receive(data))
        if not self._core.is_open(self._stream):
            self._let_senders_go()
        return True

    def _wait_readable(self, connection: socket.socket, wait_until: float | None) -> None:
        """Wait without a limit of the socket itself, which would also hold for the sender."""
        limits = [limit for limit in (wait_until, self._ends_at) if limit is not None]
        if not limits:
            return
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        if poll.poll(max(0.0, min(limits) - time.monotonic()) * 1000):
            return
        if self._ends_at is not None and self._ends_at <= time.monotonic():
            raise self._failed(late(self._seconds or 0))
        raise TimeoutError

    def _failed(self, error: CallFailed) -> CallFailed:
        self._failure = error
        self.cancel()
        return error

    def _let_senders_go(self) -> None:
        with self._state:
            if not self._over:
                self._shut()

    def _shut(self) -> None:
        with suppress(OSError):  # the server has closed it at the same moment
            self._socket.shutdown(socket.SHUT_RDWR)

    def _send(self, encode: Callable[[], bytes]) -> bool:
        try:
            with self._using() as connection:
                connection.sendall(encode())
        except (CallFailed, OSError):
            return False
        return True

    @contextmanager
    def _using(self) -> Iterator[socket.socket]:
        with self._state:
            if self._over:
                raise Closed("the call is over")
            self._users += 1
        try:
            yield self._socket
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._state:
            self._users -= 1
            if self._over and not self._users:
                self._socket.close()
