"""Weigh what is known about the end of a process under a foreign shim: a pure function.

A shim v2 reports one number for both kinds of ends: the code, or 128 + signal. If the kernel reports the wait status of
that very process, that is the truth, and shows the kind. The number that a `delete` binary prints was not observed: the
binary has just killed whatever was left.
"""

from google.protobuf.timestamp_pb2 import Timestamp

from shim.frozen import frozen
from supervisor.model.evidence import Pending, waited
from supervisor.model.values import NEVER_STARTED, Exited, ExitStatus, Process, Report, Source, Unknown, fold

EVENT_PATIENCE_SECONDS = 1.0  # how long a TaskExit waits for the answer to Wait, which comes at the same time
LAST_SIGNAL = 64  # SIGRTMAX, signal(7)
SHIM_LOST = "shim-lost"
UNDELETED = "shim-lost-undeleted"  # and its `delete` failed, or could not be run
NUMBER_ONLY = "shim-number-only"
OWN_OR_LOST = "shim-255"  # the program's own code, or what the shim reports for an end that it has lost
NO_STATUS = "shim-number-impossible"
# With these a runtime's init ends by itself when it does not get as far as its program: runc and crun with 1, what is
# written in Go with 2 after a panic; the others are the usual ones for it. No init ends with any other code.
CODES_OF_INIT = frozenset({1, 2, 126, 127, 255})


@frozen
class ShimWord:
    """An end as a shim reports it. `at_ns` 0: without a time, as for a process that has not ended."""

    number: int
    at_ns: int


@frozen
class Deletion:
    """The result of a shim's `delete`. `failed`: what was left of the container may still run."""

    word: ShimWord | None = None
    failed: bool = False


NOT_DELETED = Deletion()  # no `delete` was called


@frozen
class Seen:
    """One look at all witnesses.

    `kernel_status`: the wait status of the process, only if no other process of the same shim has its pid;
    `kernel_source`: how the kernel reported it; `is_zombie`: it was read from the process itself. `lost`: the shim is
    dead and its `delete` was called, with the result `deleted`. `is_plain`: the shim reports 255 only for the code 255;
    others use it for lost ends, too. `ended_ns`: when the kernel reported the end, 0 if exitd did not see it. `forced`:
    it was killed without its shim, which does not answer. `never_started`: according to the shim. `began`: whether the
    program was executed, according to the kernel; None: not known. If it was not, every number is that of the runtime's
    init. `becomes`: its runtime executes the program, so that this could have been seen.
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
    becomes: bool = False


def judge(seen: Seen) -> Report | Pending:
    """Return what the first witness that has observed the end says."""
    if seen.wait is not None:
        return _combined(seen, seen.wait, Source.SHIMV2_WAIT)
    if seen.event is not None:
        if seen.event_seconds < EVENT_PATIENCE_SECONDS and not seen.lost:
            return Pending(EVENT_PATIENCE_SECONDS - seen.event_seconds)
        return _combined(seen, seen.event, Source.SHIMV2_EVENT)
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
    """The time is that of the kernel's report, else that of the discovery."""
    return _report(seen, status, source, seen.ended_ns or seen.now_ns, at_is_found=not seen.ended_ns)


def _report(seen: Seen, status: ExitStatus, source: Source, at_ns: int, *, at_is_found: bool = False) -> Report:
    may_be_inits = not isinstance(status, Exited) or status.code in CODES_OF_INIT
    return Report(
        Unknown(NEVER_STARTED) if seen.began is False else status,
        source,
        seen.process,
        at_ns,
        seen.oom_kills,
        at_is_found=at_is_found,
        counted=False,
        began=seen.began,
        unseen=seen.becomes and seen.began is None and may_be_inits,
    )


def _combined(seen: Seen, word: ShimWord, source: Source) -> Report:
    """Combine the shim's number with the kernel's status, which may contradict it."""
    status, at_ns = number_status(word.number, is_plain=seen.is_plain), word.at_ns or seen.now_ns
    if seen.kernel_status is not None:
        truth = waited(seen.kernel_status)
        source = source if fold(truth) == word.number else seen.kernel_source
        status = truth
    return _report(seen, status, source, at_ns)


def number_status(number: int, *, is_plain: bool) -> ExitStatus:
    """A number that may be 128 + signal is ambiguous: did it exit with 137, or did SIGKILL end it?"""
    if not 0 <= number <= 255:
        return Unknown(NO_STATUS, _sane(number))
    if 128 < number <= 128 + LAST_SIGNAL:
        return Unknown(NUMBER_ONLY, number)
    return Exited(number) if number < 255 or is_plain else Unknown(OWN_OR_LOST, number)


def instant_ns(at: Timestamp) -> int:
    """Return 0 for Go's zero time, which some shims send for what has not ended, and for times that do not fit an int64
    of ns."""
    ns = at.seconds * 10**9 + at.nanos
    return ns if 0 <= ns < 2**63 else 0


def _sane(number: int) -> int | None:
    """The API transports it as an int32."""
    return number if 0 <= number < 2**31 else None
