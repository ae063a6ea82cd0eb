"""Reads a container's log: cut to its last lines, to a span of time, and followed while it grows and is rotated.

A log in exitd's own directory is read on the event loop. One whose path a caller has chosen may be on a file system
that hangs: everything about it, down to closing its files, is done in threads, one after the other.
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import TypeVar

from shim.frozen import frozen
from supervisor.model.errors import Busy, TimedOut
from supervisor.model.values import LogDriver
from supervisor.streams.logfiles import Chain, LogPlace
from supervisor.streams.logline import READERS, Item, Stamps, Tail, Window
from supervisor.system import inotify
from supervisor.system.aside import Aside, Here
from supervisor.system.background import Background

MOST_AT_ONCE = 32  # readers of one hung file system have a place for each directory, and leave some to the others
AGAIN_SECONDS = 1.0  # to the next try at closing what could not be closed for want of a thread

T = TypeVar("T")


@frozen
class WantedLog:
    """Which log, and which part of it. None: everything."""

    path: str  # of the current file
    driver: LogDriver = LogDriver.CRI  # one that writes files
    tail_lines: int | None = None
    since_ns: int | None = None  # CLOCK_REALTIME of a line's beginning
    until_ns: int | None = None
    timestamps: bool = False  # before each line
    is_ours: bool = True  # in a directory of exitd's own; otherwise its path is a caller's

    after: "LogPosition | None" = None  # begin there; the tail does not count then
    positions: bool = False  # a follower gets them in between

    @property
    def window(self) -> Window:
        return Window(self.since_ns, self.until_ns, {} if self.after is None else self.after.begun)


@frozen
class LogPosition:
    """Everything before this place of the log was returned. `begun`: by stream, whether the line that has begun there
    and not ended was selected. `gap`: the place that was asked for is gone, and something may be missing before
    this one."""

    place: LogPlace
    begun: dict[str, bool]
    gap: bool = False
    files: int = 0  # of the log, when it was opened


@frozen
class LogSource:
    """A container's log. `complete` returns once the output of a run is complete; `settled` likewise, at once for a run
    that goes on, and after some seconds in any case. `run` is the current one. `listening`: for as long as a client
    follows it."""

    whole: WantedLog
    complete: Callable[[int], Awaitable[object]]
    settled: Callable[[int], Awaitable[object]]
    run: int
    listening: Callable[[], AbstractAsyncContextManager[None]] = nullcontext


Portion = list[Item] | LogPosition


class _Chooser:
    """Takes a log's entries in order, returns the wanted ones in the wanted form."""

    def __init__(self, wanted: WantedLog) -> None:
        self._window = wanted.window
        begun = [stream for stream, shown in self._window.begun.items() if shown]
        self._stamps = Stamps(begun) if wanted.timestamps else None

    def __call__(self, items: list[Item]) -> list[Item]:
        taken = self._window.take(items)
        return self._stamps.put(taken) if self._stamps is not None else taken

    def position(self, place: LogPlace, files: int, *, gap: bool = False) -> LogPosition:
        """Return the place with what is to be known there."""
        return LogPosition(place, self._window.begun, gap, files)


class LogReading:
    """What reads logs."""

    def __init__(self) -> None:
        self._looks = Aside(MOST_AT_ONCE)  # for those on callers' paths
        self._background = Background()  # files that are closed by and by

    async def read(self, wanted: WantedLog) -> AsyncGenerator[list[Item], None]:
        """What is in the log now, in portions; a missing file is an empty one. Raises OSError, TimedOut, Busy."""
        choose = _Chooser(wanted)
        log = self._hands(wanted)
        try:
            await log.open(wanted)
            more = True
            while more:
                more, items = await log.read()
                if chosen := choose(items):
                    yield chosen
                await asyncio.sleep(0)  # a long log must not hold up the loop
        finally:
            log.close()

    async def follow(
        self, wanted: WantedLog, until_complete: Awaitable[object], changes: inotify.Inotify
    ) -> AsyncGenerator[Portion, None]:
        """Like `read`, and then what is added, until `until_complete` is done and the log has been read to its end.
        Where positions are wanted, there is one at the beginning and behind each portion.

        A log that does not exist yet is waited for; one that was deleted is read to its end, and a new one of that name
        is then read from its beginning. `until_complete` is cancelled when the reader goes away first; what it raises
        is raised here. Raises OSError when the log cannot be read or watched, TimedOut, Busy.
        """
        complete, choose = asyncio.ensure_future(until_complete), _Chooser(wanted)
        log = self._hands(wanted)
        alarm = _Alarm(changes, wanted.path, log)
        try:
            await alarm.reset()
            complete.add_done_callback(lambda _: alarm.ring())
            await log.open(wanted)
            if wanted.positions:
                yield choose.position(await log.place(), log.files, gap=log.gap)
            async for items in _until(log, alarm, complete):
                chosen = choose(items)
                place = await log.place() if wanted.positions else None  # before what may take the reader long
                if chosen:
                    yield chosen
                if place is not None:
                    yield choose.position(place, log.files)
            complete.result()
        finally:
            complete.cancel()
            alarm.close()
            log.close()

    def _hands(self, wanted: WantedLog) -> "_Hands":
        return _Hands(Here() if wanted.is_ours else self._looks, wanted.path, self._background)


class _Hands:
    """All that touches one log's file system, for one reader."""

    def __init__(self, looks: Aside | Here, path: str, background: Background) -> None:
        self._looks = looks
        self._what = f"reading the log {path}"
        self._whose = os.path.dirname(path)
        self._background = background
        self._chain: Chain | None = None
        self.files = 0
        self.gap = False  # the place where it was to begin is gone
        self._given_up = False  # a thread may be at it still, which is not waited for

    async def do(self, work: Callable[[], T]) -> T:
        """Raises TimedOut, Busy, and what `work` raises. Not to be called again after TimedOut."""
        try:
            return await self._looks.run(self._what, work, self._whose, self._over)
        except (TimedOut, asyncio.CancelledError):
            self._given_up = True
            raise

    async def open(self, wanted: WantedLog) -> None:
        def work() -> Chain:
            after = wanted.after.place if wanted.after is not None else None
            self._chain = Chain(wanted.path, READERS[wanted.driver], after)
            return self._chain

        log = await self.do(work)
        self.gap, self.files = log.gap, log.files
        if wanted.tail_lines is not None and wanted.after is None:
            steps, more = log.skipping_to(Tail(wanted.tail_lines, wanted.window)), True
            while more:
                more = await self.do(lambda: next(steps, log)) is None
                await asyncio.sleep(0)  # a long tail must not hold up the loop

    async def read(self) -> tuple[bool, list[Item]]:
        assert self._chain is not None
        return await self.do(self._chain.read)

    async def place(self) -> LogPlace:
        assert self._chain is not None
        return await self.do(self._chain.place)

    def close(self) -> None:
        if not self._given_up:
            self._over()

    def _over(self) -> None:
        """No thread is at it any more."""
        if self._chain is not None and isinstance(self._looks, Here):
            self._chain.close()
        elif self._chain is not None:
            self._background.spawn(self._closed(self._chain))

    async def _closed(self, log: Chain) -> None:
        """In its turn, behind those who read in the same directory, however long that takes."""
        while True:
            with suppress(TimedOut):
                try:
                    return await self._looks.run(self._what, log.close, self._whose)
                except Busy:
                    await asyncio.sleep(AGAIN_SECONDS)


async def by_then(complete: Awaitable[object], until_ns: int | None) -> None:
    """Return when `complete` is done, or at that time. Raises what `complete` raises."""
    limit = asyncio.timeout(None if until_ns is None else max(0.0, (until_ns - time.time_ns()) / 1e9))
    try:
        async with limit:
            await complete
    except TimeoutError:
        if not limit.expired():
            raise


async def _until(log: _Hands, alarm: "_Alarm", complete: "asyncio.Future[object]") -> AsyncGenerator[list[Item], None]:
    while True:
        finished = complete.done()  # asked before reading: what was written before completion is then read
        await alarm.reset()
        more = True
        while more:
            more, items = await log.read()
            if items:
                yield items
            await asyncio.sleep(0)
        if finished:
            return
        await alarm.wait()


class _Alarm:
    """Rings when the log may have more: it was written to, replaced, or has been made."""

    _FILE = inotify.IN_MODIFY | inotify.IN_ATTRIB | inotify.IN_MOVE_SELF | inotify.IN_DELETE_SELF
    _FOLDER = inotify.IN_CREATE | inotify.IN_MOVED_TO

    def __init__(self, changes: inotify.Inotify, path: str, hands: _Hands) -> None:
        self._changes = changes
        self._path = path
        self._hands = hands
        self._event = asyncio.Event()
        self._folder: inotify.InotifyWatches | None = None  # None: to be watched, as it is now
        self._file: inotify.InotifyWatches | None = None

    async def reset(self) -> None:
        """From here on it rings. Raises OSError, TimedOut, Busy."""
        self._event.clear()
        if self._folder is None:
            self._folder = inotify.InotifyWatches(self._changes)
            await self._watch(self._folder, os.path.dirname(self._path) or ".", self._FOLDER, self._in_folder)
        if self._file is None:
            self._file = inotify.InotifyWatches(self._changes)
            await self._watch(self._file, self._path, self._FILE, self._in_file)

    async def _watch(self, watches: inotify.InotifyWatches, path: str, mask: int, listener: inotify.Listener) -> None:
        """What is not there yet, the folder's watch reports; where that has gone, or was never made, nothing will be
        written."""
        with suppress(FileNotFoundError):
            await self._hands.do(lambda: watches.add(path, mask, listener))

    def close(self) -> None:
        for watches in (self._folder, self._file):
            if watches is not None:
                watches.close()
        self._folder = self._file = None

    def _in_file(self, item: inotify.Item) -> None:
        if inotify.is_end(item):
            self._drop_file()
        self.ring()

    def _in_folder(self, item: inotify.Item) -> None:
        if inotify.is_end(item):
            self._folder = None
            self.ring()
        elif isinstance(item, inotify.Overflow) or item.name == os.path.basename(self._path):
            self._drop_file()
            self.ring()

    def _drop_file(self) -> None:
        """Another one may have the name."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def ring(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()
