"""Waits with a limit, and counts that are scaled."""

import os
import select
import time
from collections.abc import Callable
from typing import TypeVar

LIMIT_SECONDS = 30.0
REST = 4  # between two looks, as a multiple of what one takes of the processor
SCALE = float(os.environ.get("EXITD_SCALE", "0.02"))
T = TypeVar("T")


def scaled(count: int, least: int = 20) -> int:
    """A count above 200, by EXITD_SCALE."""
    return max(least, int(count * SCALE))


def until(look: Callable[[], T], what: str, seconds: float = LIMIT_SECONDS) -> T:
    """The first true answer of `look`; asked again after milliseconds, then less often, and the less often the more it
    takes: it costs those who are waited for their processor. Never longer than `seconds`."""
    deadline, pause = time.monotonic() + seconds, 0.005
    while True:
        began = time.thread_time()
        if answer := look():
            return answer
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        select.select([], [], [], max(pause, REST * (time.thread_time() - began)))
        pause = min(pause * 1.3, 0.02)


def wait_readable(fd: int, seconds: float = LIMIT_SECONDS) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def before_the_end(pidfd: int, look: Callable[[], bool]) -> bool:
    """True once `look` is; False when this process has ended before, or that takes too long."""
    deadline, pause = time.monotonic() + LIMIT_SECONDS, 0.005
    while not look():
        if time.monotonic() > deadline or wait_readable(pidfd, pause):
            return False
        pause = min(pause * 1.3, 0.02)
    return True
