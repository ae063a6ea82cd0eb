"""Ends under a foreign shim: every combination of who knows what has one right answer."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model.evidence import Pending
from supervisor.model.values import NEVER_STARTED, Exited, Process, Report, Signaled, Source, Unknown, fold
from supervisor.runtime.foreign_shim.verdict import (
    CODES_OF_INIT,
    EVENT_PATIENCE_SECONDS,
    NO_STATUS,
    NOT_DELETED,
    NUMBER_ONLY,
    OWN_OR_LOST,
    SHIM_LOST,
    UNDELETED,
    Deletion,
    Seen,
    ShimWord,
    judge,
)

INIT = Process(42, 4242)
NOW_NS, AT_NS = 9_000, 5_000
EXITED_43, KILLED = 43 << 8, 9


def judged(seen: Seen) -> Report:
    found = judge(seen)
    assert isinstance(found, Report)
    return found


@pytest.mark.parametrize(
    ("number", "kernel_status", "status", "source"),
    [
        (0, None, Exited(0), Source.SHIMV2_WAIT),
        (43, None, Exited(43), Source.SHIMV2_WAIT),
        (128, None, Exited(128), Source.SHIMV2_WAIT),
        (137, None, Unknown(NUMBER_ONLY, 137), Source.SHIMV2_WAIT),
        (137, KILLED, Signaled(9), Source.SHIMV2_WAIT),
        (137, 137 << 8, Exited(137), Source.SHIMV2_WAIT),
        (139, 11 | 0x80, Signaled(11, core=True), Source.SHIMV2_WAIT),
        (192, None, Unknown(NUMBER_ONLY, 192), Source.SHIMV2_WAIT),
        (193, None, Exited(193), Source.SHIMV2_WAIT),  # beyond the last signal
        (254, None, Exited(254), Source.SHIMV2_WAIT),
        (255, None, Unknown(OWN_OR_LOST, 255), Source.SHIMV2_WAIT),  # what some say of what they have lost
        (255, EXITED_43, Exited(43), Source.PIDFD),  # a number that nobody observed, and the truth
        (0, KILLED, Signaled(9), Source.PIDFD),
        (256, None, Unknown(NO_STATUS, 256), Source.SHIMV2_WAIT),
        (4_000_000_000, None, Unknown(NO_STATUS), Source.SHIMV2_WAIT),
    ],
)
def test_the_answer_to_wait_is_believed_as_far_as_the_kernel_does_not_know_better(
    number: int, kernel_status: int | None, status: object, source: Source
) -> None:
    report = judged(Seen(INIT, wait=ShimWord(number, AT_NS), kernel_status=kernel_status, now_ns=NOW_NS, oom_kills=2))
    assert report == Report(status, source, INIT, AT_NS, 2, counted=False)  # type: ignore[arg-type]


def test_of_a_shim_that_never_makes_255_up_it_is_a_code() -> None:
    assert judged(Seen(INIT, wait=ShimWord(255, AT_NS), is_plain=True)).status == Exited(255)
    assert judged(Seen(INIT, wait=ShimWord(137, AT_NS), is_plain=True)).status == Unknown(NUMBER_ONLY, 137)


def test_only_a_code_with_which_no_init_ends_needs_nobody_who_saw_the_program_executed() -> None:
    for number in range(256):
        seen = Seen(INIT, wait=ShimWord(number, AT_NS), now_ns=NOW_NS, is_plain=True, becomes=True)
        is_inits = number in CODES_OF_INIT or 128 < number <= 128 + 64
        assert judged(seen).unseen is is_inits
        assert not judged(replace(seen, began=True)).unseen
        assert not judged(replace(seen, becomes=False)).unseen
        never = judged(replace(seen, began=False))
        assert (never.status, never.unseen) == (Unknown(NEVER_STARTED), False)


def test_an_event_waits_a_moment_for_the_answer_to_wait_and_then_counts() -> None:
    seen = Seen(INIT, event=ShimWord(43, AT_NS), event_seconds=0.25, now_ns=NOW_NS)
    assert judge(seen) == Pending(EVENT_PATIENCE_SECONDS - 0.25)
    late = Seen(INIT, event=ShimWord(43, AT_NS), event_seconds=EVENT_PATIENCE_SECONDS, now_ns=NOW_NS)
    assert judged(late) == Report(Exited(43), Source.SHIMV2_EVENT, INIT, AT_NS, counted=False)


def test_an_event_that_a_lost_shim_sent_before_counts_at_once() -> None:
    seen = Seen(INIT, event=ShimWord(43, AT_NS), lost=True, deleted=Deletion(ShimWord(137, 1)), now_ns=NOW_NS)
    assert judged(seen) == Report(Exited(43), Source.SHIMV2_EVENT, INIT, AT_NS, counted=False)


def test_what_the_delete_binary_says_proves_nothing() -> None:
    lost = Seen(INIT, lost=True, deleted=Deletion(ShimWord(137, AT_NS)), now_ns=NOW_NS)
    assert judged(lost) == Report(
        Unknown(SHIM_LOST, 137), Source.SHIMV2_DELETE, INIT, NOW_NS, at_is_found=True, counted=False
    )
    nothing = judged(Seen(INIT, lost=True, now_ns=NOW_NS))
    assert nothing == Report(Unknown(SHIM_LOST), Source.NONE, INIT, NOW_NS, at_is_found=True, counted=False)


def test_a_delete_that_has_failed_is_not_called_a_delete() -> None:
    failed = Seen(INIT, lost=True, deleted=Deletion(failed=True), now_ns=NOW_NS)
    assert judged(failed) == Report(Unknown(UNDELETED), Source.NONE, INIT, NOW_NS, at_is_found=True, counted=False)


def test_what_was_killed_past_a_silent_shim_has_the_kernels_word_or_none_yet() -> None:
    assert judge(Seen(INIT, forced=True)) == Pending()
    for is_zombie, source in ((True, Source.ZOMBIE), (False, Source.PIDFD)):
        seen = Seen(INIT, kernel_status=KILLED, ended_ns=7_000, forced=True, is_zombie=is_zombie, now_ns=NOW_NS)
        assert judged(seen) == Report(Signaled(9), source, INIT, 7_000, counted=False)


def test_what_its_shim_says_was_never_started_has_no_number() -> None:
    report = judged(Seen(INIT, never_started=True, now_ns=NOW_NS))
    assert (report.status, report.source) == (Unknown(NEVER_STARTED), Source.NONE)


def test_where_nothing_was_executed_no_number_is_the_programs_whoever_gave_it() -> None:
    for source, seen in (
        (Source.SHIMV2_WAIT, Seen(INIT, wait=ShimWord(1, AT_NS), began=False)),
        (Source.PIDFD, Seen(INIT, wait=ShimWord(137, AT_NS), kernel_status=1 << 8, began=False)),
        (Source.SHIMV2_EVENT, Seen(INIT, event=ShimWord(1, AT_NS), lost=True, began=False)),
        (Source.PIDFD, Seen(INIT, kernel_status=KILLED, lost=True, began=False)),
        (Source.SHIMV2_DELETE, Seen(INIT, lost=True, deleted=Deletion(ShimWord(137, AT_NS)), began=False)),
        (Source.NONE, Seen(INIT, lost=True, deleted=Deletion(failed=True), began=False)),
    ):
        report = judged(seen)
        assert (report.status, report.source, report.began) == (Unknown(NEVER_STARTED), source, False)
    assert judged(Seen(INIT, wait=ShimWord(1, AT_NS), began=True)).status == Exited(1)


def test_of_a_lost_shim_the_kernel_may_know_what_its_process_ended_with() -> None:
    seen = Seen(INIT, kernel_status=EXITED_43, lost=True, deleted=Deletion(ShimWord(137, AT_NS)), now_ns=NOW_NS)
    assert judged(seen) == Report(Exited(43), Source.PIDFD, INIT, NOW_NS, at_is_found=True, counted=False)


@pytest.mark.parametrize("kernel_status", [None, EXITED_43])
@pytest.mark.parametrize("deleted", [NOT_DELETED, Deletion(ShimWord(137, AT_NS)), Deletion(failed=True)])
def test_an_end_that_the_kernel_reported_is_dated_then_and_not_when_it_was_looked_at(
    kernel_status: int | None, deleted: Deletion
) -> None:
    seen = Seen(INIT, kernel_status=kernel_status, lost=True, deleted=deleted, now_ns=NOW_NS, ended_ns=7_000)
    report = judged(seen)
    assert (report.at_ns, report.at_is_found) == (7_000, False)


def test_while_the_shim_lives_nothing_but_its_word_is_an_end() -> None:
    assert judge(Seen(INIT)) == Pending()
    assert judge(Seen(INIT, kernel_status=EXITED_43)) == Pending()


@given(
    st.integers(0, 300) | st.none(),
    st.integers(0, 300) | st.none(),
    st.sampled_from([None, 0, EXITED_43, KILLED, 137 << 8]),
    st.sampled_from(
        [NOT_DELETED, Deletion(failed=True), *map(Deletion, (ShimWord(137, 1), ShimWord(0, 1), ShimWord(255, 0)))]
    ),
)
def test_no_number_is_told_that_nobody_observed(
    wait: int | None, event: int | None, kernel_status: int | None, deleted: Deletion
) -> None:
    words = [None if number is None else ShimWord(number, AT_NS) for number in (wait, event)]
    for lost, seconds in itertools.product((False, True), (0.0, 5.0)):
        found = judge(Seen(INIT, words[0], words[1], seconds, kernel_status, lost, deleted, NOW_NS))
        if isinstance(found, Report) and not isinstance(found.status, Unknown):
            observed = {number for number in (wait, event) if number is not None and not 128 < number < 193}
            truth = () if kernel_status is None else (kernel_status >> 8, 128 + (kernel_status & 127))
            assert fold(found.status) in observed | set(truth)
