"""The service table behind ttrpc: the kernel says who asks, by SO_PEERCRED of the connection."""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from supervisor.api import health
from supervisor.api.calls import CallRefused, Calls, Method, Methods
from supervisor.api.table import EXITD, MUTATING, classes
from supervisor.model.errors import Code
from supervisor.model.values import By
from supervisor.ttrpc import services
from supervisor.ttrpc.faults import CallFailed
from supervisor.ttrpc.server import Call
from supervisor.ttrpc.services import CallKind, Services

KINDS = {(each.client_streams, each.server_streams): each for each in CallKind}


def table(methods: Methods, calls: Calls, state: health.HealthService) -> Services:
    """Return every method of service Exitd, with grpc.health.v1 beside it."""
    exitd = {}
    for method in EXITD.methods:
        make = _streaming if method.server_streaming else _unary
        handler = make(method.name, methods[method.name], calls)
        kind = KINDS[method.client_streaming, method.server_streaming]
        exitd[method.name] = services.Method(*classes(method), handler, kind)
    return {EXITD.full_name: exitd, health.SERVICE.full_name: _health(state)}


def failure_of(error: Exception) -> CallFailed | None:
    """Return the answer for an error; None for a bug of this door itself."""
    if isinstance(error, CallRefused):
        refusal = error.refusal
        return CallFailed(refusal.code, refusal.text, (refusal.info,))
    return error if isinstance(error, CallFailed) else None


def _unary(name: str, call: Method, calls: Calls) -> Callable[[Any, Call], Any]:
    async def unary(request: Any, under_way: Call) -> Any:
        return await calls.answer(name, call, request, lambda: _by(under_way), changes=name in MUTATING)

    return unary


def _streaming(name: str, call: Method, calls: Calls) -> Callable[[Any, Call], AsyncIterator[Any]]:
    async def streaming(request: Any, under_way: Call) -> AsyncIterator[Any]:
        with calls.answering(name, waits=True):
            async with aclosing(call(request, _by(under_way))) as replies:
                async for reply in replies:
                    yield reply

    return streaming


def _by(under_way: Call) -> By:
    return By(uid=under_way.peer.uid, pid=under_way.peer.pid)


def _health(state: health.HealthService) -> dict[str, services.Method]:
    async def check(request: Any, _: Call) -> Any:
        if request.service not in health.SERVICES:
            raise CallFailed(Code.NOT_FOUND, f"no service {request.service!r} here")
        return state.status(request.service)

    async def listing(request: Any, _: Call) -> Any:
        return await state.List(request, None)

    async def watch(request: Any, _: Call) -> AsyncIterator[Any]:
        async for status in state.changes(request.service):
            yield status

    handlers = {"Check": check, "List": listing, "Watch": watch}
    return {
        method.name: services.Method(
            *classes(method), handlers[method.name], KINDS[method.client_streaming, method.server_streaming]
        )
        for method in health.SERVICE.methods
    }
