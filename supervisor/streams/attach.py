"""One client attached to a run's standard streams: pipes between it and the shim. Each side waits for the other."""

import asyncio
import contextlib
import fcntl
import os
import sys
import termios
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import TracebackType
from typing import Self

import structlog

from shim.frozen import frozen
from supervisor.model.errors import ShimFailed, TimedOut, WrongState
from supervisor.model.values import Winsize
from supervisor.monitor.control import Control, StreamBytes

# -- the read ends of its pipes


CHUNK_BYTES = 64 * 1024  # as much as a pipe holds


class Tap:
    """The data of several pipes, in the order in which it was read. Once `limit_bytes` wait to be taken, the rest stays
    in the pipes, where it holds up the writer. Belongs to the running event loop."""

    def __init__(self) -> None:
        self._limit_bytes = 1
        self._names: dict[int, str] = {}  # by read end, without those that have reached their end
        self._watched: set[int] = set()
        self._queue: deque[tuple[str, bytes]] = deque()
        self._size_bytes = 0
        self._failure: BaseException | None = None
        self._news = asyncio.Event()

    def add(self, name: str) -> int:
        """Add a pipe and return its write end, which the caller closes."""
        ours, theirs = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._names[ours] = name
        self._look()
        return theirs

    async def get(self) -> tuple[str, bytes] | None:
        """Return the next data with its pipe's name; None when all pipes have ended. Raises what was passed to
        `fail`."""
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
        """Let the next `get`, or the waiting one, raise this."""
        self._failure = error
        self._news.set()

    async def failure(self) -> None:
        """Wait for a `fail`, and raise what was passed to it: for when there is nothing to get."""
        while self._failure is None:
            self._news.clear()
            await self._news.wait()
        raise self._failure

    def widen(self, limit_bytes: int) -> None:
        """Raise the limit, so that a writer no longer waits."""
        self._limit_bytes = limit_bytes
        self._look()

    def drop(self) -> None:
        """Close the pipes; what was read from them can still be taken."""
        for fd in list(self._names):
            self._end(fd)

    def _look(self) -> None:
        """Watch the pipes while there is room for their data."""
        if self._size_bytes < self._limit_bytes and len(self._watched) < len(self._names):
            loop = asyncio.get_running_loop()
            for fd in self._names.keys() - self._watched:
                loop.add_reader(fd, self._read, fd)
                self._watched.add(fd)

    def _unwatch(self, fd: int) -> None:
        if fd in self._watched:
            self._watched.remove(fd)
            asyncio.get_running_loop().remove_reader(fd)

    def _read(self, fd: int) -> None:
        """Read one pipe. It is watched until data comes for which there is no room, so that data that is taken at once
        costs no change of what the loop watches."""
        if self._size_bytes >= self._limit_bytes:
            self._unwatch(fd)
            return
        try:
            data = os.read(fd, CHUNK_BYTES)
        except BlockingIOError:
            return
        if data:
            self._queue.append((self._names[fd], data))
            self._size_bytes += len(data)
        else:
            self._end(fd)
        self._news.set()

    def _end(self, fd: int) -> None:
        del self._names[fd]
        self._unwatch(fd)
        os.close(fd)


# -- one client

# The shim holds the other ends as long as the control connection lives, and closes those of the output when it ends. A
# shim that is killed is replaced; the replacement gets the same input pipe, with its contents.


LAST_BYTES = 4 << 20  # of an ended run, whose shim does not wait: more than it holds back for a slow client
BEGIN_SECONDS = 5.0  # how long an existing shim may take to accept the client
REPLACED_SECONDS = 15.0  # how long its replacement may take, if it was killed
LOOK_SECONDS = 0.05  # between two attempts
COUNT_SECONDS = 0.5  # between two checks for dropped bytes
SETTLE_SECONDS = 1.0  # how long a container may take to read what a client has left in its input

log = structlog.get_logger(__name__)


@frozen
class Orders:
    """Who resizes a terminal or closes stdin: exitd-shim, or the foreign shim whose streams it moves."""

    resize: Callable[[Control, Winsize], Awaitable[None]] = Control.resize
    close_stdin: Callable[[Control], Awaitable[None]] = Control.close_stdin


@frozen
class AttachTarget:
    """Whose streams: a container's run, or an exec in it. `over` returns once its end is stored."""

    name: str
    directory: str  # with the shim's control socket
    tty: bool
    stdin: bool
    over: Callable[[], Awaitable[object]]
    orders: Orders = Orders()
    listening: Callable[[], contextlib.AbstractAsyncContextManager[None]] = contextlib.nullcontext  # while attached


@frozen
class WantedStreams:
    """What a client asks for. If not `lossless`, the shim drops and counts what the client does not read in time."""

    stdin: bool = True
    stdout: bool = True
    stderr: bool = True
    lossless: bool = True
    size: Winsize | None = None


@frozen
class Output:
    """A piece of the run's output."""

    stream: str  # stdout | stderr
    data: bytes


@frozen
class Dropped:
    """The total so far."""

    size_bytes: int


Item = Output | Dropped


class AttachSession:
    """A client, attached for the length of an `async with`. One task reads `items`, another may give input
    meanwhile."""

    def __init__(self, target: AttachTarget, wanted: WantedStreams) -> None:
        self.tty = target.tty
        self.stdin = wanted.stdin and target.stdin
        self.written_bytes = 0  # of its input, into the pipe to the shim
        self._wrote = asyncio.Event()
        self._listening = contextlib.AsyncExitStack()
        self._target = target
        self._lossless = wanted.lossless
        self._size = wanted.size if target.tty else None
        self._closing_stdin = False
        self._names = [
            *(["out"] if wanted.stdout else []),
            *(["err"] if wanted.stderr and not target.tty else []),
        ]
        self._input = (-1, -1)  # read end, which every shim gets; write end
        self._tap = Tap()
        self._control: Control | None = None
        self._over: asyncio.Future[object] | None = None
        self._dropped = self._dropped_before = self._reported = (
            0  # by all shims; by earlier shims; reported to the client
        )

    async def __aenter__(self) -> Self:
        """Attach. Raises WrongState when it has ended, ShimFailed when no shim is there, Busy."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._close)
            if self.stdin:
                self._input = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            self._over = asyncio.ensure_future(self._target.over())
            self._over.add_done_callback(lambda _: self._tap.widen(LAST_BYTES))
            if not await self._attach_within(BEGIN_SECONDS):
                raise WrongState(f"{self._target.name} has ended")
            await self._listening.enter_async_context(self._target.listening())
            stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._close()
        finally:
            await self._listening.aclose()

    @property
    def begun(self) -> StreamBytes | None:
        """Return where its part of each stream begins; None if the shim does not say it."""
        return self._control.begun if self._control is not None else None

    # -- output

    async def items(self) -> AsyncGenerator[Item, None]:
        """Yield output and losses until the end of the output or of the run. Nothing is read before it is asked for.
        Raises ShimFailed, TimedOut."""
        while True:
            async for item in self._of_this_shim():
                yield item
            if self._names and await self._ended():
                break
            if not self._names:
                await self._until_lost_or_over()
            if self._is_over():
                break
            log.debug("attached shim gone, waiting for the next", target=self._target.name)
            if not await self._attach_within(REPLACED_SECONDS):
                break
        self._drop_shim()  # with its last message
        if self._dropped > self._reported:
            yield Dropped(self._dropped)

    async def _of_this_shim(self) -> AsyncGenerator[Item, None]:
        loop, counted = asyncio.get_running_loop(), 0.0
        while (item := await self._tap.get()) is not None:
            name, data = item
            yield Output(name, data)
            # A whole pipe full of it: the client has been slow.
            if not self._lossless and len(data) == CHUNK_BYTES and loop.time() >= counted + COUNT_SECONDS:
                counted = loop.time()
                await self._shim_answers()
                self._note_dropped()
                if self._dropped > self._reported:
                    self._reported = self._dropped
                    yield Dropped(self._reported)

    async def _ended(self) -> bool:
        """Return whether the shim has closed the output because it has ended. A shim that still answers has; one that
        does not was killed, unless the run has ended."""
        assert self._over is not None
        answer = asyncio.ensure_future(self._shim_answers())
        try:
            await asyncio.wait((answer, self._over), return_when=asyncio.FIRST_COMPLETED)
            return self._over.done() or answer.result()
        finally:
            answer.cancel()
            await asyncio.wait((answer,))

    async def _shim_answers(self) -> bool:
        assert self._control is not None
        try:
            await self._control.counters()
        except (ShimFailed, TimedOut):
            return False
        return True

    async def _until_lost_or_over(self) -> None:
        """Wait, for a client that only gives input."""
        assert self._control is not None and self._over is not None
        lost, failed = (asyncio.ensure_future(each) for each in (self._control.lost.wait(), self._tap.failure()))
        try:
            await asyncio.wait((lost, failed, self._over), return_when=asyncio.FIRST_COMPLETED)
            if failed.done():
                failed.result()
        finally:
            for each in (lost, failed):
                each.cancel()
            await asyncio.wait((lost, failed))

    def _note_dropped(self) -> None:
        assert self._control is not None
        if self._control.newest is not None:
            self._dropped = self._dropped_before + self._control.newest.missed_bytes

    # -- input

    async def write(self, data: bytes) -> None:
        """Write input; waits while the container does not read. Does nothing if stdin is closed."""
        rest = memoryview(data)
        while self.stdin and rest:
            try:
                count = os.write(self._input[1], rest)
                self.written_bytes += count
                self._wrote.set()
                rest = rest[count:]
            except BlockingIOError:
                await self._writable(self._input[1])

    async def written(self, least_bytes: int) -> int:
        """Return how much input was written once it is so much."""
        while self.written_bytes < least_bytes:
            self._wrote.clear()
            await self._wrote.wait()
        return self.written_bytes

    async def resize(self, size: Winsize) -> None:
        """Set the terminal's size; between two shims, the next one gets it. Raises WrongState if there is no
        terminal."""
        if not self.tty:
            raise WrongState(f"{self._target.name} has no terminal to resize")
        self._size = size
        assert self._control is not None
        with contextlib.suppress(ShimFailed, TimedOut):
            await self._target.orders.resize(self._control, size)

    async def close_stdin(self) -> None:
        """Close stdin after everything written so far. Raises WrongState if there is a terminal."""
        if self.tty:
            raise WrongState(f"{self._target.name} has a terminal, whose input is not closed; send ctrl-d")
        self._closing_stdin = True
        assert self._control is not None
        with contextlib.suppress(ShimFailed, TimedOut):
            await self._target.orders.close_stdin(self._control)

    def end_input(self) -> None:
        """End this client's input; the container's stdin stays open."""
        if self._input[1] >= 0:
            os.close(self._input[1])
            self._input = (self._input[0], -1)
        self.stdin = False

    async def settle(self) -> None:
        """Wait until the shim has taken all input, for SETTLE_SECONDS at most."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SETTLE_SECONDS
        while self._input[0] >= 0 and _filled(self._input[0]) and loop.time() < deadline:
            assert self._over is not None
            await asyncio.wait((self._over,), timeout=LOOK_SECONDS)

    def input_over(self, feeding: asyncio.Task[None]) -> None:
        """Note that the task which gave the input has ended. `items` raises its error, if any."""
        if not feeding.cancelled() and (error := feeding.exception()) is not None:
            self._tap.fail(error)

    # -- shims

    async def _attach_within(self, seconds: float) -> bool:
        """Return False if the run has ended, so that no shim will come."""
        assert self._over is not None
        deadline = asyncio.get_running_loop().time() + seconds
        while not self._over.done():
            try:
                await self._attach()
                return True
            except ShimFailed:
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.wait((self._over,), timeout=LOOK_SECONDS)
        return False

    async def _attach(self) -> None:
        self._drop_shim()
        self._control = await Control.open(self._target.directory)
        theirs: list[int] = []
        try:
            for name in self._names:
                theirs.append(self._tap.add({"out": "stdout", "err": "stderr"}[name]))
            await self._ask_to_attach(self._control, theirs)
        finally:
            for fd in theirs:
                os.close(fd)

    async def _ask_to_attach(self, control: Control, outputs: list[int]) -> None:
        mode = "lossless" if self._lossless else "drop"
        with_input = self._input[0] >= 0 and await control.attach(
            ["in", *self._names], mode, [self._input[0], *outputs]
        )
        if not with_input:
            self._give_up_input()
            if self._names:
                await control.attach(self._names, mode, outputs)
        if self._size is not None:
            await self._target.orders.resize(control, self._size)
        if self._closing_stdin:
            await self._target.orders.close_stdin(control)

    def _give_up_input(self) -> None:
        """The container's stdin is closed: wake a writer that waits for room in the pipe."""
        self.stdin = False
        with contextlib.suppress(BlockingIOError):
            while self._input[0] >= 0 and os.read(self._input[0], CHUNK_BYTES):
                pass

    def _drop_shim(self) -> None:
        if self._control is not None:
            self._control.close()
            self._note_dropped()
            self._dropped_before, self._control.newest = self._dropped, None
        self._tap.drop()

    async def _close(self) -> None:
        self._drop_shim()
        for fd in self._input:
            if fd >= 0:
                os.close(fd)
        self._input = (-1, -1)
        if self._over is not None and not self._over.done():
            self._over.cancel()
            await asyncio.wait((self._over,))

    def _is_over(self) -> bool:
        return self._over is not None and self._over.done()

    async def _writable(self, fd: int) -> None:
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_writer(fd, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_writer(fd)


def _filled(fd: int) -> bool:
    """Return whether there is data in the pipe."""
    return bool(int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder))
