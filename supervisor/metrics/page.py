"""The page of metrics, made on request and never in the way of an end.

It is made in the event loop a slice at a time, and everything that waits comes in between. Who asks while it is being
made gets the next one, together with all who asked meanwhile; so no page is older than the request for it, and at most
one is being made.
"""

import asyncio
from collections.abc import Awaitable, Callable

from supervisor.metrics import exposition
from supervisor.metrics.families import Snapshot, families

SLICE = 40  # samples made at once: a fraction of a millisecond


class Page:
    """Belongs to one event loop. `look` returns what is known now."""

    def __init__(self, look: Callable[[], Awaitable[Snapshot]]) -> None:
        self._look = look
        self._turn = asyncio.Lock()
        self._begun = self._made = 0  # the newest page that was begun, and the newest that was made
        self._text = ""  # of that one

    async def text(self) -> str:
        """Return the page as it is now, or a moment later."""
        asked = self._begun
        async with self._turn:
            if self._made <= asked:
                self._begun += 1
                self._text = await self._new()
                self._made = self._begun
            return self._text

    async def _new(self) -> str:
        parts, samples = list[str](), 0
        for family in families(await self._look()):
            for line in exposition.lines(family):
                parts.append(line)
                samples += 1
                if samples % SLICE == 0:
                    await asyncio.sleep(0)
        return "".join(parts)
