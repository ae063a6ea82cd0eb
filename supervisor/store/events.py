"""The event log as its readers see it: numbered, and never silently incomplete.

A subscriber is a cursor, not a queue: all it holds is the number of the last event that it received. It reads from the
ring of the newest events, or from the store when it is further behind. So a subscriber that does not read costs no
memory, and if compaction deletes events that it has not read, it receives a `Lost`.

Events are published strictly by number. Commits are acknowledged in the order of their numbers, but the tasks that
waited for them run in any order, and a cancelled task never publishes. So `publish` holds back early events, and a gap
that stays for `gap_seconds` is filled from the store. A number whose event could not be stored is no gap: no subscriber
gets it, and readers pass over it.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Protocol

from shim.frozen import frozen, mutable
from supervisor.model.errors import BadRequest, Compacted, StoreFailed
from supervisor.model.filters import EVERYTHING
from supervisor.model.values import Event
from supervisor.store.database import Store
from supervisor.system.clock import Clock

BATCH = 500  # events read at a time
BOOKMARK_EVERY = 1000  # events filtered out before a bookmark reports the position


@frozen
class Bookmark:
    """Every event up to and including `seq` that passes the filter has been delivered."""

    seq: int


@frozen
class Lost:
    """Events from `first` to `last`, both included, were deleted before this subscriber read them."""

    first: int
    last: int


Item = Event | Bookmark | Lost


class Matching(Protocol):
    """A filter of events."""

    def matches_event(self, event: Event) -> bool: ...


@frozen
class WantedEvents:
    """What a subscriber asked for. Times are wall time in ns, both ends included; `follow=False` ends at `end`."""

    filter: Matching = EVERYTHING
    since_ns: int | None = None
    until_ns: int | None = None
    end: int | None = None

    def has(self, event: Event) -> bool:
        """Return whether the event is of the wanted time and matches; `end` is not looked at."""
        if self.since_ns is not None and event.time_ns < self.since_ns:
            return False
        if self.until_ns is not None and event.time_ns > self.until_ns:
            return False
        return self.filter.matches_event(event)


@mutable
class _Cursor:
    """A subscriber's position: events up to `seq` are dealt with, and the subscriber has received, or been sent
    a bookmark of, all up to `known`."""

    seq: int
    known: int


class EventLog:
    """The newest `ring` events, and the store behind them. Belongs to one event loop; make it inside that loop."""

    def __init__(
        self, store: Store, clock: Clock, *, ring: int = 4096, idle_seconds: float = 30.0, gap_seconds: float = 1.0
    ) -> None:
        self._store = store
        self._clock = clock
        self._ring: list[Event | None] = [None] * ring
        self._ring_first = self._last = store.last_seq()  # the ring holds the events above _ring_first
        self._held: dict[int, Event] = {}
        self._idle_seconds = idle_seconds
        self._gap_seconds = gap_seconds
        self._wakes: set[asyncio.Event] = set()
        self._at_head: dict[asyncio.Event, tuple[_Cursor, Callable[[Event], bool]]] = {}  # eager readers that wait
        self._ticks = 0
        self._ticker: asyncio.TimerHandle | None = None
        self._gap_filler: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def last_seq(self) -> int:
        """The number of the newest published event."""
        return self._last

    async def before_tasks(self, seq: int) -> int:
        """Return the number, at least `seq`, up to which no published event above `seq` is about a task of
        containerd's. Reads none of them, so it takes no time to speak of. `seq` itself where events above it are no
        longer kept. Raises StoreFailed."""
        last = self._last
        if last <= seq or self._store.oldest_seq() > seq + 1:
            return seq
        first = await self._store.first_seq_with_task(seq, last)
        return last if first is None else first - 1

    @property
    def oldest_seq(self) -> int:
        """The number of the oldest stored event."""
        return self._store.oldest_seq()

    @property
    def subscribers(self) -> int:
        return len(self._wakes)

    def publish(self, events: Iterable[Event]) -> None:
        """Publish numbered events, as `Store.commit` returned them. They may come early or repeatedly."""
        self._held.update((event.seq, event) for event in events if event.seq > self._last)
        before = self._last
        while (event := self._held.pop(self._next_number(), None)) is not None:
            previous, self._last = self._last, event.seq
            for number in range(previous + 1, event.seq):
                self._ring[number % len(self._ring)] = None
            self._ring[event.seq % len(self._ring)] = event
            self._give(event, previous)
        self._ring_first = max(self._ring_first, self._last - len(self._ring))
        if self._last > before:
            self._wake_behind()
        if self._held:
            self._watch_gap()

    def _next_number(self) -> int:
        """The number of the next event. No subscriber gets a void number before there is an event behind it: the next
        daemon gives the newest ones again if no event does."""
        number = self._last + 1
        while self._store.is_void(number):
            number += 1
        return number

    def _give(self, event: Event, previous: int) -> None:
        """Give an event to the eager readers that have all up to the one before it. One that does not take it reads it
        later."""
        for cursor, take in [*self._at_head.values()]:
            if cursor.seq == previous and take(event):
                cursor.seq = cursor.known = event.seq

    async def subscribe(
        self,
        from_seq: int | None = None,
        filter: Matching = EVERYTHING,
        *,
        since_ns: int | None = None,
        until_ns: int | None = None,
        follow: bool = True,
        at_once: Callable[[Event], bool] | None = None,
    ) -> AsyncGenerator[Item, None]:
        """Yield events from `from_seq` on (0: the oldest one stored), or from the time `since_ns` on, or from now on.

        Without `follow` it ends at the newest event of this moment, and begins at the oldest unless a beginning is
        given. With `until_ns` it ends at that wall time. `at_once` is for readers of everything: while the reader waits
        at the end of the log, it is called with each event in the moment of its publication. It does not raise, and
        returns False for an event that is to be yielded later. Raises Compacted (metadata: oldest, newest) when the
        events are no longer stored, BadRequest.
        """
        newest = self._last
        cursor = await self._beginning(from_seq, since_ns, newest if follow else self._store.oldest_seq() - 1)
        wanted = WantedEvents(filter, since_ns, until_ns, end=None if follow else newest)
        return self._read(_Cursor(cursor, cursor), wanted, at_once)

    def close(self) -> None:
        """End every subscription once it has received what is published."""
        self._closed = True
        if self._gap_filler is not None:
            self._gap_filler.cancel()
        if self._ticker is not None:
            self._ticker.cancel()
        self._wake_all()

    async def _beginning(self, from_seq: int | None, since_ns: int | None, default: int) -> int:
        """Return the number of the last event before the first wanted one."""
        oldest, newest = self._store.oldest_seq(), max(self._store.last_seq(), self._last)
        if from_seq is None:
            if since_ns is None:
                return default
            first = await self._store.first_seq_since(since_ns)
            return newest if first is None else first - 1
        if from_seq == 0:
            return oldest - 1
        limits = {"oldest": str(oldest), "newest": str(newest)}
        if from_seq < oldest:
            text = f"event {from_seq} is no longer kept, the oldest is {oldest}; list again, or begin there"
            raise Compacted(text, **limits)
        if from_seq > newest + 1:
            text = f"event {from_seq} was asked for, the newest is {newest}: this is not the log that number is from"
            raise BadRequest(text, **limits)
        return from_seq - 1

    async def _read(
        self, cursor: _Cursor, wanted: WantedEvents, at_once: Callable[[Event], bool] | None
    ) -> AsyncGenerator[Item, None]:
        wake = asyncio.Event()
        self._join(wake)
        timer = self._wake_at(wanted.until_ns, wake)
        try:
            ticks = self._ticks
            while True:
                wake.clear()
                over = self._closed or self._is_past(wanted.until_ns)  # checked before reading: nothing is left out
                async for item in self._catch_up(cursor, wanted):
                    ticks = self._ticks
                    yield item
                at_end = wanted.end is not None and cursor.seq >= wanted.end
                if over or at_end:
                    break
                if ticks != self._ticks:  # a whole interval without an item
                    ticks, cursor.known = self._ticks, cursor.seq
                    yield Bookmark(cursor.seq)
                if at_once is not None:
                    self._at_head[wake] = cursor, at_once
                await wake.wait()
                self._at_head.pop(wake, None)
            if cursor.seq > cursor.known:
                yield Bookmark(cursor.seq)
        finally:
            if timer is not None:
                timer.cancel()
            self._wakes.discard(wake)
            self._at_head.pop(wake, None)

    async def _catch_up(self, cursor: _Cursor, wanted: WantedEvents) -> AsyncGenerator[Item, None]:
        """Yield the published events beyond the cursor. The cursor moves before the item is yielded."""
        while cursor.seq < (goal := self._last if wanted.end is None else min(wanted.end, self._last)):
            batch, upto = await self._next_batch(cursor.seq, goal)
            beyond = min(batch[0].seq if batch else upto + 1, self._store.oldest_seq())
            if beyond > cursor.seq + 1:
                lost = Lost(cursor.seq + 1, beyond - 1)
                cursor.seq = cursor.known = lost.last
                yield lost
            for event in batch:
                cursor.seq = event.seq
                if wanted.has(event):
                    cursor.known = event.seq
                    yield event
                elif cursor.seq - cursor.known >= BOOKMARK_EVERY:
                    cursor.known = cursor.seq
                    yield Bookmark(cursor.seq)
            cursor.seq = max(cursor.seq, upto)

    async def _next_batch(self, seq: int, goal: int) -> tuple[list[Event], int]:
        """Return published events above `seq`, at most BATCH, and the number up to which they are all that there
        are."""
        if seq >= self._ring_first:
            last = min(goal, seq + BATCH)
            ring = (self._ring[number % len(self._ring)] for number in range(seq + 1, last + 1))
            return [event for event in ring if event is not None], last
        found = await self._store.events_after(seq, BATCH)
        batch = [event for event in found if event.seq <= goal]
        return batch, batch[-1].seq if len(found) == BATCH and batch else goal

    def _watch_gap(self) -> None:
        if self._gap_filler is None and not self._closed and (self._held or self._store.last_seq() > self._last):
            self._gap_filler = asyncio.get_running_loop().create_task(self._fill_gap())

    async def _fill_gap(self) -> None:
        """The task that should have published the next event was cancelled, or takes too long."""
        while self._held or self._store.last_seq() > self._last:
            stuck_at = self._last
            await asyncio.sleep(self._gap_seconds)
            if self._last == stuck_at:
                with contextlib.suppress(StoreFailed):  # tried again
                    await self._fill()
        self._gap_filler = None

    async def _fill(self) -> None:
        """Publish what is stored. Transactions are stored in their order: a number below a stored one that is not
        stored itself never will be, unless it is on its way into the ring of ends."""
        stored, under_way = self._store.last_seq(), self._store.first_under_way()
        found = await self._store.events_after(self._last, BATCH)
        found = [event for event in found if under_way is None or event.seq < under_way]
        if found and self._last < found[0].seq - 1 <= stored:
            self._last = found[0].seq - 1
        self.publish(found)

    def _join(self, wake: asyncio.Event) -> None:
        self._wakes.add(wake)
        if self._ticker is None:
            self._ticker = asyncio.get_running_loop().call_later(self._idle_seconds, self._tick)

    def _tick(self) -> None:
        """One timer for all: with timers of their own, every subscriber would cost something at every event."""
        self._ticks += 1
        self._watch_gap()
        self._wake_all()
        self._ticker = None
        if self._wakes and not self._closed:
            self._ticker = asyncio.get_running_loop().call_later(self._idle_seconds, self._tick)

    def _wake_behind(self) -> None:
        """Wake those that have something to read: an eager reader that took all has not."""
        for wake in self._wakes:
            eager = self._at_head.get(wake)
            if eager is None or eager[0].seq < self._last:
                wake.set()

    def _wake_all(self) -> None:
        for wake in self._wakes:
            wake.set()

    def _is_past(self, until_ns: int | None) -> bool:
        return until_ns is not None and self._clock.now_ns() > until_ns

    def _wake_at(self, until_ns: int | None, wake: asyncio.Event) -> asyncio.TimerHandle | None:
        if until_ns is None:
            return None
        seconds = max(until_ns - self._clock.now_ns(), 0) / 1e9 + 0.001
        return asyncio.get_running_loop().call_later(seconds, wake.set)
