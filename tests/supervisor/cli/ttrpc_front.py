"""A fake daemon's answers over ttrpc: a loop in a thread of its own, and each answer in one of a pool's."""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent import futures
from typing import Any

from supervisor.api import details
from supervisor.api.table import EXITD, classes
from supervisor.api.ttrpcservices import KINDS
from supervisor.model.errors import ExitdError
from supervisor.ttrpc.faults import CallFailed, Closed
from supervisor.ttrpc.server import Call, Server
from supervisor.ttrpc.services import CallKind, Method

LIMIT_SECONDS = 20
Answer = Callable[[str, Any], Any]  # by a method's name, to its request


class Front:
    """`answer` may raise ExitdErrors."""

    def __init__(self, path: str, answer: Answer) -> None:
        self._answer = answer
        self._loop = asyncio.new_event_loop()
        self._pool = futures.ThreadPoolExecutor(8)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        table = {method.name: self._method(method) for method in EXITD.methods}
        self._server = Server({EXITD.full_name: table}, failure_of=failure_of)
        asyncio.run_coroutine_threadsafe(self._server.listen(path), self._loop).result(LIMIT_SECONDS)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(0), self._loop).result(LIMIT_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT_SECONDS)
        self._loop.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _method(self, method: Any) -> Method:
        async def unary(request: Any, call: Call) -> Any:
            return await self._in_thread(self._answer, method.name, request)

        async def stream(request: Any, call: Call) -> AsyncIterator[Any]:
            replies = await self._in_thread(self._answer, method.name, request)
            while (reply := await self._in_thread(next, replies, None)) is not None:
                yield reply

        async def both_ways(inbox: Any, call: Call) -> AsyncIterator[Any]:
            requests = Requests()
            pump = asyncio.create_task(requests.fill(inbox))
            try:
                async for reply in stream(iter(requests), call):
                    yield reply
                requests.queue.put(None)
            finally:
                pump.cancel()
                requests.queue.put(Closed())

        handlers = {CallKind.UNARY: unary, CallKind.SERVER: stream, CallKind.BIDI: both_ways}
        kind = KINDS[method.client_streaming, method.server_streaming]
        return Method(*classes(method), handlers[kind], kind)

    async def _in_thread(self, act: Callable[..., Any], *arguments: Any) -> Any:
        return await self._loop.run_in_executor(self._pool, act, *arguments)


class Requests:
    """What a client sends, for a thread. Closed when it has gone before the end."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[Any] = queue.SimpleQueue()

    async def fill(self, inbox: Any) -> None:
        try:
            async for request in inbox:
                self.queue.put(request)
            self.queue.put(None)
        except CallFailed as error:
            self.queue.put(error)

    def __iter__(self) -> Iterator[Any]:
        while (request := self.queue.get(timeout=LIMIT_SECONDS)) is not None:
            if isinstance(request, CallFailed):
                raise request
            yield request


def failure_of(error: Exception) -> CallFailed | None:
    if not isinstance(error, ExitdError):
        return None
    refusal = details.refusal(error)
    return CallFailed(refusal.code, refusal.text, (refusal.info,))
