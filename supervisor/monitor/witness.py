"""Watches one run: its fifo, its record, and the pidfds of init and shim, in the monitor's epoll set.

A shim that only moves a foreign process's streams has nothing else to watch: `ShimWatch` alone.
"""

import asyncio
import contextlib
import functools
import os
import select
import signal
from collections.abc import Callable
from enum import Enum

import structlog

from shim import native
from shim.frozen import field, frozen, mutable
from shim.record import Record
from supervisor.model import evidence
from supervisor.model.evidence import Init, Look, Pending
from supervisor.model.values import Process, Report, RunKey, Source
from supervisor.monitor import control, epoll, keeper, mending, procfs, rundir
from supervisor.monitor.kernelword import NO_WORD, KernelStatus, KernelWord
from supervisor.monitor.mending import Mend
from supervisor.system import room

log = structlog.get_logger(__name__)

REPORTED = native.number("REPORTED")  # a signal to a shim: the end of its run has been reported

BEGINS_SECONDS = 5.0  # from the runtime's start to the program's execve(2), generously
LOOK_SECONDS, MOST_LOOK_SECONDS = 0.001, 0.05  # between two checks for it
BLIND_SECONDS = 0.25  # until the next look, if one failed
SHIM_TELLS_SECONDS = 0.02  # from init's end to the bytes in the fifo, generously; after it all witnesses are asked


class Beginning(Enum):
    """The result of a start."""

    SEEN = "seen"  # the program was executed, or its runtime does not execute it, and is believed
    NEVER = "never"  # init has ended without executing it
    UNSEEN = "unseen"  # init has ended, and no witness saw whether it was executed
    LATE = "late"  # none of these yet


@frozen
class ShimSenses:
    """What the watch of a shim needs from its owner."""

    monitor: epoll.Monitor
    on_shim_lost: Callable[[RunKey], None]  # its purpose is lost, but the run goes on without it


@frozen
class Senses(ShimSenses):
    """What the watch of a run needs, too."""

    zombie_readable: bool  # the self-test's result: field 52 of /proc/PID/stat can be read here
    kernel: KernelWord
    now_ns: Callable[[], int]
    entry: Callable[[RunKey], Record | None]  # from the keeper's journal; raises JournalUnread
    entry_is_coming: Callable[[RunKey], bool]  # init is reaped, and a keeper may journal that yet
    oom_kills: Callable[[RunKey], int]
    on_exit: Callable[[RunKey, Report], None]
    on_begin: Callable[[RunKey], None]  # from now on there is an init to watch
    on_over: Callable[[RunKey], None]  # init is no longer watched; may be called again


@mutable
class ShimWatch:
    """Watches the shim of one run, and its replacements."""

    key: RunKey
    directory: rundir.RunDirectory
    senses: ShimSenses
    shim: Process | None = None
    shim_fd: int = -1
    init_parent: Process | None = None  # the shim that was seen to be it
    shim_is_unheld: bool = False  # it has begun, but there was no room yet to watch it
    shim_timer: asyncio.TimerHandle | None = None  # for the next try
    others: set[int] = field(default_factory=set)  # pidfds of shims that another has replaced before they ended
    asked_in_vain: bool = False  # for a shim: a keeper that does not answer may begin it yet
    closed: bool = False
    shim_is_stuck: bool = False  # it has not reaped its zombie, and is not expected to
    shim_gone: asyncio.Event = field(default_factory=asyncio.Event)
    replaced_at: float | None = None  # loop time of the last replacement
    no_room_since: float | None = None  # loop time since which there is none for a replacement, after the end
    copies: dict[int, int] = field(default_factory=dict)  # by slot: what a replacement needs if the keeper dies, too

    has_one_output: bool = False  # a terminal's, or the one fifo of a foreign shim's terminal

    def hold_copies(self, copies: dict[int, int]) -> None:
        """Hold these beside the present ones. Takes ownership of the descriptors: what there is a copy of already is
        closed, since the streams of a run stay the same; once the watch is closed, all of them are."""
        for slot, fd in copies.items():
            if self.closed or slot in self.copies:
                os.close(fd)
            else:
                self.copies[slot] = fd

    def drop_copies(self) -> None:
        """Close the copies of the descriptors that the shim has."""
        while self.copies:
            os.close(self.copies.popitem()[1])

    def misses_copies(self) -> bool:
        """Return whether a replacement could not go on with all of the output if the keeper died, too."""
        return bool(mending.missing(self.copies, is_alone=self.has_one_output))

    def mend(self, *, is_open: bool) -> Mend:
        """Return what a round of the reconcile loop does for the output. `is_open`: see `mending.OutputState`."""
        has_shim = not self.has_no_shim()
        return mending.wanted(mending.OutputState(frozenset(self.copies), self.has_one_output, has_shim, is_open))

    def watch_shim(self, shim: Process, shim_fd: int) -> None:
        """Watch the first shim, the same one found again, or a replacement. Takes ownership of `shim_fd`, its pidfd; if
        that is -1, there was no room for one, and it is opened as soon as there is.

        A shim that is watched already gives way: a keeper that dies while it answers has begun one of which exitd does
        not know, and the one that exitd then begins finds the run's lock taken. It ends by itself, which is then not
        the end of the run's shim."""
        if self.closed:  # a replacement that came after the end: the run's lock ends it
            if shim_fd >= 0:
                os.close(shim_fd)
            return
        if self.shim_timer is not None:
            self.shim_timer.cancel()
        if self.shim_fd >= 0:
            self.others.add(self.shim_fd)
            self.shim_fd = -1
        self.shim, self.shim_is_unheld, self.shim_is_stuck = shim, True, False
        self.shim_gone.clear()
        if shim_fd >= 0:
            self._hold_shim(shim_fd)
        else:
            self._hold_shim_later(0.0)

    def _hold_shim(self, shim_fd: int) -> None:
        """A shim that has begun must be watched, so this is repeated until the kernel has room."""
        try:
            self.senses.monitor.watch(shim_fd, epoll.PIDFD, functools.partial(self._shim_ready, shim_fd))
        except OSError as error:
            os.close(shim_fd)
            log.warning("a shim cannot be watched yet", container=self.key.container, why=error.strerror)
            self._hold_shim_later(room.AGAIN_SECONDS)
        else:
            self.shim_fd, self.shim_is_unheld = shim_fd, False

    def _hold_shim_later(self, seconds: float) -> None:
        self.shim_timer = asyncio.get_running_loop().call_later(seconds, self._try_to_hold_shim)

    def _try_to_hold_shim(self) -> None:
        assert self.shim is not None
        try:
            shim_fd = epoll.open_process(self.shim.pid, self.shim.started_ticks)
        except OSError:
            return self._hold_shim_later(room.AGAIN_SECONDS)
        if shim_fd is not None:
            return self._hold_shim(shim_fd)
        self.drop_shim()
        self.shim_left()

    def has_no_shim(self) -> bool:
        """Return whether the run is known to have no shim; one that could not be opened counts as a shim."""
        return self.shim_fd < 0 and not self.shim_is_unheld

    def kill_stopped_shim(self) -> bool:
        """Kill a stopped shim: the keeper then reaps its zombies and reports. Return False if no shim is stopped.
        Raises OSError when there is no room to see whether one is."""
        if self.shim is None or self.shim_fd < 0 or not procfs.is_stopped(self.shim):
            return False
        log.warning("killing a stopped shim that does not reap", container=self.key.container, run=self.key.run)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.shim_fd, signal.SIGKILL)
        return True

    def say_reported(self) -> None:
        """Let the shim go on to the runtime's delete: clients know of the end. An older shim ignores the signal."""
        if self.shim_fd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.shim_fd, REPORTED)

    async def rest(self, seconds: float) -> None:
        """Wait between two replacements: a program that ends at once must not keep the daemon busy."""
        loop = asyncio.get_running_loop()
        if self.replaced_at is not None and loop.time() < self.replaced_at + seconds:
            await asyncio.sleep(self.replaced_at + seconds - loop.time())
        self.replaced_at = loop.time()

    def drop_shim(self) -> None:
        """Watch the shim no longer, and set `shim_gone`. Repeatable."""
        if self.shim_fd >= 0:
            self._release(self.shim_fd)
            self.shim_fd = -1
        if self.shim_timer is not None:
            self.shim_timer.cancel()
        self.shim_is_unheld = False
        self.shim_gone.set()

    def drop_others(self) -> None:
        while self.others:
            self._release(self.others.pop())

    def _release(self, shim_fd: int) -> None:
        """Watch it no longer. It is reaped if it has ended and was the daemon's own child (there was no keeper)."""
        self.senses.monitor.unwatch(shim_fd)
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, shim_fd, os.WEXITED | os.WNOHANG)
        os.close(shim_fd)

    def give_up(self) -> None:
        """No longer replace its shim."""
        raise NotImplementedError

    def has_ended(self) -> bool:
        """Return whether the end is reported: a shim would only write the remaining output."""
        return False

    def shim_left(self) -> None:
        """Called when the shim has died."""
        raise NotImplementedError

    def _shim_ready(self, shim_fd: int, _: int) -> None:
        if shim_fd in self.others:
            self.others.remove(shim_fd)
            self._release(shim_fd)
        else:
            self.drop_shim()
            self.shim_left()


@mutable
class Watch(ShimWatch):
    """Watches one run from `begin` until its end is reported. After that its descriptors are kept until `close`.

    `output_over`: its shim has left and has moved all output into the log, or no process can move what is left.
    """

    senses: Senses
    init: Process | None = None
    init_fd: int = -1
    is_unheld: bool = False  # there was no room yet to watch fifo and init
    fifo_is_watched: bool = False
    reported: bool = False
    blind: bool = False  # the last look failed
    record_unread: bool = False  # logged already
    dead_at: float | None = None  # loop time at which init's pidfd was first seen readable
    found_dead: bool = False  # already at the first look
    fifo_number: int | None = None
    executes: bool = True  # the runtime's init executes the program; see `bundle.executes`
    executed: bool = False  # exitd has seen it executed
    verdict: Report | None = None  # set once it is reported
    output_over: asyncio.Event = field(default_factory=asyncio.Event)
    output_read: asyncio.Event = field(default_factory=asyncio.Event)  # no shim waits for readers of it any more
    timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start to watch fifo and init. While the kernel has no room for that (a descriptor, a place in an epoll set),
        it is tried again, and record and fifo are read meanwhile: they were opened before there was an init."""
        self._hold()
        if self.has_no_shim():
            self.drop_shim()
        self.senses.on_begin(self.key)

    def _hold(self) -> None:
        try:
            self._hold_all()
        except OSError as error:
            if not self.is_unheld:
                log.warning("a run cannot be watched yet", container=self.key.container, why=error.strerror)
            self.is_unheld = True
            self._look_again(room.AGAIN_SECONDS)
        else:
            self.is_unheld = False

    def _hold_all(self) -> None:
        """May be repeated after an OSError."""
        if self.directory.fifo_fd >= 0 and not self.fifo_is_watched:
            self.senses.monitor.watch(self.directory.fifo_fd, epoll.FIFO, self._fifo_ready)
            self.fifo_is_watched = True
        if self.init_fd < 0 and self.is_unheld and self.init is not None:
            found = epoll.open_process(self.init.pid, self.init.started_ticks)
            self.init_fd = -1 if found is None else found
        if self.init_fd >= 0 and self.init is not None:
            self.senses.kernel.hold(self.init, self.init_fd)
            self.found_dead = epoll.read_ready(self.init_fd)
            self.senses.monitor.watch(self.init_fd, epoll.PIDFD, self._init_ready)
        else:
            self.found_dead = True  # it had ended before it could be opened

    def record(self) -> Record | None:
        """Return what the shim has recorded about init's end, if that can be read."""
        return self._record()[0]

    def lives(self) -> bool:
        """Return whether init is neither dead nor dying."""
        init = self.init
        if init is None or self.reported:
            return False
        return not procfs.is_ending(init) and not procfs.is_killed(init)

    def surely_lives(self) -> bool:
        """Return whether the kernel says that init has not ended, and a look would find nothing else either. False does
        not mean that it has ended."""
        is_watched = self.init_fd >= 0 and not (self.is_unheld or self.blind or self.reported)
        return is_watched and (self.executed or not self.executes) and not epoll.read_ready(self.init_fd)

    def look(self, known: Record | None = None) -> None:
        """Ask every witness, and report the end once. Does nothing before there is an init, which has no end yet.
        `known`: its record, which was read just now."""
        if self.reported or self.init is None:
            return
        if self.is_unheld:
            self._hold()
        try:
            seen = self._look(known)
            verdict = evidence.judge(seen)
            if isinstance(verdict, Pending) and seen.dead_seconds >= evidence.ZOMBIE_PATIENCE_SECONDS:
                self.kill_stopped_shim()  # since its zombie cannot be read here
        except OSError as error:  # no descriptor or no memory for the look: this says nothing about init
            if not self.blind:
                log.warning("an end cannot be looked at now", container=self.key.container, why=str(error))
            self.blind = True
            return self._look_again(BLIND_SECONDS)
        self.blind = False
        if isinstance(verdict, Pending):
            self._look_again(room.AGAIN_SECONDS if self.is_unheld else verdict.seconds)
            return
        self.reported, self.verdict = True, verdict
        self.shim_is_stuck = verdict.source is Source.ZOMBIE
        self.senses.on_exit(self.key, verdict)
        asyncio.get_running_loop().call_soon(self._stop_watching_init)  # clients do not wait for that

    async def beginning(self, *, patient: bool = True) -> Beginning:
        """Return whether init has executed the program. `patient`: wait until it has, or has ended, for BEGINS_SECONDS
        at most."""
        loop, rest = asyncio.get_running_loop(), LOOK_SECONDS
        end = loop.time() + (BEGINS_SECONDS if patient else 0)
        while not self._is_settled() and loop.time() < end:
            await asyncio.sleep(rest)
            rest = min(2 * rest, MOST_LOOK_SECONDS)
        if self.is_seen_begun():
            return Beginning.SEEN
        if self.verdict is None:
            return Beginning.LATE
        return Beginning.NEVER if self.verdict.began is False else Beginning.UNSEEN

    def _is_settled(self) -> bool:
        if self.is_seen_begun():
            return True
        self.look()
        return self.reported

    def is_seen_begun(self) -> bool:
        """Return whether exitd or a witness has seen the program executed, or its runtime does not execute it."""
        is_witnessed = self.verdict is not None and self.verdict.began is True
        return is_witnessed or not self.executes or self._sees_executed()

    async def see_begin(self) -> None:
        """Look until init has executed the program or has ended. This matters if its shim is dead and its present
        parent records nothing: then exitd alone sees a program that ends before the runtime's start has returned."""
        while not self.reported and not self.is_seen_begun():  # noqa: ASYNC110 - nothing notifies of an execve(2)
            await asyncio.sleep(LOOK_SECONDS)

    def has_output_left(self) -> bool:
        """Return whether the shim was killed before it had written all output into the log: otherwise it removes its
        socket."""
        return self.has_no_shim() and os.path.lexists(f"{self.directory.path}/{control.SOCKET_NAME}")

    def settle_output(self) -> None:
        """Note that no process will write the rest of the output."""
        if self.has_no_shim():
            self._output_over()

    def _output_over(self) -> None:
        self.output_over.set()
        self.output_read.set()

    def drop_shim(self) -> None:
        ShimWatch.drop_shim(self)
        if self.closed or not self.has_output_left():
            self._output_over()

    def give_up(self) -> None:
        """Stop reporting: the end of init is no longer of interest, and its shim is not replaced."""
        self.reported = True
        self._stop_watching_init()

    def has_ended(self) -> bool:
        return self.reported

    def close(self) -> None:
        """Close the descriptors and stop all callbacks. Repeatable."""
        self.closed = True
        self._stop_watching_init()
        if self.directory.fifo_fd >= 0:
            self.senses.monitor.unwatch(self.directory.fifo_fd)
        self.output_read.set()
        self.drop_shim()
        self.drop_others()
        self.drop_copies()
        if self.init_fd >= 0:
            os.close(self.init_fd)
            self.init_fd = -1
        self.directory.close()

    def _look(self, known: Record | None) -> Look:
        """Look at init first: its witnesses write before they reap it."""
        record = known or self._record()[0]
        if record is not None and evidence.fits(record, self.init):  # the usual end: no other witness need be asked
            uncounted = self._oom_kills() if record.oom_kills < 0 else 0
            seen = self.executed
            return Look(Init.ZOMBIE, self.init, record, oom_kills=uncounted, executes=self.executes, executed=seen)
        init, zombie_status = self._init_state()
        zombie_began = self._has_executed() if init is Init.ZOMBIE else None
        record, record_unread = self._record()
        loop = asyncio.get_running_loop()
        if init is not Init.ALIVE and self.dead_at is None:
            self.dead_at = loop.time()
        gone = init is not Init.ALIVE and (record is None or not evidence.fits(record, self.init))
        entry, unread = self._entry() if gone else (None, False)
        word = self._kernels_word() if gone else NO_WORD
        is_unseen = init is Init.REAPED and entry is None and word.status is None
        self.executed = self.executed or word.executed or self._sees_executed()
        return Look(
            init=init,
            process=self.init,
            record=record,
            fifo_number=self.fifo_number,
            entry=entry,
            record_unread=record_unread,
            journal_unread=unread,
            entry_is_coming=gone and is_unseen and self.senses.entry_is_coming(self.key),
            zombie_status=zombie_status if self.senses.zombie_readable else None,
            pidfd_status=word.status if word.source is Source.PIDFD else None,
            event_status=word.status if word.source is Source.PROCEVENTS else None,
            event_is_coming=word.is_coming,
            dead_seconds=loop.time() - self.dead_at if self.dead_at is not None else 0.0,
            is_found=self.found_dead,
            now_ns=self.senses.now_ns(),
            oom_kills=self._oom_kills() if gone else 0,
            zombie_began=zombie_began,
            executes=self.executes,
            executed=self.executed,
        )

    def _record(self) -> tuple[Record | None, bool]:
        """Return the shim's record, and whether it may have one that cannot be read."""
        try:
            return rundir.read_record(self.directory), False
        except OSError as error:
            if not self.record_unread:
                log.warning("an exit record cannot be read", container=self.key.container, why=str(error))
            self.record_unread = True
            return None, True

    def _entry(self) -> tuple[Record | None, bool]:
        """Return the keeper's entry, and whether it may have one that cannot be read."""
        try:
            return self.senses.entry(self.key), False
        except keeper.JournalUnread:
            return None, True

    def _oom_kills(self) -> int:
        """Return the count up to now; 0 if it cannot be read. Raises OSError when there is no room to look."""
        try:
            return self.senses.oom_kills(self.key)
        except OSError as error:
            if room.is_used_up(error):
                raise
            log.warning("memory kills cannot be counted", container=self.key.container, why=str(error))
            return 0

    def _init_state(self) -> tuple[Init, int | None]:
        """State Z alone does not mean dead: other threads of a dead leader may live. The pidfd shows it."""
        assert self.init is not None
        if self.init_fd >= 0 and not epoll.read_ready(self.init_fd):
            return Init.ALIVE, None
        try:
            state, _, started, wait_status = native.process_stat(self.init.pid)
        except ProcessLookupError:
            return Init.REAPED, None
        if started != self.init.started_ticks:
            return Init.REAPED, None
        if state in "ZX":
            return Init.ZOMBIE, wait_status
        return (Init.ZOMBIE if self.init_fd >= 0 else Init.ALIVE), None

    def _has_executed(self) -> bool | None:
        return native.has_executed(self.init.pid, self.init.started_ticks) if self.init is not None else None

    def _sees_executed(self) -> bool:
        """The answer is remembered: a dead process that has been reaped no longer shows it."""
        self.executed = self.executed or bool(self._has_executed())
        return self.executed

    def _kernels_word(self) -> KernelStatus:
        if self.init is None or self.init_fd < 0:
            return NO_WORD
        return self.senses.kernel.of(self.init, self.init_fd)

    def _init_ready(self, _: int) -> None:
        """Init is dead or has been reaped. A living shim is woken by the same event and reports within moments. Looking
        at the other witnesses now would keep the loop from reading that, so they wait for SHIM_TELLS_SECONDS."""
        record = self.record()
        if record is not None or self.has_no_shim():
            return self.look(record)
        if self.dead_at is None:
            self.dead_at = asyncio.get_running_loop().time()
        self._look_again(SHIM_TELLS_SECONDS)

    def _fifo_ready(self, events: int) -> None:
        if events & select.EPOLLIN:
            self.fifo_number = rundir.read_fifo(self.directory)
        else:  # HUP only: there is no writer left, and a level-triggered HUP would not let the loop sleep
            self.senses.monitor.unwatch(self.directory.fifo_fd)
            if self.reported and not self.has_output_left():
                self.output_read.set()
        self.look()

    def shim_left(self) -> None:
        """The shim has ended. Look at all witnesses; report the loss of a shim whose container lives, which needs
        another one."""
        if self.init is None:  # it is still creating, or has failed to; its status socket reports that
            return
        self.look()
        if not self.reported and self.init_fd >= 0 and not epoll.read_ready(self.init_fd):
            self.senses.on_shim_lost(self.key)

    def _look_again(self, seconds: float | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = asyncio.get_running_loop().call_later(seconds, self.look) if seconds is not None else None

    def _stop_watching_init(self) -> None:
        self.is_unheld = False
        self._look_again(None)
        if self.init is not None and self.init_fd >= 0:
            self.senses.kernel.let_go(self.init, self.init_fd)
        self.senses.on_over(self.key)
        if self.init_fd >= 0:
            self.senses.monitor.unwatch(self.init_fd)
