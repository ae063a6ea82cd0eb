"""Keeps the fifos open of a task whose create was interrupted by a daemon's end: otherwise its client would see an end
of file when the shim of that create exits, and would not read what the next shim writes."""

import asyncio
import os
import stat

import structlog

from supervisor.containerd import making
from supervisor.model.errors import Busy, TimedOut
from supervisor.model.values import Container, Phase

HOLD_SECONDS = 30.0  # for a request that is not repeated

log = structlog.get_logger(__name__)


class HeldStreams:
    """Writing ends, kept open from before the old shim's end until the new shim has its own."""

    def __init__(self, asides: making.Asides) -> None:
        self._asides = asides
        self._fds: dict[tuple[str, str], list[int]] = {}

    async def hold(self, c: Container) -> None:
        """Of one that is found. Returns when they are open, or cannot be: the log says why."""
        key = (c.spec.namespace, c.spec.name)
        words = {c.spec.foreign.out, c.spec.foreign.err} - {""}
        if c.phase is not Phase.CREATING or c.spec.task is None or key in self._fds or not words:
            return
        found: list[int] = []
        try:
            what = f"the look at the streams of {c.spec.name}"
            await self._asides.asked.run(what, lambda: _open(words, found), "/".join(key), lambda: _close(found))
        except (TimedOut, Busy) as error:
            log.warning("fifos cannot be held open", container=c.id, why=str(error))
            return
        self._fds[key] = found
        asyncio.get_running_loop().call_later(HOLD_SECONDS, self.release, c)

    def release(self, c: Container) -> None:
        """What is closed is a fifo, which asks no file system."""
        _close(self._fds.pop((c.spec.namespace, c.spec.name), []))


def _open(paths: set[str], found: list[int]) -> None:
    """Into `found`, what is a fifo: its own reader, so it never waits for one. In a thread: its file system may."""
    for path in paths:
        try:
            if stat.S_ISFIFO(os.stat(path).st_mode):
                found.append(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        except FileNotFoundError:
            continue
        except OSError as error:
            log.warning("cannot hold a fifo open", path=path, why=error.strerror)


def _close(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())
