"""gRPC's server, begun with its first client: until then exitd itself listens at the path, and grpc is not imported.

gRPC cannot adopt a socket, neither one that listens nor one that is connected. So its server binds a name of its own,
and takes over the path by rename(2), which leaves no moment without a socket there. Clients that had connected to the
first socket by then are connected onwards, byte by byte, to gRPC's. Decision 52.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, cast

import structlog

from supervisor.api import sockets
from supervisor.api.begun import once_begun
from supervisor.model.errors import CannotStart
from supervisor.system.listening import Listener, bound, client_ceiling, limit

MOST_HANDED_OVER = 256  # connections of clients that came before gRPC served, at once; others of them call again
ONWARDS_SECONDS = 10.0  # until gRPC's socket has taken a connection
_BACKLOG = 4096

log = structlog.get_logger(__name__)


class Serving(Protocol):
    """gRPC's server, once it has begun."""

    async def begin_no_more(self) -> None: ...

    async def stop(self) -> None: ...


class LateGrpc:
    """Listens at `path` from `start` on, and has gRPC begin there with the first client."""

    def __init__(self, path: str, begin: Callable[[], Awaitable[Serving]]) -> None:
        """`begin` returns a server that serves at `path` from then on. Raises CannotStart, and is called again then."""
        self._path = path
        self._begin = begin
        self._socket: socket.socket | None = None  # until there is a client
        self._beginning: asyncio.Task[None] | None = None
        self._server: Serving | None = None
        self._listener: Listener | None = None  # for those who had connected before
        self._lines: set[_Line] = set()

    def start(self) -> None:
        """Bind and listen, replacing a socket left behind: the caller holds the daemon's lock. Raises CannotStart."""
        try:
            with suppress(FileNotFoundError):
                os.unlink(sockets.name_before(self._path))  # of an exitd that was killed while gRPC began
            with sockets.nobody_else():
                listening = bound(self._path, 0o600)
            try:
                sockets.admit_group(self._path)
                listening.setblocking(False)
                listening.listen(_BACKLOG)
                asyncio.get_running_loop().add_reader(listening, self._called)
            except OSError:
                listening.close()
                raise
        except OSError as error:
            raise CannotStart(f"cannot listen on {self._path}: {error.strerror or error}") from error
        self._socket = listening

    async def begin_no_more(self) -> None:
        """gRPC is not begun from now on, and not anew. Those who wait for it are refused."""
        if self._beginning is not None:
            self._beginning.cancel()
            await asyncio.wait((self._beginning,))
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        if self._listener is not None:
            self._listener.close()
        if self._server is not None:
            await self._server.begin_no_more()

    async def stop(self) -> None:
        """End what is left, after `begin_no_more`, and remove the socket."""
        with suppress(FileNotFoundError):
            os.unlink(self._path)
        if self._server is not None:
            await self._server.stop()
        for line in tuple(self._lines):
            line.abort()

    def _called(self) -> None:
        """A client has connected. Its connection stays in the queue until gRPC serves."""
        assert self._socket is not None
        asyncio.get_running_loop().remove_reader(self._socket)
        self._beginning = asyncio.create_task(self._hand_over())

    async def _hand_over(self) -> None:
        self._server = await once_begun(self._begin, "gRPC cannot begin yet")
        assert self._socket is not None
        first, self._socket = self._socket, None
        # Kept for as long as exitd serves: a client may have looked up the path before the rename, and connect later.
        self._listener = Listener(first, self._line, backlog=_BACKLOG, ceiling=client_ceiling(limit()))

    def _line(self) -> asyncio.Protocol:
        return _Line(self._path, self._lines).client


class _Line:
    """A client's connection and the one onwards: what comes in at one goes out at the other, and both end together."""

    def __init__(self, path: str, lines: "set[_Line]") -> None:
        self.client, self.server = _End(self._connected, self._lost), _End()
        self.client.other, self.server.other = self.server, self.client
        self._path = path
        self._lines = lines
        self._connecting: asyncio.Task[None] | None = None

    def abort(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        self.client.abort()
        self.server.abort()

    def _connected(self) -> None:
        if len(self._lines) >= MOST_HANDED_OVER:
            log.warning("refused a client that came before gRPC served", limit=MOST_HANDED_OVER)
            self.client.abort()
            return
        self._lines.add(self)
        self.client.pause(True)
        self._connecting = asyncio.create_task(self._onwards())

    def _lost(self) -> None:
        self._lines.discard(self)

    async def _onwards(self) -> None:
        try:
            async with asyncio.timeout(ONWARDS_SECONDS):
                await asyncio.get_running_loop().create_unix_connection(lambda: self.server, self._path)
        except (OSError, TimeoutError) as error:
            log.warning("a client cannot be handed over to gRPC", why=str(error))
            self.client.abort()
            return
        if self.client.is_lost:
            self.server.abort()
        self.client.pause(False)


def _nothing() -> None:
    pass


class _End(asyncio.Protocol):
    """One of the two connections. Reads no more while the other one has much to write, or is not there yet.

    What is read before that is kept: where reading is paused in `connection_made`, asyncio of Python 3.11.2, which
    Debian 12 has, begins it all the same, and 3.11.7 does not.
    """

    other: "_End"

    def __init__(self, made: Callable[[], None] = _nothing, lost: Callable[[], None] = _nothing) -> None:
        self._made = made
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._early = b""  # one read at most: 256 KiB
        self._has_early_end = False
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._early:
            self._transport.write(self._early)
            self._early = b""
        if self._has_early_end:
            self._transport.write_eof()
        self._made()

    def data_received(self, data: bytes) -> None:
        self.other.write(data)

    def eof_received(self) -> bool:
        self.other.write_eof()
        return True  # the other direction may go on

    def pause_writing(self) -> None:
        self.other.pause(True)

    def resume_writing(self) -> None:
        self.other.pause(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._lost()
        self.other.close()

    def write(self, data: bytes) -> None:
        if self._transport is None:
            self._early += data
            self.other.pause(False)  # asyncio passes over a pause of what it takes for paused
            self.other.pause(True)
        elif not self.is_lost:
            self._transport.write(data)

    def write_eof(self) -> None:
        if self._transport is None:
            self._has_early_end = True
        elif not self.is_lost:
            self._transport.write_eof()

    def pause(self, is_paused: bool) -> None:
        if self._transport is None or self.is_lost or self._transport.is_closing():
            return
        if is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
