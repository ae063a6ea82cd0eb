"""The events that a connection's core returns to its endpoint. They are tuples: nine dataclasses would cost a short
program more time than its call."""

from typing import NamedTuple

from google.protobuf.message import Message

from supervisor.ttrpc.faults import CallFailed
from supervisor.ttrpc.frames import Frame
from supervisor.ttrpc.services import Method

Metadata = tuple[tuple[str, str], ...]


class Send(NamedTuple):
    """Bytes to write now: the server's own refusal of something."""

    data: bytes


class Opened(NamedTuple):
    """A call. `request` is None if the client sends a stream. `timeout_ns`: 0 no limit, negative: already passed."""

    stream: int
    name: str  # service/method
    method: Method
    request: Message | None
    timeout_ns: int
    metadata: Metadata


class Received(NamedTuple):
    """The next message of a stream; `size` is its number of bytes."""

    stream: int
    message: Message
    size: int


class StreamEnded(NamedTuple):
    """The peer's stream has ended. For a client this means that the call succeeded."""

    stream: int


class Aborted(NamedTuple):
    """The client broke the rules of this stream and was sent an error; it gets no other answer."""

    stream: int


class Foreign(NamedTuple):
    """A frame of a private type."""

    frame: Frame


class Replied(NamedTuple):
    """The one response of a unary or client-streaming call."""

    stream: int
    message: Message
    flags: int


class Failed(NamedTuple):
    """The call has ended with an error."""

    stream: int
    error: CallFailed


ServerEvent = Send | Opened | Received | StreamEnded | Aborted | Foreign
ClientEvent = Replied | Received | StreamEnded | Failed


def nanoseconds(seconds: float | None) -> int:
    """Return a limit in the form of a request, where 0 means none."""
    return 0 if seconds is None else max(1, min(int(seconds * 1e9), 2**63 - 1))
