"""A ttrpc client on asyncio: any number of concurrent calls over one connection to a unix socket, each with its
limit."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Generic, Self, TypeVar, cast

from google.protobuf.message import Message

from shim.undo import undone_on_failure
from supervisor.model.errors import Busy, Code, TimedOut
from supervisor.system.aside import Aside, Here
from supervisor.ttrpc.connection import ClientConnection
from supervisor.ttrpc.faults import CallFailed, Closed, late
from supervisor.ttrpc.happenings import ClientEvent, Failed, Metadata, Received, Replied, StreamEnded, nanoseconds
from supervisor.ttrpc.services import CallKind
from supervisor.ttrpc.wire import MAX_UNSENT, Inbox, Wire

CONNECT_SECONDS = 5.0
QUEUE_SECONDS = 0.02  # between two attempts while the server's queue of connections is full
HERE = Here()
M = TypeVar("M", bound=Message)


class TtrpcClient(Wire):
    """One connection. Calls raise CallFailed: with the server's answer; DEADLINE_EXCEEDED by this side's own clock;
    RESOURCE_EXHAUSTED for what is too large, or when the server does not read; Closed.

    `name` is service/method. `seconds` limits the whole call and is sent to the server; None: no limit.
    """

    def __init__(self, on_close: Callable[[], None] | None = None) -> None:
        super().__init__()
        self._core = ClientConnection()
        self._waiting: dict[int, asyncio.Future[Any] | Inbox] = {}
        self._on_close = on_close

    @classmethod
    async def connect(
        cls,
        path: str,
        on_close: Callable[[], None] | None = None,
        seconds: float = CONNECT_SECONDS,
        looks: Aside | Here = HERE,
    ) -> Self:
        """Connect to the server on `path`, which begins with a NUL if it is an abstract name.

        `on_close` is called once, whichever side ends the connection. `looks`: threads that look `path` up, if another
        program has named it: its file system may hang. Raises Closed when no server answers within `seconds`.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            async with asyncio.timeout(seconds):
                await _connect(connection, path, HERE if path.startswith("\0") else looks)
            with undone_on_failure(connection.close):
                loop = asyncio.get_running_loop()
                _, client = await loop.create_unix_connection(lambda: cls(on_close), sock=connection)
        except TimeoutError as error:
            raise Closed(f"no process takes a connection on {path} within {seconds:g} s") from error
        except OSError as error:
            raise Closed(f"cannot connect to {path}: {error.strerror or error}") from error
        except (TimedOut, Busy) as error:
            raise Closed(f"cannot connect to {path}: {error}") from error
        return client

    async def call(
        self, name: str, request: Message, response_type: type[M], seconds: float | None, metadata: Metadata = ()
    ) -> M:
        """Make a unary call. One that was given up may still take effect."""
        stream = self._open(name, request, response_type, CallKind.UNARY, seconds, metadata)
        reply: asyncio.Future[M] = self._loop.create_future()
        self._waiting[stream] = reply
        timer = self._timer(stream, seconds)
        try:
            return await reply
        finally:
            self._forget(stream, timer)

    @asynccontextmanager
    async def stream(
        self,
        name: str,
        kind: CallKind,
        response_type: type[M],
        seconds: float | None,
        *,
        request: Message | None = None,
        metadata: Metadata = (),
    ) -> "AsyncIterator[Stream[M]]":
        """Make a streaming call for the length of the block. `request` is for CallKind.SERVER.

        ttrpc cannot cancel a call: what a server still sends after the block is dropped, until the connection ends.
        """
        stream = self._open(name, request, response_type, kind, seconds, metadata)
        inbox = Inbox(self)
        self._waiting[stream] = inbox
        timer = self._timer(stream, seconds)
        try:
            yield Stream(self, stream, inbox)
        finally:
            self.write(self._core.end(stream))
            self._forget(stream, timer)
            inbox.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._core.close()
        for stream in tuple(self._waiting):
            self._fail(stream, Closed())
        if self._on_close is not None:
            self._on_close()

    def data_received(self, data: bytes) -> None:
        for event in self._core.receive(data):
            waiting = self._waiting.get(event.stream)
            if isinstance(event, Failed):
                self._fail(event.stream, event.error)
            elif isinstance(waiting, Inbox):
                _deliver(waiting, event)
            elif isinstance(event, Replied) and waiting is not None and not waiting.done():
                waiting.set_result(event.message)

    def send(self, stream: int, message: Message) -> None:
        self._write(self._core.send(stream, message))

    def end(self, stream: int) -> None:
        self._write(self._core.end(stream))

    def _open(
        self,
        name: str,
        request: Message | None,
        response_type: type[Message],
        kind: CallKind,
        seconds: float | None,
        metadata: Metadata,
    ) -> int:
        if self.is_closed:
            raise Closed()
        stream, data = self._core.open(name, request, response_type, kind, nanoseconds(seconds), metadata)
        try:
            self._write(data)
        except CallFailed:
            self._core.forget(stream)
            raise
        return stream

    def _write(self, data: bytes) -> None:
        if self.is_closed:
            raise Closed()
        if self.unsent_bytes + len(data) > MAX_UNSENT:
            raise CallFailed(Code.RESOURCE_EXHAUSTED, "the server does not read what is sent to it")
        self.write(data)

    def _timer(self, stream: int, seconds: float | None) -> asyncio.TimerHandle | None:
        return None if seconds is None else self._loop.call_later(seconds, self._late, stream, seconds)

    def _late(self, stream: int, seconds: float) -> None:
        self._core.forget(stream)
        self._fail(stream, late(seconds))

    def _fail(self, stream: int, error: CallFailed) -> None:
        waiting = self._waiting.get(stream)
        if isinstance(waiting, Inbox):
            waiting.end(error)
        elif waiting is not None and not waiting.done():
            waiting.set_exception(error)

    def _forget(self, stream: int, timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()
        self._core.forget(stream)
        del self._waiting[stream]


class Stream(Generic[M]):
    """A streaming call: an async iterator of responses. It raises CallFailed when the call fails."""

    def __init__(self, client: TtrpcClient, stream: int, inbox: Inbox) -> None:
        self._client = client
        self._stream = stream
        self._inbox = inbox

    async def send(self, message: Message) -> None:
        """Send a message; waits while the server does not read. Raises CallFailed, FAILED_PRECONDITION, when the call
        or this side's stream has ended."""
        self._client.send(self._stream, message)
        await self._client.room()

    def end(self) -> None:
        """End this side's stream. Repeatable."""
        self._client.end(self._stream)

    async def reply(self) -> M:
        """Return the one response to a client's stream."""
        return await anext(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> M:
        return cast(M, await anext(self._inbox))


def _deliver(inbox: Inbox, event: ClientEvent) -> None:
    match event:
        case Received(_, message, size):
            inbox.put(message, size)
        case Replied(_, message):
            inbox.put(message, 0)
            inbox.end()
        case StreamEnded():
            inbox.end()


async def _connect(connection: socket.socket, path: str, looks: Aside | Here) -> None:
    """Connect, or close the socket. Not asyncio's own connect: if the server's queue is full, that takes the socket for
    connected.

    The socket does not wait for a place in that queue; but the look-up of its path may. So it is closed when the thread
    that looks has let go of it: its number may be another's before that. Raises OSError, Busy, TimedOut."""
    connect, where = partial(connection.connect, path), os.path.dirname(path)
    while True:
        try:
            return await looks.run(f"connecting to {path}", connect, where, connection.close)
        except BlockingIOError:
            with undone_on_failure(connection.close):
                await asyncio.sleep(QUEUE_SECONDS)
        except (OSError, Busy):  # of all others `run` takes care
            connection.close()
            raise
