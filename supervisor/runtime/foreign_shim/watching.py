"""Every process under a foreign shim whose end this daemon waits for, init or exec, and what has been reported of
it."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable

import structlog

from shim import native
from shim.frozen import mutable
from supervisor.model.errors import ExitdError, NoSuchContainer, NoSuchExec, ShimLost, TimedOut
from supervisor.model.evidence import Pending
from supervisor.model.values import Process, Report, RunKey, Source
from supervisor.monitor import epoll
from supervisor.monitor.earlyholds import EarlyHolds
from supervisor.monitor.kernelword import Executions, KernelWord
from supervisor.monitor.witness import BEGINS_SECONDS
from supervisor.runtime.foreign_shim.peer import Peer
from supervisor.runtime.foreign_shim.verdict import NOT_DELETED, Deletion, Seen, ShimWord, judge
from supervisor.system import room

ANSWERS = 3  # how often a shim must say that it knows no such process before it is believed
AGAIN_SECONDS = 1.0  # between two Waits that returned without an end
REAPED_SECONDS = 1.0  # how long the host's init may take to reap what a dead shim has left
LOOK_SECONDS = 0.02
BLIND_SECONDS = 0.25  # until the next look at an end, if there was no room for one
FIRST_LOOK_SECONDS = 0.001  # after a start, for its execve(2)
MOST_PID = 1 << 22  # PID_MAX_LIMIT: no machine has higher pids

log = structlog.get_logger(__name__)


@mutable
class Watched:
    """One process, by the key of its run or exec. `own`: the pid is that process's on this host, and not that of a
    virtual machine or of its shim."""

    key: RunKey
    peer: Peer
    init: Process | None = None
    init_fd: int = -1
    own: bool = True
    wait: ShimWord | None = None
    event: ShimWord | None = None
    event_at: float = 0.0  # loop time
    lost: bool = False
    deleted: Deletion = NOT_DELETED
    kills: int | None = None  # of its cgroup, before `delete` has removed that
    over: bool = False  # the shim has said that there is no process to signal
    blind: bool = False  # there was no room for the last look
    reported: bool = False
    kernel_status: int | None = None
    kernel_source: Source = Source.PIDFD
    is_zombie: bool = False  # that status was read from the dead process itself, which is not reaped yet
    forced: bool = False  # SIGKILL was sent without its shim, which does not answer: the kernel's report is enough
    never_started: bool = False  # according to its shim
    becomes: bool = False  # by execve(2) it becomes the container's program
    executes: bool = False  # and exitd has seen it wait for that
    began: bool | None = None  # whether the program was executed; None: not known
    ended_ns: int = 0  # CLOCK_REALTIME when init's pidfd became readable; 0 if it had ended before it was opened
    waiting: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    holding: asyncio.TimerHandle | None = None  # the next attempt to open init

    def close(self, kernel: KernelWord, executions: Executions) -> None:
        """Cancel what waits for its end, and close the descriptor of init. Repeatable."""
        for each in (self.waiting, self.timer, self.holding):
            if each is not None:
                each.cancel()
        if self.init_fd >= 0:
            if self.init is not None:
                executions.let_go(self.init)
                kernel.let_go(self.init, self.init_fd)
            asyncio.get_running_loop().remove_reader(self.init_fd)
            os.close(self.init_fd)
            self.init_fd = -1


class ShimWatching:
    """One per daemon; belongs to its event loop. `report` is called once for each end."""

    def __init__(
        self,
        report: Callable[[RunKey, Report], None],
        oom_kills: Callable[[RunKey], int],
        *,
        zombie: bool,
        kernel: KernelWord,
        executions: Executions,
        early: EarlyHolds | None = None,
    ) -> None:
        """`early`: what is held already of what will be looked up."""
        self._report = report
        self._oom_kills = oom_kills
        self._zombie = zombie
        self._kernel = kernel
        self._executions = executions
        self._early = early or EarlyHolds(kernel)
        self._watched: dict[RunKey, Watched] = {}

    def get(self, key: RunKey) -> Watched | None:
        return self._watched.get(key)

    def of_peer(self, peer: Peer) -> list[Watched]:
        return [watched for watched in self._watched.values() if watched.peer is peer]

    def add(self, key: RunKey, peer: Peer) -> Watched:
        """Watch a process. Replaces an existing watch with this key."""
        self.drop(key)
        watched = self._watched[key] = Watched(key, peer)
        return watched

    def drop(self, key: RunKey) -> None:
        """Stop watching a process. Nothing happens if it is not watched."""
        watched = self._watched.pop(key, None)
        if watched is not None:
            watched.close(self._kernel, self._executions)

    def drop_run(self, key: RunKey) -> None:
        """Stop watching init and its execs."""
        for each in [each for each in self._watched if (each.container, each.run) == (key.container, key.run)]:
            self.drop(each)

    def close(self) -> None:
        for key in list(self._watched):
            self.drop(key)

    def hold(self, watched: Watched, init: Process, *, own: bool = True, executes: bool = False) -> None:
        """Hold the process by a pidfd, through which the kernel may report how it ended. Without room for one it is
        opened later: the shim has begun the process in any case. A pid of 0 means no process. `executes`: init becomes
        the container's program by execve(2), and may still wait for that."""
        watched.init, watched.own = init, own and init.pid > 0
        watched.becomes = watched.executes = executes and watched.own
        if init.pid > 0:
            self._hold(watched)

    def _hold(self, watched: Watched) -> None:
        assert watched.init is not None
        loop, fd = asyncio.get_running_loop(), None
        try:
            held = self._early.take(watched.init)
            fd = held.pidfd if held is not None else epoll.open_process(watched.init.pid, watched.init.started_ticks)
            # The time of its end, whenever its shim reports that.
            if watched.own and fd is not None and not epoll.read_ready(fd):
                loop.add_reader(fd, self._init_ended, watched)
        except OSError as error:
            log.debug("a process cannot be held yet", key=watched.key, why=str(error))
            if fd is not None:
                self._kernel.let_go(watched.init, fd)
                os.close(fd)
            watched.holding = loop.call_later(room.AGAIN_SECONDS, self._hold, watched)
        else:
            watched.init_fd = -1 if fd is None else fd
            if watched.own and fd is not None:
                self._kernel.hold(watched.init, fd)
                self._hold_start(watched)

    def _hold_start(self, watched: Watched) -> None:
        """Held first, looked at second: so no execve(2) is missed in between."""
        if not watched.executes:
            return
        assert watched.init is not None
        self._executions.hold(watched.init, watched.init_fd)
        is_over = epoll.read_ready(watched.init_fd)
        looked = native.has_executed(watched.init.pid, watched.init.started_ticks)
        if looked or (is_over and looked is None):
            self._executions.let_go(watched.init)  # it runs already, or its end was not seen
            watched.executes, watched.began = False, looked

    def has_begun(self, watched: Watched) -> bool | None:
        """Return whether init has executed the program; None if that is not known yet, will never be known, or the
        runtime does not execute it."""
        if watched.began is not None or not watched.executes or watched.init is None or watched.init_fd < 0:
            return watched.began
        is_over = epoll.read_ready(watched.init_fd)  # asked first: the looks below are the last ones then
        looked = native.has_executed(watched.init.pid, watched.init.started_ticks)
        heard = self._executions.of(watched.init)
        if looked or heard:
            watched.began = True
            self._executions.let_go(watched.init)
        elif is_over and False in (looked, heard):  # a zombie shows it, too
            watched.began = False
        return watched.began

    async def look_meanwhile(self, key: RunKey) -> None:
        """During a start: look whether init has executed the program until `has_begun` knows; for ever, if need be.
        Returns at once where the kernel reports it: without that, what ends soon is gone when the shim answers."""
        while not self._executions.are_reported and (watched := self._watched.get(key)) is not None:
            if self.has_begun(watched) is not None or not self._may_begin(watched):
                return
            await asyncio.sleep(FIRST_LOOK_SECONDS)

    async def see_start(self, key: RunKey) -> None:
        """After a successful start: wait until `has_begun` knows, or cannot know; BEGINS_SECONDS at most."""
        loop, rest = asyncio.get_running_loop(), FIRST_LOOK_SECONDS
        end = loop.time() + BEGINS_SECONDS
        while (watched := self._watched.get(key)) is not None and loop.time() < end:
            if self.has_begun(watched) is not None or not self._may_begin(watched):
                return
            await asyncio.sleep(rest)
            rest = min(2 * rest, LOOK_SECONDS)

    def _may_begin(self, watched: Watched) -> bool:
        is_awaited = watched.executes and watched.init_fd >= 0 and not watched.reported
        return is_awaited and not epoll.read_ready(watched.init_fd)

    def _init_ended(self, watched: Watched) -> None:
        watched.ended_ns = time.time_ns()
        asyncio.get_running_loop().remove_reader(watched.init_fd)
        if watched.forced:
            self.look(watched)

    def force(self, watched: Watched, number: int) -> bool:
        """Signal init without its shim, which does not answer. Return False if its pid is a virtual machine's or is
        shared by several containers. The kernel then says whether SIGKILL was its end."""
        if watched.init_fd < 0 or self.is_shared(watched):
            return False
        watched.forced = watched.forced or number == signal.SIGKILL
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(watched.init_fd, number)
        if watched.forced and epoll.read_ready(watched.init_fd):
            self.look(watched)
        return True

    def never_started(self, watched: Watched) -> None:
        """Note that, according to its shim, it has not begun and cannot be signalled."""
        watched.never_started = True
        self.look(watched)

    def begin(self, watched: Watched) -> None:
        """Wait for its end, from before its start."""
        watched.waiting = asyncio.get_running_loop().create_task(self._wait(watched))

    async def _wait(self, watched: Watched) -> None:
        unknown = 0
        while not watched.reported and not watched.peer.lost.is_set():
            try:
                link = await watched.peer.link()
                word = await link.wait(watched.key.container, watched.key.exec_id)
                if word.at_ns:
                    watched.wait = word
                    return self.look(watched)
                unknown = 0 if await self._is_there(watched) else unknown + 1
            except (ShimLost, TimedOut):
                unknown = 0
            except OSError as error:  # out of descriptors: that says nothing about the shim
                log.debug("the shim cannot be asked now", key=watched.key, why=str(error))
                unknown = 0
            except ExitdError as error:
                log.debug("the shim gave no end to Wait", key=watched.key, why=str(error))
                knows_none = isinstance(error, NoSuchContainer | NoSuchExec)
                unknown = unknown + 1 if knows_none or not await self._lives_on(watched) else 0
            if unknown >= ANSWERS:
                watched.lost = True
                watched.kernel_status = await room.retry(lambda: self._reaped(watched))
                return self.look(watched)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _is_there(self, watched: Watched) -> bool:
        """An answer to Wait without a time is no end; the shim's state says whether there is a process."""
        link = await watched.peer.link()
        state = await link.state(watched.key.container, watched.key.exec_id)
        if state.status == "stopped" and state.exited_at_ns:
            watched.wait = ShimWord(state.exit_status, state.exited_at_ns)
            self.look(watched)
        return watched.wait is not None or state.status != "stopped"

    async def _lives_on(self, watched: Watched) -> bool:
        """A shim that refuses to wait may nevertheless know that there is a process."""
        try:
            return await self._is_there(watched)
        except (ShimLost, TimedOut, OSError):
            return True
        except ExitdError:
            return False

    def event_came(self, key: RunKey, word: ShimWord, pid: int = 0) -> None:
        """Take a TaskExit. A second one of the same process is ignored, and so is a late one of the previous run."""
        watched = self._watched.get(key)
        known = watched.init.pid if watched is not None and watched.init is not None else 0
        if watched is None or (known and pid not in (0, known)):
            return
        if watched.event is None and not watched.reported:
            watched.event, watched.event_at = word, asyncio.get_running_loop().time()
            self.look(watched)

    async def lose(self, peer: Peer, delete: Callable[[], Awaitable[Deletion]]) -> None:
        """The shim is dead. Ask the kernel first which processes have ended by themselves by now: `delete` kills the
        rest. Raises OSError when there is no room to ask; then nothing was done."""
        lost = [watched for watched in self.of_peer(peer) if not watched.reported]
        for watched in lost:
            if watched.init_fd >= 0 and epoll.read_ready(watched.init_fd):
                watched.kernel_status = await self._reaped(watched)
        kills = {watched.key: self._kills(watched) for watched in lost}
        deleted = await delete()
        for watched in lost:
            # `delete` does not report an exec's end, but the kernel may have reported it.
            watched.deleted = Deletion(failed=deleted.failed) if watched.key.exec_id else deleted
            watched.lost = True
            self.look(watched, kills[watched.key])

    def look(self, watched: Watched, oom_kills: int | None = None) -> None:
        """Report the end, once, as soon as it has been observed. `oom_kills`: what its cgroup had counted; None: to be
        read now. What there is no room to look at is looked at again."""
        if watched.reported:
            return
        if oom_kills is not None:
            watched.kills = oom_kills
        try:
            found = judge(self._seen(watched))
        except OSError as error:  # no descriptor or no memory for the look: this says nothing about the process
            if not watched.blind:
                log.warning("an end cannot be looked at now", key=watched.key, why=str(error))
            watched.blind, found = True, Pending(BLIND_SECONDS)
        else:
            watched.blind = False
        if isinstance(found, Pending):
            if found.seconds is not None and watched.timer is None:
                loop = asyncio.get_running_loop()
                watched.timer = loop.call_later(found.seconds, self._look_later, watched)
            return
        watched.reported = True
        self._report(watched.key, found)

    def _kills(self, watched: Watched) -> int:
        """Return the memory kills in its cgroup up to now; 0 if they cannot be read. Raises OSError when there is no
        room to look."""
        try:
            return self._oom_kills(watched.key)
        except OSError as error:
            if room.is_used_up(error):
                raise
            log.warning("memory kills cannot be counted", key=watched.key, why=str(error))
            return 0

    def _seen(self, watched: Watched) -> Seen:
        """Return what there is to judge by now. Raises OSError when there is no room to look."""
        if watched.kernel_status is None and (watched.wait or watched.event or watched.forced):
            watched.kernel_status = self._kernel_status(watched)
        return Seen(
            watched.init,
            watched.wait,
            watched.event,
            asyncio.get_running_loop().time() - watched.event_at,
            watched.kernel_status,
            watched.lost,
            watched.deleted,
            time.time_ns(),
            self._kills(watched) if watched.kills is None else watched.kills,
            watched.peer.is_plain,
            0 if self.is_shared(watched) else watched.ended_ns,
            watched.forced,
            watched.is_zombie,
            watched.never_started,
            watched.kernel_source,
            self.has_begun(watched),
            watched.becomes,
        )

    def _look_later(self, watched: Watched) -> None:
        watched.timer = None
        self.look(watched)

    def _kernel_status(self, watched: Watched) -> int | None:
        """Return None if the pid is shared, or the process has not ended, or this kernel does not report its status."""
        if watched.init is None or watched.init_fd < 0 or self.is_shared(watched):
            return None
        if not epoll.read_ready(watched.init_fd):
            return None
        word = self._kernel.of(watched.init, watched.init_fd)
        if word.status is not None:
            watched.kernel_source = word.source
            return word.status
        if not self._zombie:
            return None
        try:
            state, _, started, status = native.process_stat(watched.init.pid)
        except ProcessLookupError:  # reaped, and the kernel keeps no status of it
            return None
        watched.is_zombie = state == "Z" and started == watched.init.started_ticks
        return status if watched.is_zombie else None

    def is_shared(self, watched: Watched) -> bool:
        """Return whether its pid is, or might be, that of several containers, a virtual machine, or its shim."""
        return not watched.own or sum(other.init == watched.init for other in self._watched.values()) > 1

    async def _reaped(self, watched: Watched) -> int | None:
        """Return the kernel's status of an ended process. Its new parent may take a moment to reap it."""
        if self.is_shared(watched):
            return None
        loop = asyncio.get_running_loop()
        end = loop.time() + REAPED_SECONDS
        while (status := self._kernel_status(watched)) is None and loop.time() < end:
            if watched.init_fd < 0 or not epoll.read_ready(watched.init_fd):
                return None
            await asyncio.sleep(LOOK_SECONDS)
        return status


def process_of(pid: int) -> Process | None:
    """Return the process that has this pid now. Raises OSError when there is no room to look."""
    with contextlib.suppress(ProcessLookupError):
        return Process(pid, native.process_stat(pid)[2]) if 0 < pid <= MOST_PID else None
    return None


def as_named(pid: int) -> Process:
    """Return the process with the pid that a shim reported, also after its end; pid 0 if the number cannot be a pid.
    Raises OSError when there is no room to look."""
    return process_of(pid) or Process(pid if 0 < pid <= MOST_PID else 0, 0)
