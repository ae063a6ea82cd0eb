"""Keeps the fifos open of a task whose create was interrupted by a daemon's end: otherwise its client would see an end
of file when the shim of that create exits, and would not read what the next shim writes."""

import asyncio
import contextlib
import os
import stat

import structlog

from supervisor.model.values import Container, Phase

HOLD_SECONDS = 30.0  # for a request that is not repeated

log = structlog.get_logger(__name__)


class Held:
    """Writing ends, kept open from before the old shim's end until the new shim has its own."""

    def __init__(self) -> None:
        self._fds: dict[tuple[str, str], list[int]] = {}

    def look(self, c: Container) -> None:
        """Open or close the ends for a container that was found, or has changed."""
        key = (c.spec.namespace, c.spec.name)
        if c.phase is Phase.CREATED:
            self._release(key)
        elif c.phase is Phase.CREATING and c.spec.task is not None and key not in self._fds:
            words = {c.spec.foreign.out, c.spec.foreign.err} - {""}
            self._fds[key] = [fd for path in words if (fd := _open(path)) >= 0]
            asyncio.get_running_loop().call_later(HOLD_SECONDS, self._release, key)

    def _release(self, key: tuple[str, str]) -> None:
        for fd in self._fds.pop(key, ()):
            os.close(fd)


def _open(path: str) -> int:
    """Return -1 if there is no fifo. Never waits: it is its own reader."""
    with contextlib.suppress(FileNotFoundError):
        try:
            if stat.S_ISFIFO(os.stat(path).st_mode):
                return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except PermissionError as error:
            log.warning("cannot hold a fifo open", path=path, why=error.strerror)
    return -1
