"""The streams of processes under a foreign shim. Each run and each exec has a pump: an exitd-shim that creates nothing.

The foreign shim opens fifos in the run directory. The pump has their other ends, and the keeper has copies of those. So
output goes on while exitd is away, and a pump that is killed is replaced without losing a byte. Only the foreign shim
knows when and how the process ends; a pump stays until exitd reports the end to it.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Coroutine, Iterator
from typing import Protocol

import structlog

from shim import launch, plan, slots
from shim.frozen import field, frozen, mutable
from shim.undo import undone_on_failure
from supervisor.model import errnos
from supervisor.model.errors import Busy, ShimFailed, TimedOut
from supervisor.model.execs import Exec
from supervisor.model.values import Container, Process, RunKey
from supervisor.monitor import control, epoll, keeper, rundir
from supervisor.monitor.mending import Mend
from supervisor.monitor.shims import ADOPT_SECONDS, Shims
from supervisor.monitor.witness import ShimSenses, ShimWatch
from supervisor.runtime.oci import runplan
from supervisor.runtime.oci.execs import HOLD_MS
from supervisor.runtime.oci.runplan import Place

STDIN, STDOUT, STDERR = "stdin", "stdout", "stderr"  # the fifos; the core knows the name of the first
DRAIN_MS = 8_000  # from the end to the last output; foreign shims cut it off after 2 s, or 10 s
LEAVES_SECONDS = DRAIN_MS / 1000 + 2
EXEC_LEAVES_SECONDS = 2.0  # when an exec is deleted: clients that want its output have waited for it before
END_AGAIN_SECONDS = 0.1  # between two attempts to report the end to a pump

log = structlog.get_logger(__name__)


class WantedPump(Protocol):
    """The part of a container's or an exec's spec that says which streams there are."""

    @property
    def stdin(self) -> bool: ...
    @property
    def tty(self) -> bool: ...


@frozen
class Fifos:
    """Their paths, as a request to the foreign shim names them; "" for none."""

    stdin: str
    stdout: str
    stderr: str


@mutable
class Pump(ShimWatch):
    """One pump. `over` is set when it has left, or cannot be replaced: the log has everything that it will ever
    have."""

    begun: bool = False
    replacements: int = 0  # those that are being tried
    may_leave: bool = False  # the end was reported to it, perhaps by an earlier daemon
    given_up: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def give_up(self) -> None:
        self.given_up = True

    def shim_left(self) -> None:
        if self.begun:
            self.senses.on_shim_lost(self.key)

    def has_left(self) -> bool:
        """Return whether it left by itself and was not killed: then it has removed its socket."""
        return self.may_leave and not os.path.lexists(f"{self.directory.path}/{control.SOCKET_NAME}")

    def kill(self) -> None:
        if self.shim_fd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.shim_fd, signal.SIGKILL)

    def close(self) -> None:
        """Repeatable."""
        self.closed = True
        self.drop_shim()
        self.drop_others()
        self.drop_copies()
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
        """Make the fifos in the directory, whose plan this module has made and which it takes over, and start a pump
        for them. Call it before the foreign shim is asked to create. Raises ShimFailed or TimedOut when there is no
        pump."""
        pump = self._pumps[key] = Pump(key, directory, self._senses, has_one_output=wanted.tty)
        names = Fifos(STDIN if wanted.stdin else "", STDOUT, "" if wanted.tty else STDERR)
        try:
            with _made(directory.path, names) as fds:
                status = await self._shims.begin(pump, ADOPT_SECONDS, adopt=False, fifos=fds)
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
        """Find the pump of an earlier daemon, or start one for a pump that was killed. Repeatable. Raises OSError when
        there is no room to look; then it is not found."""
        if key in self._pumps:
            return directory.close()
        is_alone = not os.path.lexists(f"{directory.path}/{STDERR}")
        pump = self._pumps[key] = Pump(
            key, directory, self._senses, has_one_output=is_alone, begun=True, may_leave=True
        )
        with undone_on_failure(lambda: self._drop(pump)):
            self._shims.find(pump)
        if pump.has_no_shim():
            pump.shim_gone.set()
            self._lost(key)

    def end(self, key: RunKey) -> None:
        """Report the end of its process to the pump, which then leaves at the end of the output or after the drain
        limit. Repeatable."""
        pump = self._pumps.get(key)
        if pump is not None and key not in self._goodbyes:
            pump.may_leave = True
            self._goodbyes[key] = self._task(self._see_off(pump))

    def gone(self, key: RunKey) -> asyncio.Event | None:
        """Return the event that is set when the output is complete and the pump has left; None if there is none."""
        pump = self._pumps.get(key)
        return pump.over if pump is not None else None

    def shim_of(self, key: RunKey) -> Process | None:
        """Return the pump or its replacement; None if neither is alive."""
        pump = self._pumps.get(key)
        return pump.shim if pump is not None and pump.shim_fd >= 0 else None

    async def leave(self, key: RunKey) -> None:
        """Wait until the pump is gone, killing it if it does not leave, and the keeper has closed its copies.
        Repeatable. Raises Busy when there is no room to report the end to an unwatched pump: it has its last output."""
        pump = self._pumps.get(key)
        if pump is None:  # an unwatched one gets a moment, and is then killed for the run's lock
            await _end(self._path(key))
            async with self._shims.locked(self._path(key)):
                return await self._keeper.acknowledge(key.container, key.run, key.exec_id)
        self.end(key)
        await asyncio.wait((self._goodbyes[key],), timeout=EXEC_LEAVES_SECONDS if key.exec_id else None)
        await self._shims.leave(pump, 0)
        await self._forget(pump)

    async def remove(self, key: RunKey) -> None:
        """As `leave`, also for the pumps of a run's execs, and remove the directory. Repeatable."""
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
        """Stop watching. Pumps go on without this daemon."""
        for task in self._tasks:
            task.cancel()
        for pump in self._pumps.values():
            pump.close()
        self._pumps.clear()

    async def _forget(self, pump: Pump) -> None:
        key = pump.key
        await self._keeper.acknowledge(key.container, key.run, key.exec_id)
        self._goodbyes.pop(key, None)
        self._drop(pump)

    def _drop(self, pump: Pump) -> None:
        if self._pumps.get(pump.key) is pump:
            del self._pumps[pump.key]
        pump.close()

    def look_at_all(self) -> None:
        """Called by the reconcile loop: have copies completed, and pumps replaced for which that has failed."""
        for pump in self._pumps.values():
            is_open = pump.begun and not pump.replacements and not pump.given_up and not pump.over.is_set()
            match pump.mend(is_open=is_open):
                case Mend.COPIES:
                    self._shims.ask_for_copies(pump)
                case Mend.SHIM:
                    self._lost(pump.key)

    def _lost(self, key: RunKey) -> None:
        pump = self._pumps[key]
        if pump.given_up or pump.has_left():
            pump.over.set()
        else:
            pump.replacements += 1
            self._task(self._replace(pump))

    async def _replace(self, pump: Pump) -> None:
        """Start a replacement, unless an earlier daemon has begun one in its last moments. One that fails is tried
        again in a round of the reconcile loop, as long as exitd has copies of the streams."""
        try:
            with contextlib.suppress(OSError):  # no room to look: a second pump would find the lock taken, and leave
                self._shims.find(pump)
            if pump.has_no_shim() and not await self._shims.replace(pump) and pump.has_no_shim() and not pump.copies:
                pump.over.set()
            if pump.given_up:
                pump.kill()
        finally:
            pump.replacements -= 1

    async def _see_off(self, pump: Pump) -> None:
        """Report the end to the pump, and kill it if it neither takes the report nor leaves, or there is no room to
        report it until then. The output of an exec may be held for a client that is to attach."""
        try:
            async with asyncio.timeout(LEAVES_SECONDS + (HOLD_MS / 1000 if pump.key.exec_id else 0)):
                while not pump.over.is_set():
                    if await self._took_end(pump):
                        await pump.shim_gone.wait()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(END_AGAIN_SECONDS):
                            await pump.over.wait()
        except TimeoutError:
            log.warning("pump did not leave, killing it", container=pump.key.container, run=pump.key.run)
            pump.give_up()
            pump.kill()
            if pump.has_no_shim():
                pump.over.set()

    async def _took_end(self, pump: Pump) -> bool:
        try:
            return await _end(pump.directory.path)
        except Busy as error:
            log.warning("the end cannot be reported to a pump now", container=pump.key.container, why=str(error))
            return False

    def _task(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def plan_of(container: Container, place: Place) -> bytes:
    """Encode the plan of a run's pump. Raises ShimFailed when the logger program is missing."""
    return plan.encode(runplan.with_log(_plan(RunKey(container.id, container.run), place), container, place.root))


def plan_of_exec(e: Exec, place: Place) -> bytes:
    """Encode the plan of an exec's pump, which has no log."""
    return plan.encode(_plan(e.key, place, HOLD_MS if e.spec.attach else 0))


def _plan(key: RunKey, place: Place, hold_ms: int = 0) -> plan.Plan:
    """A terminal is the foreign shim's: for the pump it is one fifo in each direction."""
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
    """Make the fifos and yield exitd's ends by slot. A writer needs a reader: for stdin that is then the pump."""
    with contextlib.ExitStack() as opened:

        def end_of(name: str, flags: int) -> int:
            fd = os.open(f"{path}/{name}", flags | os.O_NONBLOCK)
            opened.callback(os.close, fd)
            return fd

        try:
            for name in filter(None, (names.stdin, names.stdout, names.stderr)):
                os.mkfifo(f"{path}/{name}", 0o600)
            fds = {slots.OUT_FD: end_of(names.stdout, os.O_RDONLY)}
            if names.stderr:
                fds[slots.ERR_FD] = end_of(names.stderr, os.O_RDONLY)
            if names.stdin:
                end_of(names.stdin, os.O_RDONLY)
                fds[slots.IN_WRITE_FD] = end_of(names.stdin, os.O_WRONLY)
        except OSError as error:
            raise ShimFailed(f"fifos in {path}: {errnos.said(error)}") from error
        yield fds


async def _end(path: str) -> bool:
    """Have the streams ended. Return False if there is no pump at this moment, or it does not answer. Raises Busy when
    exitd, or the pump, has no room for that now."""
    try:
        async with control.opened(path) as line:
            await line.end()
    except (ShimFailed, TimedOut):
        return False
    return True
