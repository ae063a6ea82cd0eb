"""exitd's API over gRPC on a unix socket: one thin method per call, health and reflection beside it."""

import os
import platform
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Protocol, cast
from urllib.parse import quote

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # read when grpc is imported; the daemon never forks

import grpc.aio
import structlog
from grpc_reflection.v1alpha import reflection  # type: ignore[import-untyped]  # ships no py.typed

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor import events, logs
from supervisor.api import health, replies, requests, rpc, sockets
from supervisor.api.callers import Callers
from supervisor.api.calls import Calls
from supervisor.errors import CannotStart
from supervisor.facts import By, Container, Exit, Spec
from supervisor.inotify import Inotify
from supervisor.views import Info, View

API = "exitd.v1"
SOCKET_PATH_LIMIT = 107  # sun_path, unix(7)
LOG_REPLY_BYTES = 64 * 1024
_LAST_WORDS_SECONDS = 0.5  # for answers on their way out
# The defaults refuse what is above 1,000 calls in one burst: the client sees CANCELLED.
_OPTIONS = (
    ("grpc.server.max_pending_requests", 100_000),
    ("grpc.server.max_pending_requests_hard_limit", 200_000),
    ("grpc.so_reuseport", 0),
)
MUTATING = frozenset({"CreateContainer", "Start", "Stop", "Kill", "Restart", "Pause", "Resume", "Remove"})

log = structlog.get_logger(__name__)


class Node(Protocol):
    """What the API asks of the owner of all state. Every method raises named ExitdErrors only."""

    async def create(self, spec: Spec, by: By) -> Container: ...
    async def start(self, id: str, by: By) -> Container: ...
    async def stop(self, id: str, timeout_seconds: int | None, by: By) -> Container: ...
    async def kill(self, id: str, signal: int, everyone: bool, by: By) -> None: ...
    async def restart(self, id: str, timeout_seconds: int | None, by: By) -> Container: ...
    async def pause(self, id: str, by: By) -> None: ...
    async def resume(self, id: str, by: By) -> None: ...
    async def remove(self, id: str, force: bool, by: By) -> None: ...
    def listing(self, all: bool, filters: tuple[str, ...]) -> tuple[list[View], int]:
        """The containers, and the sequence number from which on to watch."""

    async def inspect(self, id: str) -> View: ...
    async def pids(self, id: str) -> tuple[int, ...]: ...
    async def wait(self, id: str, condition: str, run: int) -> Exit | None:
        """`run` 0: the current one. None: removed without ever having run."""

    def subscribe(
        self,
        from_seq: int | None,
        since_ns: int | None,
        until_ns: int | None,
        filters: tuple[str, ...],
        follow: bool,
    ) -> AsyncIterator[events.Item]:
        """An async generator function: not awaited, closed as soon as the peer goes away."""

    def exits(self, since_ns: int | None, unknown: bool, id: str) -> AsyncIterator[Exit]:
        """Likewise an async generator function. An empty `id`: all containers."""

    async def log_source(self, id: str) -> tuple[str, Callable[[int], Awaitable[object]]]:
        """The log's path, and what to await until the output of a run (0: the current one) is complete."""

    async def info(self) -> Info: ...


class Doors:
    """The methods of service Exitd: messages in, the node asked, messages out. Knows nothing of gRPC."""

    def __init__(self, node: Node, changes: Inotify) -> None:
        self._node = node
        self._changes = changes

    async def CreateContainer(self, request: pb.CreateContainerRequest, by: By) -> pb.CreateContainerReply:
        container = await self._node.create(requests.spec_of(request.spec), by)
        return pb.CreateContainerReply(container=replies.container_message(View(container)))

    async def Start(self, request: pb.StartRequest, by: By) -> pb.StartReply:
        container = await self._node.start(requests.id_of(request.id), by)
        return pb.StartReply(container=replies.container_message(View(container)))

    async def Stop(self, request: pb.StopRequest, by: By) -> pb.StopReply:
        container = await self._node.stop(requests.id_of(request.id), requests.timeout_of(request), by)
        return pb.StopReply(container=replies.container_message(View(container)))

    async def Kill(self, request: pb.KillRequest, by: By) -> pb.KillReply:
        signal = requests.signal_of(request.signal or "SIGKILL")
        await self._node.kill(requests.id_of(request.id), signal, request.all, by)
        return pb.KillReply()

    async def Restart(self, request: pb.RestartRequest, by: By) -> pb.RestartReply:
        container = await self._node.restart(requests.id_of(request.id), requests.timeout_of(request), by)
        return pb.RestartReply(container=replies.container_message(View(container)))

    async def Pause(self, request: pb.PauseRequest, by: By) -> pb.PauseReply:
        await self._node.pause(requests.id_of(request.id), by)
        return pb.PauseReply()

    async def Resume(self, request: pb.ResumeRequest, by: By) -> pb.ResumeReply:
        await self._node.resume(requests.id_of(request.id), by)
        return pb.ResumeReply()

    async def Remove(self, request: pb.RemoveRequest, by: By) -> pb.RemoveReply:
        await self._node.remove(requests.id_of(request.id), request.force, by)
        return pb.RemoveReply()

    async def List(self, request: pb.ListRequest, by: By) -> pb.ListReply:
        views, seq = self._node.listing(request.all, tuple(request.filters))
        return pb.ListReply(containers=[replies.container_message(view) for view in views], seq=seq)

    async def Inspect(self, request: pb.InspectRequest, by: By) -> pb.InspectReply:
        view = await self._node.inspect(requests.id_of(request.id))
        return pb.InspectReply(container=replies.container_message(view))

    async def Pids(self, request: pb.PidsRequest, by: By) -> pb.PidsReply:
        return pb.PidsReply(pids=await self._node.pids(requests.id_of(request.id)))

    async def Wait(self, request: pb.WaitRequest, by: By) -> pb.WaitReply:
        condition, run = requests.condition_of(request.condition), requests.number_of(request.run, "run")
        ended = await self._node.wait(requests.id_of(request.id), condition, run)
        return pb.WaitReply(exit=replies.exit_message(ended) if ended else None)

    async def Events(self, request: pb.EventsRequest, by: By) -> AsyncGenerator[pb.EventsReply, None]:
        wanted = self._node.subscribe(
            requests.number_of(request.from_seq, "from_seq") if request.HasField("from_seq") else None,
            requests.time_of(request.since, "since") if request.HasField("since") else None,
            requests.time_of(request.until, "until") if request.HasField("until") else None,
            tuple(request.filters),
            not request.no_follow,
        )
        async with aclosing(cast("AsyncGenerator[events.Item, None]", wanted)):
            async for item in wanted:
                yield replies.events_message(item)

    async def Exits(self, request: pb.ExitsRequest, by: By) -> AsyncGenerator[pb.ExitsReply, None]:
        since = requests.time_of(request.since, "since") if request.HasField("since") else None
        ledger = self._node.exits(since, request.unknown, requests.id_of(request.id) if request.id else "")
        async with aclosing(cast("AsyncGenerator[Exit, None]", ledger)):
            async for ended in ledger:
                yield pb.ExitsReply(exit=replies.exit_message(ended))

    async def Logs(self, request: pb.LogsRequest, by: By) -> AsyncGenerator[pb.LogsReply, None]:
        path, done = await self._node.log_source(requests.id_of(request.id))
        run = requests.number_of(request.run, "run")
        tail = requests.number_of(request.tail_lines, "tail_lines") or None
        source = logs.follow(path, done(run), self._changes, tail) if request.follow else logs.read(path, tail)
        async with aclosing(source):
            async for items in source:
                for reply in replies.log_messages(items, LOG_REPLY_BYTES):
                    yield reply

    async def Version(self, request: pb.VersionRequest, by: By) -> pb.VersionReply:
        info = await self._node.info()
        return pb.VersionReply(version=info.version, api=API, python=platform.python_version())

    async def Info(self, request: pb.InfoRequest, by: By) -> pb.InfoReply:
        return replies.info_message(await self._node.info())


class ApiServer:
    """The gRPC server on one unix socket. `health.set(False)` while the node cannot store what happens."""

    def __init__(self, path: str, node: Node, changes: Inotify, callers: Callers | None = None) -> None:
        self.path = path
        self.health = health.Health()
        self._doors = Doors(node, changes)
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
