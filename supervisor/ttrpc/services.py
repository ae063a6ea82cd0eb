"""A server's table of methods: the messages that they take and return, and their handlers."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from google.protobuf.message import Message

from shim.frozen import frozen


class CallKind(Enum):
    """Which side sends more than one message."""

    UNARY = "unary"
    SERVER = "server"
    CLIENT = "client"
    BIDI = "bidi"

    def __init__(self, word: str) -> None:
        self.client_streams = word in ("client", "bidi")
        self.server_streams = word in ("server", "bidi")


@frozen
class Method:
    """`handler` by its kind, as in grpc.aio:

    UNARY:  async def handler(request, call) -> response
    SERVER: async def handler(request, call): yield response
    CLIENT: async def handler(requests, call) -> response     `requests` is an async iterator
    BIDI:   async def handler(requests, call): yield response
    """

    request_type: type[Message]
    response_type: type[Message]
    handler: Callable[[Any, Any], Any]
    kind: CallKind = CallKind.UNARY


Services = Mapping[str, Mapping[str, Method]]  # by the service's full name, then the method's bare one
