"""Reads a container's log: its last lines, a span of time, and new lines while it grows and is rotated."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass

from shim.undo import undone_on_failure
from supervisor.model.values import LogDriver
from supervisor.streams.logfiles import Chain
from supervisor.streams.logline import READERS, Item, Stamps, Tail, Window
from supervisor.system import inotify


@dataclass(frozen=True, slots=True)
class WantedLog:
    """Which log, and which part of it. None: everything."""

    path: str  # of the current file
    driver: LogDriver = LogDriver.CRI  # one that writes files
    tail_lines: int | None = None
    since_ns: int | None = None  # CLOCK_REALTIME of a line's beginning
    until_ns: int | None = None
    timestamps: bool = False  # before each line

    @property
    def window(self) -> Window:
        return Window(self.since_ns, self.until_ns)

    def chooser(self) -> Callable[[list[Item]], list[Item]]:
        """Return a function that takes a log's entries in order and returns the wanted ones in the wanted form."""
        window, stamps = self.window, Stamps() if self.timestamps else None
        return lambda items: stamps.put(window.take(items)) if stamps else window.take(items)


async def _opened(wanted: WantedLog) -> Chain:
    log = Chain(wanted.path, READERS[wanted.driver])
    with undone_on_failure(log.close):
        if wanted.tail_lines is not None:
            await log.skip_to(Tail(wanted.tail_lines, wanted.window))
    return log


async def read(wanted: WantedLog) -> AsyncGenerator[list[Item], None]:
    """Yield what is in the log now, in portions; a missing file counts as empty. Raises OSError."""
    log, choose = await _opened(wanted), wanted.chooser()
    try:
        more = True
        while more:
            more, items = log.read()
            if chosen := choose(items):
                yield chosen
            await asyncio.sleep(0)  # a long log must not hold up the loop
    finally:
        log.close()


async def follow(
    wanted: WantedLog, until_complete: Awaitable[object], changes: inotify.Inotify
) -> AsyncGenerator[list[Item], None]:
    """As `read`, and then yield what is added, until `until_complete` is done and the log has been read to its end.

    It waits for a log that does not exist yet. A deleted log is read to its end; a new one with its name is then read
    from the beginning. `until_complete` is cancelled if the reader ends first; its error is raised here. Raises OSError
    when the log cannot be read or watched.
    """
    complete = asyncio.ensure_future(until_complete)
    try:
        with _Alarm(changes, wanted.path) as alarm:
            complete.add_done_callback(lambda _: alarm.ring())
            log, choose = await _opened(wanted), wanted.chooser()
            try:
                async for items in _until(log, alarm, complete):
                    if chosen := choose(items):
                        yield chosen
            finally:
                log.close()
        complete.result()
    finally:
        complete.cancel()


async def by_then(complete: Awaitable[object], until_ns: int | None) -> None:
    """Return when `complete` is done, or at that time. Raises what `complete` raises."""
    limit = asyncio.timeout(None if until_ns is None else max(0.0, (until_ns - time.time_ns()) / 1e9))
    try:
        async with limit:
            await complete
    except TimeoutError:
        if not limit.expired():
            raise


async def _until(log: Chain, alarm: "_Alarm", complete: "asyncio.Future[object]") -> AsyncGenerator[list[Item], None]:
    while True:
        finished = complete.done()  # asked before reading: what was written before completion is then read
        alarm.reset()
        more = True
        while more:
            more, items = log.read()
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

    def __init__(self, changes: inotify.Inotify, path: str) -> None:
        self._changes = changes
        self._path = path
        self._event = asyncio.Event()
        self._watches = ExitStack()
        self._file: inotify.InotifyWatch | None = None

    def __enter__(self) -> "_Alarm":
        self._watches.callback(self._forget_file)
        try:
            folder = self._changes.watch(os.path.dirname(self._path) or ".", self._FOLDER, self._in_folder)
        except FileNotFoundError:
            return self  # the container's directory is gone or was never made: nothing more will be written
        self._watches.callback(folder.close)
        self._watch_file()
        return self

    def __exit__(self, *_: object) -> None:
        self._watches.close()

    def _watch_file(self) -> None:
        self._forget_file()
        try:
            self._file = self._changes.watch(self._path, self._FILE, self._changed)
        except FileNotFoundError:
            self._file = None  # a change of the directory will ring

    def _forget_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _changed(self, item: inotify.Item) -> None:
        self.ring()

    def _in_folder(self, item: inotify.Item) -> None:
        if isinstance(item, inotify.Overflow) or item.name == os.path.basename(self._path):
            self._watch_file()
            self.ring()

    def ring(self) -> None:
        self._event.set()

    def reset(self) -> None:
        self._event.clear()

    async def wait(self) -> None:
        await self._event.wait()
