"""What is opened or begun in one place and handed on to another, unless that fails."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType


def undone_on_failure(undo: Callable[[], object]) -> AbstractContextManager[None, None]:
    """Whatever ends the block before its time, a cancelled task included: undone, and the error goes on."""
    return _Undoing(undo)


class _Undoing:
    """A class of its own: what contextlib makes of a generator takes six times as long, and a start of the daemon has
    ten of these for each container."""

    __slots__ = ("_undo",)

    def __init__(self, undo: Callable[[], object]) -> None:
        self._undo = undo

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._undo()
