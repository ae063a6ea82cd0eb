"""Waiting for a container to become something: futures by container, asked again at each of its changes."""

import asyncio
from collections.abc import Callable

from supervisor.model.facts import Container

Test = Callable[[Container | None], bool]  # None: it is gone


class Changes:
    """Ten thousand waiters on ten thousand containers cost an event of one of them one look."""

    def __init__(self) -> None:
        self._waiters: dict[str, set[tuple[Test, asyncio.Future[Container | None]]]] = {}

    async def until(self, container_id: str, now: Container | None, test: Test) -> Container | None:
        """The container (None: gone) as it is when `test` first holds; at once if it holds for `now`."""
        if test(now):
            return now
        future: asyncio.Future[Container | None] = asyncio.get_running_loop().create_future()
        waiter = (test, future)
        waiters = self._waiters.setdefault(container_id, set())
        waiters.add(waiter)
        try:
            return await future
        finally:
            waiters.discard(waiter)
            if not waiters and self._waiters.get(container_id) is waiters:
                del self._waiters[container_id]

    def tell(self, container_id: str, container: Container | None) -> None:
        for test, future in list(self._waiters.get(container_id, ())):
            if not future.done() and test(container):
                future.set_result(container)

    def __len__(self) -> int:
        return sum(len(waiters) for waiters in self._waiters.values())
