"""Work that can wait until what is urgent has begun: a few at a time, once nothing more is asked for.

After a start of the daemon some of what is done for each container is not needed to say how it is: it comes after the
look-ups, since a container counts as found without it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeAlias, TypeVar

import structlog

T = TypeVar("T")
Work: TypeAlias = Coroutine[Any, Any, None]
AT_ONCE = 8

log = structlog.get_logger(__name__)


class Leisure(Generic[T]):
    """Does `work` for each thing that is added, in their order. Belongs to one event loop."""

    def __init__(self, work: Callable[[T], Awaitable[None]], spawn: Callable[[Work], object]) -> None:
        """`work` handles its errors itself; one that does not is logged by `spawn`, and the rest goes on with what is
        added next. `spawn` has a task do it in the background."""
        self._work = work
        self._spawn = spawn
        self._waiting: deque[T] = deque()
        self._is_at_it = False

    def add(self, thing: T) -> None:
        self._waiting.append(thing)
        if not self._is_at_it:
            self._is_at_it = True
            self._spawn(self._do())

    async def _do(self) -> None:
        try:
            seen = 0
            while seen != len(self._waiting):  # more has come in the last turn of the loop
                seen = len(self._waiting)
                await asyncio.sleep(0)
            while self._waiting:
                few = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
                for failure in await asyncio.gather(*map(self._work, few), return_exceptions=True):
                    if isinstance(failure, BaseException):  # a bug; the others are not held up by it
                        log.error("background work failed", exc_info=failure)
        finally:
            self._is_at_it = False
