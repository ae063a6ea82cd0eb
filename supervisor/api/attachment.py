"""exitctl's end of an attach: input from any thread, replies by iteration, each side held up by the other."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import grpc

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.errors import ExitdError

CHUNK_BYTES = 64 * 1024
QUEUED = 4  # requests on their way; who writes more waits
LEAVE_SECONDS = 2.0  # the daemon's own limit comes first


class Attachment(Iterator[pb.AttachReply]):
    """What is attached to a container's standard streams, from `Client.attach` until its output or `cancel` ends it.

    Iterate over the replies in one thread: `stdout`, `stderr` (bytes) and `dropped` (a total), told apart by
    `reply.WhichOneof("item")`. They end when the container's output does. All methods may be called from any thread;
    each but `cancel` waits while the container does not read, and returns False when the attach is over: nobody will
    ever get that. Everything arrives in the order of the calls; where a resize must not wait behind input, there is
    `Client.resize`.

    `tty` and `stdin` are the daemon's word on what the container has; without `stdin`, input is let fall.
    """

    def __init__(self, start: pb.AttachStart, call: Callable[[Iterator[pb.AttachRequest]], Any], fail: "Fail") -> None:
        """`call` begins it. Returns once it is attached; raises ExitdError when it is not."""
        self._requests = _Requests(pb.AttachRequest(start=start))
        self._call = call(self._requests)
        self._fail = fail
        self._cancelled = False
        if not self._call.add_callback(self._requests.close):
            self._requests.close()
        first = next(self, None)
        self.tty = first is not None and first.started.tty
        self.stdin = first is not None and first.started.stdin

    def write(self, data: bytes) -> bool:
        """Input for the container."""
        parts = (data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES))
        return all(self._requests.put(pb.AttachRequest(stdin=part)) for part in parts)

    def resize(self, rows: int, cols: int) -> bool:
        return self._requests.put(pb.AttachRequest(resize=pb.Winsize(rows=rows, cols=cols)))

    def close_stdin(self) -> bool:
        """The container reads an end of file behind what was written so far."""
        return self._requests.put(pb.AttachRequest(close_stdin=True))

    def end_input(self) -> None:
        """Nothing more comes from here; the container's input stays open for others. The replies go on."""
        self._requests.end()

    def leave(self) -> None:
        """Detaches as `cancel` does, but what was written before arrives, if the container takes it within a moment."""
        self._cancelled = True
        self._requests.put_last(pb.AttachRequest(detach=True), LEAVE_SECONDS)
        self._call.cancel()

    def cancel(self) -> None:
        """Detaches: the iteration ends quietly, the container goes on."""
        self._cancelled = True
        self._call.cancel()

    def __next__(self) -> pb.AttachReply:
        try:
            reply: pb.AttachReply = next(self._call)
            return reply
        except grpc.RpcError as error:
            if self._cancelled:
                raise StopIteration from None
            raise self._fail(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()


Fail = Callable[[grpc.RpcError], ExitdError]


class _Requests(Iterator[pb.AttachRequest]):
    """A short queue between who asks and gRPC's own thread, which takes the next one when the last has gone."""

    def __init__(self, first: pb.AttachRequest) -> None:
        self._queue = deque([first])
        self._changed = threading.Condition()
        self._ended = False  # after what is queued
        self._closed = False  # at once

    def put(self, request: pb.AttachRequest) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._ended or len(self._queue) < QUEUED)
            if self._closed or self._ended:
                return False
            self._queue.append(request)
            self._changed.notify_all()
            return True

    def put_last(self, request: pb.AttachRequest, seconds: float) -> None:
        """And waits that long for the end of the call."""
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
        """The call is over, however it came to that."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __next__(self) -> pb.AttachRequest:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._ended or self._queue)
            if self._closed or not self._queue:
                raise StopIteration
            request = self._queue.popleft()
            self._changed.notify_all()
            return request
