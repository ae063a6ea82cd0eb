"""How everything is measured, by `exitctl compare` and by `python -m bench`: in turns, all at once, and by a client
that waits in a thread of its own."""

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from supervisor.compare.machine import private_kb
from supervisor.compare.way import WayContainer

NOTICE_SECONDS = 60.0
FEW = 4  # things at a time
WARM_UP = 1  # rounds that count for nothing

T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K", bound=Hashable)


def in_turn(order: Sequence[T], number: int) -> tuple[T, ...]:
    """Return all of them, with another one first for each number."""
    first = number % len(order) if order else 0
    return (*order[first:], *order[:first])


def in_turns(who: Sequence[K], rounds: int, sample: Callable[[K], R], warm_up: int = WARM_UP) -> dict[K, list[R]]:
    """Return samples: one of each in every round, another one first each time. The rounds that warm up come before, and
    do not count."""
    found: dict[K, list[R]] = {one: [] for one in who}
    for number in range(warm_up + rounds):
        for one in in_turn(who, number):
            value = sample(one)
            if number >= warm_up:
                found[one].append(value)
    return found


def at_once(work: Callable[[T], R], things: Sequence[T]) -> tuple[float, list[R]]:
    """Do all, each in a thread of its own. Return the seconds until all is done, and what came of it."""
    with ThreadPoolExecutor(max(1, len(things))) as pool:
        begun = time.perf_counter()
        results = list(pool.map(work, things))
        return time.perf_counter() - begun, results


def few_at_once(work: Callable[[T], R], things: Iterable[T]) -> list[R]:
    """Do all, a few at once. Return what came of it, where it is not what is measured."""
    with ThreadPoolExecutor(FEW) as pool:
        return list(pool.map(work, things))


def timed(work: Callable[[], R]) -> tuple[float, R]:
    """Return the milliseconds that the work took, and what came of it."""
    begun = time.perf_counter()
    result = work()
    return (time.perf_counter() - begun) * 1000, result


def killed(container: WayContainer, reported: Callable[[], R]) -> tuple[float, R]:
    """Kill its init. Return the milliseconds until `reported` returned; and what came of it."""
    begun = time.perf_counter()
    container.kill()
    result = reported()
    return (time.perf_counter() - begun) * 1000, result


class WayNotice(threading.Thread, Generic[T]):
    """A client that waits for one end: what was reported to it, and when (time.perf_counter). `wait` blocks for so many
    seconds at most."""

    def __init__(self, wait: Callable[[float], T]) -> None:
        super().__init__(daemon=True)
        self._wait = wait
        self._result: T | Exception = TimeoutError("nothing has been reported yet")
        self.at = 0.0
        self.start()

    def run(self) -> None:
        try:
            self._result = self._wait(NOTICE_SECONDS)
        except Exception as error:  # raised to the caller that asks for the result
            self._result = error
        self.at = time.perf_counter()

    def result(self) -> T:
        self.join(NOTICE_SECONDS + 5)
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


def private_of(pids: Iterable[int]) -> int:
    """Return the private memory of all together in kB."""
    return sum(sum(private_kb(pid)) for pid in pids)
