"""The events that shims send to the program that started them: exitd takes containerd's place, on its own socket.

It must listen before a shim is started, and answers each event at once: a shim without an answer repeats an event, and
some drop it in the end.
"""

import os
from collections.abc import Callable

import structlog
from google.protobuf.any_pb2 import Any
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Message

from protos.containerd import events_pb2 as pb
from protos.containerd.forward_pb2 import ForwardRequest
from shim.frozen import frozen
from supervisor.model.errors import CannotStart
from supervisor.system.listening import peer_ceiling
from supervisor.ttrpc.server import Call, PeerCredentials, Server
from supervisor.ttrpc.services import Method

SERVICE = "containerd.services.events.ttrpc.v1.Events"
KNOWN: dict[str, type[Message]] = {
    each.DESCRIPTOR.full_name: each
    for each in (
        *(pb.TaskCreate, pb.TaskStart, pb.TaskExit, pb.TaskDelete, pb.TaskOOM, pb.TaskPaused, pb.TaskResumed),
        *(pb.TaskExecAdded, pb.TaskExecStarted, pb.TaskCheckpointed),
    )
}
SHOWN = 100  # characters of a shim's text in one line of the log

log = structlog.get_logger(__name__)


@frozen
class Happened:
    """One event. `event` is one of KNOWN. `at_ns` is from the shim's own clock, 0 if it gave none. The same event may
    come twice."""

    namespace: str
    topic: str
    event: Message
    at_ns: int


class Forwarding:
    """Calls `happened` for each event, in the order of each shim. Unknown and unreadable ones are only logged."""

    def __init__(self, happened: Callable[[Happened], None]) -> None:
        self._happened = happened
        method = Method(ForwardRequest, Empty, self._forward)
        self._server = Server({SERVICE: {"Forward": method}}, check=_is_us, ceiling=peer_ceiling)

    async def start(self, path: str) -> None:
        """Raises CannotStart."""
        try:
            await self._server.listen(path)
        except OSError as error:
            raise CannotStart(f"cannot listen on {path}: {error.strerror or error}") from error

    async def stop(self) -> None:
        """Repeatable."""
        await self._server.stop(0)

    async def _forward(self, request: ForwardRequest, call: Call) -> Empty:
        envelope = request.envelope
        event = unpacked(envelope.event)
        if event is None:
            words = {"topic": envelope.topic[:SHOWN], "type": envelope.event.type_url[:SHOWN], "pid": call.peer.pid}
            log.info("an event of a shim means nothing here", **words)
            return Empty()
        at_ns = envelope.timestamp.seconds * 10**9 + envelope.timestamp.nanos
        self._happened(Happened(envelope.namespace, envelope.topic, event, max(at_ns, 0)))
        return Empty()


def unpacked(packed: Any) -> Message | None:
    """Unpack, whatever precedes the name in the url. None: the kind is unknown, or it cannot be read."""
    kind = KNOWN.get(packed.type_url.rpartition("/")[2])
    try:
        return kind.FromString(packed.value) if kind is not None else None
    except DecodeError:
        return None


def _is_us(peer: PeerCredentials) -> bool:
    return peer.uid in (0, os.geteuid())
