"""A headless Chromium driven over a pair of pipes: its own protocol, JSON with a zero byte after each message."""

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from typing import Any

PROGRAM = "chromium"
LIMIT_SECONDS = 60
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
)


class Trouble(Exception):
    """What a person reads instead of a result."""


class Page:
    """One page; `events` are all that was told of it, by method."""

    def __init__(self, to_fd: int, from_fd: int) -> None:
        self._to_fd, self._from_fd = to_fd, from_fd
        self._until = time.monotonic() + LIMIT_SECONDS
        self._buffer = b""
        self._calls = 0
        self._session: str | None = None
        self.events: list[tuple[str, dict[str, Any]]] = []

    def attach(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._calls += 1
        session = {} if self._session is None else {"sessionId": self._session}
        message = {"id": self._calls, "method": method, "params": parameters, **session}
        _write(self._to_fd, json.dumps(message).encode() + b"\0")
        while (found := self._next()).get("id") != self._calls:
            self.events.append((found.get("method", ""), found.get("params", {})))
        if "error" in found:
            raise Trouble(f"chromium refuses {method}: {found['error'].get('message')}")
        result: dict[str, Any] = found["result"]
        return result

    def wait_for(self, method: str) -> None:
        while all(name != method for name, _ in self.events):
            found = self._next()
            self.events.append((found.get("method", ""), found.get("params", {})))

    def value(self, expression: str) -> Any:
        """Of an expression in the page's own language."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise Trouble(f"{expression}: {found['exceptionDetails']['text']}")
        return found["result"].get("value")

    def picture(self) -> bytes:
        """All of the page, as PNG."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    def close(self) -> None:
        """Until the whole browser has ended: what is left of it would still write to its directory."""
        self._session = None
        self.call("Browser.close")
        while select.select([self._from_fd], [], [], max(self._until - time.monotonic(), 0))[0]:
            if not os.read(self._from_fd, 1 << 20):
                return
        raise Trouble(f"chromium: it does not end within {LIMIT_SECONDS} s")

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = self._until - time.monotonic()
            if left <= 0 or not select.select([self._from_fd], [], [], left)[0]:
                raise Trouble(f"chromium: no answer within {LIMIT_SECONDS} s")
            if not (more := os.read(self._from_fd, 1 << 20)):
                raise Trouble("chromium: it has ended")
            self._buffer += more
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


@contextlib.contextmanager
def opened() -> Iterator[Page]:
    """Trouble when there is no chromium. With the block it ends, with every process it has started."""
    program = shutil.which(PROGRAM)
    if program is None:
        raise Trouble(f"{PROGRAM}: not found; apt-get install {PROGRAM}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        pid, to_fd, from_fd = _spawned(program, directory)
        try:
            page = Page(to_fd, from_fd)
            page.attach()
            yield page
            page.close()
        finally:
            os.close(to_fd)
            os.close(from_fd)
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _spawned(program: str, directory: str) -> tuple[int, int, int]:
    """Its pid, which is also its process group's, and our ends of the two pipes."""
    (its_in, to_fd), (from_fd, its_out) = _pipe(), _pipe()
    pid = os.posix_spawn(
        program,
        (PROGRAM, *OPTIONS, f"--user-data-dir={directory}", "about:blank"),
        os.environ | {"HOME": directory, "TMPDIR": directory},
        file_actions=(
            (os.POSIX_SPAWN_DUP2, its_in, 3),
            (os.POSIX_SPAWN_DUP2, its_out, 4),
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ),
        setpgroup=0,
    )
    os.close(its_in)
    os.close(its_out)
    return pid, to_fd, from_fd


def _pipe() -> tuple[int, int]:
    """Clear of the numbers that chromium wants for its own ends."""
    low = os.pipe()
    ends = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in low]
    for fd in low:
        os.close(fd)
    return ends[0], ends[1]
