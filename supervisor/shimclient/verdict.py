"""What is known about the end of a process that a foreign shim looks after, weighed: a pure function.

A shim v2 tells one number for both kinds of ends: the code, or 128 + signal. Where the kernel tells the wait status of
that very process, that is the truth, and says the kind. The number that a `delete` binary prints is nobody's
observation: it has just killed whatever was left.
"""

from dataclasses import dataclass

from supervisor.evidence import Pending, waited
from supervisor.facts import Exited, ExitStatus, Process, Report, Source, Unknown, fold

EVENT_PATIENCE_SECONDS = 1.0  # what a TaskExit waits for the answer to Wait, which comes at the same moment
LAST_SIGNAL = 64  # SIGRTMAX, signal(7)
SHIM_LOST = "shim-lost"
NUMBER_ONLY = "shim-number-only"


@dataclass(frozen=True, slots=True)
class Word:
    """An end as a shim tells it. `at_ns` 0: it gave no time, as of something that has not ended."""

    number: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at everybody who may know.

    `kernel_status`: the wait status of the process, only where its pid is nobody else's in the same shim. `lost`: the
    shim is dead, and its `delete` has been called; `deleted` is what that said. `is_plain`: of a shim that says 255 for
    no other reason than that this was the code; others say it of what they have lost, too.
    """

    process: Process | None
    wait: Word | None = None
    event: Word | None = None
    event_seconds: float = 0.0  # since it came
    kernel_status: int | None = None
    lost: bool = False
    deleted: Word | None = None
    now_ns: int = 0
    oom_kills: int = 0
    is_plain: bool = False


def judge(seen: Seen) -> Report | Pending:
    """The first of them that has observed it."""
    if seen.wait is not None:
        return _told(seen, seen.wait, Source.SHIMV2_WAIT)
    if seen.event is not None:
        if seen.event_seconds < EVENT_PATIENCE_SECONDS and not seen.lost:
            return Pending(EVENT_PATIENCE_SECONDS - seen.event_seconds)
        return _told(seen, seen.event, Source.SHIMV2_EVENT)
    if not seen.lost:
        return Pending()
    if seen.kernel_status is not None:
        return Report(waited(seen.kernel_status), Source.PIDFD, seen.process, seen.now_ns, seen.oom_kills)
    if seen.deleted is not None:
        status = Unknown(SHIM_LOST, _sane(seen.deleted.number))
        return Report(status, Source.SHIMV2_DELETE, seen.process, seen.now_ns, seen.oom_kills)
    return Report(Unknown(SHIM_LOST), Source.NONE, seen.process, seen.now_ns, seen.oom_kills)


def _told(seen: Seen, word: Word, source: Source) -> Report:
    """The shim's word, and with it, or against it, the kernel's."""
    status, at_ns = number_status(word.number, is_plain=seen.is_plain), word.at_ns or seen.now_ns
    if seen.kernel_status is not None:
        truth = waited(seen.kernel_status)
        source = source if fold(truth) == word.number else Source.PIDFD
        status = truth
    return Report(status, source, seen.process, at_ns, seen.oom_kills)


def number_status(number: int, *, is_plain: bool) -> ExitStatus:
    """What may be 128 + signal is of no known kind: did it exit with 137, or did SIGKILL end it?"""
    is_code = 0 <= number <= 128 or 128 + LAST_SIGNAL < number < 255 or (number == 255 and is_plain)
    return Exited(number) if is_code else Unknown(NUMBER_ONLY, _sane(number))


def _sane(number: int) -> int | None:
    """It goes through the API as an int32."""
    return number if 0 <= number < 2**31 else None
