"""What a pure function has made of values that never change, kept for those it was asked for last.

A container's spec is encoded for each of its rows, each reply and each list, six times and more from its creation to
its removal, and is the same object all the time. It is most of what is encoded.
"""

import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

V = TypeVar("V")
R = TypeVar("R")
MOST_BYTES = 32 << 10  # of one result: a longer one is made anew each time
BESIDE_BYTES = 432  # what an entry takes beside its result


class Remembered(Generic[V, R]):
    """The results of `make` for the last values that live, by identity. For all threads. What was made of a value may
    hold its secrets, and goes with it."""

    def __init__(self, make: Callable[[V], R], size: Callable[[R], int], in_all: int) -> None:
        """`size`: of a result, in bytes. `in_all`: how many bytes all results may have: the oldest go first."""
        self._make = make
        self._size = size
        self._in_all = in_all
        self._held = 0
        self._kept: dict[int, tuple[weakref.ref[V], R, int]] = {}  # by id(), which a later value may have again
        self._gone: deque[tuple[int, weakref.ref[V]]] = deque()
        self._changing = threading.Lock()

    def of(self, value: V) -> R:
        """Return what `make` returns for the value, and raise what it raises. There can be weak references to it."""
        kept = self._kept.get(id(value))
        if kept is not None and kept[0]() is value:
            return kept[1]
        made = self._make(value)
        size = self._size(made)
        if size <= MOST_BYTES:
            entry = weakref.ref(value, partial(self._note_gone, id(value))), made, size + BESIDE_BYTES
            with self._changing:
                self._drop(id(value))  # another thread has made it, too, or it is an earlier value's
                self._kept[id(value)] = entry
                self._held += size + BESIDE_BYTES
                while self._held > self._in_all:
                    self._drop(next(iter(self._kept)))
            self._drop_gone()
        return made

    def _note_gone(self, key: int, value: "weakref.ref[V]") -> None:
        """Called by the thread that lets go of the value last, or collects garbage, which may be amid `of`: the lock is
        not waited for, and the thread that holds it looks here afterwards."""
        self._gone.append((key, value))
        self._drop_gone()

    def _drop_gone(self) -> None:
        while self._gone and self._changing.acquire(blocking=False):
            try:
                while self._gone:
                    key, value = self._gone.popleft()
                    if key in self._kept and self._kept[key][0] is value:
                        self._drop(key)
            finally:
                self._changing.release()

    def _drop(self, key: int) -> None:
        _, _, size = self._kept.pop(key, (None, None, 0))
        self._held -= size
