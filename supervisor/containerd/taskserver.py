"""The socket on which containerd's relays and their `delete` programs find exitd: the Task service over ttrpc, and the
relays' own frames. A relay keeps containerd's connections open while exitd is away, and then repeats the unanswered
requests.

| frame           | stream    |                                                                         |
|-----------------|-----------|-------------------------------------------------------------------------|
| 0x80 hello      | 0         | first of all: who this is, and which of its connections containerd has  |
| 0x81 again      | request's | right before a request that was sent before: attempt and age            |
| 0x82 done       | request's | containerd has its answer: the request will not be repeated             |
| 0x83 bye        | 0         | containerd has closed this connection                                   |
| 0x85 event      | 0         | from exitd: a number (64 bits) and a request that containerd gets once  |
| 0x86 told       | 0         | that number, and containerd's response, or 14 if it is away             |
| 0x87 exec       | 0         | from exitd, before the answer to its Start: an exec, its process, and   |
|                 |           | where the record of its end will be                                     |
"""

import asyncio
import os
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from protos.containerd import sandbox_pb2 as sb
from protos.containerd import task_pb2 as pb
from protos.exitd.shimv2 import relay_pb2
from shim.frozen import field, mutable
from supervisor.containerd import tasks
from supervisor.containerd.callers import Caller, Hello, Turns, key_of, read_hello
from supervisor.containerd.couriers import TOLD
from supervisor.containerd.ends import Ends
from supervisor.containerd.publish import Publisher
from supervisor.containerd.sandboxes import Sandboxes
from supervisor.containerd.service import TaskService
from supervisor.engine.node import Node
from supervisor.model.errors import BadRequest, CannotStart, Code
from supervisor.model.values import By
from supervisor.store.codec import key_parts
from supervisor.system.background import retry
from supervisor.system.inotify import Inotify
from supervisor.system.listening import peer_ceiling
from supervisor.ttrpc.faults import CallFailed
from supervisor.ttrpc.frames import Frame, encode
from supervisor.ttrpc.server import Call, Connection, PeerCredentials, Server
from supervisor.ttrpc.services import Method

HELLO, AGAIN, DONE, BYE, EXEC = 0x80, 0x81, 0x82, 0x83, 0x87
KEEP, CACHEABLE, LEAVE = 0x80, 0x40, 0x20  # flags in the header of an answer
SOCKET = "shimv2.sock"
GRACE_SECONDS = 5.0
SETTLE_SECONDS = 2.0  # for the last events of a relay that is to exit: containerd waits 3 s for that
FORGET_SECONDS = 1.0  # answers that have arrived are forgotten together
_AGAIN = struct.Struct(">II")  # attempt, age in ms

Handler = Callable[[Any, Caller], Awaitable[Message]]

log = structlog.get_logger(__name__)


@mutable
class Relay:
    """What is known of a connection. `again`: attempts of the requests that come next."""

    hello: Hello | None = None
    again: dict[int, int] = field(default_factory=dict)


class TaskServer:
    """Begin it when the containers are listed; `stop` it before the node is closed."""

    def __init__(
        self,
        node: Node,
        service: TaskService,
        sandboxes: Sandboxes,
        ends: Ends,
        turns: Turns,
        publisher: Publisher,
        state: str,
    ) -> None:
        self.path = f"{state}/{SOCKET}"
        self._node = node
        self._service = service
        self._sandboxes = sandboxes
        self._ends = ends
        self._turns = turns
        self._publisher = publisher
        self._answered: set[str] = set()
        methods = self._methods()
        cleanup = Method(relay_pb2.CleanupRequest, pb.DeleteResponse, self._cleanup)
        services = {
            "containerd.task.v2.Task": methods,
            "containerd.task.v3.Task": methods,
            "containerd.runtime.sandbox.v1.Sandbox": self._sandbox_methods(),
            "exitd.shimv2.Relay": {"Cleanup": cleanup},
        }
        self._server = Server(
            services,
            check=_is_us,
            failure_of=tasks.failure_of,
            on_frame=self._frame,
            on_lost=self._lost,
            ceiling=peer_ceiling,
        )

    async def start(self, inotify: Inotify) -> None:
        """Raises CannotStart."""
        self._ends.begin(inotify)
        try:
            await self._server.listen(self.path)
        except OSError as error:
            raise CannotStart(f"cannot listen on {self.path}: {error.strerror or error}") from error

    async def stop(self) -> None:
        """Stop. Relays repeat unanswered requests to the next exitd; what was begun here is finished first."""
        await self._server.stop(0)
        await self._turns.close(GRACE_SECONDS)

    def _methods(self) -> dict[str, Method]:
        s, empty = self._service, Empty
        change, ask = self._change, self._ask
        return {
            "Create": change(pb.CreateTaskRequest, pb.CreateTaskResponse, self._create, keep=True),
            "Start": change(pb.StartRequest, pb.StartResponse, s.start, keep=True, first=self._announce_exec),
            "Delete": change(pb.DeleteRequest, pb.DeleteResponse, s.delete, keep=True),
            "Exec": change(pb.ExecProcessRequest, empty, s.exec, keep=True),
            "Kill": change(pb.KillRequest, empty, s.kill),
            "Pause": change(pb.PauseRequest, empty, s.pause),
            "Resume": change(pb.ResumeRequest, empty, s.resume),
            "Update": change(pb.UpdateTaskRequest, empty, s.update),
            "Checkpoint": change(pb.CheckpointTaskRequest, empty, s.checkpoint),
            "ResizePty": change(pb.ResizePtyRequest, empty, s.resize_pty),
            "CloseIO": change(pb.CloseIORequest, empty, s.close_io),
            "State": ask(pb.StateRequest, pb.StateResponse, s.state, cacheable=True),
            "Pids": ask(pb.PidsRequest, pb.PidsResponse, s.pids, cacheable=True),
            "Connect": ask(pb.ConnectRequest, pb.ConnectResponse, s.connect, cacheable=True),
            "Stats": ask(pb.StatsRequest, pb.StatsResponse, s.stats),
            "Wait": ask(pb.WaitRequest, pb.WaitResponse, s.wait),
            "Shutdown": Method(pb.ShutdownRequest, empty, self._shutdown),
        }

    def _sandbox_methods(self) -> dict[str, Method]:
        s, change, ask = self._sandboxes, self._change, self._ask
        return {
            "CreateSandbox": change(sb.CreateSandboxRequest, sb.CreateSandboxResponse, self._create_sandbox, keep=True),
            "StartSandbox": change(sb.StartSandboxRequest, sb.StartSandboxResponse, s.start, keep=True),
            "StopSandbox": change(sb.StopSandboxRequest, sb.StopSandboxResponse, s.stop),
            "ShutdownSandbox": self._then_leave(
                change(sb.ShutdownSandboxRequest, sb.ShutdownSandboxResponse, s.shutdown, keep=True)
            ),
            "Platform": ask(sb.PlatformRequest, sb.PlatformResponse, s.platform, cacheable=True),
            "SandboxStatus": ask(sb.SandboxStatusRequest, sb.SandboxStatusResponse, s.status, cacheable=True),
            "PingSandbox": ask(sb.PingRequest, sb.PingResponse, s.ping),
            "WaitSandbox": ask(sb.WaitSandboxRequest, sb.WaitSandboxResponse, s.wait),
            "SandboxMetrics": ask(sb.SandboxMetricsRequest, sb.SandboxMetricsResponse, s.metrics),
        }

    def _change(
        self,
        request: type[Message],
        reply: type[Message],
        work: Handler,
        *,
        keep: bool = False,
        first: Callable[[Any, Call], None] = lambda asked, call: None,
    ) -> Method:
        """`first`: what is sent before the answer."""

        async def handler(asked: Any, call: Call) -> Message:
            caller = _caller(call)
            name = (caller.namespace, _id_of(asked), getattr(asked, "exec_id", ""))
            answer = await self._turns.run(caller.key, name, lambda: _answered_by(work, asked, caller))
            call.flags |= KEEP if keep else 0
            first(asked, call)
            return answer

        return Method(request, reply, handler)

    def _ask(self, request: type[Message], reply: type[Message], work: Handler, *, cacheable: bool = False) -> Method:
        async def handler(asked: Any, call: Call) -> Message:
            answer = await work(asked, _caller(call))
            call.flags |= CACHEABLE if cacheable and _may_be_kept(asked, answer) else 0
            return answer

        return Method(request, reply, handler)

    async def _create(self, request: pb.CreateTaskRequest, caller: Caller) -> pb.CreateTaskResponse:
        await self._ends.word_of(caller.namespace, request.id)
        return await self._service.create(request, caller)

    def _announce_exec(self, request: pb.StartRequest, call: Call) -> None:
        """Send the exec to the relay, which answers for it if it ends while exitd is away. An older relay passes over
        the frame."""
        hello = _of(call.connection).hello
        if hello is not None and request.exec_id and (word := self._service.exec_word(hello.namespace, request)):
            call.connection.write(encode(Frame(0, EXEC, 0, word)))

    async def _create_sandbox(self, request: sb.CreateSandboxRequest, caller: Caller) -> sb.CreateSandboxResponse:
        await self._ends.word_of(caller.namespace, request.sandbox_id)
        return await self._sandboxes.create(request, caller)

    async def _shutdown(self, request: pb.ShutdownRequest, call: Call) -> Empty:
        await self._may_leave(_caller(call).hello, call)
        return Empty()

    def _then_leave(self, method: Method) -> Method:
        """Return the method, after which a relay without tasks exits."""

        async def handler(asked: Any, call: Call) -> Message:
            answer: Message = await method.handler(asked, call)
            await self._may_leave(_caller(call).hello, call)
            return answer

        return Method(method.request_type, method.response_type, handler)

    async def _may_leave(self, hello: Hello, call: Call) -> None:
        """A relay may exit when it has sent all its events: only the relay knows what it has sent."""
        if self._is_unused(hello.relay):
            settled = await self._publisher.settled(hello, self._node.store.last_seq(), SETTLE_SECONDS)
            call.flags |= LEAVE if settled and self._is_unused(hello.relay) else 0

    def _is_unused(self, relay: str) -> bool:
        return self._service.is_unused(relay, self._publisher.has_dropped)

    async def _cleanup(self, request: relay_pb2.CleanupRequest, call: Call) -> pb.DeleteResponse:
        return tasks.delete_reply(await self._ends.clean_up(request.namespace, request.id, request.bundle))

    # -- the relays' own frames

    def _frame(self, connection: Connection, frame: Frame) -> None:
        relay = _of(connection)
        if frame.type == HELLO:
            self._hello(connection, relay, frame.data)
        elif relay.hello is None:
            log.warning("a relay that has not said who it is", pid=connection.peer.pid, frame=frame.type)
        elif frame.type == AGAIN and len(frame.data) >= _AGAIN.size:
            relay.again[frame.stream] = _AGAIN.unpack_from(frame.data)[0]
        elif frame.type == DONE:
            if not self._answered:
                asyncio.get_running_loop().call_later(FORGET_SECONDS, self._forget_answered)
            self._answered.add(key_of(relay.hello, frame.stream))
        elif frame.type == TOLD:
            self._publisher.couriers.answered(relay.hello.courier, connection, frame.data)
        elif frame.type == BYE:
            self._publisher.couriers.parting(relay.hello.courier, connection)
            self._forget("relay = ? AND connection = ?", relay.hello.relay, relay.hello.connection)

    def _hello(self, connection: Connection, relay: Relay, data: bytes) -> None:
        try:
            hello = read_hello(data)
            self._publisher.couriers.linked(hello.courier, connection)
        except (BadRequest, OSError) as error:  # OSError: no descriptor; a relay connects again
            log.warning("refused a relay", pid=connection.peer.pid, why=str(error))
            connection.abort()
            return
        relay.hello = hello
        self._publisher.wake(hello.address)
        live = ",".join(map(str, (hello.connection, *hello.live)))  # the numbers as they were read
        self._forget(f"relay = ? AND connection NOT IN ({live})", hello.relay)

    def _lost(self, connection: Connection) -> None:
        if (hello := _of(connection).hello) is not None:
            self._publisher.couriers.lost(hello.courier, connection)

    def _forget_answered(self) -> None:
        keys, self._answered = [key_parts(key) for key in self._answered], set()
        words = " OR ".join(["(relay = ? AND connection = ? AND stream = ?)"] * len(keys[:MOST_KEYS]))
        self._forget(words, *(part for key in keys[:MOST_KEYS] for part in key))

    def _forget(self, words: str, *values: object) -> None:
        if not self._node.closing:
            forget = self._node.store.forget_tombstones
            self._node.spawn(retry(lambda: forget(words, *values), "forgetting what was answered", ""))


MOST_KEYS = 300  # SQLite's limits of variables and of an expression's depth; the rest is forgotten after an hour


async def _answered_by(work: Handler, request: Any, caller: Caller) -> Message:
    return await work(request, caller)


def _id_of(request: Any) -> str:
    """Return the id of the task or sandbox that a request is about."""
    return str(request.sandbox_id if hasattr(request, "sandbox_id") else request.id)


def _may_be_kept(request: Any, answer: Message) -> bool:
    """Return whether the relay may give this answer again while exitd is away: it drops what a later change makes
    untrue by the request's bytes, and knows only the shortest."""
    if isinstance(answer, pb.ConnectResponse):
        return bool(answer.task_pid)
    return not (isinstance(request, sb.SandboxStatusRequest) and request.verbose)


def _of(connection: Connection) -> Relay:
    if connection.state is None:
        connection.state = Relay()
    state = connection.state
    assert isinstance(state, Relay)
    return state


def _caller(call: Call) -> Caller:
    """Raises CallFailed for a connection that has not sent hello."""
    relay = _of(call.connection)
    if relay.hello is None:
        raise CallFailed(Code.FAILED_PRECONDITION, "tasks are asked for through containerd-shim-exitd-v2")
    by = By(uid=call.peer.uid, pid=call.peer.pid)
    return Caller(relay.hello, key_of(relay.hello, call.stream), relay.again.pop(call.stream, 0), by)


def _is_us(peer: PeerCredentials) -> bool:
    return peer.uid in (0, os.geteuid())
