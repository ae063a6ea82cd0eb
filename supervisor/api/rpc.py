"""The client's end of a service over gRPC, from the protobuf descriptor: no generated *_pb2_grpc.py. Not asyncio's."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from supervisor.api import table

if TYPE_CHECKING:
    import grpc.aio  # exitctl is synchronous and does not pay for asyncio

EXITD = table.EXITD

# A gRPC call object; which messages it takes and gives is known to the descriptor, not to the type checker.
Call = Callable[..., Any]


class Stub:
    """The client's end of a service: one attribute per method, callable with a request message, made when it is first
    asked for: a command uses one or two.

    The channel may be of grpc or grpc.aio; the calls behave as that library's do.
    """

    def __init__(self, channel: "grpc.Channel | grpc.aio.Channel", service: ServiceDescriptor = EXITD) -> None:
        self._channel, self._service = channel, service

    def __getattr__(self, name: str) -> Call:
        method = self._service.methods_by_name.get(name)
        if method is None:
            raise AttributeError(name)
        call = self.__dict__[name] = _call(self._channel, self._service, method)
        return call


def _call(channel: "grpc.Channel | grpc.aio.Channel", service: ServiceDescriptor, method: MethodDescriptor) -> Call:
    kind = f"{_kind(method.client_streaming)}_{_kind(method.server_streaming)}"
    request, reply = table.classes(method)
    make: Call = getattr(channel, kind)
    return cast(
        Call,
        make(
            f"/{service.full_name}/{method.name}",
            request_serializer=request.SerializeToString,
            response_deserializer=reply.FromString,
            _registered_method=True,
        ),
    )


def _kind(streaming: bool) -> str:
    return "stream" if streaming else "unary"
