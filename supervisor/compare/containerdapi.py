"""containerd's own API over gRPC: the few calls that a comparison makes, with their messages packed by hand."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage

from protos.containerd import events_pb2, forward_pb2, process_pb2, runc_pb2, task_pb2
from supervisor.compare.machine import LIMIT_SECONDS, until

SERVICES = "containerd.services"
SPEC = "types.containerd.io/opencontainers/runtime-spec/1/Spec"
PROCESS = "types.containerd.io/opencontainers/runtime-spec/1/Process"
MARK = "/exitd/mark"
CALL_SECONDS = 120.0  # among a hundred others


def packed(*fields: tuple[int, str | bytes | int]) -> bytes:
    """Return a message of (number, value), as protobuf has it on the wire. Numbers are below 16."""
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


class ApiError(Exception):
    """containerd did not do it; the text is its own."""


class NoSuchTask(ApiError):
    """There is no such task, or no container of that name."""


class Api:
    """One connection to containerd's socket. For any number of threads."""

    def __init__(self, address: str, namespace: str, runc_root: str) -> None:
        self._metadata = (("containerd-namespace", namespace),)
        # Its own connection: a shared one goes on waiting after a containerd that is gone.
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.insecure_channel(f"unix:{address}", options)
        value = runc_pb2.Options(root=runc_root).SerializeToString()
        self._options = AnyMessage(type_url="containerd.runc.v1.Options", value=value).SerializeToString()

    def close(self) -> None:
        self._channel.close()

    def run(self, runtime: str, id: str, spec: dict[str, Any]) -> int:
        """Make a container with a task that runs, its streams nowhere. Return init's pid. Raises ApiError."""
        text = AnyMessage(type_url=SPEC, value=json.dumps(spec).encode()).SerializeToString()
        container = packed((1, id), (4, packed((1, runtime))), (5, text))
        self._call("containers.v1.Containers/Create", packed((1, container)))
        self._call("tasks.v1.Tasks/Create", packed((1, id), (9, self._options)))
        return task_pb2.StartResponse.FromString(self._call("tasks.v1.Tasks/Start", packed((1, id)))).pid

    def exec(self, id: str, exec_id: str, process: dict[str, Any]) -> None:
        """Run a process of runtime-spec in the task, its streams nowhere. Raises ApiError."""
        text = AnyMessage(type_url=PROCESS, value=json.dumps(process).encode()).SerializeToString()
        self._call("tasks.v1.Tasks/Exec", packed((1, id), (6, text), (7, exec_id)))
        self._call("tasks.v1.Tasks/Start", packed((1, id), (2, exec_id)))

    def exec_on_terminal(self, id: str, exec_id: str, process: dict[str, Any], output: str) -> Callable[[float], int]:
        """Run such a process on a terminal whose output goes into the fifo at the path `output`. Return what blocks for
        so many seconds at most until it has ended, deletes it and returns its code. Raises ApiError, TimeoutError."""
        on_terminal = {**process, "terminal": True}
        text = AnyMessage(type_url=PROCESS, value=json.dumps(on_terminal).encode()).SerializeToString()
        self._call("tasks.v1.Tasks/Exec", packed((1, id), (3, output), (5, 1), (6, text), (7, exec_id)))
        wait = self.begin_wait(id, exec_id)
        self._call("tasks.v1.Tasks/Start", packed((1, id), (2, exec_id)))

        def ended(seconds: float) -> int:
            code = wait(seconds)
            self._call("tasks.v1.Tasks/DeleteProcess", packed((1, id), (2, exec_id)))
            return code

        return ended

    def kill(self, id: str, signal: int) -> None:
        self._call("tasks.v1.Tasks/Kill", packed((1, id), (3, signal)))

    def remove(self, id: str) -> int:
        """Remove task and container, once its init has ended. Return the code that containerd has of it. Raises
        ApiError."""
        ended = self.begin_wait(id)(CALL_SECONDS)
        self._call("tasks.v1.Tasks/Delete", packed((1, id)))
        self._call("containers.v1.Containers/Delete", packed((1, id)))
        return ended

    def discard(self, id: str) -> bool:
        """Remove whatever there is of task and container. Return False if containerd has not noticed yet that the shim
        is gone."""
        for call in ("tasks.v1.Tasks/Delete", "containers.v1.Containers/Delete"):
            try:
                self._call(call, packed((1, id)))
            except NoSuchTask:
                continue
            except ApiError:
                return False
        return True

    def begin_wait(self, id: str, exec_id: str = "") -> Callable[[float], int]:
        """Begin a Wait. Return what blocks for the code, and raises NoSuchTask, ApiError, TimeoutError."""
        method = self._channel.unary_unary(f"/{SERVICES}.tasks.v1.Tasks/Wait", _as_it_is, _as_it_is)
        request = packed((1, id), (2, exec_id)) if exec_id else packed((1, id))
        pending = method.future(request, metadata=self._metadata)

        def wait(seconds: float) -> int:
            try:
                return task_pb2.WaitResponse.FromString(pending.result(seconds)).exit_status
            except grpc.FutureTimeoutError:
                pending.cancel()
                raise TimeoutError(f"no end of {id} is reported: not within {seconds:.0f} s") from None
            except grpc.RpcError as error:
                raise _refusal(error) from error

        return wait

    def runs(self, id: str) -> bool:
        """Return whether it runs, by containerd's word, which asks the shim. False also for one that it does not
        know."""
        try:
            reply = self._call("tasks.v1.Tasks/Get", packed((1, id)))
        except NoSuchTask:
            return False
        return process_pb2.Process.FromString(_only_field(reply)).status == process_pb2.RUNNING

    def answers(self) -> bool:
        method = self._channel.unary_unary(f"/{SERVICES}.version.v1.Version/Version", _as_it_is, _as_it_is)
        try:
            method(b"", timeout=LIMIT_SECONDS)
        except grpc.RpcError:
            return False
        return True

    def exits(self) -> "ExitFeed":
        return ExitFeed(self._channel, self._metadata)

    def _call(self, name: str, request: bytes) -> bytes:
        method = self._channel.unary_unary(f"/{SERVICES}.{name}", _as_it_is, _as_it_is)
        try:
            reply: bytes = method(request, metadata=self._metadata, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            raise _refusal(error) from error
        return reply


def _only_field(data: bytes) -> bytes:
    """Of a message that has one other in it and nothing else: behind its tag and its length."""
    at = 1
    while data[at] & 0x80:
        at += 1
    return data[at + 1 :]


def _refusal(error: grpc.RpcError) -> ApiError:
    kind = NoSuchTask if error.code() is grpc.StatusCode.NOT_FOUND else ApiError
    return kind(f"containerd: {error.details()}")


class ExitFeed:
    """A subscriber of containerd's events: when each init's exit was reported, and with which code."""

    def __init__(self, channel: grpc.Channel, metadata: tuple[tuple[str, str], ...]) -> None:
        self._exits: dict[str, tuple[float, int]] = {}
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
        """Return when the exit was read (time.perf_counter), and the code. Raises TimeoutError."""
        with self._news:
            if not self._news.wait_for(lambda: id in self._exits, LIMIT_SECONDS):
                raise TimeoutError(f"no exit of {id}: not within {LIMIT_SECONDS:.0f} s")
            return self._exits.pop(id)

    def heard(self, id: str) -> int | None:
        """Return the code, if the exit was reported by now."""
        with self._news:
            return self._exits[id][1] if id in self._exits else None

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
                exit = events_pb2.TaskExit.FromString(envelope.event.value)
                if exit.id == exit.container_id:
                    with self._news:
                        self._exits[exit.id] = (at, exit.exit_status)
                        self._news.notify_all()
        except grpc.RpcError as error:
            if error.code() not in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE):  # closed, or it was killed
                raise


def _as_it_is(data: bytes) -> bytes:
    return data
