"""BUNDLE/log, the fifo to which a shim v2 writes its log. Without a reader some shims block forever, or die.

It is held open from before `start` until the bundle is removed, and its lines go into exitd's log. Only the level is
interpreted, to log each line at the right one.
"""

import asyncio
import os
import re
from contextlib import suppress

import structlog

from shim.patterns import LatePattern
from shim.undo import undone_on_failure
from supervisor.model.errors import ShimFailed

NAME = "log"
MODE = 0o700
MOST_LINE_BYTES = 4096  # a longer line is cut
MOST_LINES = 100  # in WINDOW_SECONDS; the next window reports how many more there were
WINDOW_SECONDS = 10.0
CHUNK_BYTES = 64 << 10

_LOUD = LatePattern(rb'\blevel"?[=:]"?(?:warn|err|fatal|panic)', re.IGNORECASE)

log = structlog.get_logger(__name__)


class Lines:
    """Takes bytes in portions, returns complete lines, cut if they are too long. Pure."""

    def __init__(self) -> None:
        self._rest = b""
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete by now, without their ends and without empty ones. Of a line that is too
        long the first MOST_LINE_BYTES are returned as soon as they are there, and the rest is dropped."""
        *whole, rest = data.split(b"\n")
        lines = []
        for piece in whole:
            if (line := self._take(piece)).strip() and not self._skipping:
                lines.append(line)
            self._rest, self._skipping = b"", False
        if len(line := self._take(rest)) < MOST_LINE_BYTES:
            self._rest = line
        elif not self._skipping:
            lines.append(line)
            self._rest, self._skipping = b"", True
        return lines

    def _take(self, piece: bytes) -> bytes:
        return (self._rest + piece[:MOST_LINE_BYTES])[:MOST_LINE_BYTES]


class LogFifo:
    """The fifo of one task, on the running event loop. After a restart of exitd it is opened again."""

    def __init__(self, bundle: str, id: str) -> None:
        """Make the fifo if it does not exist. Raises ShimFailed."""
        path = f"{bundle}/{NAME}"
        self._id = id
        self._lines = Lines()
        self._logged = self._passed_over = 0
        self._window: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        try:
            with suppress(FileExistsError):
                os.mkfifo(path, MODE)
            # Opened for writing, too: so there is no end of file when a shim exits, and a shim never waits for a
            # reader.
            self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise ShimFailed(f"cannot open the log fifo {path}: {error.strerror}") from error
        with undone_on_failure(lambda: os.close(self._fd)):
            self._loop.add_reader(self._fd, self._drain)

    def close(self) -> None:
        """Log what has been written, and close. Repeatable."""
        if self._fd >= 0:
            self._drain()
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
            self._next_window()
            if self._window is not None:
                self._window.cancel()

    def _drain(self) -> None:
        try:
            data = os.read(self._fd, CHUNK_BYTES)
        except BlockingIOError:
            return
        for line in self._lines.feed(data):
            self._log(line)

    def _log(self, line: bytes) -> None:
        if self._window is None:
            self._window = self._loop.call_later(WINDOW_SECONDS, self._next_window)
        if self._logged >= MOST_LINES:
            self._passed_over += 1
            return
        self._logged += 1
        write = log.warning if _LOUD.search(line) else log.debug
        write("a shim says", id=self._id, line=line.decode(errors="replace").strip())

    def _next_window(self) -> None:
        if self._passed_over:
            log.warning("a shim logs more than is shown", id=self._id, lines=self._passed_over)
        self._logged = self._passed_over = 0
        self._window = None
