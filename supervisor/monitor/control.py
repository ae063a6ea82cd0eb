"""The connection to a run's shim, over the control socket in its run directory. One request at a time, each with a
limit."""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Self

from shim import fields, launch
from shim.frozen import frozen
from shim.undo import undone_on_failure
from supervisor.model.errnos import USED_UP
from supervisor.model.errors import Busy, ExitdError, ShimFailed, TimedOut, WrongState
from supervisor.model.values import Counters, Winsize
from supervisor.system import room

SOCKET_NAME = "control.sock"
FOR_A_LINE = 2  # descriptors: one for the connection and, for a moment, one for the directory
ANSWER_SECONDS = 5.0
LOOK_SECONDS = 1.0  # the limit for counters that are only displayed
QUEUE_SECONDS = 0.02  # between two attempts while the queue of connections is full
WRONG = frozenset({errno.ENOTTY, errno.ENXIO, errno.EBADF})  # the request is valid, but not for this container
FULL = frozenset({errno.EBUSY, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM, errno.EUSERS})


_KIND = socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK


@frozen
class StreamBytes:
    """How much of each stream a run has had when a client was attached: where that client's part begins."""

    stdout: int = 0
    stderr: int = 0
    stdin: int = 0


class Control:
    """One connection. Streams attached over it stay attached until it is closed; `lost` is set when the shim closes it.

    Every request raises ShimFailed when the shim is gone, TimedOut when it does not answer, and WrongState or Busy when
    it refuses.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.lost = asyncio.Event()
        self.begun: StreamBytes | None = None  # at the attach; None: there was none, or the shim is of an older version
        self.newest: Counters | None = None  # a shim that ends sends them unasked
        self._socket = connection
        self._turn = asyncio.Lock()
        self._answer: asyncio.Future[fields.Message] | None = None
        asyncio.get_running_loop().add_reader(connection.fileno(), self._readable)

    @classmethod
    async def open(cls, directory: str) -> Self:
        """Connect to the shim of this run directory; waits for free descriptors.

        Raises:
            ShimFailed: no shim listens there.
            Busy: it is not known whether one does, for lack of memory or descriptors.
        """
        try:
            async with _limited(ANSWER_SECONDS, "its queue of connections is full"):
                await room.wait_for(FOR_A_LINE, f"a line to the shim in {directory}", "the shim was not asked")
                connection = socket.socket(socket.AF_UNIX, _KIND)
                with undone_on_failure(connection.close):
                    await _connect(connection, directory)
                    return cls(connection)
        except OSError as error:
            raise _unsent(error, f"no shim listens in {directory}") from error

    async def attach(self, streams: Sequence[str], mode: str, descriptors: Sequence[int]) -> bool:
        """Attach to the container's streams. Return False, with nothing attached, if `in` is wanted and stdin is
        closed.

        Args:
            streams: the wanted ones of in, out, err, in this order.
            mode: lossless | drop.
            descriptors: for each stream the end of a pipe that goes to the shim.
        """
        pairs = [("streams", ",".join(streams)), ("mode", mode)]
        message = await self._ask("attach", pairs, descriptors, fine=errno.EPIPE)
        if message.kind != "exitd-refused" and message.get("in"):
            try:
                self.begun = StreamBytes(message.number("out"), message.number("err"), message.number("in"))
            except fields.BadMessage as error:
                self.close()
                raise ShimFailed(f"the shim's answer to attach cannot be read: {error}") from error
        return message.kind != "exitd-refused"

    async def resize(self, size: Winsize) -> None:
        """Set the size of the terminal, in characters. Raises ShimFailed, WrongState, TimedOut, Busy."""
        await self._ask("resize", [("rows", size.rows), ("cols", size.cols)])

    async def close_stdin(self) -> None:
        """Close stdin after everything that was sent over attached pipes. Does nothing if it is closed already."""
        await self._ask("close-stdin", fine=errno.EPIPE)

    async def reopen_log(self) -> None:
        """Have the shim open its log files by their paths again. Raises ShimFailed, WrongState, TimedOut, Busy."""
        await self._ask("reopen-log")

    async def end(self) -> None:
        """Report to a shim that only moves a foreign process's streams that the process has ended. Repeatable."""
        await self._ask("end")

    async def register(self) -> bool:
        """Ask the shim to register with the present keeper, which then gets copies of its descriptors. The shim does so
        after its answer. Return False if the shim is of an older version that cannot do that."""
        return (await self._ask("register", fine=errno.ENOSYS)).kind != "exitd-refused"

    async def counters(self) -> Counters:
        """Ask for the counters of its streams. Raises ShimFailed, WrongState, TimedOut, Busy."""
        await self._ask("counters")
        if self.newest is None:
            raise ShimFailed("the shim answered something else than its counters")
        return self.newest

    def close(self) -> None:
        """Repeatable."""
        if self._socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._read()
            self._socket.close()
        self.lost.set()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ShimFailed("the shim closed the control connection"))

    async def _ask(
        self, op: str, pairs: Sequence[tuple[str, str | int]] = (), descriptors: Sequence[int] = (), *, fine: int = -1
    ) -> fields.Message:
        """Send a request and wait for its answer. A refusal with the errno `fine` is no error."""
        async with _limited(ANSWER_SECONDS, f"no answer to {op}"), self._turn:
            request = fields.encode("exitd-control", [("op", op), *pairs])
            try:
                message = await self._answered(request, descriptors)
            except (asyncio.CancelledError, ExitdError):
                self.close()  # else a late answer would be taken for that of the next request
                raise
        if message.kind == "exitd-refused" and message.get("errno") != str(fine):
            raise _refusal(op, message)
        return message

    async def _answered(self, request: bytes, descriptors: Sequence[int]) -> fields.Message:
        try:
            socket.send_fds(self._socket, [request], list(descriptors))
        except OSError as error:
            raise _unsent(error, "the shim takes no request") from error
        self._answer = asyncio.get_running_loop().create_future()
        try:
            return await self._answer
        finally:
            self._answer = None

    def _readable(self) -> None:
        if not self._read():
            self.close()

    def _read(self) -> bool:
        """Read everything that has arrived. Return False if no more will come, or if it cannot be decoded."""
        while True:
            try:
                data, passed = launch.receive(self._socket)
                for fd in passed:
                    os.close(fd)
                message = fields.decode(data)
                if message.kind == "exitd-counters":
                    self.newest = _counters(message)
            except BlockingIOError:
                return True
            except (OSError, fields.BadMessage):  # an empty message, which marks the end, is a BadMessage, too
                return False
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(message)


@contextlib.asynccontextmanager
async def opened(directory: str) -> AsyncIterator[Control]:
    """Open a connection for the length of the block. Raises what `Control.open` does."""
    control = await Control.open(directory)
    try:
        yield control
    finally:
        control.close()


async def counters_of(directory: str) -> Counters | None:
    """Return the shim's counters; None if there is no shim, or if it does not answer in time."""
    try:
        async with _limited(LOOK_SECONDS, "no counters"), opened(directory) as control:
            return await control.counters()
    except ExitdError:
        return None


@contextlib.asynccontextmanager
async def _limited(seconds: float, what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise TimedOut(f"the shim did not answer in {seconds:g} s: {what}") from error


async def _connect(connection: socket.socket, directory: str) -> None:
    """Connect through a descriptor: a run directory's path is nearly as long as a socket's may be."""
    directory_fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        while True:
            with contextlib.suppress(BlockingIOError):
                return connection.connect(f"/proc/self/fd/{directory_fd}/{SOCKET_NAME}")
            await asyncio.sleep(QUEUE_SECONDS)
    finally:
        os.close(directory_fd)


def _unsent(error: OSError, text: str) -> ExitdError:
    """Return the error for a failed send or connect. What this process lacks says nothing about the shim."""
    if error.errno in USED_UP:
        return Busy(f"{error.strerror}: this machine, or the daemon's limits on it, give no more; try again")
    return ShimFailed(f"{text}: {error.strerror}")


def _counters(message: fields.Message) -> Counters:
    """Raises BadMessage."""
    keys = ("out", "err", "in", "lost", "dropped", "in_session", "missed_session")
    return Counters(*(message.number(key) for key in keys))


def _refusal(op: str, message: fields.Message) -> ExitdError:
    number = int(word) if (word := message.get("errno")).isdigit() else 0
    text = f"{op}: {message.get('why') or os.strerror(number)}"
    if number in WRONG:
        return WrongState(text)
    return Busy(f"{text}; try again") if number in FULL else ShimFailed(text)
