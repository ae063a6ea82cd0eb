"""exitctl's calls over ttrpc, without an event loop: unary ones share connections, all others have one each."""

import os
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from protos.exitd.v1 import exitd_pb2 as pb
from shim.undo import undone_on_failure
from supervisor.api.failures import translate
from supervisor.api.table import EXITD, MUTATING, classes
from supervisor.model.errors import Code, ExitdError, ShuttingDown
from supervisor.ttrpc.blocking import BlockingClient
from supervisor.ttrpc.faults import CallFailed
from supervisor.ttrpc.services import CallKind
from supervisor.ttrpc.single import SingleCall


class TtrpcTransport:
    """`path` is the socket, `address` the daemon's as people name it; both are in one directory."""

    def __init__(self, path: str, address: str, otherwise: Callable[[str], Any]) -> None:
        """`otherwise` makes the transport for a reply that no ttrpc frame can hold."""
        self._path = path
        self._address = address
        self._otherwise = otherwise
        self._idle: list[BlockingClient] = []
        self._open: WeakSet[SingleCall[Any]] = WeakSet()
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, calls = self._idle, list(self._open)
            self._idle = []
        for client in idle:
            client.close()
        for call in calls:
            call.cancel()

    def call(self, method: str, request: Any, seconds: float) -> Any:
        try:
            return self._called(method, request, seconds)
        except CallFailed as error:
            if error.code == Code.RESOURCE_EXHAUSTED and not error.details and method not in MUTATING:
                return self._call_otherwise(method, request, seconds)
            raise self._fail(error) from error

    def stream(self, method: str, request: Any, seconds: float | None) -> "TtrpcReplies":
        return TtrpcReplies(self._begin(method, CallKind.SERVER, request, seconds), self._fail)

    def wait(self, request: pb.WaitRequest) -> "TtrpcFuture":
        return TtrpcFuture(self._begin("Wait", CallKind.UNARY, request, None), self._fail)

    def attach(self, start: pb.AttachStart) -> "TtrpcLine":
        line = TtrpcLine(self._begin("Attach", CallKind.BIDI, None, None), self._fail)
        line.put(pb.AttachRequest(start=start))
        return line

    def copy_to(self, start: pb.CopyToStart) -> "TtrpcLine":
        line = TtrpcLine(self._begin("CopyTo", CallKind.BIDI, None, None), self._fail)
        line.put(pb.CopyToRequest(start=start))
        return line

    def _called(self, method: str, request: Any, seconds: float) -> Any:
        """A connection on which something went wrong is not used again."""
        client = self._take()
        with undone_on_failure(client.close):
            reply = client.call(_name(method), request, _reply_type(method), seconds)
        with self._lock:
            if not self._closed:
                self._idle.append(client)
                return reply
        client.close()
        return reply

    def _take(self) -> BlockingClient:
        """One that the daemon has not ended meanwhile, or a new one."""
        while True:
            with self._lock:
                client = self._idle.pop() if self._idle else None
            if client is None:
                return BlockingClient(self._path)
            if client.is_fresh():
                return client
            client.close()

    def _call_otherwise(self, method: str, request: Any, seconds: float) -> Any:
        transport = self._otherwise(os.path.join(os.path.dirname(self._path), "exitd.sock"))
        try:
            return transport.call(method, request, seconds)
        finally:
            transport.close()

    def _begin(self, method: str, kind: CallKind, request: Any, seconds: float | None) -> SingleCall[Any]:
        try:
            call = SingleCall(self._path, _name(method), kind, _reply_type(method), request, seconds=seconds)
        except CallFailed as error:
            raise self._fail(error) from error
        self._open.add(call)
        return call

    def _fail(self, error: CallFailed) -> ExitdError:
        if error.code == Code.CANCELLED:  # by the server, which does so at its end only
            return ShuttingDown("the daemon has stopped in the middle of its answer; ask again when it is back")
        return translate(error.code, error.text, error.details, self._address)


Fail = Callable[[CallFailed], ExitdError]  # what a failed call means


class TtrpcReplies:
    """The replies of a call that streams."""

    def __init__(self, call: SingleCall[Any], fail: Fail) -> None:
        self._call = call
        self._fail = fail

    def __next__(self) -> Any:
        try:
            reply = self._call.receive()
        except CallFailed as error:
            raise self._fail(error) from error
        if reply is None:
            raise StopIteration
        return reply

    def cancel(self) -> None:
        self._call.cancel()


class TtrpcFuture:
    """The one reply of a call that takes its time. It may be asked for again."""

    def __init__(self, call: SingleCall[Any], fail: Fail) -> None:
        self._call = call
        self._fail = fail
        self._reply: Any | None = None

    def result(self, seconds: float | None) -> Any | None:
        if self._reply is None:
            try:
                self._reply = self._call.receive(seconds)
            except CallFailed as error:
                raise self._fail(error) from error
        return self._reply

    def cancel(self) -> None:
        self._call.cancel()


class TtrpcLine(TtrpcReplies):
    """A call both ways."""

    def put(self, request: Any) -> bool:
        return self._call.send(request)

    def put_last(self, request: Any, seconds: float) -> None:
        self._call.send_last(request, seconds)

    def end(self) -> None:
        self._call.end()


def _name(method: str) -> str:
    return f"{EXITD.full_name}/{method}"


def _reply_type(method: str) -> Any:
    return classes(EXITD.methods_by_name[method])[1]
