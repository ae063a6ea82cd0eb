"""exitctl's end of CopyTo: the parts of a tar go out while the daemon takes them, and its answer comes back."""

from collections.abc import Iterable
from typing import Protocol

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.answers import AnswerSource
from supervisor.model.errors import ShimFailed

PART_BYTES = 128 << 10


class CopyLine(AnswerSource, Protocol):
    """A CopyTo under way, whatever carries it. Begun with its first request."""

    def put(self, request: pb.CopyToRequest) -> bool:
        """Send a request. Waits while the daemon does not read. Return False if the call is over."""

    def end(self) -> None:
        """Send no more requests."""


def copied(line: CopyLine, parts: Iterable[bytes]) -> pb.CopyDone:
    """Send all parts once the daemon has the directory, and return its last reply. What `parts` raises ends the call.
    Raises ExitdError."""
    try:
        next(line)  # `started`, or why not
        if _send(line, parts):
            line.put(pb.CopyToRequest(finished=True))
            line.end()
        reply: pb.CopyToReply | None = next(line, None)
    finally:
        line.cancel()
    if reply is None or not reply.HasField("done"):
        raise ShimFailed("the copy ended without an answer of the daemon's")
    return reply.done


def _send(line: CopyLine, parts: Iterable[bytes]) -> bool:
    """Return False if the daemon takes no more: its answer says why."""
    return all(
        line.put(pb.CopyToRequest(data=part[at : at + PART_BYTES]))
        for part in parts
        for at in range(0, len(part), PART_BYTES)
    )
