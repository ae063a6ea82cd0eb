"""gRPC's half of the API's server: one of grpc.aio with health and reflection, begun anew when it has ended.

Imported when ttrpc serves: the import takes longer than all that a call over ttrpc waits for.
"""

import asyncio
import os
from contextlib import suppress
from urllib.parse import quote

import grpc.aio
import structlog
from grpc_reflection.v1alpha import reflection, reflection_pb2  # type: ignore[import-untyped]  # ships no py.typed

from supervisor.api import grpcservicer, health, serving, sockets, table
from supervisor.api.begun import once_begun
from supervisor.api.callers import Callers
from supervisor.api.calls import Calls, Methods
from supervisor.api.unfinished import FIRST_WINDOW_BYTES, MOST_CALLS, Unfinished
from supervisor.model.errors import Busy, CannotStart
from supervisor.system import listening, room

REFLECTION = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"]
_LOOK_SECONDS = 0.5  # a wait for gRPC's end raises what has stopped it only when the wait itself has ended
_SERVING = "_server_main_loop"  # the task of grpc.aio's server in this process's loop; ends when the server does
_FOR_GRPC = 24  # descriptors that it is to find; it took 8 until it served
LAST_WORDS_SECONDS = 0.5  # for answers on their way out
# The defaults refuse what is above 1,000 calls in one burst: the client sees CANCELLED.
_OPTIONS = (
    ("grpc.server.max_pending_requests", 100_000),
    ("grpc.server.max_pending_requests_hard_limit", 200_000),
    ("grpc.so_reuseport", 0),
    ("grpc.http2.lookahead_bytes", FIRST_WINDOW_BYTES),
    ("grpc.http2.settings_timeout", 10_000),  # until a client has agreed to that window
)

log = structlog.get_logger(__name__)


class GrpcServer:
    """Serves the service table, health and reflection on `path`, whose socket it replaces."""

    def __init__(
        self, path: str, methods: Methods, calls: Calls, callers: Callers | None, state: health.HealthService
    ) -> None:
        self._path = path
        self._bound = sockets.name_before(path)
        self._methods = methods
        self._calls = calls
        self._callers = callers
        self._health = state
        self._server: grpc.aio.Server | None = None
        self._serving: asyncio.Task[object] | None = None  # gRPC's own; None where its version has no such task
        self._unfinished = Unfinished()
        self._keeping: asyncio.Task[None] | None = None
        self._is_last = False  # what serves now is not begun anew

    async def start(self) -> None:
        """Raises CannotStart for a path that cannot be bound. A live socket is taken from its owner, silently."""
        self._server = await self._serve()
        self._keeping = asyncio.create_task(self._keep(self._server))

    async def begin_no_more(self) -> None:
        """A server that ends from now on is not begun anew. A cancellation alone may be lost: asyncio.wait_for, which
        grpc.aio waits by, forgets one that comes together with what it waits for (Python 3.11)."""
        self._is_last = True
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait((self._keeping,))

    async def stop(self) -> None:
        """End what is left of it, after `begin_no_more`."""
        if self._server is not None:
            await _end(self._server, self._bound, LAST_WORDS_SECONDS)

    async def _keep(self, server: grpc.aio.Server) -> None:
        """Start another server whenever grpc.aio's has stopped serving: it does at a method whose name is no UTF-8.

        The calls of the stopped server end first: while one lives, grpc.aio does not finish by itself.
        """
        while True:
            try:
                await self._stands()
                while await server.wait_for_termination(_LOOK_SECONDS):
                    if self._unfinished.is_choked():
                        log.error("gRPC begins anew: a client does not read the refusals of its unfinished requests")
                        break
            except Exception as error:  # anything that its loop has not caught
                if self._is_last:
                    return
                log.error("gRPC has ended and begins anew; clients have to call again", why=repr(error))
            await asyncio.shield(_end(server, self._bound, 0))  # a stop that is cancelled cannot be repeated
            self._server = server = await once_begun(self._serve, "gRPC cannot begin anew", rested=True)

    async def _stands(self) -> None:
        """Return when there is something to look at: gRPC's task has ended, or refusals cannot be written. An idle
        daemon does not wake up for it."""
        if self._serving is None:
            return
        choked = asyncio.create_task(self._unfinished.choked.wait())
        try:
            await asyncio.wait((self._serving, choked), return_when=asyncio.FIRST_COMPLETED)
        finally:
            choked.cancel()

    async def _serve(self) -> grpc.aio.Server:
        """Return a server that serves on the path. Raises CannotStart; without descriptors gRPC would crash.

        It binds another name first and is renamed: so the path always has a socket, with its owner and mode."""
        try:
            await room.wait_for(_FOR_GRPC, "gRPC's server")
        except Busy as error:
            raise CannotStart(f"cannot listen on {self._path}: {error}") from error
        most = ("grpc.max_allowed_incoming_connections", listening.grpc_connections(listening.limit()))
        server = grpc.aio.server(options=(*_OPTIONS, most), maximum_concurrent_rpcs=MOST_CALLS)
        unfinished = self._unfinished = Unfinished()
        serving.add(server, grpcservicer.servicer(self._methods, self._calls, self._callers), unfinished=unfinished)
        serving.add(server, self._health, health.SERVICE, unfinished=unfinished)
        names = (table.EXITD.full_name, health.SERVICE.full_name, REFLECTION.full_name)
        serving.add(server, reflection.aio.ReflectionServicer(names), REFLECTION, unfinished=unfinished)
        starting, before = None, asyncio.all_tasks()
        try:
            with sockets.nobody_else():
                server.add_insecure_port(f"unix:{quote(self._bound)}")
            starting = asyncio.create_task(server.start())
            await asyncio.shield(starting)  # a start that is cancelled fails in grpc.aio
            self._serving = next(filter(_is_serving, asyncio.all_tasks() - before), None)
            sockets.admit_group(self._bound)
            os.rename(self._bound, self._path)
        except (RuntimeError, OSError, asyncio.CancelledError) as error:
            if starting is not None:
                await asyncio.wait((starting,))
            await _discard(server, self._bound)
            if isinstance(error, asyncio.CancelledError):
                raise
            raise CannotStart(f"cannot listen on {self._path}: {error}") from error
        return server


def _is_serving(task: asyncio.Task[object]) -> bool:
    return getattr(task.get_coro(), "__name__", "") == _SERVING


async def _discard(server: grpc.aio.Server, path: str) -> None:
    """Stop a server, started or not: one that never was started would keep its threads and memory."""
    await server.start()
    await _end(server, path, 0)
    with suppress(FileNotFoundError):
        os.unlink(path)


async def _end(server: grpc.aio.Server, path: str, grace_seconds: float) -> None:
    """Stop a server, and end every connection at its path.

    gRPC does not close a connection while it has bytes to write there, however long its client reads none of them, and
    its server has not stopped before: such connections are hung up.
    """
    stopping = asyncio.create_task(server.stop(grace_seconds))
    seconds = grace_seconds + LAST_WORDS_SECONDS
    while not (await asyncio.wait((stopping,), timeout=seconds))[0]:
        try:
            count = sockets.hang_up(path)
            log.warning("hung up on clients that do not read", connections=count)
        except OSError as error:
            log.warning("cannot look for clients that do not read", why=error.strerror or str(error))
    await stopping
