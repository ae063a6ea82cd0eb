"""What both asyncio sides share: a connection with bounded buffers, and the queue of a stream's messages."""

import asyncio
import select
from collections import deque
from typing import Self, cast

from google.protobuf.message import Message

from supervisor.ttrpc.faults import CallFailed

MAX_UNSENT = 8 * 1024 * 1024  # bytes for a peer that does not read; with more, the connection is closed
MAX_WAITING = 64  # messages of one stream that have not been taken yet,
MAX_WAITING_BYTES = 1024 * 1024  # and their bytes; with more, nothing is read from the connection
LOOK_SECONDS = 1.0  # between two checks for a hang-up while nothing is read
LAST_WORDS_SECONDS = 0.5

_GONE = select.POLLHUP | select.POLLRDHUP | select.POLLERR


class Wire(asyncio.Protocol):
    """A connection. A peer that ends its side has ended the connection: ttrpc has no half-closed ones."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Event()
        self._room.set()
        self._holders: set[object] = set()  # usually full inboxes
        self._look: asyncio.TimerHandle | None = None

    @property
    def is_closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        """Write. Closes the connection if the peer has left more than MAX_UNSENT bytes unread."""
        if self._transport is None or self._transport.is_closing() or not data:
            return
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > MAX_UNSENT:
            self._transport.abort()

    async def room(self) -> None:
        """Wait until the peer has read most of what was written, or the connection has ended."""
        await (asyncio.sleep(0) if self._room.is_set() else self._room.wait())

    def close(self) -> None:
        """Close; what is written still gets a moment to be read. Repeatable."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            self._loop.call_later(LAST_WORDS_SECONDS, self._transport.abort)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def eof_received(self) -> None:
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._room.set()
        self._holders.clear()
        self._stop_looking()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def hold_reading(self, holder: object) -> None:
        """Read nothing until every holder has let go. A hang-up, which reading would notice, is checked for now and
        then."""
        if not self._holders and not self.is_closed:
            cast(asyncio.Transport, self._transport).pause_reading()
            self._look = self._loop.call_later(LOOK_SECONDS, self._look_for_hangup)
        self._holders.add(holder)

    def go_on_reading(self, holder: object) -> None:
        if holder in self._holders:
            self._holders.remove(holder)
            if not self._holders and not self.is_closed:
                self._stop_looking()
                cast(asyncio.Transport, self._transport).resume_reading()

    def _look_for_hangup(self) -> None:
        if self.is_closed:
            return
        transport = cast(asyncio.Transport, self._transport)
        poll = select.poll()
        poll.register(transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
        if any(events & _GONE for _, events in poll.poll(0)):
            transport.abort()
        else:
            self._look = self._loop.call_later(LOOK_SECONDS, self._look_for_hangup)

    def _stop_looking(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None


class Inbox:
    """What one stream has received, for one consumer. An async iterator; raises the CallFailed with which the stream
    ended."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._messages: deque[tuple[Message, int]] = deque()
        self._size = 0
        self._ended = False
        self._error: CallFailed | None = None
        self._taker: asyncio.Future[None] | None = None

    def put(self, message: Message, size: int) -> None:
        self._messages.append((message, size))
        self._size += size
        if self._is_full():
            self._wire.hold_reading(self)
        self._wake()

    def end(self, error: CallFailed | None = None) -> None:
        """End the stream; what has been received is delivered first."""
        if not self._ended:
            self._ended, self._error = True, error
            self._wake()

    def drop(self) -> None:
        """Drop everything: there is no consumer any more."""
        self._messages.clear()
        self._size = 0
        self._wire.go_on_reading(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while not self._messages:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._taker = asyncio.get_running_loop().create_future()
            await self._taker
        message, size = self._messages.popleft()
        self._size -= size
        if not self._is_full():
            self._wire.go_on_reading(self)
        return message

    def _is_full(self) -> bool:
        return len(self._messages) >= MAX_WAITING or self._size >= MAX_WAITING_BYTES

    def _wake(self) -> None:
        if self._taker is not None and not self._taker.done():
            self._taker.set_result(None)
