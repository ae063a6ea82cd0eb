"""Relays that live on when their last task is removed, each until its process has ended.

A relay removes its socket when it ends by itself, and `delete` does so for one that was killed. But containerd does not
run `delete` for a bundle that it has lost: one that was out of descriptors at its start gives bundles up unread. So
exitd remembers the socket, in STATE/shimv2/relays/NAME: the relay's process (PID/START); NAME is the socket's own.
Whoever is killed, the next exitd goes on with what it finds there.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import structlog

from supervisor.containerd import making, sockets
from supervisor.containerd.making import Asides
from supervisor.model.values import Container, Process
from supervisor.monitor import epoll
from supervisor.system import regular, room

MOST_BYTES = 64

log = structlog.get_logger(__name__)


class Relays:
    """Belongs to the node's event loop."""

    def __init__(self, spawn: Callable[[Coroutine[Any, Any, None]], None], state: str, asides: Asides) -> None:
        self._spawn = spawn
        self._asides = asides
        self._notes = Path(state) / "shimv2" / "relays"
        self._awaited: set[str] = set()  # sockets

    def begin(self) -> None:
        """Go on with the notes of an earlier exitd."""
        try:
            for directory in (self._notes.parent, self._notes):
                directory.mkdir(mode=0o700, exist_ok=True)
            names = os.listdir(self._notes)
        except OSError as error:
            log.warning("sockets of relays are not looked after", path=str(self._notes), why=error.strerror)
            return
        for name in names:
            self._await(f"{sockets.SOCKETS}/{name}", _read(self._notes / name))

    async def task_removed(self, container: Container) -> None:
        """Have the socket of the relay that this task had removed, when the relay has ended."""
        task = container.spec.task
        if task is None or not task.socket or not task.courier or task.socket in self._awaited:
            return
        await asyncio.to_thread(_write, self._notes / os.path.basename(task.socket), task.courier)
        self._await(task.socket, process_of(task.courier))

    def _await(self, socket: str, relay: Process | None) -> None:
        if socket not in self._awaited:
            self._awaited.add(socket)
            self._spawn(self._until_ended(socket, relay))

    async def _until_ended(self, socket: str, relay: Process | None) -> None:
        try:
            if relay is not None:
                await _ended(relay)
            await making.remove_socket(socket, self._asides)
            await asyncio.to_thread(_remove, self._notes / os.path.basename(socket))
        finally:
            self._awaited.discard(socket)


async def _ended(process: Process) -> None:
    async def opened() -> int | None:
        return epoll.open_process(process.pid, process.started_ticks)

    pidfd = await room.surely(opened)
    if pidfd is None:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(pidfd, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


def process_of(courier: str) -> Process | None:
    """Return the process that PID/START names; None for anything else."""
    pid, _, started = courier.partition("/")
    return Process(int(pid), int(started)) if pid.isdecimal() and started.isdecimal() else None


def _write(note: Path, courier: str) -> None:
    """Without a note the socket is looked after until exitd ends."""
    try:
        fd = os.open(note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, courier.encode())
        finally:
            os.close(fd)
    except OSError as error:
        log.warning("the socket of a relay is not noted", path=str(note), why=error.strerror)


def _remove(note: Path) -> None:
    try:
        note.unlink(missing_ok=True)
    except OSError as error:  # the next exitd will find that the socket has gone
        log.warning("the note about a relay's socket stays", path=str(note), why=error.strerror)


def _read(note: Path) -> Process | None:
    """Return None for a note that was not finished: then the socket shows whether somebody listens there."""
    try:
        return process_of(regular.read(str(note), most_bytes=MOST_BYTES, follow=False).decode(errors="replace"))
    except (OSError, regular.NotRegular):
        return None
