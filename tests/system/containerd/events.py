"""What a containerd sends its subscribers: its events, in their order, read over gRPC."""

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar

import grpc

from tests.system.containerd.wiretable import Table, plain
from tests.system.waits import LIMIT_SECONDS, until

T = TypeVar("T")
SERVICE = "/containerd.services.events.v1.Events"
WIRE = Table(
    "containerd.services.events.v1",
    """
    SubscribeRequest: filters 1 *string
    PublishRequest: topic 1 string, event 2 any
    Envelope: timestamp 1 time, namespace 2 string, topic 3 string, event 4 any
    """,
)
EVENTS = Table(
    "containerd.events",
    """
    Mount: type 1 string, source 2 string, target 3 string, options 4 *string
    TaskIO: stdin 1 string, stdout 2 string, stderr 3 string, terminal 4 bool
    TaskCreate: container_id 1 string, bundle 2 string, rootfs 3 *Mount, io 4 TaskIO, checkpoint 5 string, pid 6 uint32
    TaskStart: container_id 1 string, pid 2 uint32
    TaskDelete: container_id 1 string, pid 2 uint32, exit_status 3 uint32, exited_at 4 time, id 5 string
    TaskExit: container_id 1 string, id 2 string, pid 3 uint32, exit_status 4 uint32, exited_at 5 time
    TaskOOM: container_id 1 string
    TaskExecAdded: container_id 1 string, exec_id 2 string
    TaskExecStarted: container_id 1 string, exec_id 2 string, pid 3 uint32
    TaskPaused: container_id 1 string
    TaskResumed: container_id 1 string
    TaskCheckpointed: container_id 1 string, checkpoint 2 string
    """,
)
MARK = "/exitd/mark"
ENDS = ("/tasks/exit", "/tasks/delete")


def once(sent: list[T], topic_of: Callable[[T], str]) -> list[T]:
    """Without what was sent twice in a row: where a relay was killed it is not known whether its last event was sent,
    and exitd sends it again. The events of an end come once, and stay."""
    following = itertools.pairwise([None, *sent])
    return [one for before, one in following if one is not None and (one != before or topic_of(one) in ENDS)]


@dataclass(frozen=True)
class Event:
    topic: str
    fields: dict[str, Any]  # those that are set
    seconds: float = field(compare=False)  # when the shim says that it was
    data: bytes = field(compare=False, default=b"")  # the event's own message

    @property
    def container(self) -> str:
        return str(self.fields.get("container_id", ""))


class Recorder:
    """Records from its making on, until it is closed or containerd ends."""

    def __init__(self, address: str, namespace: str) -> None:
        self._channel = grpc.insecure_channel(f"unix:{address}")
        self._metadata = (("containerd-namespace", namespace),)
        self._marks, self._seen = itertools.count(1), 0
        self._events: list[Event] = []
        subscribe = self._channel.unary_stream(f"{SERVICE}/Subscribe", _bytes, WIRE.Envelope.FromString)
        self._stream = subscribe(
            WIRE.SubscribeRequest(filters=[f"namespace=={namespace},topic~=^/(tasks|exitd)/"]), metadata=self._metadata
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        until(lambda: self._mark() <= self._seen, "containerd does not tell of events")

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stream.cancel()
        self._thread.join(LIMIT_SECONDS)
        self._channel.close()

    def of(self, container: str) -> list[Event]:
        return [event for event in self._events if event.container == container]

    def wait(self, container: str, topic: str, count: int = 1) -> list[Event]:
        """All of a container, once it has that many of this topic."""
        until(
            lambda: sum(event.topic == topic for event in self.of(container)) >= count,
            f"no {topic} of {container}",
        )
        return self.of(container)

    @property
    def has_ended(self) -> bool:
        """containerd has gone, and no event comes any more."""
        return not self._thread.is_alive()

    def all(self) -> list[Event]:
        return list(self._events)

    def settled(self) -> "Recorder":
        """Everything that containerd had until now has been read."""
        mark = self._mark()
        until(lambda: mark <= self._seen, "containerd tells no more events")
        return self

    def _mark(self) -> int:
        """Publishes one of our own; its number. A subscription has no answer that says when it counts."""
        number = next(self._marks)
        publish = self._channel.unary_unary(f"{SERVICE}/Publish", _bytes, lambda data: data)
        request = WIRE.PublishRequest(topic=f"{MARK}/n{number}")
        request.event.type_url = "containerd.events.TaskOOM"
        publish(request, metadata=self._metadata, timeout=LIMIT_SECONDS)
        return number

    def _read(self) -> None:
        try:
            for envelope in self._stream:
                if envelope.topic.startswith(MARK):
                    self._seen = int(envelope.topic.rpartition("/n")[2])
                    continue
                told = getattr(EVENTS, envelope.event.type_url.removeprefix("containerd.events."))
                fields = plain(told.FromString(envelope.event.value))
                self._events.append(Event(envelope.topic, fields, plain(envelope)["timestamp"], envelope.event.value))
        except grpc.RpcError as error:
            if error.code() not in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE):  # we, or it, went away
                raise


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())
