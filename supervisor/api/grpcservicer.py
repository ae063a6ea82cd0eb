"""The service table behind gRPC: a token says who asks, trailing metadata why a call is refused."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

from supervisor.api.callers import METADATA_KEY, Callers
from supervisor.api.calls import CallRefused, Calls, Method, Methods
from supervisor.api.table import EXITD, MUTATING
from supervisor.api.unfinished import Context, refuse
from supervisor.model.errors import NotPermitted
from supervisor.model.values import By


def servicer(methods: Methods, calls: Calls, callers: Callers | None) -> SimpleNamespace:
    """Return a gRPC servicer with every method of the service table."""
    behaviours = SimpleNamespace()
    for method in EXITD.methods:
        make = _streaming if method.server_streaming else _unary
        setattr(behaviours, method.name, make(method.name, methods[method.name], calls, callers))
    return behaviours


def _unary(name: str, call: Method, calls: Calls, callers: Callers | None) -> Callable[[Any, Context], Awaitable[Any]]:
    async def unary(request: Any, context: Context) -> Any:
        try:
            return await calls.answer(name, call, request, lambda: _by(context, callers), changes=name in MUTATING)
        except CallRefused as refused:
            refusal = refused.refusal
        await refuse(context, refusal)

    return unary


def _streaming(
    name: str, call: Method, calls: Calls, callers: Callers | None
) -> Callable[[Any, Context], Awaitable[None]]:
    async def streaming(request: Any, context: Context) -> None:
        try:
            with calls.answering(name, waits=True):
                # Closed here and now when the peer goes away, not whenever the garbage is collected.
                async with aclosing(call(request, _by(context, callers))) as replies:
                    async for reply in replies:
                        await context.write(reply)
            return
        except CallRefused as refused:
            refusal = refused.refusal
        await refuse(context, refusal)

    return streaming


def _by(context: Context, callers: Callers | None) -> By:
    """Empty when the peer shows no token: the socket's permissions have let it in."""
    metadata = context.invocation_metadata() or ()
    token = next((value for key, value in metadata if key == METADATA_KEY), None)
    if token is None or callers is None:
        return By()
    by = callers.lookup(token.decode("ascii", "replace") if isinstance(token, bytes) else token)
    if by is None:
        raise NotPermitted(f"the {METADATA_KEY} token is not valid (any more): its connection has to stay open")
    return by
