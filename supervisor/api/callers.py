"""Who is calling: gRPC does not say, so a socket beside it hands out tokens that the kernel's word stands behind.

A client connects to `caller.sock`, reads one line, and sends that token as metadata `exitd-caller` with its calls. The
token stands for the uid and pid of SO_PEERCRED (unix(7)) while that connection is open, and for no process afterwards.
"""

import asyncio
import os
import secrets
import socket
import struct
from contextlib import suppress
from typing import cast

import structlog

from supervisor.api import sockets
from supervisor.model.errors import CannotStart
from supervisor.model.values import By
from supervisor.system.listening import Listener, bound, client_ceiling, limit

METADATA_KEY = "exitd-caller"
MAX_CONNECTIONS = 10_000
_BACKLOG = 4096  # asyncio's default of 100 refuses bursts with EAGAIN
_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid

log = structlog.get_logger(__name__)


class Callers:
    """The socket and its tokens."""

    def __init__(self, path: str, max_connections: int = MAX_CONNECTIONS) -> None:
        self.path = path
        self._max = max_connections
        self._tokens: dict[str, By] = {}
        self._open: set[asyncio.Transport] = set()
        self._listener: Listener | None = None

    async def start(self) -> None:
        """Bind, replacing a socket left behind: the caller holds the daemon's lock. Raises CannotStart."""
        try:
            with sockets.nobody_else():
                listening = bound(self.path, 0o600)
            ceiling = client_ceiling(limit())
            self._listener = Listener(listening, lambda: _Caller(self), backlog=_BACKLOG, ceiling=ceiling)
            sockets.admit_group(self.path)
        except OSError as error:
            raise CannotStart(f"cannot listen on {self.path}: {error.strerror or error}") from error

    async def stop(self) -> None:
        """End all connections, and with them all tokens. Repeatable."""
        if self._listener is None:
            return
        self._listener.close()
        self._listener = None
        for transport in tuple(self._open):
            transport.abort()
        self._open.clear()
        self._tokens.clear()
        with suppress(FileNotFoundError):
            os.unlink(self.path)

    def lookup(self, token: str) -> By | None:
        """Return whose token it is; None when it never was one or its connection has ended."""
        return self._tokens.get(token)

    def __len__(self) -> int:
        return len(self._tokens)

    def opened(self, transport: asyncio.Transport) -> str | None:
        """Return a token for a new connection; None when there are too many."""
        if self._listener is None:
            return None
        if len(self._tokens) >= self._max:
            log.warning("refused a caller", reason="too many connections", limit=self._max)
            return None
        token = secrets.token_hex(16)
        self._tokens[token] = _peer(transport)
        self._open.add(transport)
        return token

    def closed(self, transport: asyncio.Transport, token: str) -> None:
        self._tokens.pop(token, None)
        self._open.discard(transport)


def _peer(transport: asyncio.Transport) -> By:
    connection = cast(socket.socket, transport.get_extra_info("socket"))
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return By(uid=uid, pid=pid)


class _Caller(asyncio.Protocol):
    """One connection: it gets its token, and sends nothing."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers
        self._transport: asyncio.Transport | None = None
        self._token: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._token = self._callers.opened(self._transport)
        if self._token is None:
            self._transport.close()
        else:
            self._transport.write(f"{self._token}\n".encode())

    def data_received(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None and self._token is not None:
            self._callers.closed(self._transport, self._token)
