"""containerd's own API over gRPC: the few calls that the bench makes, with their messages packed by hand."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage

from bench.machine import LIMIT_SECONDS, until
from protos.containerd import events_pb2, forward_pb2, runc_pb2, task_pb2

SERVICES = "containerd.services"
SPEC = "types.containerd.io/opencontainers/runtime-spec/1/Spec"
MARK = "/exitd/mark"
CALL_SECONDS = 120.0  # among a hundred others


def packed(*fields: tuple[int, str | bytes | int]) -> bytes:
    """A message of (number, value), as protobuf has it on the wire. Numbers are below 16."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += bytes([number << 3]) + _varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += bytes([number << 3 | 2]) + _varint(len(data)) + data
    return out


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


class Api:
    """One connection to containerd's socket. For any number of threads."""

    def __init__(self, address: str, namespace: str, runc_root: str) -> None:
        self._metadata = (("containerd-namespace", namespace),)
        self._channel = grpc.insecure_channel(f"unix:{address}")
        options = runc_pb2.Options(root=runc_root).SerializeToString()
        self._options = AnyMessage(type_url="containerd.runc.v1.Options", value=options).SerializeToString()

    def close(self) -> None:
        self._channel.close()

    def run(self, runtime: str, id: str, spec: dict[str, Any]) -> int:
        """A container with a task that runs, its streams nowhere; init's pid."""
        text = AnyMessage(type_url=SPEC, value=json.dumps(spec).encode()).SerializeToString()
        container = packed((1, id), (4, packed((1, runtime))), (5, text))
        self._call("containers.v1.Containers/Create", packed((1, container)))
        self._call("tasks.v1.Tasks/Create", packed((1, id), (9, self._options)))
        return task_pb2.StartResponse.FromString(self._call("tasks.v1.Tasks/Start", packed((1, id)))).pid

    def kill(self, id: str, signal: int) -> None:
        self._call("tasks.v1.Tasks/Kill", packed((1, id), (3, signal)))

    def remove(self, id: str) -> int:
        """Task and container, once its init has ended; the code that containerd has of it."""
        ended = task_pb2.WaitResponse.FromString(self._call("tasks.v1.Tasks/Wait", packed((1, id))))
        self._call("tasks.v1.Tasks/Delete", packed((1, id)))
        self._call("containers.v1.Containers/Delete", packed((1, id)))
        return ended.exit_status

    def exits(self) -> "Exits":
        return Exits(self._channel, self._metadata)

    def _call(self, name: str, request: bytes) -> bytes:
        method = self._channel.unary_unary(f"/{SERVICES}.{name}", _as_it_is, _as_it_is)
        reply: bytes = method(request, metadata=self._metadata, timeout=CALL_SECONDS)
        return reply


class Exits:
    """Who is subscribed to containerd's events: when each init's exit was told, and with which code."""

    def __init__(self, channel: grpc.Channel, metadata: tuple[tuple[str, str], ...]) -> None:
        self._told: dict[str, tuple[float, int]] = {}
        self._marked = False
        self._news = threading.Condition()
        topics = f'topic=="{MARK}"', 'topic=="/tasks/exit"'
        subscribe = channel.unary_stream(f"/{SERVICES}.events.v1.Events/Subscribe", _as_it_is, _as_it_is)
        self._stream = subscribe(packed(*((1, topic) for topic in topics)), metadata=metadata)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        publish = channel.unary_unary(f"/{SERVICES}.events.v1.Events/Publish", _as_it_is, _as_it_is)
        event = AnyMessage(type_url="containerd.events.TaskOOM").SerializeToString()
        # A subscription has no answer that says when it counts.
        until(
            lambda: self._marked_by(publish, packed((1, MARK), (2, event)), metadata), "containerd's events", step=0.01
        )

    def of(self, id: str) -> tuple[float, int]:
        """When it was read (time.perf_counter), and the code."""
        with self._news:
            if not self._news.wait_for(lambda: id in self._told, LIMIT_SECONDS):
                raise TimeoutError(f"no exit of {id}: not within {LIMIT_SECONDS:.0f} s")
            return self._told.pop(id)

    def close(self) -> None:
        self._stream.cancel()
        self._thread.join(LIMIT_SECONDS)

    def _marked_by(self, publish: Callable[..., bytes], request: bytes, metadata: tuple[tuple[str, str], ...]) -> bool:
        publish(request, metadata=metadata, timeout=LIMIT_SECONDS)
        return self._marked

    def _read(self) -> None:
        try:
            for data in self._stream:
                at = time.perf_counter()
                envelope = forward_pb2.Envelope.FromString(data)  # the same message as the subscribers'
                if envelope.topic == MARK:
                    self._marked = True
                    continue
                told = events_pb2.TaskExit.FromString(envelope.event.value)
                if told.id == told.container_id:
                    with self._news:
                        self._told[told.id] = (at, told.exit_status)
                        self._news.notify_all()
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.CANCELLED:
                raise


def _as_it_is(data: bytes) -> bytes:
    return data
