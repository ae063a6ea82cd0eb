"""Threads for work that others may make wait: a few, with a limit of time, and none of those that everybody shares."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar
from weakref import WeakValueDictionary

from shim.undo import undone_on_failure
from supervisor.model.errors import Busy, TimedOut
from supervisor.system import threads

MOST_AT_ONCE = 8
LIMIT_SECONDS = 30.0

T = TypeVar("T")


class Aside:
    """One kind of such work. A thread that never comes back keeps its place, and keeps the daemon from nothing else."""

    def __init__(
        self, most_at_once: int = MOST_AT_ONCE, limit_seconds: float = LIMIT_SECONDS, *, reserve: bool = False
    ) -> None:
        """`reserve`: one thread begins now, for work that must be done also where no other can be started (EAGAIN), one
        after the other. CannotStart: there is no room for it."""
        self._reserve: queue.SimpleQueue[Callable[[], None]] | None = queue.SimpleQueue() if reserve else None
        if self._reserve is not None:
            threads.start(threading.Thread(target=_forever, args=(self._reserve,), name="aside", daemon=True))
        self._places = asyncio.Semaphore(most_at_once)
        self._limit_seconds = limit_seconds
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # of those who are at it, or wait

    async def run(self, what: str, work: Callable[[], T], whose: str = "") -> T:
        """Return what `work` returns, or raise what it raises.

        `whose`: works of one name run one after the other, also behind one that was given up, so that what is tried
        again and again on one file system that hangs takes one place. Empty: it stands for itself.

        Raises TimedOut, naming `what`, when it has not come to its end within the limit, the time for which it waited
        for its turn and for a place included; it goes on by itself then, and nobody looks at it. Busy: no thread can be
        started, and there is none in reserve.
        """
        turn = self._turns.setdefault(whose, asyncio.Lock()) if whose else asyncio.Lock()
        try:
            async with asyncio.timeout(self._limit_seconds):
                await turn.acquire()
                with undone_on_failure(turn.release):
                    await self._places.acquire()
                return await asyncio.shield(self._begin(work, turn))
        except TimeoutError as error:
            raise TimedOut(
                f"{what} took more than {self._limit_seconds:g} s and was given up; does a file system hang?"
            ) from error

    def _begin(self, work: Callable[[], T], turn: asyncio.Lock) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        future.add_done_callback(_looked_at)

        def done(settle: Callable[[], None]) -> None:
            self._places.release()
            turn.release()
            if not future.done():
                settle()

        def in_thread() -> None:
            try:
                settle = partial(future.set_result, work())
            except Exception as error:
                settle = partial(future.set_exception, error)
            with contextlib.suppress(RuntimeError):  # the loop is closed: the daemon ends
                loop.call_soon_threadsafe(done, settle)

        try:
            threading.Thread(target=in_thread, name="aside", daemon=True).start()
        except RuntimeError as error:
            if self._reserve is None:
                self._places.release()
                turn.release()
                raise Busy("no thread can be started; try again later") from error
            self._reserve.put(in_thread)
        return future


def _forever(works: "queue.SimpleQueue[Callable[[], None]]") -> None:
    while True:
        works.get()()


def _looked_at(future: "asyncio.Future[T]") -> None:
    """Of work that was given up nobody asks for the error."""
    if not future.cancelled():
        future.exception()
