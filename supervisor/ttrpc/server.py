"""A ttrpc server on asyncio: accepts connections on a unix socket, runs a handler for each call, and limits both.

A handler is cancelled when its client is gone or has broken the protocol, or its deadline has passed. This module has
ttrpc's only `except Exception`.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Any, NamedTuple, cast

import structlog
from google.protobuf.message import Message

from supervisor.model.errors import Code, ExitdError, code_of
from supervisor.system.listening import Listener, bound, client_ceiling, limit
from supervisor.ttrpc.connection import ServerConnection
from supervisor.ttrpc.faults import CallFailed, Closed, late
from supervisor.ttrpc.frames import Frame
from supervisor.ttrpc.happenings import Aborted, Foreign, Metadata, Opened, Received, Send, ServerEvent, StreamEnded
from supervisor.ttrpc.services import Services
from supervisor.ttrpc.wire import LAST_WORDS_SECONDS, Inbox, Wire

MAX_UNFINISHED_BYTES = 64 << 20  # of incomplete frames, of all connections together
FRAME_SECONDS = 60.0  # that a frame may take from its first byte to its last
BACKLOG = 1024
MAX_CONNECTIONS = 16_384
_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid: SO_PEERCRED, unix(7)
_NS = 1_000_000_000

log = structlog.get_logger(__name__)


class PeerCredentials(NamedTuple):
    """The process that connected, according to the kernel."""

    uid: int
    gid: int
    pid: int


class Call:
    """What a handler knows about its call besides the request. `flags` are sent in the header of its last frame."""

    __slots__ = ("_inbox", "_task", "_timer", "connection", "deadline", "flags", "metadata", "name", "stream")

    def __init__(self, connection: "Connection", opened: Opened) -> None:
        self.connection = connection
        self.stream = opened.stream
        self.name = opened.name
        self.metadata: Metadata = opened.metadata
        self.deadline = opened.timeout_ns / _NS if opened.timeout_ns else None  # seconds from its arrival
        self.flags = 0
        self._inbox = Inbox(connection) if opened.method.kind.client_streams else None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def peer(self) -> PeerCredentials:
        return self.connection.peer

    @property
    def cancelled(self) -> bool:
        """Return whether no client waits for the answer any more."""
        return not self.connection.is_waiting(self.stream)


def failure_of(error: Exception) -> CallFailed | None:
    """Return the answer for a handler's error; None if it is a bug, which is logged and not sent."""
    if isinstance(error, CallFailed):
        return error
    return CallFailed(code_of(error), str(error)) if isinstance(error, ExitdError) else None


class Server:
    """Serves `services`. The other arguments are hooks:

    `check` says who may connect; others see an end of file. `failure_of` turns handlers' errors into answers.
    `on_frame` is called for frames of private types, in order with the requests around them: handlers of earlier
    requests have been scheduled, but may not have run. `on_lost` is called for each connection that has ended, once its
    handlers are cancelled. `ceiling`: the limit below which connections' descriptors must be, from the process's limit.
    """

    def __init__(
        self,
        services: Services,
        *,
        check: Callable[[PeerCredentials], bool] = lambda peer: True,
        failure_of: Callable[[Exception], CallFailed | None] = failure_of,
        on_frame: Callable[["Connection", Frame], None] | None = None,
        on_lost: Callable[["Connection"], None] | None = None,
        max_connections: int = MAX_CONNECTIONS,
        ceiling: Callable[[int], int] = client_ceiling,
    ) -> None:
        self.services = services
        self.check = check
        self.failure_of = failure_of
        self.on_frame = on_frame
        self.on_lost = on_lost
        self.connections: set[Connection] = set()
        self._max_connections = max_connections
        self._ceiling = ceiling
        self._listeners: list[Listener] = []
        self._paths: list[str] = []
        self._cancelled: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._unfinished: dict[Connection, int] = {}  # number of bytes of incomplete frames
        self._unfinished_bytes = 0

    async def listen(self, where: str | socket.socket, mode: int = 0o600) -> None:
        """Listen. `where`: a path, or a socket that is bound (and may be listening already). May be called again.

        An existing socket file is replaced: hold a lock. Raises OSError when the path cannot be bound.
        """
        listening = bound(where, mode) if isinstance(where, str) else where
        ceiling = self._ceiling(limit())
        self._listeners.append(Listener(listening, lambda: Connection(self), backlog=BACKLOG, ceiling=ceiling))
        if isinstance(where, str):
            self._paths.append(where)

    async def stop(self, grace_seconds: float) -> None:
        """Accept no more connections and read no more requests; give those in progress `grace_seconds` to be answered,
        and close all connections. What was read but not answered is cancelled. Repeatable."""
        for listener in self._listeners:
            listener.close()
        for path in self._paths:
            with suppress(FileNotFoundError):
                os.unlink(path)
        self._listeners, self._paths = [], []
        self._stopping = True
        connections = tuple(self.connections)
        for connection in connections:
            connection.hold_reading(self)
        tasks = [task for connection in connections for task in connection.tasks()]
        if tasks and grace_seconds > 0:
            await asyncio.wait(tasks, timeout=grace_seconds)
        for connection in connections:
            connection.close()
        last = [*(connection.lost for connection in connections), *tasks, *self._cancelled]
        if last:
            await asyncio.wait(last, timeout=2 * LAST_WORDS_SECONDS)

    def keep(self, task: asyncio.Task[None]) -> None:
        """Keep the task until it has ended: the event loop alone might drop a cancelled one before its last message."""
        self._cancelled.add(task)
        task.add_done_callback(self._cancelled.discard)

    def hold_unfinished(self, connection: "Connection", size_bytes: int) -> None:
        """Note the size of this connection's incomplete frame, 0: none. If all connections together have more than
        MAX_UNFINISHED_BYTES, the one that holds most is closed."""
        self._unfinished_bytes += size_bytes - self._unfinished.pop(connection, 0)
        if size_bytes:
            self._unfinished[connection] = size_bytes
        if self._unfinished_bytes > MAX_UNFINISHED_BYTES:
            most = max(self._unfinished, key=self._unfinished.__getitem__)
            log.warning("a connection is given up: unfinished frames take too much memory", pid=most.peer.pid)
            most.abort()

    def admit(self, connection: "Connection") -> bool:
        if self._stopping:
            return False
        if len(self.connections) >= self._max_connections:
            log.warning("refused a connection", reason="too many", limit=self._max_connections)
            return False
        if not self.check(connection.peer):
            log.warning(
                "refused a connection", reason="not permitted", uid=connection.peer.uid, pid=connection.peer.pid
            )
            return False
        self.connections.add(connection)
        return True


class Connection(Wire):
    """One client. `state` is for the hooks, which may keep anything in it."""

    peer: PeerCredentials

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.state: Any = None
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self._server = server
        self._core = ServerConnection(server.services)
        self._calls: dict[int, Call] = {}
        self._frame = 0, -1  # bytes of the incomplete frame, and its number
        self._frame_timer: asyncio.TimerHandle | None = None

    def is_waiting(self, stream: int) -> bool:
        return self._core.is_open(stream)

    def tasks(self) -> list[asyncio.Task[None]]:
        return [call._task for call in self._calls.values() if call._task is not None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        connection = cast(socket.socket, transport.get_extra_info("socket"))
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, gid = _CREDENTIALS.unpack(credentials)
        self.peer = PeerCredentials(uid, gid, pid)
        try:
            admitted = self._server.admit(self)
        except Exception as error:  # asyncio would log it and go on with the connection
            log.error("a connection could not be checked", uid=uid, pid=pid, exc_info=error)
            admitted = False
        if not admitted:
            self.abort()

    def data_received(self, data: bytes) -> None:
        for event in self._core.receive(data):
            if self.is_closed:
                return
            try:
                self._happened(event)
            except Exception as error:
                log.error("a frame ended its connection", uid=self.peer.uid, pid=self.peer.pid, exc_info=error)
                self.abort()
        if self._core.unfinished[0] or self._frame[0]:
            self._note_unfinished()

    def _note_unfinished(self) -> None:
        """An incomplete frame takes memory, so it has a time limit, which the complete frame ends."""
        size_bytes, number = before = self._core.unfinished
        if (not size_bytes or number != self._frame[1]) and self._frame_timer is not None:
            self._frame_timer.cancel()
            self._frame_timer = None
        self._frame = before
        if size_bytes and self._frame_timer is None and not self.is_closed:
            self._frame_timer = self._loop.call_later(FRAME_SECONDS, self._frame_is_late)
        self._server.hold_unfinished(self, 0 if self.is_closed else size_bytes)

    def _frame_is_late(self) -> None:
        self._frame_timer = None
        if self._holders:  # this side has stopped reading
            self._frame_timer = self._loop.call_later(FRAME_SECONDS, self._frame_is_late)
            return
        log.warning("a connection is given up: its frame does not come to its end", pid=self.peer.pid)
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._frame_timer is not None:
            self._frame_timer.cancel()
        self._server.hold_unfinished(self, 0)
        self._core.close()
        for stream in tuple(self._calls):
            self._cancel(stream)
        if self in self._server.connections:
            self._server.connections.remove(self)
            if self._server.on_lost is not None:
                self._server.on_lost(self)
        if not self.lost.done():
            self.lost.set_result(None)

    def _happened(self, event: ServerEvent) -> None:
        match event:
            case Opened():
                self._open(event)
            case Received(stream, message, size):
                if (inbox := self._inbox(stream)) is not None:
                    inbox.put(message, size)
            case StreamEnded(stream):
                if (inbox := self._inbox(stream)) is not None:
                    inbox.end()
            case Send(data):
                self.write(data)
            case Aborted(stream):
                self._cancel(stream)
            case Foreign(frame):
                if self._server.on_frame is not None:
                    self._server.on_frame(self, frame)

    def _inbox(self, stream: int) -> Inbox | None:
        """Return None if the call has ended since its bytes were read."""
        call = self._calls.get(stream)
        return None if call is None else call._inbox

    def _open(self, opened: Opened) -> None:
        call = Call(self, opened)
        self._calls[call.stream] = call
        if call.deadline is not None:
            if call.deadline <= 0:
                self._expire(call)
                return
            call._timer = self._loop.call_later(call.deadline, self._expire, call)
        call._task = self._loop.create_task(self._run(call, opened))

    async def _run(self, call: Call, opened: Opened) -> None:
        """Have the call handled, and end it with the last bytes of its handler, or with why there are none."""
        handle = self._stream if opened.method.kind.server_streams else self._answer
        try:
            data = await handle(call, opened.method.handler, opened.request)
        except asyncio.CancelledError:
            self._over(call, self._cancelled(call))
            raise
        except Exception as error:
            data = self._failed(call, error)
        self._over(call, data)

    async def _answer(self, call: Call, handler: Callable[..., Any], request: Message | None) -> bytes:
        response = await handler(call._inbox or request, call)
        return self._core.respond(call.stream, response, call.flags & 0xFF)

    async def _stream(self, call: Call, handler: Callable[..., Any], request: Message | None) -> bytes:
        # Closed at once when the client is gone, not when the garbage is collected.
        async with aclosing(handler(call._inbox or request, call)) as responses:
            async for response in responses:
                self.write(self._core.send(call.stream, response))
                await self.room()
        return self._core.end(call.stream, call.flags & 0xFF)

    def _failed(self, call: Call, error: Exception) -> bytes:
        try:
            failure = self._server.failure_of(error)
        except Exception as bug:
            failure, error = None, bug
        if failure is None:
            log.error("internal error", call=call.name, exc_info=error)
            failure = CallFailed(Code.UNKNOWN, "internal error; the log has more")
        return self._core.fail(call.stream, failure, call.flags & 0xFF)

    def _cancelled(self, call: Call) -> bytes:
        """Return no bytes if no client waits, which is the usual reason for cancelling a handler."""
        return self._core.fail(call.stream, CallFailed(Code.CANCELLED, "the call was cancelled"), call.flags & 0xFF)

    def _expire(self, call: Call) -> None:
        self.write(self._core.fail(call.stream, late(max(call.deadline or 0, 0)), call.flags & 0xFF))
        self._cancel(call.stream)

    def _cancel(self, stream: int) -> None:
        call = self._calls.get(stream)
        if call is None:
            return
        if call._inbox is not None:
            call._inbox.end(Closed("the call is over"))
        if call._task is not None:
            call._task.cancel()
            self._server.keep(call._task)
        self._over(call, b"")

    def _over(self, call: Call, data: bytes) -> None:
        self.write(data)
        if self._calls.get(call.stream) is call:
            del self._calls[call.stream]
        if call._timer is not None:
            call._timer.cancel()
        if call._inbox is not None:
            call._inbox.drop()
