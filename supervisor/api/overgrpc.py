"""exitctl's calls over gRPC: one synchronous channel to the daemon's socket."""

import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"  # both are read when grpc is imported
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
from google.protobuf.message import DecodeError

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.failures import translate
from supervisor.api.rpc import Stub
from supervisor.model.errors import ExitdError

GREETING_SECONDS = 2.0
DETAILS_KEY = "grpc-status-details-bin"
QUEUED = 4  # requests on their way; who writes more waits

Metadata = tuple[tuple[str, str], ...]
Fail = Callable[[grpc.RpcError], ExitdError]  # what a failed call means


class GrpcTransport:
    """One channel, for any number of calls at once."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._channel = grpc.insecure_channel(
            f"unix:{quote(path)}", options=[("grpc.max_receive_message_length", -1), ("grpc.enable_retries", 0)]
        )
        self._stub = Stub(self._channel)
        # gRPC does not say who calls. The kernel does, on a socket beside it: the token read there stands for
        # this process as long as that connection is open.
        self._introduction = os.path.join(os.path.dirname(path), "caller.sock")
        self._introducing = threading.Lock()
        self._identity, self._known = _introduce(self._introduction)
        self._introduces = self._identity is not None

    @property
    def _metadata(self) -> Metadata:
        """Return what stands for this process: introduced anew to a daemon that has been started meanwhile."""
        with self._introducing:
            if self._introduces and (self._identity is None or _is_over(self._identity)):
                if self._identity is not None:
                    self._identity.close()
                self._identity, self._known = _introduce(self._introduction)
            return self._known

    def close(self) -> None:
        self._channel.close()
        if self._identity is not None:
            self._identity.close()

    def call(self, method: str, request: Any, seconds: float) -> Any:
        try:
            return self._call(method)(request, timeout=seconds, metadata=self._metadata)
        except grpc.RpcError as error:
            raise self._fail(error) from error

    def stream(self, method: str, request: Any, seconds: float | None) -> "GrpcReplies":
        return GrpcReplies(self._call(method)(request, timeout=seconds, metadata=self._metadata), self._fail)

    def wait(self, request: pb.WaitRequest) -> "GrpcFuture":
        future = self._stub.Wait.future(request, metadata=self._metadata)  # type: ignore[attr-defined]
        return GrpcFuture(future, self._fail)

    def attach(self, start: pb.AttachStart) -> "GrpcLine":
        return self._line("Attach", pb.AttachRequest(start=start))

    def copy_to(self, start: pb.CopyToStart) -> "GrpcLine":
        return self._line("CopyTo", pb.CopyToRequest(start=start))

    def _line(self, method: str, first: Any) -> "GrpcLine":
        requests = _Requests(first)
        return GrpcLine(self._call(method)(requests, metadata=self._metadata), self._fail, requests)

    def _call(self, method: str) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(self._stub, method)
        return call

    def _fail(self, error: grpc.RpcError) -> ExitdError:
        return translate(error.code().value[0], error.details() or "", _details(error), self._path)


class GrpcReplies:
    """The replies of a call that streams."""

    def __init__(self, call: Any, fail: Fail) -> None:
        self._call = call
        self._fail = fail

    def __next__(self) -> Any:
        try:
            return next(self._call)
        except grpc.RpcError as error:
            raise self._fail(error) from error

    def cancel(self) -> None:
        self._call.cancel()


class GrpcFuture:
    """The one reply of a call that takes its time."""

    def __init__(self, future: Any, fail: Fail) -> None:
        self._future = future
        self._fail = fail

    def result(self, seconds: float | None) -> Any | None:
        try:
            return self._future.result(timeout=seconds)
        except grpc.FutureCancelledError:
            return None
        except grpc.FutureTimeoutError:
            raise TimeoutError from None
        except grpc.RpcError as error:
            raise self._fail(error) from error

    def cancel(self) -> None:
        self._future.cancel()


class GrpcLine(GrpcReplies):
    """A call both ways."""

    def __init__(self, call: Any, fail: Fail, requests: "_Requests") -> None:
        super().__init__(call, fail)
        self._requests = requests
        self.put, self.put_last, self.end = requests.put, requests.put_last, requests.end
        if not call.add_callback(requests.close):
            requests.close()


class _Requests(Iterator[Any]):
    """A short queue between who asks and gRPC's own thread, which takes the next one when the last has gone."""

    def __init__(self, first: Any) -> None:
        self._queue = deque([first])
        self._changed = threading.Condition()
        self._ended = False  # after what is queued
        self._closed = False  # at once

    def put(self, request: Any) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._ended or len(self._queue) < QUEUED)
            if self._closed or self._ended:
                return False
            self._queue.append(request)
            self._changed.notify_all()
            return True

    def put_last(self, request: Any, seconds: float) -> None:
        """Send the last request, and wait at most `seconds` for the end of the call."""
        with self._changed:
            self._queue.append(request)
            self._ended = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed, seconds)

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def close(self) -> None:
        """Note that the call is over, however it came to that."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __next__(self) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._ended or self._queue)
            if self._closed or not self._queue:
                raise StopIteration
            request = self._queue.popleft()
            self._changed.notify_all()
            return request


def _details(error: grpc.RpcError) -> tuple[Any, ...]:
    packed = next((item.value for item in error.trailing_metadata() or () if item.key == DETAILS_KEY), None)
    if not isinstance(packed, bytes):
        return ()
    # A module of messages that a call which succeeds can do without.
    from google.rpc import status_pb2  # type: ignore[import-untyped]  # ships no py.typed

    try:
        return tuple(status_pb2.Status.FromString(packed).details)
    except DecodeError:
        return ()


def _introduce(path: str) -> tuple[socket.socket | None, Metadata]:
    """The open connection that proves who we are, and the metadata that refers to it. None there: no proof is asked."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    connection.settimeout(GREETING_SECONDS)
    try:
        connection.connect(path)
        token = _line(connection)
    except OSError:
        token = ""
    if not token:
        connection.close()
        return None, ()
    return connection, (("exitd-caller", token),)


def _is_over(connection: socket.socket) -> bool:
    """Return whether the other side has ended the connection."""
    poll = select.poll()
    poll.register(connection, select.POLLIN | select.POLLRDHUP)
    return bool(poll.poll(0))


def _line(connection: socket.socket) -> str:
    received = b""
    while b"\n" not in received and len(received) < 256:
        chunk = connection.recv(256)
        if not chunk:
            break
        received += chunk
    token = received.split(b"\n")[0].strip()
    return token.decode("ascii") if token.isalnum() else ""
