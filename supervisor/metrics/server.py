"""Serves three pages over HTTP to any process that reaches the socket: /metrics, /healthz, /readyz.

Made for one scraper that comes now and then: few connections, a small request, one answer each, all within limits. A
library would bring a thread, a framework or ten megabytes for that.
"""

import asyncio
import contextlib
import errno
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

import structlog

from shim.frozen import frozen
from supervisor.config.listen import Place, UnixPlace
from supervisor.metrics import http
from supervisor.metrics.http import PLAIN, Rejected, Request
from supervisor.system import listening
from supervisor.system.listening import Listener

MOST_CONNECTIONS = 16
MOST_REFUSED = 16  # that are given a reason; others are hung up on
REQUEST_SECONDS = 5.0  # from the connection to the last byte of the request
ANSWER_SECONDS = 10.0  # from then until the whole answer is with the client
AGAIN_SECONDS = 10.0  # to the next attempt to listen
BACKLOG = 16

log = structlog.get_logger(__name__)


@frozen
class Reply:
    """What a page has to say."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    kind: str = PLAIN


Pages = Mapping[str, Callable[[], Awaitable[Reply]]]  # by path


class MetricsServer:
    """Listens at one place. A place that cannot be had is tried again: exitd's own work does not depend on it."""

    def __init__(self, place: Place, pages: Pages, admit: Callable[[str], object]) -> None:
        """`admit`: opens a socket's path to those who may connect."""
        self._place = place
        self._pages = pages
        self._admit = admit
        self._connections: set[_Connection] = set()
        self._listener: Listener | None = None

    async def serve(self) -> None:
        """Listen, as soon as that is possible. Each kind of trouble is logged once."""
        logged = ""
        while True:
            try:
                self.listen()
                log.info("metrics are served", place=str(self._place))
                return
            except OSError as error:
                why = error.strerror or str(error)
                if why != logged:
                    log.error("metrics are not served, trying again", place=str(self._place), why=why)
                logged = why
            await asyncio.sleep(AGAIN_SECONDS)

    def listen(self) -> None:
        """Raises OSError."""
        made = _bound(self._place, self._admit)
        ceiling = listening.client_ceiling(listening.limit())
        self._listener = Listener(made, self._connection, backlog=BACKLOG, ceiling=ceiling)

    async def close(self) -> None:
        """End all connections, and remove the socket's path. Repeatable."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            if isinstance(self._place, UnixPlace):
                with contextlib.suppress(OSError):
                    os.unlink(self._place.path)
        for connection in tuple(self._connections):
            connection.abort()

    def _connection(self) -> asyncio.Protocol:
        return _Connection(self._connections, self._pages)


def _bound(place: Place, admit: Callable[[str], object]) -> socket.socket:
    """Return a socket bound to the place. Raises OSError, also where another program listens."""
    if isinstance(place, UnixPlace):
        _check_free(place.path)
        made = listening.bound(place.path, 0o600)
        admit(place.path)
        return made
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of an exitd that has ended
        made.bind((place.host, place.port))
    except OSError:
        made.close()
        raise
    return made


def _check_free(path: str) -> None:
    """Refuse a path where a server listens, or that is no socket's. Raises OSError."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(errno.EEXIST, "there is something else than a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as line:
        if line.connect_ex(path) in (0, errno.EAGAIN):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


class _Connection(asyncio.Protocol):
    """One request, one answer."""

    def __init__(self, connections: "set[_Connection]", pages: Pages) -> None:
        self._connections = connections
        self._pages = pages
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._data = bytearray()
        self._is_refused = False
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)
        self._within(REQUEST_SECONDS)
        self._is_refused = len(self._connections) > MOST_CONNECTIONS
        if len(self._connections) > MOST_CONNECTIONS + MOST_REFUSED:
            self.abort()

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._data += data
        asked = http.parse(bytes(self._data))
        if asked is not None and self._is_refused:  # once it has asked: else the answer would be lost with the rest
            self._send(http.refusal(HTTPStatus.SERVICE_UNAVAILABLE))
        elif isinstance(asked, Rejected):
            self._send(http.refusal(asked.status))
        elif asked is not None:
            self._transport.pause_reading()
            self._within(ANSWER_SECONDS)
            self._answering = asyncio.get_running_loop().create_task(self._answer(asked))

    def eof_received(self) -> bool:
        """A client that has asked may have nothing more to say, and still read."""
        return self._answering is not None

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._answering is not None:
            self._answering.cancel()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _within(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)

    async def _answer(self, asked: Request) -> None:
        page = self._pages.get(asked.path)
        try:
            reply = await page() if page is not None else Reply(b"404 Not Found\n", HTTPStatus.NOT_FOUND)
        except Exception:  # one of the doors: a bug in a page costs that page
            log.exception("a page could not be made", path=asked.path[:100])
            reply = Reply(b"500 Internal Server Error\n", HTTPStatus.INTERNAL_SERVER_ERROR)
        self._send(http.answer(reply.status, reply.body, reply.kind, with_body=asked.method != "HEAD"))

    def _send(self, data: bytes) -> None:
        """The transport closes once everything is written, or is aborted by the timer."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            self._transport.close()
