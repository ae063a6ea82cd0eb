"""gRPC's server is begun until it serves, the first time and whenever it has ended."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from supervisor.model.errors import CannotStart

AGAIN_SECONDS, AGAIN_MOST_SECONDS = 0.1, 5.0  # between two tries; doubled after each

T = TypeVar("T")

log = structlog.get_logger(__name__)


async def once_begun(begin: Callable[[], Awaitable[T]], complaint: str, *, rested: bool = False) -> T:
    """Return what `begin` returns, which is called until it raises nothing. Each kind of failure is logged once, with
    `complaint`. `rested`: there is a pause before the first try, too."""
    said: set[str] = set()
    pause = AGAIN_SECONDS
    while True:
        if rested:
            await asyncio.sleep(pause)
            pause = min(2 * pause, AGAIN_MOST_SECONDS)
        rested = True
        try:
            return await begin()
        except Exception as error:  # calls over ttrpc go on
            if str(error) not in said:
                said.add(str(error))
                log.error(complaint, why=str(error), exc_info=None if isinstance(error, CannotStart) else error)
