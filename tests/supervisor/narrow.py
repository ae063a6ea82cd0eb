"""Stands for a kernel that has no room for a call: no descriptor, as a rule."""

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest


class Narrow:
    """One call, which is refused until `has_room`."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: object, name: str, number: int = errno.EMFILE) -> None:
        self.has_room, self.refused, self._number, self._real = False, 0, number, getattr(owner, name)
        patch.setattr(owner, name, self)

    def __call__(self, *args: object, **more: object) -> object:
        if self.has_room:
            return self._real(*args, **more)
        self.refused += 1
        return full(self._number)


def full(number: int = errno.EMFILE) -> Any:
    raise OSError(number, os.strerror(number))


def full_first(times: int, then: Callable[..., Any]) -> Callable[..., Any]:
    """So many calls find no room; those after them are as they were."""
    left = [None] * times

    def call(*args: Any, **more: Any) -> Any:
        if left:
            left.pop()
            return full()
        return then(*args, **more)

    return call
