"""What must be stored: tried until the store takes it, and health told as long as it does not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog

from supervisor.model.errors import ExitdError, StoreFailed

RETRY_SECONDS = 1.0
SLOW_SECONDS = 30.0  # a commit that takes longer is no reason to begin another, and one for health to hear of it

log = structlog.get_logger(__name__)


class Storing:
    """Whose commits are being refused, by name. `on_health` is told False while there are any."""

    def __init__(self) -> None:
        self.on_health: Callable[[bool], None] = lambda serving: None
        self._refused: set[str] = set()

    async def surely(self, name: str, commit: Callable[[], Awaitable[object]]) -> None:
        """However long the store refuses. What else `commit` raises is the caller's, and no refusal any more.

        `commit` has to be a patient one: what is given up while the disk is at work may get through yet, and a second
        try of it would store its events twice.
        """
        while True:
            try:
                await self._slowly(name, commit())
                return self._note(name, refused=False)
            except StoreFailed as error:
                log.error("commit refused, trying again", of=name, why=str(error))
                self._note(name, refused=True)
            except ExitdError:
                self._note(name, refused=False)
                raise
            await asyncio.sleep(RETRY_SECONDS)

    async def _slowly(self, name: str, commit: Awaitable[object]) -> None:
        slow = asyncio.get_running_loop().call_later(SLOW_SECONDS, self._note_slow, name)
        try:
            await commit
        finally:
            slow.cancel()

    def _note_slow(self, name: str) -> None:
        log.error("commit takes long, waiting for it", of=name, seconds=SLOW_SECONDS)
        self._note(name, refused=True)

    def _note(self, name: str, *, refused: bool) -> None:
        before = bool(self._refused)
        (self._refused.add if refused else self._refused.discard)(name)
        if bool(self._refused) != before:
            self.on_health(not self._refused)


@contextlib.asynccontextmanager
async def in_turn(turn: asyncio.Lock, of: str, *, patient: bool) -> AsyncIterator[None]:
    """One step after the other: the block is held up while an earlier step is being stored, and no longer than
    SLOW_SECONDS unless it is patient. Raises StoreFailed: the earlier step takes longer than that."""
    try:
        async with asyncio.timeout(None if patient else SLOW_SECONDS):
            await turn.acquire()
    except TimeoutError as error:
        raise StoreFailed(f"{of}: what happened before is still being stored; the disk is slow, try again") from error
    try:
        yield
    finally:
        turn.release()
