"""exitd-shim as the daemon sees it: started through the keeper, found again, ended."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Self

import structlog

from shim import fields, launch, native, programs, slots
from shim.frozen import frozen
from shim.undo import undone_on_failure
from supervisor.model.errnos import USED_UP
from supervisor.model.errors import Busy, ExitdError, ShimFailed, TimedOut
from supervisor.model.values import Process
from supervisor.monitor import epoll, keeper, procfs, rundir
from supervisor.monitor.witness import ShimWatch, Watch
from supervisor.system import room
from supervisor.system.background import Background
from supervisor.system.leisure import Leisure

LOCK_STAGE = "lock"  # of a shim that finds another at work (shim/core/setup.c)
LEAVES_SECONDS = 2.0  # how long a shim may take to exit after its record
LOOK_SECONDS = 0.01  # between two looks at a shim that is not watched
DEATH_SECONDS = 5.0  # of any process, after SIGKILL
ADOPT_SECONDS = 10.0  # until a replacement has reported that it runs
ADOPT_REST_SECONDS = 1.0  # between two replacements for the same run
ROOM_SECONDS = 30.0  # for a replacement, once the run has ended: the keeper drops its copies only then

log = structlog.get_logger(__name__)


NO_FIFOS: Mapping[int, int] = {}


class Shims:
    """Starts shims, and ends those that do not end by themselves.

    `on_begun` is called with the watch of each shim that was just started, replacements included, before exitd waits
    for the shim's status.
    """

    def __init__(
        self,
        watcher: epoll.Monitor,
        keeper_line: keeper.Keeper,
        on_begun: Callable[[ShimWatch], Awaitable[None]] | None = None,
    ) -> None:
        self._on_begun = on_begun
        self._monitor = watcher
        self._keeper = keeper_line
        self._program = str(programs.find("exitd-shim"))
        self._background = Background()
        self._found = Leisure(self._hold_copies, self._background.spawn)

    async def begin(
        self,
        watch: ShimWatch,
        limit_seconds: float,
        *,
        adopt: bool,
        joins: Sequence[int] = (),
        fifos: Mapping[int, int] = NO_FIFOS,
        stdin: bool = False,
        tty: bool = False,
        owner: tuple[int, int] = (0, 0),
    ) -> launch.Created | launch.Failed | None:
        """Start a shim for the run and return its status message, None if it died without one.

        `joins`: descriptors of namespaces, one for each path of the plan's `join`, in that order. The caller owns them
        and keeps them open until this returns. The same holds for `fifos`, by slot: exitd's ends of the fifos of a
        foreign shim, used instead of pipes. `stdin`: the container's input is open. `tty`: the runtime makes a terminal
        for input and output; otherwise they are pipes that belong to `owner` (uid, gid). A replacement (`adopt`) gets
        the descriptors that the keeper has kept, and those of the watch's copies that the keeper does not have.

        Raises:
            ShimFailed: no shim was started.
            Busy: no shim was started, for lack of descriptors.
            TimedOut: a shim was started, but neither reports nor dies.
        """
        watch.has_one_output = watch.has_one_output or tty
        lent = {**dict(enumerate(joins, slots.JOIN_FD)), **fifos}
        with _duplicated(watch.copies if adopt else {}) as copies:
            wanted = _Wanted(not adopt, stdin, tty, lent, owner, bool(fifos), copies)
            with await _descriptors_for(watch, wanted, self._monitor) as descriptors:
                if await self._by_keeper(watch, descriptors, limit_seconds, adopt=adopt):
                    if not adopt and not tty:
                        descriptors.share_with(watch)
                    return await self._word(watch, descriptors, limit_seconds)
            watch.asked_in_vain = True
            # A stopped keeper's queue holds copies of those ends, which would keep them open forever: make new ones.
            with await _descriptors_for(watch, wanted, self._monitor) as descriptors:
                try:
                    self._directly(watch, descriptors, adopt=adopt)
                except OSError as error:  # it was ended at once, but may have made something before
                    log.warning("shim ended, it cannot be watched", container=watch.key.container, why=str(error))
                return await self._word(watch, descriptors, limit_seconds)

    async def _word(
        self, watch: ShimWatch, descriptors: "_Descriptors", limit_seconds: float
    ) -> launch.Created | launch.Failed | None:
        if self._on_begun is not None:
            await self._on_begun(watch)
        status = await descriptors.status(limit_seconds)
        if isinstance(status, launch.Created) and watch.misses_copies():
            self._background.spawn(self._hold_copies(watch))
        return status

    async def _hold_copies(self, watch: ShimWatch) -> None:
        """Ask the keeper for copies of the output's descriptors, unless they are at hand. What it does not give is
        asked for again by `ask_for_copies`."""
        key = watch.key
        if watch.closed or not watch.misses_copies():
            return
        with contextlib.suppress(keeper.KeeperSilent, launch.KeeperRefused):
            watch.hold_copies(await self._keeper.copies(key.container, key.run, key.exec_id))

    def ask_for_copies(self, watch: ShimWatch) -> None:
        """Called in each round of the reconcile loop for a watch that misses some."""
        self._background.spawn(self._hold_copies(watch))

    async def replace(self, watch: ShimWatch) -> bool:
        """Start a replacement for a shim that was lost. Return False if none was started; output may then be lost. If
        there is no room for one, this tries again for as long as the run lives, and ROOM_SECONDS after its end."""
        key, loop = watch.key, asyncio.get_running_loop()
        log.warning("shim lost, starting a replacement", container=key.container, run=key.run, exec=key.exec_id)
        status = None
        while not watch.closed:
            try:
                await watch.rest(ADOPT_REST_SECONDS)
                if not watch.has_no_shim():  # an earlier replacement, which ended at once, had found this one at work
                    return True
                status = await self.begin(watch, ADOPT_SECONDS, adopt=True)
                watch.no_room_since = None
                break
            except Busy as error:
                if watch.has_ended():
                    watch.no_room_since = watch.no_room_since or loop.time()
                    if loop.time() >= watch.no_room_since + ROOM_SECONDS:
                        names = {"container": key.container, "run": key.run, "exec": key.exec_id}
                        log.warning("no room for a replacement shim, output may be lost", **names, why=str(error))
                        return False
                log.warning("no room for a replacement shim, trying again", container=key.container, why=str(error))
            except ExitdError as error:
                log.warning("no replacement shim", container=key.container, run=key.run, why=str(error))
                return False
        if isinstance(status, launch.Created) and status.pidfd >= 0:
            os.close(status.pidfd)  # of init, which is watched already
        if isinstance(status, launch.Failed) and status.stage == LOCK_STAGE and not watch.closed:
            self.find(watch)  # another replacement, of which exitd did not hear
        return True

    async def _by_keeper(
        self, watch: ShimWatch, descriptors: "_Descriptors", limit_seconds: float, *, adopt: bool
    ) -> bool:
        """Return False if there is no keeper to ask. Raises ShimFailed or Busy when no shim was started, TimedOut when
        it is not known."""
        key, path = watch.key, watch.directory.path
        request = launch.spawn_request(
            key.container, key.run, key.exec_id, path, self._program, adopt=adopt, slots=[*descriptors.all]
        )
        try:
            pid, started, shim_fd = await self._keeper.spawn(request, [*descriptors.all.values()])
        except launch.KeeperRefused as error:
            if error.number in USED_UP:
                raise room.busy(f"a shim at the keeper, for run {key.run} of {key.container}", error) from error
            raise ShimFailed(f"{error}; run {key.run} of {key.container} was not begun") from error
        except keeper.KeeperSilent as error:
            if room.is_used_up(error.__cause__):  # it cannot be asked now; without it a witness would be missing
                raise room.busy("a connection to the keeper", error) from error
            if error.was_closed and await descriptors.is_heard(limit_seconds):  # it had started the shim, and died then
                await room.retry(lambda: self._found_at_work(watch))
                return True
            # Then no process has the output's other end.
            if adopt and not descriptors.has_copies and not error.may_be_there:
                raise ShimFailed(f"no keeper: {error}") from error
            if adopt and not error.is_gone:  # it, or the next one, has more of the run than exitd, or has begun a shim
                raise Busy(f"no answer of the keeper yet: {error}") from error
            log.warning("no keeper, spawning the shim directly", container=key.container, why=str(error))
            return False
        watch.watch_shim(Process(pid, started), shim_fd)
        return True

    def _directly(self, watch: ShimWatch, descriptors: "_Descriptors", *, adopt: bool) -> None:
        """Raises ShimFailed or Busy when no shim was started, OSError when one was, but had to be ended, since it
        cannot be watched."""
        pid = keeper.spawn_directly(
            self._program, watch.key.container, watch.directory.path, descriptors.all, adopt=adopt
        )
        with undone_on_failure(lambda: _end_child(pid)):
            shim_fd = os.pidfd_open(pid)
            with undone_on_failure(lambda: os.close(shim_fd)):
                shim = Process(pid, native.process_stat(pid)[2])
            watch.watch_shim(shim, shim_fd)

    def is_there(self, path: str) -> bool:
        """Return whether the shim that signed the lock of this run directory is alive."""
        shim = rundir.lock_holder(path)
        return shim is not None and not procfs.is_gone(shim)

    def find(self, watch: ShimWatch) -> None:
        """Watch the shim that signed the run's lock, if it is alive. Raises OSError when there is no room to look."""
        shim = rundir.lock_holder(watch.directory.path)
        shim_fd = epoll.open_process(shim.pid, shim.started_ticks) if shim is not None else None
        if shim is not None and shim_fd is not None:
            watch.watch_shim(shim, shim_fd)
        self._found.add(watch)  # its copies matter when keeper and shim die, too

    async def _found_at_work(self, watch: ShimWatch) -> None:
        self.find(watch)

    async def leave(self, watch: ShimWatch | None, limit_seconds: float = LEAVES_SECONDS) -> None:
        """Wait for the run's shim to exit, and kill it after the limit. Its work is done."""
        if watch is None:
            return
        watch.give_up()
        if watch.has_no_shim():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0 if watch.shim_is_stuck else limit_seconds):
                await watch.shim_gone.wait()
        if watch.shim_fd >= 0:
            log.warning("shim did not leave, killing it", container=watch.key.container, run=watch.key.run)
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(watch.shim_fd, signal.SIGKILL)
            await _within(watch.shim_gone, f"exitd-shim of {watch.key.container}")

    @contextlib.asynccontextmanager
    async def locked(self, path: str, *, is_unmade: bool = False) -> AsyncIterator[None]:
        """Hold the run's lock, taken from a shim that still has it. `is_unmade`: exitd knows of no container there, so
        none has run. Raises ShimFailed when the shim does not release it."""
        with rundir.locked(path) as free:
            if free:
                yield
                return
        await self._kill_lock_holder(path, is_unmade)
        with rundir.locked(path) as free:
            if not free:
                raise ShimFailed(f"{path}: another shim took its lock; trying again")
            yield

    async def _kill_lock_holder(self, path: str, is_unmade: bool) -> None:
        """Kill a shim that is not watched: an earlier daemon's, or a second one. It gets time to write the end of the
        log; if no container has run, to finish the one that it is creating, which is then removed as a whole."""
        holder = rundir.lock_holder(path)
        pidfd = epoll.open_process(holder.pid, holder.started_ticks) if holder is not None else None
        if pidfd is None:
            raise ShimFailed(f"{path}: its lock is held by a process that did not sign it")
        gone = asyncio.Event()
        try:
            self._monitor.watch(pidfd, epoll.PIDFD, lambda _: gone.set())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVES_SECONDS):
                    await (_made(path, gone) if is_unmade else gone.wait())
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            await _within(gone, f"the shim in {path}")
        finally:
            self._monitor.unwatch(pidfd)
            os.close(pidfd)

    @property
    def keeper(self) -> Process | None:
        """The keeper that is connected."""
        return self._keeper.process

    def parent_of_init(self, watch: Watch | None) -> str:
        """Return which process is init's parent: "shim", "keeper" or "other"; empty if there is no init."""
        if watch is None or watch.init is None or watch.reported:
            return ""
        if watch.shim_fd >= 0 and watch.init_parent == watch.shim:  # the parent lives, so it is no other by now
            return "shim"
        try:
            parent = native.process_stat(watch.init.pid)[1]
        except OSError:  # it is gone, or there is no room to look
            return ""
        if watch.shim is not None and parent == watch.shim.pid:
            watch.init_parent = watch.shim
            return "shim"
        known = self._keeper.process
        return "keeper" if known is not None and parent == known.pid else "other"


@frozen
class _Wanted:
    output: bool
    stdin: bool
    tty: bool
    lent: Mapping[int, int]  # by slot; the caller owns them
    owner: tuple[int, int]
    only_stage: bool  # output and input are among those
    copies: Mapping[int, int]  # by slot, for a replacement; they stay open for as long as this is used

    def pipes(self) -> list[tuple[int, int]]:
        """Return the slots of both ends of each pipe. The runtime makes a tty, and its master takes the place of three
        pipes."""
        if not self.output:
            return []
        own = not self.tty and not self.only_stage
        return [
            *([(slots.OUT_FD, slots.OUT_WRITE_FD), (slots.ERR_FD, slots.ERR_WRITE_FD)] if own else []),
            *([(slots.IN_FD, slots.IN_WRITE_FD)] if own and self.stdin else []),
            (slots.STAGE_READ_FD, slots.STAGE_WRITE_FD),
        ]


@contextlib.contextmanager
def _duplicated(descriptors: Mapping[int, int]) -> Iterator[dict[int, int]]:
    """Yield descriptors of the same, by slot, that nothing else closes. Raises Busy when there is no room for them."""
    made: dict[int, int] = {}
    try:
        try:
            made.update((slot, os.dup(fd)) for slot, fd in descriptors.items())
        except OSError as error:
            raise room.busy("descriptors of a replacement shim", error) from error
        yield made
    finally:
        for fd in made.values():
            os.close(fd)


class _Descriptors:
    """The descriptors of one shim, and exitd's end of its status socket. All are closed with the block, except the lent
    ones. Everything that can fail does so before there is a shim."""

    def __init__(self, wanted: _Wanted, monitor: epoll.Monitor) -> None:
        """Raises OSError when there is no room for them; then none is left open."""
        self._wanted = wanted
        self._monitor = monitor
        self._spoken = asyncio.Event()
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        self.theirs = {slots.STATUS_FD: theirs.detach()}
        try:
            for slot, fd in self._wanted.copies.items():
                self.theirs[slot] = os.dup(fd)
            for pair in self._wanted.pipes():
                self.theirs.update(zip(pair, os.pipe(), strict=True))
                if self._wanted.owner != (0, 0) and pair[0] != slots.STAGE_READ_FD:
                    os.fchown(self.theirs[pair[0]], *self._wanted.owner)
            self._ours.setblocking(False)
            monitor.watch(self._ours.fileno(), epoll.FIFO, self._hear)
        except OSError:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def _hear(self, _: int) -> None:
        """Note that the status message has arrived, or the end of the shim. There is at most one."""
        self._monitor.unwatch(self._ours.fileno())
        self._spoken.set()

    @property
    def has_copies(self) -> bool:
        return bool(self._wanted.copies)

    @property
    def all(self) -> dict[int, int]:
        """Return each descriptor by its slot (shim/core/shim.h), in the order of the slots."""
        return dict(sorted({**self.theirs, **self._wanted.lent}.items()))

    def __exit__(self, *_: object) -> None:
        self._monitor.unwatch(self._ours.fileno())
        self._ours.close()
        self._close_theirs()

    def share_with(self, watch: ShimWatch) -> None:
        """Let the watch hold copies of all that the keeper keeps, but the input. Without room for them it has none, and
        the keeper is asked later. A terminal's master, which comes into being with init, is not among them."""
        kept = {slot: fd for slot, fd in self.all.items() if slot in slots.KEPT_OUTPUT}
        made: dict[int, int] = {}
        try:
            made.update((slot, os.dup(fd)) for slot, fd in kept.items())
        except OSError:
            for fd in made.values():
                os.close(fd)
        else:
            watch.hold_copies(made)

    def _close_theirs(self) -> None:
        for fd in self.theirs.values():
            os.close(fd)
        self.theirs = {}

    async def status(self, limit_seconds: float) -> launch.Created | launch.Failed | None:
        """Return the shim's one message, None if it died without one: with exitd's copies of the shim's ends closed,
        that is an end of file. Raises TimedOut when it neither reports nor dies."""
        await self._hear_within(limit_seconds)
        return _message(self._ours)

    async def is_heard(self, limit_seconds: float) -> bool:
        """Return whether a shim has these descriptors and has sent its message, which is left for `status`. Raises
        TimedOut as that does."""
        await self._hear_within(limit_seconds)
        try:
            return bool(self._ours.recv(1, socket.MSG_PEEK))
        except OSError:  # reset: the request with these descriptors was never read
            return False

    async def _hear_within(self, limit_seconds: float) -> None:
        self._close_theirs()
        try:
            async with asyncio.timeout(limit_seconds):
                await self._spoken.wait()
        except TimeoutError as error:
            raise TimedOut(f"exitd-shim said nothing for {limit_seconds:.0f} s") from error


async def _descriptors_for(watch: ShimWatch, wanted: _Wanted, monitor: epoll.Monitor) -> _Descriptors:
    """Raises ShimFailed, Busy."""
    try:
        return await room.patiently(lambda: _Descriptors(wanted, monitor), f"the streams of {watch.directory.path}")
    except OSError as error:
        raise ShimFailed(f"the shim in {watch.directory.path} cannot be watched: {error.strerror}") from error


def _message(sock: socket.socket) -> launch.Created | launch.Failed | None:
    """Return None if it died without a message."""
    try:
        data, descriptors = launch.receive(sock)
    except OSError as error:
        log.warning("a shim's status message is lost", why=str(error))
        return None
    try:
        return launch.parse_status(data, descriptors) if data else None
    except fields.BadMessage as error:
        for fd in descriptors:
            os.close(fd)
        raise ShimFailed(f"exitd-shim's status is not understood: {error}") from error


def _end_child(pid: int) -> None:
    """Kill a shim of exitd's own that could not be watched: what it makes would have no owner. Unreaped, it keeps its
    pid."""
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED)


async def _made(path: str, gone: asyncio.Event) -> None:
    """Wait until the shim has made its container, or has died."""
    while rundir.created(path) is None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await gone.wait()
                return


async def _within(event: asyncio.Event, what: str) -> None:
    try:
        async with asyncio.timeout(DEATH_SECONDS):
            await event.wait()
    except TimeoutError as error:
        raise TimedOut(f"{what} is not dead {DEATH_SECONDS:.0f} s after SIGKILL") from error
