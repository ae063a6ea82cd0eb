"""The RPC door: runs a method for a gRPC call, finds out who asks, and turns what goes wrong into a status.

Here stands the one `except Exception` of the API. A cancelled call stays cancelled, except at shutdown, when the peer
is told why.
"""

import asyncio
import errno
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any, Never, TypeAlias, cast

import grpc
import grpc.aio
import structlog

from supervisor.api import details
from supervisor.api.callers import METADATA_KEY, Callers
from supervisor.api.rpc import EXITD
from supervisor.errors import Busy, ExitdError, NotPermitted, ShuttingDown
from supervisor.facts import By

MAX_WORK = 4096  # mutating calls under way at once
USED_UP = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})  # EAGAIN: no more processes
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"  # generic only in its stubs
Method = Callable[[Any, By], Any]  # which messages it takes and gives is known to the descriptor

_STATUS = {status.value[0]: status for status in grpc.StatusCode}

log = structlog.get_logger(__name__)


class Calls:
    """The calls under way. What changes something runs to its end even when the peer has gone."""

    def __init__(self, callers: Callers | None, max_work: int = MAX_WORK) -> None:
        self._callers = callers
        self._max_work = max_work
        self._work: set[asyncio.Task[Any]] = set()
        self._waiting: set[asyncio.Task[Any]] = set()
        self._closing = False

    def bind(self, doors: object, mutating: frozenset[str]) -> SimpleNamespace:
        """A gRPC behaviour for every method of the service table; `doors` has each as `name(request, by)`."""
        behaviours = SimpleNamespace()
        for method in EXITD.methods:
            call: Method = getattr(doors, method.name)
            if method.server_streaming:
                behaviour = self._streaming(method.name, call)
            else:
                behaviour = self._unary(method.name, call, changes=method.name in mutating)
            setattr(behaviours, method.name, behaviour)
        return behaviours

    async def close(self, grace_seconds: float) -> None:
        """Refuses new work, sends away who waits, and gives what is under way `grace_seconds` to end."""
        self._closing = True
        for task in tuple(self._waiting):
            task.cancel()
        if self._work:
            _, late = await asyncio.wait(tuple(self._work), timeout=grace_seconds)
            for task in late:
                task.cancel()
            if late:
                log.warning("gave up on calls at shutdown", calls=len(late), grace_seconds=grace_seconds)
                await asyncio.wait(late, timeout=1.0)

    def _unary(self, name: str, call: Method, *, changes: bool) -> Callable[[Any, Context], Awaitable[Any]]:
        async def unary(request: Any, context: Context) -> Any:
            async def answer() -> Any:
                by = self._caller(context)
                return await (self._to_its_end(call, request, by) if changes else call(request, by))

            return await self._answered(name, context, answer(), waits=not changes)

        return unary

    def _streaming(self, name: str, call: Method) -> Callable[[Any, Context], Awaitable[None]]:
        async def streaming(request: Any, context: Context) -> None:
            async def answer() -> None:
                replies: AsyncIterator[Any] = call(request, self._caller(context))
                # Closed here and now when the peer goes away, not whenever the garbage is collected.
                async with aclosing(cast(AsyncGenerator[Any, None], replies)):
                    async for reply in replies:
                        await context.write(reply)

            await self._answered(name, context, answer(), waits=True)

        return streaming

    async def _answered(self, name: str, context: Context, answer: Coroutine[Any, Any, Any], *, waits: bool) -> Any:
        task = asyncio.current_task()
        assert task is not None
        if waits:
            self._waiting.add(task)
        try:
            return await answer
        except asyncio.CancelledError:
            if not self._closing:
                raise
            refusal = details.refusal(_shutting_down())
        except ExitdError as error:
            log.debug("refused", call=name, reason=error.reason, text=str(error))
            refusal = details.refusal(error)
        except Exception as error:
            refusal = _unexpected(name, error)
        finally:
            self._waiting.discard(task)
        await _abort(context, refusal)

    async def _to_its_end(self, call: Method, request: Any, by: By) -> Any:
        if self._closing:
            raise _shutting_down()
        if len(self._work) >= self._max_work:
            raise Busy(f"{self._max_work} changes are under way already; try again")
        work = asyncio.create_task(call(request, by))
        self._work.add(work)
        work.add_done_callback(self._work.discard)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(_log_unheard)
            raise

    def _caller(self, context: Context) -> By:
        """Empty when the peer shows no token: the socket's permissions have let it in."""
        metadata = context.invocation_metadata() or ()
        token = next((value for key, value in metadata if key == METADATA_KEY), None)
        if token is None or self._callers is None:
            return By()
        by = self._callers.lookup(token.decode("ascii", "replace") if isinstance(token, bytes) else token)
        if by is None:
            raise NotPermitted(f"the {METADATA_KEY} token is not valid (any more): its connection has to stay open")
        return by


def _unexpected(name: str, error: Exception) -> details.Refusal:
    """The machine has come to its limits, or it is a bug."""
    if isinstance(error, OSError) and error.errno in USED_UP:
        log.warning("the machine gives no more", call=name, why=str(error))
        text = f"{error.strerror}: this machine, or the daemon's limits on it, give no more; try again"
        return details.refusal(Busy(text))
    log.error("internal error", call=name, exc_info=error)
    return details.internal()


def _shutting_down() -> ShuttingDown:
    return ShuttingDown("the daemon is shutting down; containers go on, ask again when it is back")


def _log_unheard(work: asyncio.Task[Any]) -> None:
    """The peer went away before its call failed: somebody should know."""
    if not work.cancelled() and (error := work.exception()) is not None:
        known = isinstance(error, ExitdError)
        log.warning("failed after its caller had gone", error=str(error), exc_info=None if known else error)


async def _abort(context: Context, refusal: details.Refusal) -> Never:
    await context.abort(_STATUS[refusal.code], refusal.text, ((details.KEY, refusal.details),))
    raise AssertionError("abort always raises")
