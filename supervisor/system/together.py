"""Short reads in one thread: what is asked for while it reads is read next, all at once. A hand-over to a thread and
back takes longer than such a read, and a start asks for one of each container."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
_Asked: TypeAlias = "tuple[Callable[[], Any], asyncio.Future[Any]]"
_Answer: TypeAlias = "tuple[Any, Exception | None]"


class Together:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._asked: list[_Asked] = []
        self._reading: asyncio.Task[None] | None = None

    async def read(self, function: Callable[[], T]) -> T:
        """Call the function in a thread. Return what it returns, or raise what it raises."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._asked.append((function, answer))
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read_all())
        return await answer

    async def _read_all(self) -> None:
        try:
            while self._asked:
                asked, self._asked = self._asked, []
                _give(asked, await _called([function for function, _ in asked]))
        finally:
            self._reading = None


async def _called(functions: Sequence[Callable[[], Any]]) -> list[_Answer]:
    try:
        return await asyncio.to_thread(lambda: [_outcome(function) for function in functions])
    except RuntimeError as error:  # no thread takes work any more
        return [(None, error) for _ in functions]


def _outcome(function: Callable[[], Any]) -> _Answer:
    try:
        return function(), None
    except Exception as error:  # raised where it was asked for
        return None, error


def _give(asked: Sequence[_Asked], answers: Sequence[_Answer]) -> None:
    for (_, waiting), (found, failure) in zip(asked, answers, strict=True):
        if waiting.done():  # cancelled
            continue
        if failure is None:
            waiting.set_result(found)
        else:
            waiting.set_exception(failure)
