"""Reads a container's log: the CRI format, parsed, cut to its last lines, and followed while it grows.

A log line is `<RFC3339Nano> <stdout|stderr> <P|F> <payload>`. F stands for a line with its newline, P for bytes without
one, so that joining the entries' data gives the container's output back byte for byte. Source: the CRI logging proposal
of Kubernetes ("CRI: Log management for container stdout/stderr streams").
"""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from supervisor import inotify

MAX_LINE_BYTES = 256 * 1024  # of one log line; what follows in it is skipped
CHUNK_BYTES = 64 * 1024  # read at once: bounds what a fast writer makes us hold

_LINE = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) (stdout|stderr) (P|F) (.*)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A piece of output as the container wrote it: a whole line with its newline, or bytes without one."""

    time_ns: int  # CLOCK_REALTIME
    stream: str  # stdout | stderr
    data: bytes

    @property
    def ends_line(self) -> bool:
        return self.data.endswith(b"\n")


@dataclass(frozen=True, slots=True)
class Malformed:
    """A line that is not of the format. `line` is its beginning, without the newline."""

    line: bytes


Item = Entry | Malformed


class Parser:
    """Bytes of a log in any portions in, entries out. An unfinished last line waits for its rest."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._rest = b""
        self._skipping = False

    def feed(self, data: bytes) -> list[Item]:
        *lines, rest = (self._rest + data).split(b"\n")
        items: list[Item] = []
        for line in lines:
            if self._skipping:
                self._skipping = False
            else:
                items.append(_parse_line(line) if len(line) <= self._max else Malformed(line[: self._max]))
        if self._skipping:
            rest = b""
        elif len(rest) > self._max:
            items.append(Malformed(rest[: self._max]))
            self._skipping, rest = True, b""
        self._rest = rest
        return items


def _parse_line(line: bytes) -> Item:
    match = _LINE.fullmatch(line)
    seconds = _seconds(match[1], match[3]) if match else None
    if match is None or seconds is None:
        return Malformed(line)
    time_ns = seconds * 1_000_000_000 + int((match[2] or b"").ljust(9, b"0"))
    return Entry(time_ns, match[4].decode(), match[6] + b"\n" if match[5] == b"F" else match[6])


@lru_cache(maxsize=64)  # most lines share their second with the one before
def _seconds(date: bytes, zone: bytes) -> int | None:
    """Seconds since the epoch; None for a date that does not exist."""
    try:
        return int(datetime.fromisoformat((date + zone.replace(b"Z", b"+00:00")).decode()).timestamp())
    except ValueError:
        return None


def tail_offset(log_fd: int, lines: int) -> int:
    """Where the last `lines` lines of output begin, in bytes; 0 lines: the end of the file.

    Reads backwards, no more than it must. A line that several entries make up counts once, and so does an unfinished
    one at the end. Where both streams write pieces of lines in turn, the first line may miss its beginning.
    """
    position = os.fstat(log_fd).st_size
    if lines <= 0:
        return position
    ended = 0
    seen = False
    for start, line in _lines_backwards(log_fd, position):
        item = _parse_line(line)
        if not isinstance(item, Entry):
            continue
        if item.ends_line or not seen:
            if ended == lines:
                break
            ended += 1
        seen = True
        position = start
    return position


def _lines_backwards(log_fd: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Complete lines from the last to the first: where each begins, and its bytes without the newline."""
    rest = b""  # the beginning of a later block: the end of the line this block ends with
    torn = True  # what follows the file's last newline is no complete line
    while end > 0:
        start = max(0, end - CHUNK_BYTES)
        block = os.pread(log_fd, end - start, start) + rest
        rest, *whole = block.split(b"\n")
        at = start + len(block)
        for line in reversed(whole):
            at -= len(line)
            if not torn:
                yield at, line
            torn = False
            at -= 1
        end = start
        if len(rest) > MAX_LINE_BYTES:
            return
    if not torn:
        yield 0, rest


class _File:
    """The log as far as it has been read. Follows its path: replaced, cut short, gone and back."""

    def __init__(self, path: str, tail_lines: int | None) -> None:
        self.path = path
        self._tail_lines = tail_lines
        self._fd = -1
        self._replaced = False
        self._parser = Parser()
        self._open()

    def _open(self) -> None:
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return
        self._parser = Parser()
        if self._tail_lines is not None:
            os.lseek(self._fd, tail_offset(self._fd, self._tail_lines), os.SEEK_SET)
            self._tail_lines = None  # what comes after a replacement is new

    def read(self) -> tuple[bool, list[Item]]:
        """The next portion: whether there was any, and its entries. The end of the file is the end for now."""
        data = os.read(self._fd, CHUNK_BYTES) if self._fd >= 0 else b""
        if data:
            return True, self._parser.feed(data)
        return self._moved_on(), []

    def _moved_on(self) -> bool:
        """At the end of what is open: is there now something else to read?"""
        if self._fd < 0:
            self._open()
            return self._fd >= 0
        here = os.fstat(self._fd)
        if here.st_size < os.lseek(self._fd, 0, os.SEEK_CUR):
            os.lseek(self._fd, 0, os.SEEK_SET)
            self._parser = Parser()
            return True
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return False
        if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino):
            return False
        if not self._replaced:
            self._replaced = True  # one more look at the old file: it may have grown until its replacement appeared
            return True
        self._replaced = False
        self.close()
        self._open()
        return self._fd >= 0

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


async def read(path: str, tail_lines: int | None = None) -> AsyncGenerator[list[Item], None]:
    """What is in the log now, in portions; a missing file is an empty one. None: all lines. Raises OSError."""
    log = _File(path, tail_lines)
    try:
        while True:
            more, items = log.read()
            if items:
                yield items
            if not more:
                return
            await asyncio.sleep(0)  # a long log must not hold up the loop
    finally:
        log.close()


async def follow(
    path: str, until_complete: Awaitable[object], changes: inotify.Inotify, tail_lines: int | None = None
) -> AsyncGenerator[list[Item], None]:
    """Like `read`, and then what is added, until `until_complete` is done and the file has been read to its end.

    A log that does not exist yet is waited for; one that was deleted is read to its end, and a new one of that name is
    then read from its beginning. `until_complete` is cancelled when the reader goes away first; what it raises is
    raised here. Raises OSError when the log cannot be read or watched.
    """
    complete = asyncio.ensure_future(until_complete)
    try:
        with _Alarm(changes, path) as alarm:
            complete.add_done_callback(lambda _: alarm.ring())
            log = _File(path, tail_lines)
            try:
                async for items in _until(log, alarm, complete):
                    yield items
            finally:
                log.close()
        complete.result()
    finally:
        complete.cancel()


async def _until(log: _File, alarm: "_Alarm", complete: "asyncio.Future[object]") -> AsyncGenerator[list[Item], None]:
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
    """Rings when the log may have more: it was written to, replaced, or made at last."""

    _FILE = inotify.IN_MODIFY | inotify.IN_ATTRIB | inotify.IN_MOVE_SELF | inotify.IN_DELETE_SELF
    _FOLDER = inotify.IN_CREATE | inotify.IN_MOVED_TO

    def __init__(self, changes: inotify.Inotify, path: str) -> None:
        self._changes = changes
        self._path = path
        self._event = asyncio.Event()
        self._watches = ExitStack()
        self._file: inotify.Watch | None = None

    def __enter__(self) -> "_Alarm":
        self._watches.callback(self._forget_file)
        try:
            folder = self._changes.watch(os.path.dirname(self._path) or ".", self._FOLDER, self._in_folder)
        except FileNotFoundError:
            return self  # the container's directory has gone, or was never made: nothing will be written any more
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
            self._file = None  # the folder will tell

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
