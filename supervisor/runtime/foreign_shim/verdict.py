"""What is known about the end of a process that a foreign shim looks after, weighed: a pure function.

A shim v2 tells one number for both kinds of ends: the code, or 128 + signal. Where the kernel tells the wait status of
that very process, that is the truth, and says the kind. The number that a `delete` binary prints is nobody's
observation: it has just killed whatever was left.
"""

from dataclasses import dataclass

from google.protobuf.timestamp_pb2 import Timestamp

from supervisor.model.evidence import Pending, waited
from supervisor.model.values import NEVER_STARTED, Exited, ExitStatus, Process, Report, Source, Unknown, fold

EVENT_PATIENCE_SECONDS = 1.0  # what a TaskExit waits for the answer to Wait, which comes at the same moment
LAST_SIGNAL = 64  # SIGRTMAX, signal(7)
SHIM_LOST = "shim-lost"
UNDELETED = "shim-lost-undeleted"  # and its `delete` failed, or could not be run
NUMBER_ONLY = "shim-number-only"
OWN_OR_LOST = "shim-255"  # the program's own code, or what the shim says of an end that it has lost
NO_STATUS = "shim-number-impossible"


@dataclass(frozen=True, slots=True)
class ShimWord:
    """An end as a shim tells it. `at_ns` 0: it gave no time, as of something that has not ended."""

    number: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class Deletion:
    """What came of a shim's `delete`. `failed`: what was left of the container may run on."""

    word: ShimWord | None = None
    failed: bool = False


NOT_DELETED = Deletion()  # nobody was asked to


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at everybody who may know.

    `kernel_status`: the wait status of the process, only where its pid is nobody else's in the same shim. `lost`: the
    shim is dead, and its `delete` has been called; `deleted` is what came of that. `is_plain`: of a shim that says 255
    for no other reason than that this was the code; others say it of what they have lost, too. `ended_ns`: when the
    kernel reported the end of the process, 0 where exitd did not see it. `forced`: it was killed past its shim,
    which does not answer. `is_zombie`: `kernel_status` is from the process itself. `never_started`: the shim says so.
    `kernel_source`: by which way the kernel gave the status. `began`: whether the program was executed, as the kernel
    says; None: it does not, or nobody could ask. Where it was not, every number is that of the runtime's init.
    """

    process: Process | None
    wait: ShimWord | None = None
    event: ShimWord | None = None
    event_seconds: float = 0.0  # since it came
    kernel_status: int | None = None
    lost: bool = False
    deleted: Deletion = NOT_DELETED
    now_ns: int = 0
    oom_kills: int = 0
    is_plain: bool = False
    ended_ns: int = 0
    forced: bool = False
    is_zombie: bool = False
    never_started: bool = False
    kernel_source: Source = Source.PIDFD
    began: bool | None = None


def judge(seen: Seen) -> Report | Pending:
    """The first of them that has observed it."""
    if seen.wait is not None:
        return _told(seen, seen.wait, Source.SHIMV2_WAIT)
    if seen.event is not None:
        if seen.event_seconds < EVENT_PATIENCE_SECONDS and not seen.lost:
            return Pending(EVENT_PATIENCE_SECONDS - seen.event_seconds)
        return _told(seen, seen.event, Source.SHIMV2_EVENT)
    if seen.never_started:
        return _seen_ended(seen, Unknown(NEVER_STARTED), Source.NONE)
    if not seen.lost and not seen.forced:
        return Pending()
    if seen.kernel_status is not None:
        source = Source.ZOMBIE if seen.is_zombie and not seen.lost else seen.kernel_source
        return _seen_ended(seen, waited(seen.kernel_status), source)
    if not seen.lost:
        return Pending()
    if seen.deleted.failed:
        return _seen_ended(seen, Unknown(UNDELETED), Source.NONE)
    if seen.deleted.word is not None:
        return _seen_ended(seen, Unknown(SHIM_LOST, _sane(seen.deleted.word.number)), Source.SHIMV2_DELETE)
    return _seen_ended(seen, Unknown(SHIM_LOST), Source.NONE)


def _seen_ended(seen: Seen, status: ExitStatus, source: Source) -> Report:
    """Dated by the kernel's notice, else when it was found."""
    return _report(seen, status, source, seen.ended_ns or seen.now_ns, at_is_found=not seen.ended_ns)


def _report(seen: Seen, status: ExitStatus, source: Source, at_ns: int, *, at_is_found: bool = False) -> Report:
    return Report(
        Unknown(NEVER_STARTED) if seen.began is False else status,
        source,
        seen.process,
        at_ns,
        seen.oom_kills,
        at_is_found=at_is_found,
        counted=False,
        began=seen.began,
    )


def _told(seen: Seen, word: ShimWord, source: Source) -> Report:
    """The shim's word, and with it, or against it, the kernel's."""
    status, at_ns = number_status(word.number, is_plain=seen.is_plain), word.at_ns or seen.now_ns
    if seen.kernel_status is not None:
        truth = waited(seen.kernel_status)
        source = source if fold(truth) == word.number else seen.kernel_source
        status = truth
    return _report(seen, status, source, at_ns)


def number_status(number: int, *, is_plain: bool) -> ExitStatus:
    """What may be 128 + signal is of no known kind: did it exit with 137, or did SIGKILL end it?"""
    if not 0 <= number <= 255:
        return Unknown(NO_STATUS, _sane(number))
    if 128 < number <= 128 + LAST_SIGNAL:
        return Unknown(NUMBER_ONLY, number)
    return Exited(number) if number < 255 or is_plain else Unknown(OWN_OR_LOST, number)


def instant_ns(at: Timestamp) -> int:
    """0 for Go's zero time, which some tell of what has not ended, and for what no clock shows: it is stored as an
    int64."""
    ns = at.seconds * 10**9 + at.nanos
    return ns if 0 <= ns < 2**63 else 0


def _sane(number: int) -> int | None:
    """It goes through the API as an int32."""
    return number if 0 <= number < 2**31 else None
