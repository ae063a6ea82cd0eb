"""One limit on many waits: a timer for all of them, where `asyncio.timeout` makes and cancels one for each."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class WaitLimit:
    """Waits in one event loop that all have the same limit. The one that began first is late first, so that a single
    timer is enough; it stays armed when a wait has ended, and finds nothing then."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._waits: dict[object, tuple[float, Callable[[], object]]] = {}  # until when, by the loop's time
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, wait: object, late: Callable[[], object]) -> None:
        """Have `late` called if `end` has not been called for this wait within the limit. `wait` is any value that
        stands for no other one."""
        self._waits[wait] = asyncio.get_running_loop().time() + self.seconds, late
        self._arm()

    def end(self, wait: object) -> bool:
        """Return False if it was late, or has ended before."""
        return self._waits.pop(wait, None) is not None

    async def of(self, future: asyncio.Future[T]) -> T:
        """Return the future's result, or raise its error. Raises TimeoutError after the limit; the future is cancelled
        then, as it is with the caller."""
        before = _cancellations()  # of a task that has caught one, and goes on
        self.begin(future, future.cancel)
        try:
            return await future
        except asyncio.CancelledError:
            if self.end(future) or _cancellations() > before:
                raise
            raise TimeoutError from None
        finally:
            self.end(future)

    def _arm(self) -> None:
        """Have the wait that is late first looked at when it is."""
        if self._timer is None and self._waits:
            until, _ = next(iter(self._waits.values()))
            self._timer = asyncio.get_running_loop().call_at(until, self._look)

    def _look(self) -> None:
        self._timer = None
        late = None
        for wait, (until, then) in self._waits.items():
            if until <= asyncio.get_running_loop().time():
                del self._waits[wait]
                late = then
            break
        self._arm()  # first: an error of `late` is the loop's, and takes no other wait's limit away
        if late is not None:
            late()


def _cancellations() -> int:
    """Return how often the running task itself was cancelled, and not only what it waits for."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
