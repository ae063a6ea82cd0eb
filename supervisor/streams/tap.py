"""The read ends of pipes, and the little that has been read from them for somebody who has not asked for it yet."""

import asyncio
import os
from collections import deque

CHUNK_BYTES = 64 * 1024  # as much as a pipe holds


class Tap:
    """What several pipes have, in the order in which it is read. Once `limit_bytes` wait to be taken, the rest stays in
    the pipes and holds up who writes. Belongs to the running event loop."""

    def __init__(self) -> None:
        self._limit_bytes = 1
        self._names: dict[int, str] = {}  # by read end, of those that are not at their end
        self._watched: set[int] = set()
        self._queue: deque[tuple[str, bytes]] = deque()
        self._size_bytes = 0
        self._failure: BaseException | None = None
        self._news = asyncio.Event()

    def add(self, name: str) -> int:
        """A new pipe's write end, which the caller closes."""
        ours, theirs = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._names[ours] = name
        self._look()
        return theirs

    async def get(self) -> tuple[str, bytes] | None:
        """The next data with its pipe's name; None when all pipes are at their end. Raises what `fail` was given."""
        while True:
            if self._failure is not None:
                raise self._failure
            if self._queue:
                name, data = self._queue.popleft()
                self._size_bytes -= len(data)
                self._look()
                return name, data
            if not self._names:
                return None
            self._news.clear()
            await self._news.wait()

    def fail(self, error: BaseException) -> None:
        """The next `get`, or the one that waits, raises this."""
        self._failure = error
        self._news.set()

    async def failure(self) -> None:
        """Raises what `fail` is given; waits for it. For when there is nothing to get."""
        while self._failure is None:
            self._news.clear()
            await self._news.wait()
        raise self._failure

    def widen(self, limit_bytes: int) -> None:
        """That much may wait from now on: who writes will not wait any more."""
        self._limit_bytes = limit_bytes
        self._look()

    def drop(self) -> None:
        """The pipes are closed; what was read from them can still be taken."""
        for fd in list(self._names):
            self._end(fd)

    def _look(self) -> None:
        """The loop looks at the pipes only while there is room for what it would find."""
        loop, wanted = asyncio.get_running_loop(), set(self._names if self._size_bytes < self._limit_bytes else ())
        for fd in self._watched - wanted:
            loop.remove_reader(fd)
        for fd in wanted - self._watched:
            loop.add_reader(fd, self._read, fd)
        self._watched = wanted

    def _read(self, fd: int) -> None:
        if self._size_bytes >= self._limit_bytes:  # another pipe was quicker in this turn of the loop
            return
        try:
            data = os.read(fd, CHUNK_BYTES)
        except BlockingIOError:
            return
        if data:
            self._queue.append((self._names[fd], data))
            self._size_bytes += len(data)
            self._look()
        else:
            self._end(fd)
        self._news.set()

    def _end(self, fd: int) -> None:
        del self._names[fd]
        self._look()
        os.close(fd)
