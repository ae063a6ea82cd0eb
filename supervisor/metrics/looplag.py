"""How late the event loop comes to what it has to do: a timer, once a second, knows."""

import asyncio

from supervisor.system.histogram import Histogram

EVERY_SECONDS = 1.0


class LoopLag:
    """Watches the running loop from `begin` to `close`."""

    def __init__(self) -> None:
        self.seen = Histogram()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(loop.time() + EVERY_SECONDS, self._due, loop.time() + EVERY_SECONDS)

    def _due(self, at: float) -> None:
        self.seen.observe(asyncio.get_running_loop().time() - at)
        self.begin()

    def close(self) -> None:
        """Repeatable."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
