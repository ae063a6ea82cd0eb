"""Threads for work that other programs can delay: a few, with a time limit, separate from the shared threads."""

import asyncio
import contextlib
import os
import queue
import threading
import traceback
from collections.abc import Callable
from functools import partial
from typing import TypeVar
from weakref import WeakValueDictionary

from shim.undo import undone_on_failure
from supervisor.model.errors import Busy, TimedOut
from supervisor.system import threads

MOST_AT_ONCE = 8
LIMIT_SECONDS = 30.0
IDLE_SECONDS = 10.0  # how long a thread waits for more work: to start one takes longer than most works

Work = Callable[[], Callable[[], None]]  # does it, and returns what reports the result
T = TypeVar("T")


class Here:
    """In the place of an `Aside`, for files that are exitd's own: at once, in the event loop."""

    async def run(
        self, what: str, work: Callable[[], T], whose: str = "", late: Callable[[], None] = lambda: None
    ) -> T:
        return work()


class _Threads:
    """Threads for one kind of work. One that has done its work waits for more, and ends when none comes."""

    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        self._idle: list[queue.SimpleQueue[Work]] = []  # one for each thread that waits

    def begin(self, work: Work) -> None:
        """Have the work done by a thread that waits, or else by a new one. Raises RuntimeError when none can be
        started."""
        try:
            given = self._idle.pop()
        except IndexError:
            given = queue.SimpleQueue()
            threading.Thread(target=self._run, args=(given,), name="aside", daemon=True).start()
        given.put(work)

    def _run(self, given: "queue.SimpleQueue[Work]") -> None:
        work: Work | None = given.get()
        while work is not None:
            report = work()
            # First, so that the caller, when it has the result, finds this thread for the next work.
            self._idle.append(given)
            report()
            del report, work  # with what they have of a result or an error
            work = self._next(given)

    def _next(self, given: "queue.SimpleQueue[Work]") -> Work | None:
        try:
            return given.get(timeout=self._idle_seconds)
        except queue.Empty:
            try:
                self._idle.remove(given)
            except ValueError:  # `begin` has just taken it
                return given.get()
            return None


class Aside:
    """One kind of such work. A thread that never returns keeps its place, and delays nothing else in the daemon."""

    def __init__(
        self,
        most_at_once: int = MOST_AT_ONCE,
        limit_seconds: float = LIMIT_SECONDS,
        *,
        reserve: bool = False,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """`reserve`: one thread begins now, for work that must be done even if no other thread can be started (EAGAIN),
        one after the other. Raises CannotStart when there is no room for it."""
        self._reserve: queue.SimpleQueue[Work] | None = queue.SimpleQueue() if reserve else None
        if self._reserve is not None:
            threads.start(threading.Thread(target=_forever, args=(self._reserve,), name="aside", daemon=True))
        self._threads = _Threads(idle_seconds)
        self._places = asyncio.Semaphore(most_at_once)
        self._limit_seconds = limit_seconds
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # of works in progress or waiting

    async def at(self, path: str, work: Callable[[], T], seconds: float | None = None) -> T:
        """Return what `work` returns, a look at a path that a caller has named: its file system may hang.

        Looks in one directory take turns, so that they have one place of those that others need, too. A name without a
        slash is looked up where root has exitd look, which does not wait: `work` is done at once, in the event loop.

        Raises what `work` raises; TimedOut and Busy as `run` does.
        """
        if "/" not in path:
            return work()
        return await self.run(f"looking at {path}", work, os.path.dirname(path), seconds=seconds)

    async def run(
        self,
        what: str,
        work: Callable[[], T],
        whose: str = "",
        late: Callable[[], None] = lambda: None,
        *,
        seconds: float | None = None,
    ) -> T:
        """Return what `work` returns, or raise what it raises.

        `whose`: works of one name run one after the other, also behind one that was given up, so that what is tried
        again and again on one file system that hangs takes one place. Empty: it stands for itself.
        `late`: called once, in the event loop, when no caller waits for the work any more, and no thread is at it; to
        let go of what it may have taken.
        `seconds`: its limit, in the place of the usual one.

        Raises TimedOut, naming `what`, when it has not ended within the limit, which includes the wait for its turn and
        for a place; it then goes on, and its result is dropped. Raises Busy when no thread can be started, and none is
        in reserve.
        """
        turn = self._turns.setdefault(whose, asyncio.Lock()) if whose else asyncio.Lock()
        begun: asyncio.Future[T] | None = None
        limit_seconds = self._limit_seconds if seconds is None else seconds
        try:
            async with asyncio.timeout(limit_seconds):
                await turn.acquire()
                with undone_on_failure(turn.release):
                    await self._places.acquire()
                try:
                    begun = self._begin(work, turn)
                except Busy:
                    late()
                    raise
                return await asyncio.shield(begun)
        except asyncio.CancelledError:
            _when_over(begun, late)
            raise
        except TimeoutError as error:
            _when_over(begun, late)
            raise TimedOut(
                f"{what} took more than {limit_seconds:g} s and was given up; does a file system hang?"
            ) from error
        finally:
            del begun  # an error's traceback has this frame, which would keep the error, and all that its work had

    def _begin(self, work: Callable[[], T], turn: asyncio.Lock) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        future.add_done_callback(_looked_at)

        def done(settle: Callable[[], None]) -> None:
            self._places.release()
            turn.release()
            if not future.done():
                settle()

        def report(settle: Callable[[], None]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the daemon ends
                loop.call_soon_threadsafe(done, settle)

        def failed(error: Exception) -> None:
            traceback.clear_frames(error.__traceback__)  # what the work had, and the way from the error to itself
            report(partial(future.set_exception, error))

        def in_thread() -> Callable[[], None]:
            try:
                return partial(report, partial(future.set_result, work()))
            except Exception as error:
                return partial(failed, error)

        try:
            self._threads.begin(in_thread)
        except RuntimeError as error:
            if self._reserve is None:
                self._places.release()
                turn.release()
                raise Busy("no thread can be started; try again later") from error
            self._reserve.put(in_thread)
        return future


def _forever(works: "queue.SimpleQueue[Work]") -> None:
    while True:
        works.get()()()


def _when_over(begun: "asyncio.Future[T] | None", late: Callable[[], None]) -> None:
    if begun is None:
        late()
    else:
        begun.add_done_callback(lambda _: late())


def _looked_at(future: "asyncio.Future[T]") -> None:
    """Retrieve the error of work that was given up, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()
