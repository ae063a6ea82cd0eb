"""What is known about one end, weighed: the ladder of witnesses as a pure function.

A witness writes before it reaps. So whoever has seen that init is reaped, and reads record and journal after that, has
read everything there will ever be; what is absent then stays absent, and the next rung is asked.

A process that has never executed a program is the runtime's init still: its status is nobody's exit code. Of one that
no witness, nor exitd itself, saw execute its program the report says so: what its number is worth depends on its start.
"""

import os
from dataclasses import dataclass
from enum import Enum

from shim.record import Record
from supervisor.model.values import NEVER_STARTED, Exited, ExitStatus, Process, Report, Signaled, Source, Unknown

ZOMBIE_PATIENCE_SECONDS = 2.0  # how long a dead init may wait for its parent before its zombie is read instead
UNREAD_PATIENCE_SECONDS = 30.0  # how long an end waits for a record, or a keeper's journal, that cannot be read
UNREAD_RETRY_SECONDS = 1.0
EVENT_PATIENCE_SECONDS = 5.0  # the kernel's events come after an end: how long one waits for the last of them
EVENT_RETRY_SECONDS = 0.02
MONITORS_KILLED = "monitors-killed"
JOURNAL_UNREAD = "journal-unread"
RECORD_UNREAD = "record-unread"
STATE_LOST = "state-lost"
NEVER_BEGAN = -1  # through the fifo: the program was never executed (core/core.h)


class Init(Enum):
    """What the kernel says of init. ALIVE includes a dead leader whose threads live: only the pidfd can tell."""

    ALIVE = "alive"
    ZOMBIE = "zombie"
    REAPED = "reaped"


@dataclass(frozen=True, slots=True)
class Look:
    """One look at all witnesses, `init` first and everything else after it."""

    init: Init
    process: Process | None
    record: Record | None = None
    fifo_number: int | None = None
    entry: Record | None = None  # the keeper's
    zombie_status: int | None = None  # wait status from /proc, only where the self-test passed
    pidfd_status: int | None = None  # wait status from the kernel
    dead_seconds: float = 0.0  # since init's pidfd fired
    now_ns: int = 0
    oom_kills: int = 0  # of the cgroup, read now, for witnesses that did not count
    record_unread: bool = False  # there is a record, or the room for one, and no way to read it
    journal_unread: bool = False  # one of the keepers' journals: there may be an entry
    is_found: bool = False  # init was dead when it was looked at for the first time: nobody knows for how long
    zombie_began: bool | None = None  # whether the zombie had executed a program
    executes: bool = True  # False: its runtime runs the program within init, and never executes it
    event_status: int | None = None  # wait status by the kernel's process events
    event_is_coming: bool = False  # they are not complete yet
    executed: bool = False  # exitd has seen that it executed its program, now or earlier


@dataclass(frozen=True, slots=True)
class Pending:
    """Not over, or a witness lives that will tell. Look again after `seconds`, or when something happens."""

    seconds: float | None = None


def judge(look: Look) -> Report | Pending:
    """The highest rung that speaks."""
    if look.record is not None and fits(look.record, look.process):
        return _recorded(look.record, Source.RECORD, look)
    if look.init is Init.ALIVE:  # whatever came through the fifo, it was not its end
        return Pending()
    if look.fifo_number is not None:
        began = False if look.fifo_number == NEVER_BEGAN else look.zombie_began
        return _told(_number(look.fifo_number), Source.FIFO, look, began)
    if look.entry is not None and fits(look.entry, look.process):
        return _recorded(look.entry, Source.KEEPER, look)
    if look.init is Init.REAPED:
        if look.pidfd_status is not None:
            return _told(waited(look.pidfd_status), Source.PIDFD, look)
        if look.event_status is not None:
            return _told(waited(look.event_status), Source.PROCEVENTS, look)
        if look.event_is_coming and look.dead_seconds < EVENT_PATIENCE_SECONDS:
            return Pending(EVENT_RETRY_SECONDS)
        unread = look.record_unread or look.journal_unread
        if unread and look.dead_seconds < UNREAD_PATIENCE_SECONDS:
            return Pending(UNREAD_RETRY_SECONDS)
        return _told(Unknown(_why_unknown(look)), Source.NONE, look)
    if look.dead_seconds < ZOMBIE_PATIENCE_SECONDS:
        return Pending(ZOMBIE_PATIENCE_SECONDS - look.dead_seconds)
    if look.zombie_status is None:  # its parent is stopped and nobody else may read: it is ending
        return Pending(ZOMBIE_PATIENCE_SECONDS)
    return _told(waited(look.zombie_status), Source.ZOMBIE, look, look.zombie_began)


def _why_unknown(look: Look) -> str:
    if look.record_unread:
        return RECORD_UNREAD
    return JOURNAL_UNREAD if look.journal_unread else MONITORS_KILLED


def rebooted(process: Process | None, now_ns: int) -> Report:
    """The end of everything that ran under another boot id."""
    return Report(Unknown("host-rebooted"), Source.NONE, process, now_ns, at_is_found=True)


def fits(record: Record, process: Process | None) -> bool:
    """A record of another process is nobody's evidence."""
    return process is None or (record.pid, record.started) == (process.pid, process.started_ticks)


def _recorded(record: Record, source: Source, look: Look) -> Report:
    status: ExitStatus = Unknown("empty-record")
    began = _began(record.began, look)
    if began is False:
        status = Unknown(NEVER_STARTED)
    elif record.signal is not None:
        status = Signaled(record.signal, record.core)
    elif record.code is not None:
        status = Exited(record.code)
    kills = record.oom_kills if record.oom_kills >= 0 else look.oom_kills
    process, counted = Process(record.pid, record.started), record.oom_kills >= 0
    at_ns, unseen = record.realtime_ns, look.executes and began is None
    return Report(status, source, process, at_ns, max(kills, 0), counted=counted, began=began, unseen=unseen)


def _began(told: bool | None, look: Look) -> bool | None:
    """The witness's word, else what exitd has seen. None: nobody knows, or it is not to be asked."""
    if not look.executes:
        return None
    return True if told is None and look.executed else told


def _told(status: ExitStatus, source: Source, look: Look, began: bool | None = None) -> Report:
    """No witness wrote down the time: the end is dated when init's pidfd fired, or was first looked at."""
    at_ns = look.now_ns - round(look.dead_seconds * 1e9)
    began = _began(began, look)
    if began is False:
        status = Unknown(NEVER_STARTED)
    return Report(
        status,
        source,
        look.process,
        at_ns,
        look.oom_kills,
        at_is_found=look.is_found,
        counted=False,
        began=began,
        unseen=look.executes and began is None,
    )


def _number(number: int) -> ExitStatus:
    """A bare fifo number. Over 128 its kind is not known: did it exit with 137, or did SIGKILL end it?"""
    return (
        Exited(number) if 0 <= number <= 128 else Unknown("fifo-number-only", None if number == NEVER_BEGAN else number)
    )


def waited(wait_status: int) -> ExitStatus:
    """What wait(2) tells, by its macros."""
    if os.WIFSIGNALED(wait_status):
        return Signaled(os.WTERMSIG(wait_status), os.WCOREDUMP(wait_status))
    return Exited(os.WEXITSTATUS(wait_status))
