"""Room for descriptors: waited for before anything is begun, and refused with a named error if there is none."""

import asyncio
import os
import resource
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import TypeVar

from supervisor.model.errnos import USED_UP
from supervisor.model.errors import Busy

FOR_ONE = 24  # descriptors needed at most to make one run or exec, which keeps eight of them
FOR_COMMAND = 8  # descriptors that a command of the runtime needs at most: its outputs, its pidfd, its launcher
PATIENCE_SECONDS = 3.0  # how long work that has not begun waits
AGAIN_SECONDS = 0.1  # between two attempts

T = TypeVar("T")


def is_used_up(error: BaseException | None) -> bool:
    """Return whether the error means that descriptors, or another resource of the kernel, are used up."""
    return isinstance(error, OSError) and error.errno in USED_UP


def lacks_room(error: BaseException) -> bool:
    """Return whether `is_used_up` is true of the error, or of what has caused it."""
    return is_used_up(error) or is_used_up(error.__cause__)


NOTHING = "nothing was begun"


def busy(what: str, why: object, so: str = NOTHING) -> Busy:
    """Return the refusal of `what`. `so` says what the caller may rely on."""
    return Busy(f"out of descriptors, no room for {what}: {why}; {so}, try again")


def refusal_of(error: Exception) -> Busy | None:
    """Return the refusal of a call that this error has ended; None if the error is not about resources of the kernel
    that are used up."""
    if not (isinstance(error, OSError) and is_used_up(error)):
        return None
    return Busy(f"{error.strerror}: this machine, or the daemon's limits on it, give no more; try again")


async def patiently(attempt: Callable[[], T], what: str, so: str = NOTHING) -> T:
    """Return what `attempt` returns; it is repeated while there is no room for it. Raises Busy as `patiently_awaited`
    does."""

    async def at_once() -> T:
        return attempt()

    return await patiently_awaited(at_once, what, so)


async def patiently_awaited(attempt: Callable[[], Awaitable[T]], what: str, so: str = NOTHING) -> T:
    """Return what `attempt` returns; it is repeated while there is no room for it.

    Raises:
        Busy: there was none for PATIENCE_SECONDS. `what` names what was to be made, `so` what the caller may rely on.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE_SECONDS

    def give_up(error: OSError) -> None:
        if loop.time() >= end:
            raise busy(what, error.strerror, so) from error

    return await _repeated(attempt, give_up)


async def retry(attempt: Callable[[], Awaitable[T]]) -> T:
    """Return what `attempt` returns, repeated without a limit while there is no room for it. This is for what has begun
    already, since giving up would mean to report something that was not seen."""
    return await _repeated(attempt, lambda error: None)


async def _repeated(attempt: Callable[[], Awaitable[T]], without_room: Callable[[OSError], None]) -> T:
    while True:
        try:
            return await attempt()
        except OSError as error:
            if not is_used_up(error):
                raise
            without_room(error)
        await asyncio.sleep(AGAIN_SECONDS)


async def wait_for(count: int, what: str, so: str = NOTHING) -> None:
    """Return when this process could open `count` descriptors. Raises Busy as `patiently` does."""
    if not _is_there(count):
        await patiently(lambda: _try(count), what, so)


def _is_there(count: int) -> bool:
    return 0 < _open_now() <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] - count


def _try(count: int) -> None:
    """Raises OSError as the opening of so many would."""
    if _is_there(count):
        return
    with ExitStack() as stack:
        for _ in range(count):
            stack.callback(os.close, os.dup(0))


def _open_now() -> int:
    """Return how many descriptors are open: a twentieth of what it costs to open some. 0 where the kernel does not say,
    before Linux 6.2 (proc(5): the size of /proc/PID/fd)."""
    try:
        return os.stat("/proc/self/fd").st_size
    except OSError:
        return 0
