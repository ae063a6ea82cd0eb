"""What a pure function has made of values that never change, kept for those it was asked for last.

A container's spec is encoded for each of its rows, each reply and each list, six times and more from its creation to
its removal, and is the same object all the time. It is most of what is encoded.
"""

import threading
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")
R = TypeVar("R")
MOST_BYTES = 32 << 10  # of one result: a longer one is made anew each time
BESIDE_BYTES = 256  # what an entry takes beside its result

_all: "weakref.WeakSet[Remembered[object, object]]" = weakref.WeakSet()


class Remembered(Generic[V, R]):
    """The results of `make` for the last values, by identity. For all threads."""

    def __init__(self, make: Callable[[V], R], size: Callable[[R], int], in_all: int) -> None:
        """`size`: of a result, in bytes. `in_all`: how many bytes all results may have: the oldest go first."""
        self._make = make
        self._size = size
        self._in_all = in_all
        self._held = 0
        self._kept: dict[int, tuple[V, R, int]] = {}  # by id(); the value in it lives, so no other one gets its id
        self._changing = threading.Lock()
        _all.add(self)  # type: ignore[arg-type]  # only to forget what is kept there

    def of(self, value: V) -> R:
        """Return what `make` returns for the value, and raise what it raises."""
        kept = self._kept.get(id(value))
        if kept is not None:
            return kept[1]
        made = self._make(value)
        size = self._size(made)
        if size <= MOST_BYTES:
            with self._changing:
                self._drop(id(value))  # another thread has made it, too
                self._kept[id(value)] = (value, made, size + BESIDE_BYTES)
                self._held += size + BESIDE_BYTES
                while self._held > self._in_all:
                    self._drop(next(iter(self._kept)))
        return made

    def forget(self, value: V) -> None:
        with self._changing:
            self._drop(id(value))

    def _drop(self, key: int) -> None:
        _, _, size = self._kept.pop(key, (None, None, 0))
        self._held -= size


def forget_everywhere(value: object) -> None:
    """Have nothing keep the value any more: it may hold secrets, and its container is gone or has another one."""
    for each in [*_all]:
        each.forget(value)
