"""How a call can fail, as both sides see it."""

from collections.abc import Iterable

from google.protobuf.any_pb2 import Any

from supervisor.model.errors import Code


class CallFailed(Exception):
    """A call ended with an error code: the peer's answer, or this side's own (limit, size, no connection).

    A handler raises it to answer with that code. `code` is a google.rpc.Code; a peer may send numbers beyond it.
    """

    def __init__(self, code: int, text: str, details: Iterable[Any] = ()) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.details = tuple(details)

    def __str__(self) -> str:
        return f"{self.text} (code {int(self.code)})"


class Closed(CallFailed):
    """The connection has ended, or there never was one. It is not known whether the call took effect."""

    def __init__(self, text: str = "the connection has ended") -> None:
        super().__init__(Code.UNAVAILABLE, text)


def late(seconds: float) -> CallFailed:
    return CallFailed(Code.DEADLINE_EXCEEDED, f"no answer within {seconds:g} s")
