"""Background tasks: kept until they end, logged when they fail, cancelled at the end."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

import structlog

from supervisor.model.errors import ExitdError

RETRY_SECONDS = (0.2, 1.0, 5.0, 30.0)

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Background:
    """The tasks of one owner."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:  # a bug: the work itself handles named errors
            log.error("background work failed", exc_info=error)

    async def settled(self) -> None:
        """Return when no task is running."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def pauses(seconds: Sequence[float]) -> Iterator[float]:
    """Yield the seconds to wait after each failed try: those that are given, in their order, and then the last one
    without end."""
    return itertools.chain(seconds, itertools.repeat(seconds[-1]))


async def retry(work: Callable[[], Awaitable[T]], what: str, container_id: str) -> T:
    """Repeat the work until it has succeeded; return its result. Each failure is logged, and followed by a pause."""
    rest = pauses(RETRY_SECONDS)
    while True:
        try:
            return await work()
        except (ExitdError, OSError) as error:
            log.warning(f"{what} failed, trying again", container=container_id, why=str(error))
        await asyncio.sleep(next(rest))
