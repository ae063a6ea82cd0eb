"""Weigh what is known about the end of one process: the ladder of witnesses, as a pure function.

A witness writes before it reaps. A reader that sees init reaped, and reads record and journal after that, has read
everything they will ever contain: what is absent then stays absent, and the next rung is asked. The exception is a
keeper that watches another process's child by pidfd: it writes after that process has reaped.

A process that has never executed a program is still the runtime's init, so its status is no program's exit code. If
neither a witness nor exitd saw the process execute its program, the report says so (`unseen`), and what its number is
worth depends on the container's start.
"""

import os
from enum import Enum

from shim.frozen import frozen
from shim.record import Record
from supervisor.model.values import NEVER_STARTED, Exited, ExitStatus, Process, Report, Signaled, Source, Unknown

ZOMBIE_PATIENCE_SECONDS = 2.0  # after this time a dead init's zombie is read, though its parent has not reaped it
UNREAD_PATIENCE_SECONDS = 30.0  # how long an end waits for a record or a keeper's journal that cannot be read
UNREAD_RETRY_SECONDS = 1.0
ENTRY_RETRY_SECONDS = 0.25  # a keeper that lives will journal the end in a moment
EVENT_PATIENCE_SECONDS = 5.0  # the kernel's process events arrive after the end: how long to wait for the last one
EVENT_RETRY_SECONDS = 0.02
MONITORS_KILLED = "monitors-killed"
JOURNAL_UNREAD = "journal-unread"
RECORD_UNREAD = "record-unread"
STATE_LOST = "state-lost"
WITNESSLESS = frozenset((MONITORS_KILLED, JOURNAL_UNREAD, RECORD_UNREAD))  # causes: there was an end, and no word of it
NEVER_BEGAN = -1  # in the fifo: the program was never executed (core/core.h)


class Init(Enum):
    """What the kernel says about init. ALIVE includes a leader that has exited while its threads run: only the pidfd
    shows it."""

    ALIVE = "alive"
    ZOMBIE = "zombie"
    REAPED = "reaped"


@frozen
class Look:
    """One look at all witnesses: first at `init`, then at everything else."""

    init: Init
    process: Process | None
    record: Record | None = None
    fifo_number: int | None = None
    entry: Record | None = None  # from a keeper's journal
    zombie_status: int | None = None  # wait status from /proc, only where the self-test passed
    pidfd_status: int | None = None  # wait status from the kernel
    dead_seconds: float = 0.0  # since init's pidfd became readable
    now_ns: int = 0
    oom_kills: int = 0  # of the cgroup, read now, for the witnesses that do not count
    record_unread: bool = False  # there is a record, or an empty file for one, that cannot be read
    journal_unread: bool = False  # a keeper's journal cannot be read: it may have an entry
    is_found: bool = False  # init was already dead at the first look; it is not known since when
    zombie_began: bool | None = None  # whether the zombie had executed a program
    executes: bool = True  # False: the runtime runs the program inside init, without execve(2)
    event_status: int | None = None  # wait status from the kernel's process events
    event_is_coming: bool = False  # the process events are not complete yet
    executed: bool = False  # exitd has seen that init executed its program, now or earlier
    entry_is_coming: bool = False  # a keeper learns of this end by pidfd, and has not journalled it yet


@frozen
class Pending:
    """No verdict yet: init lives, or a witness that is still running will write. Look again after `seconds`, or at the
    next event if None."""

    seconds: float | None = None


def judge(look: Look) -> Report | Pending:
    """Return what the highest witness that has written something says, or Pending."""
    if look.record is not None and fits(look.record, look.process):
        return _recorded(look.record, Source.RECORD, look)
    if look.init is Init.ALIVE:  # the number that came through the fifo was not init's end
        return Pending()
    if look.fifo_number is not None and not _is_ambiguous(look.fifo_number):
        return _numbered(look.fifo_number, look)
    if look.entry is not None and fits(look.entry, look.process):
        return _recorded(look.entry, Source.KEEPER, look)
    if look.init is Init.REAPED:
        if look.pidfd_status is not None:
            return _undated(waited(look.pidfd_status), Source.PIDFD, look)
        if look.event_status is not None:
            return _undated(waited(look.event_status), Source.PROCEVENTS, look)
        if look.event_is_coming and look.dead_seconds < EVENT_PATIENCE_SECONDS:
            return Pending(EVENT_RETRY_SECONDS)
        unread = look.record_unread or look.journal_unread
        if (unread or look.entry_is_coming) and look.dead_seconds < UNREAD_PATIENCE_SECONDS:
            return Pending(UNREAD_RETRY_SECONDS if unread else ENTRY_RETRY_SECONDS)
        if look.fifo_number is not None:
            return _numbered(look.fifo_number, look)
        return _undated(Unknown(_why_unknown(look)), Source.NONE, look)
    if look.dead_seconds < ZOMBIE_PATIENCE_SECONDS:
        return Pending(ZOMBIE_PATIENCE_SECONDS - look.dead_seconds)
    if look.zombie_status is None and look.fifo_number is not None:
        return _numbered(look.fifo_number, look)
    if look.zombie_status is None:  # its parent is stopped and exitd may not read the status: the end has begun
        return Pending(ZOMBIE_PATIENCE_SECONDS)
    return _undated(waited(look.zombie_status), Source.ZOMBIE, look, look.zombie_began)


def _why_unknown(look: Look) -> str:
    if look.record_unread:
        return RECORD_UNREAD
    return JOURNAL_UNREAD if look.journal_unread or look.entry_is_coming else MONITORS_KILLED


def rebooted(process: Process | None, now_ns: int) -> Report:
    """Return the report for a process that ran under another boot id."""
    return Report(Unknown("host-rebooted"), Source.NONE, process, now_ns, at_is_found=True)


def fits(record: Record, process: Process | None) -> bool:
    """Return whether the record is of this process. A record of another process is no evidence."""
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


def _began(witnessed: bool | None, look: Look) -> bool | None:
    """Return whether the program was executed: what the witness says, else what exitd has seen. None: not known, or the
    question makes no sense for this runtime."""
    if not look.executes:
        return None
    return True if witnessed is None and look.executed else witnessed


def _undated(status: ExitStatus, source: Source, look: Look, began: bool | None = None) -> Report:
    """Build a report for a witness that wrote no time: the end is dated when init's pidfd fired, or at the first
    look."""
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


def _is_ambiguous(number: int) -> bool:
    """Return whether a bare number from the fifo leaves open what happened: an exit with 137, or SIGKILL?"""
    return number != NEVER_BEGAN and not 0 <= number <= 128


def _numbered(number: int, look: Look) -> Report:
    """Build a report for a bare number from the fifo."""
    began = False if number == NEVER_BEGAN else look.zombie_began
    shown = None if number == NEVER_BEGAN else number
    status = Exited(number) if 0 <= number <= 128 else Unknown("fifo-number-only", shown)
    return _undated(status, Source.FIFO, look, began)


def waited(wait_status: int) -> ExitStatus:
    """Decode a wait status with the macros of wait(2)."""
    if os.WIFSIGNALED(wait_status):
        return Signaled(os.WTERMSIG(wait_status), os.WCOREDUMP(wait_status))
    return Exited(os.WEXITSTATUS(wait_status))
