"""exitd's API over gRPC on a unix socket, health and reflection beside it."""

import os
from urllib.parse import quote

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # read when grpc is imported; the daemon never forks

import grpc.aio
import structlog
from grpc_reflection.v1alpha import reflection  # type: ignore[import-untyped]  # ships no py.typed

from supervisor.api import health, rpc, sockets
from supervisor.api.callers import Callers
from supervisor.api.calls import Calls
from supervisor.api.doors import Doors
from supervisor.errors import CannotStart

SOCKET_PATH_LIMIT = 107  # sun_path, unix(7)
_LAST_WORDS_SECONDS = 0.5  # for answers on their way out
# The defaults refuse what is above 1,000 calls in one burst: the client sees CANCELLED.
_OPTIONS = (
    ("grpc.server.max_pending_requests", 100_000),
    ("grpc.server.max_pending_requests_hard_limit", 200_000),
    ("grpc.so_reuseport", 0),
)
MUTATING = frozenset(
    {
        *("CreateContainer", "Start", "Stop", "Kill", "Restart", "Pause", "Resume", "Remove", "Exec"),
        *("RunPod", "StopPod", "RemovePod", "LoadImage", "PullImage", "ImportImage", "RemoveImage"),
        *("ResizePty", "CloseStdin", "ReopenLog"),
    }
)

log = structlog.get_logger(__name__)


class ApiServer:
    """The gRPC server on one unix socket. `health.set(False)` while the node cannot store what happens."""

    def __init__(self, path: str, doors: Doors, callers: Callers | None = None) -> None:
        self.path = path
        self.health = health.Health()
        self._doors = doors
        self._calls = Calls(callers)
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Binds and serves. gRPC takes a live socket from its owner without a word: hold the daemon's lock first.

        Raises CannotStart for a path that cannot be bound.
        """
        if len(os.fsencode(self.path)) > SOCKET_PATH_LIMIT:
            raise CannotStart(f"{self.path} is too long for a unix socket, at most {SOCKET_PATH_LIMIT} bytes")
        server = grpc.aio.server(options=_OPTIONS)
        rpc.add(server, self._calls.bind(self._doors, MUTATING))
        rpc.add(server, self.health, health.SERVICE)
        names = (rpc.EXITD.full_name, health.SERVICE.full_name, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        try:
            with sockets.nobody_else():
                server.add_insecure_port(f"unix:{quote(self.path)}")
            await server.start()
            sockets.admit_group(self.path)
        except (RuntimeError, OSError) as error:
            raise CannotStart(f"cannot listen on {self.path}: {error}") from error
        self._server = server

    async def stop(self, grace_seconds: float) -> None:
        """Who waits is told SHUTTING_DOWN; changes under way get `grace_seconds`. Idempotent; the socket goes."""
        if self._server is None:
            return
        server, self._server = self._server, None
        self.health.shut()
        await self._calls.close(grace_seconds)
        await server.stop(_LAST_WORDS_SECONDS)
