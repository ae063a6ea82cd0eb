"""exitctl's end of an attach: input from any thread, replies by iteration, each side held up by the other."""

from types import TracebackType
from typing import Protocol, Self

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.answers import AnswerSource, AnswerStream

CHUNK_BYTES = 64 * 1024
LEAVE_SECONDS = 2.0  # the daemon's own limit comes first


class Line(AnswerSource, Protocol):
    """A call both ways, whatever carries it. Begun with its first request."""

    def put(self, request: pb.AttachRequest) -> bool:
        """Send a request. Waits while the daemon does not read. Return False if the call is over."""

    def put_last(self, request: pb.AttachRequest, seconds: float) -> None:
        """Send the last request, and wait at most `seconds` for the end of the call."""

    def end(self) -> None:
        """Send no more requests."""


class Attachment(AnswerStream):
    """What is attached to a container's standard streams, from `Client.attach` until its output or `cancel` ends it.

    Iterate over the replies in one thread: `stdout`, `stderr` (bytes) and `dropped` (a total), told apart by
    `reply.WhichOneof("item")`. They end when the container's output does. All methods may be called from any thread;
    each but `cancel` waits while the container does not read, and returns False when the attach is over: the container
    will never get that. Everything arrives in the order of the calls; where a resize must not wait behind input, there
    is `Client.resize`.

    `cancel` detaches: the iteration ends quietly, the container goes on.

    `tty` and `stdin` are the daemon's word on what the container has; without `stdin`, input is let fall.
    """

    def __init__(self, line: Line) -> None:
        """Return once it is attached. Raises ExitdError when it is not."""
        super().__init__(line)
        self._line = line
        first = next(self, None)
        self.started: pb.AttachStarted = pb.AttachStarted() if first is None else first.started
        self.tty = first is not None and first.started.tty
        self.stdin = first is not None and first.started.stdin

    def write(self, data: bytes) -> bool:
        """Send input to the container. Return False if the attach is over."""
        parts = (data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES))
        return all(self._line.put(pb.AttachRequest(stdin=part)) for part in parts)

    def resize(self, rows: int, cols: int) -> bool:
        return self._line.put(pb.AttachRequest(resize=pb.Winsize(rows=rows, cols=cols)))

    def close_stdin(self) -> bool:
        """Close the container's stdin behind what was written so far."""
        return self._line.put(pb.AttachRequest(close_stdin=True))

    def end_input(self) -> None:
        """Send no more input from here. The container's stdin stays open for others, and the replies go on."""
        self._line.end()

    def leave(self) -> None:
        """Detach as `cancel` does, but deliver what was written before, if the container takes it within a moment."""
        self._cancelled = True
        self._line.put_last(pb.AttachRequest(detach=True), LEAVE_SECONDS)
        self._line.cancel()

    def __next__(self) -> pb.AttachReply:
        reply: pb.AttachReply = super().__next__()
        return reply

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()
