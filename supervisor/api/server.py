"""exitd's API on two unix sockets, from one service table: gRPC with health and reflection, ttrpc with health."""

import asyncio
import os
import socket
from typing import TYPE_CHECKING

import structlog

from supervisor.api import health, sockets, ttrpcservices
from supervisor.api.callers import Callers
from supervisor.api.calls import Calls, Methods
from supervisor.api.firstclient import LateGrpc
from supervisor.model.errors import Busy, CannotStart
from supervisor.system import room, threads
from supervisor.ttrpc.server import Server

if TYPE_CHECKING:
    from supervisor.api.grpcserver import GrpcServer

SOCKET_PATH_LIMIT = 107  # sun_path, unix(7)

_FOR_GRPC = 24  # descriptors that its import and its server are to find
_THREADS_FOR_GRPC = 12  # that it is to find room for: it ends a process that cannot begin them
_LAST_WORDS_SECONDS = 0.5  # for answers on their way out

log = structlog.get_logger(__name__)


class ApiServer:
    """The servers of the service table, of health and of reflection."""

    def __init__(
        self,
        path: str,
        methods: Methods,
        callers: Callers | None = None,
        ttrpc: str | socket.socket | None = None,
        state: health.HealthService | None = None,
    ) -> None:
        """`path` is gRPC's. `ttrpc`: a path, a socket that the service manager has bound, or none. `state`: what the
        service grpc.health.v1 answers with; one of its own if there is none."""
        self.path = path
        self.health = state or health.HealthService()
        self._methods = methods
        self._callers = callers
        self._calls = Calls()
        self._grpc: LateGrpc | None = None
        self._where = ttrpc
        self._ttrpc = Server(
            ttrpcservices.table(methods, self._calls, self.health), failure_of=ttrpcservices.failure_of
        )

    async def start(self) -> None:
        """Bind and serve what does not serve yet; gRPC begins with its first client. A live socket is taken from its
        owner without a word: hold the daemon's lock first.

        Raises CannotStart for a path that cannot be bound.
        """
        await self.start_ttrpc()
        late = LateGrpc(self.path, self._serving_grpc)
        try:
            late.start()
        except CannotStart:
            await self._ttrpc.stop(0)
            raise
        self._grpc = late

    async def start_ttrpc(self) -> None:
        """Bind the ttrpc socket and serve it, without waiting for gRPC. Raises CannotStart."""
        _check(sockets.name_before(self.path))
        where, self._where = self._where, None
        if where is not None:
            await self._listen(where)

    async def stop(self, grace_seconds: float) -> None:
        """End the calls that wait with SHUTTING_DOWN, give changes under way `grace_seconds`, and remove the sockets,
        but for the service manager's. Idempotent."""
        if self._grpc is None:
            return
        ending, self._grpc = self._grpc, None
        await ending.begin_no_more()
        self.health.shut()
        await self._calls.close(grace_seconds)
        await self._ttrpc.stop(_LAST_WORDS_SECONDS)
        await ending.stop()

    async def _serving_grpc(self) -> "GrpcServer":
        """Raises CannotStart."""
        try:
            await room.wait_for(_FOR_GRPC, "gRPC's server")
            await asyncio.to_thread(threads.check_room, _THREADS_FOR_GRPC, "gRPC's server")
            kind = await asyncio.to_thread(_grpc_server)  # in a thread: calls over ttrpc are answered meanwhile
        except (Busy, OSError) as error:
            raise CannotStart(f"cannot listen on {self.path}: {error}") from error
        server = kind(self.path, self._methods, self._calls, self._callers, self.health)
        await server.start()
        return server

    async def _listen(self, where: str | socket.socket) -> None:
        path = where if isinstance(where, str) else where.getsockname()
        _check(path)
        try:
            await self._ttrpc.listen(where)
            if not sockets.is_listened_at(path):  # clients in the first one's queue are answered, too
                log.warning("the service manager's socket has lost its path, another one is bound there", path=path)
                await self._ttrpc.listen(path)
            sockets.admit_group(path)
        except OSError as error:
            raise CannotStart(f"cannot listen on {path}: {error.strerror or error}") from error


def _grpc_server() -> "type[GrpcServer]":
    from supervisor.api.grpcserver import GrpcServer

    return GrpcServer


def _check(path: str) -> None:
    if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
        raise CannotStart(f"{path} is too long for a unix socket, at most {SOCKET_PATH_LIMIT} bytes")
