"""What exitctl gets of a call that takes its time: replies as they come, or one that is waited for."""

from collections.abc import Iterator
from typing import Any, Protocol

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.model import errors
from supervisor.model.errors import ExitdError
from supervisor.model.status import Exited, ExitStatus, Signaled, Unknown


class AnswerSource(Protocol):
    """Yields the replies of a call, whatever carries it. Ends or raises ExitdError."""

    def __next__(self) -> Any: ...
    def cancel(self) -> None:
        """End the call. May be called from any thread."""


class Answer(Protocol):
    """The one reply of a call, whatever carries it."""

    def result(self, seconds: float | None) -> Any | None:
        """Wait for the reply; None once the call is cancelled. Raises ExitdError; TimeoutError after `seconds`."""

    def cancel(self) -> None:
        """End the call. May be called from any thread."""


class AnswerStream(Iterator[Any]):
    """Yields replies as they come. Ends quietly when cancelled."""

    def __init__(self, source: AnswerSource) -> None:
        self._source = source
        self._cancelled = False

    def __next__(self) -> Any:
        try:
            return next(self._source)
        except ExitdError:
            if self._cancelled:
                raise StopIteration from None
            raise

    def cancel(self) -> None:
        """End the call. May be called from any thread."""
        self._cancelled = True
        self._source.cancel()


class Waiting:
    """A call that waits for an exit."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def result(self, seconds: float | None = None) -> pb.Exit | None:
        """Return the exit; None when there is none (a container removed before it ever ran).

        Raises TimedOut after `seconds`: the container goes on. Raises other failures as the daemon names them.
        """
        reply = self.reply(seconds)
        return reply.exit if reply.HasField("exit") else None

    def reply(self, seconds: float | None = None) -> pb.WaitReply:
        """Return the whole reply, which has the exits of a pod's members; an empty one after `cancel`. Raises as
        `result`."""
        try:
            reply: pb.WaitReply | None = self._answer.result(seconds)
        except TimeoutError:
            self._answer.cancel()
            raise errors.TimedOut(f"it had not happened after {seconds:g} s") from None
        return pb.WaitReply() if reply is None else reply

    def cancel(self) -> None:
        self._answer.cancel()


def status_of(exit_: pb.Exit) -> ExitStatus:
    """Return how it ended. A kind that this client does not know, or one without its number, is unknown: never a
    guess."""
    if exit_.kind == "exited" and exit_.HasField("code"):
        return Exited(exit_.code)
    if exit_.kind == "signaled" and exit_.HasField("signal"):
        return Signaled(exit_.signal, exit_.core)
    return Unknown(exit_.cause, exit_.number if exit_.HasField("number") else None)
