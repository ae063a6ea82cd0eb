"""Bounds gRPC's requests whose bytes are still coming: only so many are received at once, and none for ever.

gRPC opens a call's window for all of its message when the message is asked for, and keeps what has come of it. It has
no bound for all of them together (its resource quota cannot be set from Python), so exitd asks for few at a time: of a
message that it has not asked for yet the first window is kept, FIRST_WINDOW_BYTES. A message that takes its time makes
room for those that wait.

Time is counted in looks: a loop that stood still finds what has come meanwhile before it judges a call.
"""

import asyncio
from collections import OrderedDict
from typing import Any, Never, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from supervisor.api import details
from supervisor.model.errors import BadRequest, Busy, ExitdError, TimedOut

FIRST_WINDOW_BYTES = 16 << 10
MOST = 16  # messages that are received at once; of 4 MiB each
MOST_CALLS = 20_000  # under way at once; each holds some 27 KB
MOST_STREAMS = 256  # of requests, at once: only the first request of each is counted among the MOST
PATIENCE_SECONDS = 0.5  # that a message may take while others wait
LONGEST_SECONDS = 60.0  # that it may take at all
LOOK_SECONDS = 0.05
REST_SECONDS = 1.0  # between looks while no call waits
MOST_STUCK = 8  # refused calls whose answer cannot be written, beside the MOST; each keeps what has come of its message
STUCK_SECONDS = 2.0  # that an answer may take before it counts as stuck
PLACE_SECONDS = 8.0  # that the first of a stream of requests waits for a place: less than `start` may take

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"  # generic only in its stubs

_STATUS = {status.value[0]: status for status in grpc.StatusCode}


async def refuse(context: Context, refusal: details.Refusal) -> Never:
    """Answer the call with the refusal.

    Raises:
        grpc.aio.AbortError: always, once it is answered.
        CancelledError: the call has its answer already.
    """
    if context.done():
        raise asyncio.CancelledError
    await context.abort(_STATUS[refusal.code], refusal.text, ((details.KEY, refusal.details),))
    raise AssertionError("abort always raises")


async def read(context: Context) -> Any:
    """Return the next request of a call, or EOF after the last. Raises AbortError: it is no message of its kind."""
    try:
        return await later(context)
    except BadRequest as error:
        await _refused(context, error)


async def later(context: Context) -> Any:
    """Return the next request of a call that has begun, or EOF. Raises BadRequest: it is no message of its kind."""
    try:
        return await context.read()
    except DecodeError as error:
        raise BadRequest(f"the request is no message of its kind: {error}") from error


async def _refused(context: Context, error: ExitdError) -> Never:
    await refuse(context, details.refusal(error))


class Unfinished:
    """Holds the calls whose messages are being received, oldest first, and those that wait for a place."""

    def __init__(
        self,
        most: int = MOST,
        patience_seconds: float = PATIENCE_SECONDS,
        longest_seconds: float = LONGEST_SECONDS,
        most_streams: int = MOST_STREAMS,
        place_seconds: float = PLACE_SECONDS,
    ) -> None:
        self._most, self._most_streams = most, most_streams
        self._patience, self._longest = patience_seconds, longest_seconds
        self._place_seconds = place_seconds
        self._receiving: OrderedDict[Context, float] = OrderedDict()  # seconds so far, in looks
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._woken = 0  # that have a place and have not run since
        self._look: asyncio.TimerHandle | None = None
        self._pause = 0.0  # until that look
        self._ending: dict[asyncio.Task[Never], float] = {}  # seconds so far, in looks
        self._streams = 0
        self.choked = asyncio.Event()  # it was so at a look

    async def request(self, context: Context) -> Any:
        """Return the one request of a call. Raises AbortError: there is none, or it does not come."""
        found = await self.first(context)
        if found is grpc.aio.EOF:
            await _refused(context, BadRequest("the call has no request"))
        return found

    async def start(self, context: Context) -> Any:
        """Return the first request of a stream, or EOF. Raises AbortError: it finds no place, or does not come."""
        try:
            async with asyncio.timeout(self._place_seconds):
                await self._place()
        except TimeoutError:
            text = f"found no place to send its first request in {self._place_seconds:g} s; try again"
            await _refused(context, Busy(text))
        return await self._received(context)

    async def first(self, context: Context) -> Any:
        """Return the first of several requests, or EOF where there is none. Raises AbortError: it does not come."""
        await self._place()
        return await self._received(context)

    async def _received(self, context: Context) -> Any:
        self._receiving[context] = 0.0
        self._look_in(LOOK_SECONDS if self._waiting else REST_SECONDS)
        try:
            return await read(context)
        finally:
            self._receiving.pop(context, None)
            self._next()

    async def streaming(self, context: Context) -> None:
        """Count a call with a stream of requests; `streamed` follows at its end. Raises AbortError: too many."""
        if self._streams >= self._most_streams:
            await _refused(context, Busy(f"{self._streams} streams of requests are open already; try again"))
        self._streams += 1

    def streamed(self) -> None:
        self._streams -= 1

    async def _place(self) -> None:
        if self._has_place() and not self._waiting:
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = None
        self._look_in(LOOK_SECONDS)
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.pop(turn, None)
            if turn.done() and not turn.cancelled():
                self._woken -= 1
                self._next()
            raise
        self._woken -= 1

    def _next(self) -> None:
        """Wake the next calls, as many as there are places. Each takes its own when it runs, in this turn of the loop
        or the next."""
        while self._waiting and self._has_place():
            turn, _ = self._waiting.popitem(last=False)
            if not turn.done():
                turn.set_result(None)
                self._woken += 1

    def _has_place(self) -> bool:
        """Return whether one more message may be received. Refused ones beyond MOST_STUCK take places, too."""
        kept = max(0, len(self._ending) - MOST_STUCK)
        return len(self._receiving) + self._woken + kept < self._most

    def is_choked(self) -> bool:
        """Return whether more than MOST_STUCK answers cannot be written: their clients do not read."""
        return sum(seconds > STUCK_SECONDS for seconds in self._ending.values()) > MOST_STUCK

    def _look_in(self, seconds: float) -> None:
        if self._look is not None:
            if self._pause <= seconds:
                return
            self._look.cancel()
        self._pause = seconds
        self._look = asyncio.get_running_loop().call_later(seconds, self._age)

    def _age(self) -> None:
        self._look = None
        for context in self._receiving:
            self._receiving[context] += self._pause
        for ending in self._ending:
            self._ending[ending] += self._pause
        for context, seconds in tuple(self._receiving.items()):
            if seconds > self._longest:
                self._end(context, TimedOut(f"the request was not complete after {self._longest:g} s"))
            elif self._waiting and seconds > self._patience:
                text = f"the request was not complete after {seconds:.2g} s, and others wait to send theirs; try again"
                self._end(context, Busy(text))
        if self.is_choked():
            self.choked.set()
        if self._receiving or self._waiting or self._ending:
            self._look_in(LOOK_SECONDS if self._waiting else REST_SECONDS)

    def _end(self, context: Context, error: ExitdError) -> None:
        """Refuse a call under way, and give its place away: its reader may never return, where the refusal cannot be
        written because the client does not read."""
        del self._receiving[context]  # judged once
        ending = asyncio.create_task(_refused(context, error))
        self._ending[ending] = 0.0
        ending.add_done_callback(self._ended)
        self._next()

    def _ended(self, ending: asyncio.Task[Never]) -> None:
        del self._ending[ending]
        self._next()
        if not ending.cancelled():
            ending.exception()  # AbortError, or the peer has gone
