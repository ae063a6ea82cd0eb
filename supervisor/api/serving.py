"""The server's end of a service over gRPC, from the protobuf descriptor: no generated *_pb2_grpc.py.

gRPC would receive the request of a unary call by itself, without a bound. So to gRPC every method is one with a stream
of requests, which is the same on the wire, and its first request is received here.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from supervisor.api import details, table
from supervisor.api.unfinished import Context, Unfinished, later, refuse
from supervisor.model.errors import BadRequest

Behaviour = Callable[[Any, Context], Any]  # the descriptor knows which messages it takes and gives


def add(
    server: "grpc.aio.Server", servicer: object, service: ServiceDescriptor = table.EXITD, *, unfinished: Unfinished
) -> None:
    """Serve `service` with the methods of `servicer`. Raises AttributeError where it lacks a method of the table.

    The methods are not registered with gRPC one by one, as generated code does: grpc.aio has a task for each that is
    registered, and with every call it waits for all of them anew.
    """
    handlers = {method.name: _handler(method, getattr(servicer, method.name), unfinished) for method in service.methods}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))


def _handler(method: MethodDescriptor, behaviour: Behaviour, unfinished: Unfinished) -> Any:
    request, reply = table.classes(method)
    receiving = _streamed if method.client_streaming else _received
    make: Any = (
        grpc.stream_stream_rpc_method_handler if method.server_streaming else grpc.stream_unary_rpc_method_handler
    )
    return make(
        receiving(behaviour, unfinished),
        request_deserializer=request.FromString,
        response_serializer=reply.SerializeToString,
    )


def _received(behaviour: Behaviour, unfinished: Unfinished) -> Callable[[object, Context], Awaitable[Any]]:
    async def one(_: object, context: Context) -> Any:
        return await behaviour(await unfinished.request(context), context)

    return one


def _streamed(behaviour: Behaviour, unfinished: Unfinished) -> Callable[[object, Context], Awaitable[None]]:
    async def several(_: object, context: Context) -> None:
        await unfinished.streaming(context)
        try:
            requests = _requests(context, unfinished)
            if not inspect.isasyncgenfunction(behaviour):
                await behaviour(requests, context)
                return
            async for reply in behaviour(requests, context):
                await context.write(reply)
        except BadRequest as error:  # of a behaviour that does not refuse by itself
            await refuse(context, details.refusal(error))
        finally:
            unfinished.streamed()

    return several


async def _requests(context: Context, unfinished: Unfinished) -> AsyncIterator[Any]:
    """Give the requests of a call, none where the first does not come: then the call has its answer.

    Raises:
        BadRequest: a later one is no message of its kind. Who has begun with the first ends that, and refuses.
    """
    try:
        request = await unfinished.start(context)
    except grpc.aio.AbortError:
        return
    while request is not grpc.aio.EOF:
        yield request
        request = await later(context)
