"""What must be stored: tried until the store takes it, and health told as long as it does not."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from supervisor.errors import ExitdError, StoreFailed

RETRY_SECONDS = 1.0

log = structlog.get_logger(__name__)


class Storing:
    """Whose commits are being refused, by name. `on_health` is told False while there are any."""

    def __init__(self) -> None:
        self.on_health: Callable[[bool], None] = lambda serving: None
        self._refused: set[str] = set()

    async def surely(self, name: str, commit: Callable[[], Awaitable[object]]) -> None:
        """However long the store refuses. What else `commit` raises is the caller's, and no refusal any more."""
        while True:
            try:
                await commit()
                return self._note(name, refused=False)
            except StoreFailed as error:
                log.error("commit refused, trying again", of=name, why=str(error))
                self._note(name, refused=True)
            except ExitdError:
                self._note(name, refused=False)
                raise
            await asyncio.sleep(RETRY_SECONDS)

    def _note(self, name: str, *, refused: bool) -> None:
        before = bool(self._refused)
        (self._refused.add if refused else self._refused.discard)(name)
        if bool(self._refused) != before:
            self.on_health(not self._refused)
