"""What a pure function has made of values that never change, kept for those it was asked for last.

A container's spec is encoded for each of its rows and each reply, six times and more from its creation to its removal,
and is the same object all the time. It is most of what is encoded.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")
R = TypeVar("R")
MOST = 64  # values
MOST_BYTES = 32 << 10  # of one result: a longer one is made anew each time


class Remembered(Generic[V, R]):
    """The results of `make` for the last MOST values, by identity. For all threads."""

    def __init__(self, make: Callable[[V], R], size: Callable[[R], int]) -> None:
        """`size`: of a result, in bytes."""
        self._make = make
        self._size = size
        self._kept: dict[int, tuple[V, R]] = {}  # by id(); the value in it lives, so no other one gets its id
        self._changing = threading.Lock()

    def of(self, value: V) -> R:
        """Return what `make` returns for the value, and raise what it raises."""
        kept = self._kept.get(id(value))
        if kept is not None:
            return kept[1]
        made = self._make(value)
        if self._size(made) <= MOST_BYTES:
            with self._changing:
                while len(self._kept) >= MOST:
                    del self._kept[next(iter(self._kept))]
                self._kept[id(value)] = (value, made)
        return made
