"""What can go wrong with a call, as both ends see it."""

from collections.abc import Iterable

from google.protobuf.any_pb2 import Any

from supervisor.model.errors import Code


class CallFailed(Exception):
    """A call ended with a code: the peer's answer, or the same code by this end (limit, size, no connection).

    A handler raises it to answer so. `code` is a google.rpc.Code; a peer may have numbers beyond it.
    """

    def __init__(self, code: int, text: str, details: Iterable[Any] = ()) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.details = tuple(details)

    def __str__(self) -> str:
        return f"{self.text} (code {int(self.code)})"


class Closed(CallFailed):
    """The connection has ended, or there never was one. Whether the call had an effect is not known."""

    def __init__(self, text: str = "the connection has ended") -> None:
        super().__init__(Code.UNAVAILABLE, text)


def late(seconds: float) -> CallFailed:
    return CallFailed(Code.DEADLINE_EXCEEDED, f"no answer within {seconds:g} s")
