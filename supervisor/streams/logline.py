"""The lines of a container's log as bytes: CRI's format and json-file, parsed and selected by time. Pure.

CRI: `<RFC3339Nano> <stdout|stderr> <P|F> <payload>`. F marks a line with its newline, P bytes without one. json-file:
`{"log":"<payload>","stream":"stdout","time":"<RFC3339Nano>"}`; the newline is part of the payload. Joining the data of
the entries gives the container's output byte for byte. But JSON holds characters: in json-file, bytes that are not
UTF-8 become U+FFFD. Source: the CRI logging proposal of Kubernetes; docker's json-file.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache

from shim.frozen import frozen, replace
from shim.patterns import LatePattern
from supervisor.model.values import LogDriver

# Of one log line; the rest of a longer one is skipped. A piece of 64 KiB takes up to 6 times that in JSON.
MAX_LINE_BYTES = 512 * 1024

_DATE = rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)"
_TIME = LatePattern(_DATE)
_CRI = LatePattern(_DATE + rb" (stdout|stderr) (P|F) (.*)", re.DOTALL)


@frozen
class LogEntry:
    """A piece of output as the container wrote it: a whole line with its newline, or bytes without one."""

    time_ns: int  # CLOCK_REALTIME
    stream: str  # stdout | stderr
    data: bytes

    @property
    def ends_line(self) -> bool:
        return self.data.endswith(b"\n")


@frozen
class Malformed:
    """A line that does not have the format. `line` is its beginning, without the newline."""

    line: bytes


Item = LogEntry | Malformed
Read = Callable[[bytes], Item]  # of one line without its newline


def cri(line: bytes) -> Item:
    match = _CRI.fullmatch(line)
    seconds = _seconds(match[1], match[3]) if match else None
    if match is None or seconds is None:
        return Malformed(line)
    return LogEntry(_ns(seconds, match[2]), match[4].decode(), match[6] + b"\n" if match[5] == b"F" else match[6])


def json_file(line: bytes) -> Item:
    """Parse one line of the json-file format, without its newline."""
    try:
        found = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return Malformed(line)
    if not isinstance(found, dict):
        return Malformed(line)
    payload, stream, time = found.get("log"), found.get("stream"), found.get("time")
    match = _TIME.fullmatch(time.encode("ascii", "replace")) if isinstance(time, str) else None
    seconds = _seconds(match[1], match[3]) if match else None
    if not isinstance(payload, str) or stream not in ("stdout", "stderr") or match is None or seconds is None:
        return Malformed(line)
    return LogEntry(_ns(seconds, match[2]), stream, payload.encode("utf-8", "replace"))


READERS: dict[LogDriver, Read] = {LogDriver.CRI: cri, LogDriver.JSON_FILE: json_file}


def _ns(seconds: int, fraction: bytes | None) -> int:
    return seconds * 1_000_000_000 + int((fraction or b"").ljust(9, b"0"))


@lru_cache(maxsize=64)  # most lines are of the same second as the one before
def _seconds(date: bytes, zone: bytes) -> int | None:
    """Return seconds since the epoch; None for a date that does not exist."""
    try:
        return int(datetime.fromisoformat((date + zone.replace(b"Z", b"+00:00")).decode()).timestamp())
    except ValueError:
        return None


class Parser:
    """Takes the bytes of a log in portions, returns entries. An unfinished last line waits for the rest."""

    def __init__(self, read: Read = cri, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._read = read
        self._max = max_line_bytes
        self._rest = b""
        self._skipping = False

    @property
    def unfinished_bytes(self) -> int:
        """Return how many bytes of the last line wait for the rest."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[Item]:
        """Return the entries that `data` completes."""
        *lines, rest = (self._rest + data).split(b"\n")
        items: list[Item] = []
        for line in lines:
            if self._skipping:
                self._skipping = False
            else:
                items.append(self._read(line) if len(line) <= self._max else Malformed(line[: self._max]))
        if self._skipping:
            rest = b""
        elif len(rest) > self._max:
            items.append(Malformed(rest[: self._max]))
            self._skipping, rest = True, b""
        self._rest = rest
        return items


class Window:
    """Selects the lines that begin at `since_ns` or later and before `until_ns`; the pieces of a line stay together."""

    def __init__(
        self, since_ns: int | None = None, until_ns: int | None = None, begun: Mapping[str, bool] | None = None
    ) -> None:
        """`begun`: by stream, whether the line that has begun but not ended is selected."""
        self._since_ns = since_ns
        self._until_ns = until_ns
        self._taken = dict(begun or {})

    @property
    def begun(self) -> dict[str, bool]:
        """Return, by stream, whether the line that has begun but not ended is selected."""
        return dict(self._taken)

    def take(self, items: Iterable[Item]) -> list[Item]:
        return [item for item in items if isinstance(item, Malformed) or self._takes(item)]

    def _takes(self, entry: LogEntry) -> bool:
        taken = self._taken.pop(entry.stream, None)
        if taken is None:
            taken = not self.is_before(entry) and not self.is_after(entry)
        if not entry.ends_line:
            self._taken[entry.stream] = taken
        return taken

    def is_before(self, entry: LogEntry) -> bool:
        return self._since_ns is not None and entry.time_ns < self._since_ns

    def is_after(self, entry: LogEntry) -> bool:
        return self._until_ns is not None and entry.time_ns >= self._until_ns


class Stamps:
    """Puts the time before each line, but not before further pieces of it."""

    def __init__(self, begun: Iterable[str] = ()) -> None:
        """`begun`: streams that are in the middle of a line."""
        self._begun = set(begun)

    def put(self, items: Iterable[Item]) -> list[Item]:
        return [item if isinstance(item, Malformed) else self._put(item) for item in items]

    def _put(self, entry: LogEntry) -> LogEntry:
        goes_on = entry.stream in self._begun
        (self._begun.discard if entry.ends_line else self._begun.add)(entry.stream)
        return entry if goes_on else replace(entry, data=stamp(entry.time_ns) + b" " + entry.data)


def stamp(time_ns: int) -> bytes:
    """Return the time in RFC 3339, UTC, to the nanosecond."""
    seconds, nanos = divmod(time_ns, 1_000_000_000)
    return b"%s.%09dZ" % (_date(seconds), nanos)


@lru_cache(maxsize=64)
def _date(seconds: int) -> bytes:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()


class Tail:
    """Takes a log's entries from the last to the first and finds where its last `lines` lines within `window` begin.

    A line of several entries counts once, and so does an unfinished one at the end. If both streams write pieces of
    lines in turn, the first line may lack its beginning.
    """

    def __init__(self, lines: int, window: Window) -> None:
        self._left = lines
        self._window = window
        self._seen = False

    def wants(self, item: Item) -> bool | None:
        """Return whether the tail begins at this item or before it; None if this item does not matter."""
        if isinstance(item, Malformed) or self._window.is_after(item):
            return None
        if self._window.is_before(item):
            return False
        if item.ends_line or not self._seen:
            self._left -= 1
            self._seen = True
        return self._left >= 0
