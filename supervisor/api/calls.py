"""The calls under way, whatever brought them in: what goes wrong with one becomes a refusal, and shutdown ends them.

Here stands the one `except Exception` around a call. A cancelled call stays cancelled, except at shutdown, when the
peer gets the reason.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog

from supervisor.api import details
from supervisor.model.errors import Busy, ExitdError, ShuttingDown
from supervisor.model.values import By
from supervisor.system import room

MAX_WORK = 4096  # mutating calls under way at once
Method = Callable[[Any, By], Any]  # which messages it takes and gives is known to the descriptor
Methods = Mapping[str, Method]  # by name, all that the service table has

log = structlog.get_logger(__name__)


class CallRefused(Exception):
    """A call is refused: the peer gets the refusal in place of an answer."""

    def __init__(self, refusal: details.Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


class Calls:
    """The calls under way. What changes something runs to its end even when the peer has gone."""

    def __init__(self, max_work: int = MAX_WORK) -> None:
        self._max_work = max_work
        self._work: set[asyncio.Task[Any]] = set()
        self._waiting: set[asyncio.Task[Any]] = set()
        self._closing = False

    async def close(self, grace_seconds: float) -> None:
        """Refuse new work, send away who waits, and give what is under way `grace_seconds` to end."""
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

    @contextmanager
    def answering(self, name: str, *, waits: bool) -> Iterator[None]:
        """Enclose all of a call that this task answers: what is raised inside comes out as CallRefused. `waits`:
        nothing is lost with it, so it is sent away at shutdown."""
        task = asyncio.current_task()
        assert task is not None
        if waits:
            self._waiting.add(task)
        try:
            yield
        except asyncio.CancelledError as error:
            if not self._closing:
                raise
            raise CallRefused(details.refusal(_shutting_down())) from error
        except ExitdError as error:
            log.debug("refused", call=name, reason=error.reason, text=str(error))
            raise CallRefused(details.refusal(error)) from error
        except Exception as error:
            raise CallRefused(_unexpected(name, error)) from error
        finally:
            self._waiting.discard(task)

    async def answer(self, name: str, call: Method, request: Any, who: Callable[[], By], *, changes: bool) -> Any:
        """Return the one reply of a call. Raises CallRefused."""
        with self.answering(name, waits=not changes):
            by = who()
            return await (self._to_its_end(call, request, by) if changes else call(request, by))

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


def _unexpected(name: str, error: Exception) -> details.Refusal:
    """The machine has come to its limits, or it is a bug."""
    if (refusal := room.refusal_of(error)) is not None:
        log.warning("the machine gives no more", call=name, why=str(error))
        return details.refusal(refusal)
    log.error("internal error", call=name, exc_info=error)
    return details.internal()


def _shutting_down() -> ShuttingDown:
    return ShuttingDown("the daemon is shutting down; containers go on, ask again when it is back")


def _log_unheard(work: asyncio.Task[Any]) -> None:
    """The peer went away before its call failed: that is logged."""
    if not work.cancelled() and (error := work.exception()) is not None:
        known = isinstance(error, ExitdError)
        log.warning("failed after its caller had gone", error=str(error), exc_info=None if known else error)
