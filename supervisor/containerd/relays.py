"""Relays whose tasks have gone, each until its process has ended: then its socket is removed.

A relay removes its socket when it ends by itself, and `delete` does so for one that was killed. But containerd does not
run `delete` for a bundle that it has lost: one that was out of descriptors at its start gives bundles up unread. And a
relay that still lives when `delete` runs may be killed later. So exitd remembers the socket: by an empty file of its
name in STATE/shimv2/relays. An exitd that is started later goes on with what it finds there.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from shim.undo import undone_on_failure
from supervisor.containerd import making, sockets
from supervisor.containerd.making import Asides
from supervisor.model.values import Container, Process
from supervisor.monitor import epoll
from supervisor.system import room
from supervisor.system.background import retry

MOST_CHARACTERS = 40  # of two numbers
AGAIN_SECONDS = 1.0  # until notes that could not be listed for want of a descriptor are looked for again

log = structlog.get_logger(__name__)


class Relays:
    """Belongs to the node's event loop."""

    def __init__(self, spawn: Callable[[Coroutine[Any, Any, object]], None], state: str, asides: Asides) -> None:
        self._spawn = spawn
        self._asides = asides
        self._notes = Path(state) / "shimv2" / "relays"
        self._awaited: dict[str, bool] = {}  # sockets; whether one was named again since it was last looked at
        self._noting = asyncio.Lock()

    def begin(self) -> None:
        """Go on with the notes of an earlier exitd."""
        try:
            for directory in (self._notes.parent, self._notes):
                directory.mkdir(mode=0o700, exist_ok=True)
            names = os.listdir(self._notes)
        except OSError as error:
            log.warning("sockets of relays are not looked after", path=str(self._notes), why=error.strerror)
            if room.is_used_up(error):
                asyncio.get_running_loop().call_later(AGAIN_SECONDS, self.begin)
            return
        for name in names:
            if (socket := f"{sockets.SOCKETS}/{name}") not in self._awaited:
                self._await(socket, None)

    async def task_removed(self, container: Container) -> None:
        """Have the socket of the relay that this task had removed, when the relay has ended."""
        task = container.spec.task
        if task is not None and task.socket:
            await self.given_up(task.socket, process_of(task.courier))

    async def given_up(self, socket: str, relay: Process | None = None) -> None:
        """Have the socket removed when no relay listens there, now or later. `relay`: the one that listened; before
        that process has ended the socket is not looked at. When this returns, the next exitd knows of it, too, unless
        the note could not be written, which is logged."""
        async with self._noting:
            if socket in self._awaited:
                self._awaited[socket] = True
                return
            await asyncio.to_thread(_write, self._note_of(socket))
            self._await(socket, relay)

    def _await(self, socket: str, relay: Process | None) -> None:
        self._awaited[socket] = False
        self._spawn(self._until_gone(socket, relay))

    async def _until_gone(self, socket: str, relay: Process | None) -> None:
        """At the path there may be another relay by now, of a task with the same name: that one is awaited, too."""
        try:
            while True:
                if (known := relay) is not None:
                    await retry(partial(_ended, known), f"watching the relay at {socket}", "")
                self._awaited[socket] = False
                relay = await retry(lambda: self._look(socket), f"removing {socket}", "")
                if relay is None and await self._forgotten(socket):
                    return
        finally:
            self._awaited.pop(socket, None)

    async def _look(self, socket: str) -> Process | None:
        """Return the relay that still listens; otherwise the socket has gone. Raises OSError, TimedOut, Busy."""
        return await self._asides.relays.run(f"removing {socket}", lambda: sockets.remove_stale(socket), socket)

    async def _forgotten(self, socket: str) -> bool:
        """Remove the note, unless the socket was named again since it was looked at."""
        async with self._noting:
            if self._awaited[socket]:
                return False
            await asyncio.to_thread(_remove, self._note_of(socket))
            del self._awaited[socket]
            return True

    def _note_of(self, socket: str) -> Path:
        return self._notes / os.path.basename(socket)


async def _ended(process: Process) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    async def watched() -> int | None:
        pidfd = epoll.open_process(process.pid, process.started_ticks)
        if pidfd is not None:
            with undone_on_failure(lambda: os.close(pidfd)):
                loop.add_reader(pidfd, ended.set)
        return pidfd

    pidfd = await room.retry(watched)
    if pidfd is None:
        return
    try:
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


def process_of(courier: str) -> Process | None:
    """Return the process that PID/START names; None for anything else."""
    pid, _, started = courier[:MOST_CHARACTERS].partition("/")
    is_one = pid.isdecimal() and started.isdecimal() and int(pid) <= making.MOST_PID
    return Process(int(pid), int(started)) if is_one else None


def _write(note: Path) -> None:
    """Without a note the socket is looked after until exitd ends."""
    try:
        os.close(os.open(note, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        log.warning("the socket of a relay is not noted", path=str(note), why=error.strerror)


def _remove(note: Path) -> None:
    try:
        note.unlink(missing_ok=True)
    except OSError as error:  # the next exitd will find that the socket has gone
        log.warning("the note about a relay's socket stays", path=str(note), why=error.strerror)
