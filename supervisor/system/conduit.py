"""Streams of bytes between a thread, which may block, and the event loop, which may not: a few parts on their way, a
limit for each wait, and an end that both sides learn of.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator

from supervisor.model.errors import TimedOut

MOST_PARTS = 8
STALL_SECONDS = 60.0  # that the other side may take for one part


class StreamOver(Exception):
    """The event loop's side is gone: it does not read, or send, any more."""


class _Conduit:
    """`what` names the stream in errors. Belongs to the loop in which it was made."""

    def __init__(self, what: str, stall_seconds: float) -> None:
        self._what, self._stall_seconds = what, stall_seconds
        self._parts: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._loop = asyncio.get_running_loop()
        self._awake = asyncio.Event()
        self._ended = False  # by the side that writes
        self._closed = False  # by the loop's side
        self._error: BaseException | None = None
        self._sign_of_life = 0.0  # of the thread's side, by the loop's clock

    def _notify(self) -> None:
        """For the thread: the loop's side looks again."""
        try:
            self._loop.call_soon_threadsafe(self._awake.set)
        except RuntimeError as error:  # the loop is closed: the daemon ends
            raise StreamOver from error

    async def _until(self, holds: Callable[[], bool], deadline: float, why: str) -> None:
        """Return when it holds, also where that and the deadline come in one turn of the loop. Raises TimedOut."""
        while not holds():
            try:
                async with asyncio.timeout_at(deadline):
                    await self._awake.wait()
                self._awake.clear()
            except TimeoutError as error:
                if not holds():
                    raise TimedOut(f"{self._what}: {why}") from error

    def close(self) -> None:
        """The loop's side has no more to do with it: the thread gets StreamOver at its next part. Repeatable."""
        with self._changed:
            self._closed = True
            self._parts.clear()
            self._changed.notify_all()

    def break_off(self, error: Exception) -> None:
        """For the loop: both sides get this in the place of the next part, unless it has ended."""
        with self._changed:
            if self._ended or self._closed:
                return
            self._ended, self._error = True, error
        self.close()
        self._awake.set()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise self._error or StreamOver


class Outflow(_Conduit):
    """From a thread to the loop."""

    def __init__(self, what: str, stall_seconds: float = STALL_SECONDS) -> None:
        super().__init__(what, stall_seconds)

    def put(self, part: bytes) -> None:
        """For the thread. Waits while the reader is behind. Raises StreamOver; TimedOut when it takes nothing."""
        with self._changed:
            room = self._changed.wait_for(lambda: self._closed or len(self._parts) < MOST_PARTS, self._stall_seconds)
            self._refuse_closed()
            if not room:
                raise TimedOut(f"{self._what}: nothing was taken for {self._stall_seconds:g} s, it is given up")
            self._parts.append(part)
        self._notify()

    def working(self) -> None:
        """For the thread: it has no part yet, and is at work on one, so that the reader waits on. Raises StreamOver."""
        self._refuse_closed()
        self._sign_of_life = self._loop.time()

    def end(self, error: BaseException | None = None) -> None:
        """For the thread, or the loop: there are no more parts, or this is why. The first end counts."""
        with self._changed:
            if not self._ended:
                self._ended, self._error = True, error
        self._notify()

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the parts. Raises what `end` got; TimedOut when neither one nor a sign of life comes: a file system
        hangs, or no turn came."""
        while True:
            await self._come()
            with self._changed:
                part = self._parts.popleft() if self._parts else None
                self._changed.notify_all()
            if part is None:
                if self._error is not None:
                    raise self._error
                return
            yield part

    async def _come(self) -> None:
        """Return when there is a part, or the end."""
        since, why = self._loop.time(), f"nothing came for {self._stall_seconds:g} s; does a file system hang?"
        while True:
            try:
                return await self._until(lambda: bool(self._parts or self._ended), since + self._stall_seconds, why)
            except TimedOut:
                if self._sign_of_life <= since:
                    raise
                since = self._sign_of_life


class Inflow(_Conduit):
    """From the loop to a thread."""

    def __init__(self, what: str, stall_seconds: float = STALL_SECONDS) -> None:
        super().__init__(what, stall_seconds)

    async def put(self, part: bytes) -> bool:
        """For the loop. Waits while the thread is behind. Return False once the thread takes no more. Raises TimedOut
        when it takes nothing."""
        why = f"nothing was written for {self._stall_seconds:g} s; does a file system hang?"
        deadline = self._loop.time() + self._stall_seconds
        await self._until(lambda: len(self._parts) < MOST_PARTS or self._ended, deadline, why)
        with self._changed:
            if not self._ended:
                self._parts.append(part)
            self._changed.notify_all()
            return not self._ended

    def finish(self) -> None:
        """For the loop: that was all."""
        with self._changed:
            self._parts.append(b"")
            self._changed.notify_all()

    def taken(self) -> None:
        """For the thread: it takes no more."""
        with self._changed:
            self._ended = True
        self._notify()

    def parts(self) -> Iterator[bytes]:
        """For the thread. Yield the parts up to `finish`. Raises StreamOver; TimedOut when none comes."""
        while True:
            with self._changed:
                limit = self._stall_seconds + 1  # the loop's own limit comes first
                self._changed.wait_for(lambda: self._closed or bool(self._parts), limit)
                self._refuse_closed()
                if not self._parts:
                    raise TimedOut(f"{self._what}: nothing came for {self._stall_seconds:g} s, it is given up")
                part = self._parts.popleft()
            self._notify()
            if not part:
                return
            yield part
