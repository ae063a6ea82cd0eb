"""The streams of what runs under another's shim: for each run and each exec an exitd-shim that makes nothing, a pump.

The other's shim opens fifos in the run directory. Their other ends are the pump's, and copies of them the keeper's: so
output goes on while exitd is away, and a pump that is killed is replaced and loses no byte. How it ends, and when, only
the other's shim knows; a pump stays until it is told of that.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from shim import launch, plan, slots
from supervisor.model import errnos
from supervisor.model.errors import ShimFailed, TimedOut
from supervisor.model.execs import Exec
from supervisor.model.values import Container, Process, RunKey
from supervisor.monitor import control, epoll, keeper, rundir
from supervisor.monitor.shims import ADOPT_SECONDS, Shims
from supervisor.monitor.witness import ShimSenses, ShimWatch
from supervisor.runtime.oci import runplan
from supervisor.runtime.oci.execs import HOLD_MS
from supervisor.runtime.oci.runplan import Place

STDIN, STDOUT, STDERR = "stdin", "stdout", "stderr"  # the fifos; the core knows the first one's name
DRAIN_MS = 8_000  # from the end to the last of the output, which others' shims cut off after 2 s, or 10 s
LEAVES_SECONDS = DRAIN_MS / 1000 + 2
EXEC_LEAVES_SECONDS = 2.0  # when an exec is deleted: who wanted its output has waited for it before
TELL_SECONDS = 0.1  # between two tries to tell a pump of the end

log = structlog.get_logger(__name__)


class WantedPump(Protocol):
    """What of a container's or an exec's spec says which streams there are."""

    @property
    def stdin(self) -> bool: ...
    @property
    def tty(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Fifos:
    """Their paths, as a request to the other's shim names them; "" for none."""

    stdin: str
    stdout: str
    stderr: str


@dataclass(slots=True)
class Pump(ShimWatch):
    """One pump. `over` is set when it has left, or nobody can take its place: all there will be is in the log."""

    begun: bool = False
    may_leave: bool = False  # it is told of the end, or an earlier daemon may have told it
    given_up: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def give_up(self) -> None:
        self.given_up = True

    def shim_left(self) -> None:
        if self.begun:
            self.senses.on_shim_lost(self.key)

    def has_left(self) -> bool:
        """By itself, not killed: then it has taken its socket with it."""
        return self.may_leave and not os.path.lexists(f"{self.directory.path}/{control.SOCKET_NAME}")

    def kill(self) -> None:
        if self.shim_fd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.shim_fd, signal.SIGKILL)

    def close(self) -> None:
        """Repeatable."""
        self.closed = True
        self.drop_shim()
        self.over.set()
        self.directory.close()


class Pumps:
    """One per daemon; belongs to its event loop."""

    def __init__(self, state: str, watcher: epoll.Monitor, keeper_line: keeper.Keeper) -> None:
        self._state = state
        self._shims = Shims(watcher, keeper_line)
        self._keeper = keeper_line
        self._senses = ShimSenses(watcher, self._lost)
        self._pumps: dict[RunKey, Pump] = {}
        self._goodbyes: dict[RunKey, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self, key: RunKey, directory: rundir.RunDirectory, wanted: WantedPump) -> Fifos:
        """Before the other's shim is asked to create: the fifos in the directory, which has a plan of this module and
        is taken over, and a pump at them. ShimFailed, TimedOut: then there is none."""
        pump = self._pumps[key] = Pump(key, directory, self._senses)
        names = Fifos(STDIN if wanted.stdin else "", STDOUT, "" if wanted.tty else STDERR)
        try:
            with _made(directory.path, names) as seats:
                status = await self._shims.begin(pump, ADOPT_SECONDS, adopt=False, fifos=seats)
            if not isinstance(status, launch.Created):
                why = f"{status.stage}: {os.strerror(status.errno)}" if status is not None else "it died"
                raise ShimFailed(f"no exitd-shim moves the streams in {directory.path}: {why}")
        except BaseException:
            pump.kill()
            await self._forget(pump)
            raise
        pump.begun = True
        if pump.has_no_shim():
            self._lost(key)
        return Fifos(
            *(f"{directory.path}/{name}" if name else "" for name in (names.stdin, names.stdout, names.stderr))
        )

    def find(self, key: RunKey, directory: rundir.RunDirectory) -> None:
        """Of an earlier daemon: the pump that lives, or one in the place of what was killed. Repeatable."""
        if key in self._pumps:
            return directory.close()
        pump = self._pumps[key] = Pump(key, directory, self._senses, begun=True, may_leave=True)
        self._shims.find(pump)
        if pump.has_no_shim():
            pump.shim_gone.set()
            self._lost(key)

    def end(self, key: RunKey) -> None:
        """What it moves the streams of has ended: the pump leaves at the end of the output, or with the drain limit.
        Repeatable."""
        pump = self._pumps.get(key)
        if pump is not None and key not in self._goodbyes:
            pump.may_leave = True
            self._goodbyes[key] = self._task(self._see_off(pump))

    def gone(self, key: RunKey) -> asyncio.Event | None:
        """Set when the output is complete and the pump has left; None for what has none."""
        pump = self._pumps.get(key)
        return pump.over if pump is not None else None

    def shim_of(self, key: RunKey) -> Process | None:
        """The pump, or the one that came after it; None when neither lives."""
        pump = self._pumps.get(key)
        return pump.shim if pump is not None and pump.shim_fd >= 0 else None

    async def leave(self, key: RunKey) -> None:
        """Returns with the pump gone, which is killed if it does not go, and the keeper's copies closed. Repeatable."""
        pump = self._pumps.get(key)
        if pump is None:  # if there is one all the same, nobody watches it: it has a moment, and is killed for the lock
            await _told(self._path(key))
            async with self._shims.locked(self._path(key)):
                return await self._keeper.acknowledge(key.container, key.run, key.exec_id)
        self.end(key)
        await asyncio.wait((self._goodbyes[key],), timeout=EXEC_LEAVES_SECONDS if key.exec_id else None)
        await self._shims.leave(pump, 0)
        await self._forget(pump)

    async def remove(self, key: RunKey) -> None:
        """Likewise, and so are the pumps of a run's execs, and the directory with them. Repeatable."""
        path = self._path(key)
        execs = [] if key.exec_id else [RunKey(key.container, key.run, exec_id) for exec_id in rundir.execs(path)]
        for result in await asyncio.gather(*map(self.leave, [*execs, key]), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        async with self._shims.locked(path):
            rundir.remove(path)

    def _path(self, key: RunKey) -> str:
        return rundir.path_of(self._state, key.container, key.run, key.exec_id)

    def close(self) -> None:
        """Pumps go on without this daemon."""
        for task in self._tasks:
            task.cancel()
        for pump in self._pumps.values():
            pump.close()
        self._pumps.clear()

    async def _forget(self, pump: Pump) -> None:
        key = pump.key
        await self._keeper.acknowledge(key.container, key.run, key.exec_id)
        self._goodbyes.pop(key, None)
        if self._pumps.get(key) is pump:
            del self._pumps[key]
        pump.close()

    def _lost(self, key: RunKey) -> None:
        pump = self._pumps[key]
        if pump.given_up or pump.has_left():
            pump.over.set()
        else:
            self._task(self._replace(pump))

    async def _replace(self, pump: Pump) -> None:
        """Unless one that an earlier daemon has begun in its last moments is there by now."""
        with contextlib.suppress(OSError):  # no room to look: a second one finds the lock taken, and leaves
            self._shims.find(pump)
        if pump.has_no_shim() and not await self._shims.replace(pump) and pump.has_no_shim():
            pump.over.set()
        if pump.given_up:
            pump.kill()

    async def _see_off(self, pump: Pump) -> None:
        """One that neither hears nor leaves is killed: nobody waits any longer for the output. That of an exec may be
        held for somebody who is to attach."""
        try:
            async with asyncio.timeout(LEAVES_SECONDS + (HOLD_MS / 1000 if pump.key.exec_id else 0)):
                while not pump.over.is_set():
                    if await _told(pump.directory.path):
                        await pump.shim_gone.wait()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(TELL_SECONDS):
                            await pump.over.wait()
        except TimeoutError:
            log.warning("pump did not leave, killing it", container=pump.key.container, run=pump.key.run)
            pump.give_up()
            pump.kill()

    def _task(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def plan_of(container: Container, place: Place) -> bytes:
    """What a run's pump is to do. ShimFailed when the logger program is missing."""
    return plan.encode(runplan.with_log(_plan(RunKey(container.id, container.run), place), container, place.root))


def plan_of_exec(e: Exec, place: Place) -> bytes:
    """What an exec's pump is to do: it has no log."""
    return plan.encode(_plan(e.key, place, HOLD_MS if e.spec.attach else 0))


def _plan(key: RunKey, place: Place, hold_ms: int = 0) -> plan.Plan:
    """The terminal, if there is one, is the other's shim's: here it is one fifo each way."""
    return plan.Plan(
        id=key.container,
        run=key.run,
        exec_id=key.exec_id,
        create=(),
        remove=(),
        keeper=f"{place.state}/{launch.SOCKET_NAME}",
        drain_ms=DRAIN_MS,
        hold_ms=hold_ms,
        follow=True,
    )


@contextlib.contextmanager
def _made(path: str, names: Fifos) -> Iterator[dict[int, int]]:
    """Our ends by their seats, for the length of the block. A writer needs a reader: of stdin that is then the pump."""
    with contextlib.ExitStack() as opened:

        def end_of(name: str, flags: int) -> int:
            fd = os.open(f"{path}/{name}", flags | os.O_NONBLOCK)
            opened.callback(os.close, fd)
            return fd

        try:
            for name in filter(None, (names.stdin, names.stdout, names.stderr)):
                os.mkfifo(f"{path}/{name}", 0o600)
            seats = {slots.OUT_FD: end_of(names.stdout, os.O_RDONLY)}
            if names.stderr:
                seats[slots.ERR_FD] = end_of(names.stderr, os.O_RDONLY)
            if names.stdin:
                end_of(names.stdin, os.O_RDONLY)
                seats[slots.IN_WRITE_FD] = end_of(names.stdin, os.O_WRONLY)
        except OSError as error:
            raise ShimFailed(f"fifos in {path}: {errnos.said(error)}") from error
        yield seats


async def _told(path: str) -> bool:
    """False: there is no pump at this moment, or it is too busy."""
    try:
        async with control.opened(path) as line:
            await line.end()
    except (ShimFailed, TimedOut):
        return False
    return True
