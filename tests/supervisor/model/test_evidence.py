import dataclasses
import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.record import Record
from supervisor.model import evidence
from supervisor.model.evidence import Init, Look, Pending, judge
from supervisor.model.values import Exited, ExitStatus, Process, Report, Signaled, Source, Unknown

INIT = Process(40, 4)
NOW = 1_000 * 10**9
WAITED: dict[int, ExitStatus] = {11 << 8: Exited(11), 7: Signaled(7), 0x80 | 6: Signaled(6, core=True)}


def record(
    code: int | None = None, signal: int | None = None, *, core: bool = False, process: Process = INIT, kills: int = 0
) -> Record:
    where = (process.pid, process.started_ticks)
    return Record("c1", 1, "", "shim", code, signal, core, *where, 77, 78, "boot", kills)


def reported(look: Look) -> Report:
    verdict = judge(look)
    assert isinstance(verdict, Report)
    return verdict


OURS, STRANGERS = record(code=1), record(code=2, process=Process(40, 5))
ENTRY, STRANGERS_ENTRY = record(signal=3), record(signal=4, process=Process(41, 4))


def expected(look: Look) -> tuple[Source, ExitStatus] | None:
    """The ladder of design and documents, written down once more and in another way; None: pending."""
    dead, reaped = look.init is not Init.ALIVE, look.init is Init.REAPED
    rungs: list[tuple[bool, Source, ExitStatus]] = [
        (look.record is OURS, Source.RECORD, Exited(1)),
        (dead and look.fifo_number == 5, Source.FIFO, Exited(5)),
        (dead and look.entry is ENTRY, Source.KEEPER, Signaled(3)),
        (
            look.init is Init.ZOMBIE and look.dead_seconds >= 2 and look.zombie_status == 11 << 8,
            Source.ZOMBIE,
            Exited(11),
        ),
        (reaped and look.pidfd_status == 7, Source.PIDFD, Signaled(7)),
        (reaped and look.event_status == 0x86, Source.PROCEVENTS, Signaled(6, core=True)),
        (
            look.fifo_number == 137 and (reaped or (dead and look.dead_seconds >= 2 and look.zombie_status is None)),
            Source.FIFO,
            Unknown("fifo-number-only", 137),
        ),
        (reaped, Source.NONE, Unknown("monitors-killed")),
    ]
    return next(((source, status) for speaks, source, status in rungs if speaks), None)


@pytest.mark.parametrize("init", Init)
def test_every_combination_of_witnesses_gives_the_highest_rung_that_speaks(init: Init) -> None:
    combinations = itertools.product(
        (None, OURS, STRANGERS),
        (None, 5, 137),
        (None, ENTRY, STRANGERS_ENTRY),
        (None, 11 << 8),
        (None, 7),
        (None, 0x86),
        (0.0, 1.9, 2.0),
    )
    for each, number, entry, zombie, pidfd, event, dead in combinations:
        look = Look(init, INIT, each, number, entry, zombie, pidfd, dead, NOW, event_status=event)
        verdict = judge(look)
        found = (verdict.source, verdict.status) if isinstance(verdict, Report) else None
        assert found == expected(look), look


records = st.one_of(
    st.builds(
        record, code=st.integers(0, 255), process=st.sampled_from((INIT, Process(40, 5))), kills=st.integers(-1, 3)
    ),
    st.builds(record, signal=st.integers(1, 64), core=st.booleans(), process=st.sampled_from((INIT, Process(9, 4)))),
)
waited = st.sampled_from(sorted(WAITED))
looks = st.builds(
    Look,
    init=st.sampled_from(Init),
    process=st.sampled_from((INIT, None)),
    record=st.none() | records,
    fifo_number=st.none() | st.integers(-(2**31), 2**31 - 1),
    entry=st.none() | records,
    zombie_status=st.none() | waited,
    pidfd_status=st.none() | waited,
    event_status=st.none() | waited,
    event_is_coming=st.booleans(),
    entry_is_coming=st.booleans(),
    dead_seconds=st.floats(0, 100),
    now_ns=st.just(NOW),
    oom_kills=st.integers(0, 5),
)


def numbers_of(look: Look) -> set[ExitStatus]:
    """Every status that some witness gave."""
    given: set[ExitStatus] = set()
    statuses = (look.zombie_status, look.pidfd_status, look.event_status)
    given.update(WAITED[each] for each in statuses if each is not None)
    for each in (look.record, look.entry):
        if each is not None and each.signal is not None:
            given.add(Signaled(each.signal, each.core))
        elif each is not None and each.code is not None:
            given.add(Exited(each.code))
    if look.fifo_number is not None:
        given.add(Exited(look.fifo_number))
    return given


@given(looks)
def test_no_number_is_invented(look: Look) -> None:
    verdict = judge(look)
    if isinstance(verdict, Pending):
        return
    match verdict.status:
        case Unknown(cause, number):
            assert cause
            assert number is None or number == look.fifo_number
        case status:
            assert status in numbers_of(look)


@given(looks)
def test_nothing_is_given_up_while_a_witness_lives(look: Look) -> None:
    verdict = judge(look)
    if isinstance(verdict, Report) and verdict.source is Source.NONE:
        assert look.init is Init.REAPED
    if isinstance(verdict, Pending):
        assert look.init is not Init.REAPED or look.event_is_coming or look.entry_is_coming
        assert verdict.seconds is None or 0 < verdict.seconds <= 2


LOOK = [each.name for each in dataclasses.fields(Look)]


@given(looks)
def test_a_record_of_another_process_changes_nothing(look: Look) -> None:
    stranger = record(code=99, process=Process(40, 77))
    fields = {name: getattr(look, name) for name in LOOK}
    fields |= {"process": INIT, "record": None, "entry": None}
    assert judge(Look(**fields)) == judge(Look(**(fields | {"record": stranger, "entry": stranger})))


@given(looks)
def test_a_look_that_is_not_over_is_over_once_init_is_reaped(look: Look) -> None:
    """Whatever the witnesses say, there is an end to the waiting."""
    fields = {name: getattr(look, name) for name in LOOK} | {"init": Init.REAPED}
    fields["dead_seconds"] = max(look.dead_seconds, evidence.UNREAD_PATIENCE_SECONDS)
    assert isinstance(judge(Look(**fields)), Report)


@given(st.integers(0, 128))
def test_a_fifo_number_up_to_128_is_a_code(number: int) -> None:
    report = reported(Look(Init.ZOMBIE, INIT, fifo_number=number))
    assert (report.status, report.source) == (Exited(number), Source.FIFO)


@given(st.integers(129, 2**31 - 1) | st.integers(-(2**31), evidence.NEVER_BEGAN - 1))
def test_a_fifo_number_that_no_code_can_be_is_unknown_with_the_number_beside_it(number: int) -> None:
    assert reported(Look(Init.REAPED, INIT, fifo_number=number)).status == Unknown("fifo-number-only", number)


def test_a_number_in_the_fifo_of_a_living_init_is_not_its_end() -> None:
    assert judge(Look(Init.ALIVE, INIT, fifo_number=0)) == Pending()


def test_a_zombie_is_left_to_its_parent_for_two_seconds_and_then_looked_at_again_and_again() -> None:
    assert judge(Look(Init.ZOMBIE, INIT, zombie_status=0, dead_seconds=0.5)) == Pending(1.5)
    assert reported(Look(Init.ZOMBIE, INIT, zombie_status=0, dead_seconds=2.0)).status == Exited(0)
    assert judge(Look(Init.ZOMBIE, INIT, dead_seconds=60.0)) == Pending(2.0)


@pytest.mark.parametrize(("status", "meaning"), WAITED.items())
def test_a_wait_status_is_read_as_wait_does(status: int, meaning: ExitStatus) -> None:
    assert reported(Look(Init.REAPED, INIT, pidfd_status=status)).status == meaning
    assert reported(Look(Init.ZOMBIE, INIT, zombie_status=status, dead_seconds=3)).status == meaning


def test_a_witness_that_wrote_dates_the_end_itself_and_counts_the_oom_kills() -> None:
    report = reported(Look(Init.REAPED, INIT, record(code=1, kills=2), now_ns=NOW, oom_kills=9))
    assert (report.at_ns, report.oom_kills, report.init) == (77, 2, INIT)
    uncounted = reported(Look(Init.REAPED, INIT, record(code=1, kills=-1), oom_kills=9))
    assert uncounted.oom_kills == 9


def test_an_end_nobody_wrote_down_is_dated_by_its_pidfd() -> None:
    report = reported(Look(Init.REAPED, INIT, pidfd_status=0, dead_seconds=3, now_ns=NOW, oom_kills=1))
    assert (report.at_ns, report.oom_kills) == (NOW - 3 * 10**9, 1)


def test_what_was_never_executed_has_no_code_on_any_rung_that_knows() -> None:
    never = replace(OURS, began=False)
    for look, source in (
        (Look(Init.ZOMBIE, INIT, never), Source.RECORD),
        (Look(Init.REAPED, INIT, fifo_number=evidence.NEVER_BEGAN), Source.FIFO),
        (Look(Init.REAPED, INIT, entry=never), Source.KEEPER),
        (Look(Init.ZOMBIE, INIT, zombie_status=1 << 8, dead_seconds=3, zombie_began=False), Source.ZOMBIE),
    ):
        report = reported(look)
        assert (report.status, report.source, report.began) == (Unknown("never-started"), source, False)


def test_what_was_executed_and_what_is_not_known_to_have_been_keep_their_code() -> None:
    for began in (True, None):
        assert reported(Look(Init.REAPED, INIT, replace(OURS, began=began))).status == Exited(1)
        zombie = Look(Init.ZOMBIE, INIT, zombie_status=0, dead_seconds=3, zombie_began=began)
        assert reported(zombie).status == Exited(0)


def test_a_runtime_that_runs_the_program_itself_executes_nothing_and_its_number_is_the_code() -> None:
    never = replace(OURS, began=False)
    assert reported(Look(Init.REAPED, INIT, never, executes=False)).status == Exited(1)
    zombie = Look(Init.ZOMBIE, INIT, zombie_status=0, dead_seconds=3, zombie_began=False, executes=False)
    assert reported(zombie).status == Exited(0)


def test_without_a_known_init_the_record_says_who_it_was() -> None:
    assert reported(Look(Init.REAPED, None, OURS)).init == INIT


def test_an_end_that_no_witness_dated_says_whether_it_was_seen_or_found() -> None:
    for is_found in (False, True):
        dated = reported(Look(Init.REAPED, INIT, pidfd_status=0, now_ns=NOW, is_found=is_found))
        assert (dated.at_ns, dated.at_is_found) == (NOW, is_found)
    assert not reported(Look(Init.REAPED, INIT, record=record(), is_found=True)).at_is_found  # its shim wrote down when


def test_a_reboot_ends_everything_and_nobody_saw_how() -> None:
    assert evidence.rebooted(INIT, NOW) == Report(Unknown("host-rebooted"), Source.NONE, INIT, NOW, at_is_found=True)


def test_while_a_journal_cannot_be_read_the_end_waits_for_it_and_then_says_so() -> None:
    assert judge(Look(Init.REAPED, INIT, dead_seconds=29.0, journal_unread=True)) == Pending(1.0)
    report = reported(Look(Init.REAPED, INIT, dead_seconds=30.0, journal_unread=True))
    assert (report.status, report.source) == (Unknown("journal-unread"), Source.NONE)
    assert reported(Look(Init.REAPED, INIT, pidfd_status=256, journal_unread=True)).status == Exited(1)


def test_while_the_record_cannot_be_read_the_end_waits_for_it_and_then_says_so() -> None:
    assert judge(Look(Init.REAPED, INIT, dead_seconds=29.0, record_unread=True)) == Pending(1.0)
    report = reported(Look(Init.REAPED, INIT, dead_seconds=30.0, record_unread=True, journal_unread=True))
    assert (report.status, report.source) == (Unknown("record-unread"), Source.NONE)
    for look in (Look(Init.REAPED, INIT, fifo_number=1), Look(Init.REAPED, INIT, pidfd_status=256)):
        assert reported(replace(look, record_unread=True)).status == Exited(1)


def test_while_a_keeper_is_about_to_journal_an_end_that_end_waits_for_it() -> None:
    coming = Look(Init.REAPED, INIT, dead_seconds=29.0, entry_is_coming=True)
    assert judge(coming) == Pending(evidence.ENTRY_RETRY_SECONDS)
    assert reported(replace(coming, entry=ENTRY)).source is Source.KEEPER
    assert reported(replace(coming, pidfd_status=256)).status == Exited(1)
    report = reported(replace(coming, dead_seconds=30.0))
    assert (report.status, report.source) == (Unknown("journal-unread"), Source.NONE)


def test_a_number_that_may_be_a_signals_waits_for_the_zombie_and_for_all_who_know_more() -> None:
    assert judge(Look(Init.ZOMBIE, INIT, fifo_number=137, dead_seconds=0.5)) == Pending(1.5)
    for look, status in (
        (Look(Init.ZOMBIE, INIT, fifo_number=137, zombie_status=9, dead_seconds=2.0), Signaled(9)),
        (Look(Init.REAPED, INIT, fifo_number=137, entry=ENTRY), Signaled(3)),
        (Look(Init.REAPED, INIT, fifo_number=137, pidfd_status=137 << 8), Exited(137)),
        (Look(Init.ZOMBIE, INIT, fifo_number=137, dead_seconds=2.0), Unknown("fifo-number-only", 137)),
    ):
        assert reported(look).status == status


def test_the_kernel_s_events_are_waited_for_as_long_as_one_may_come() -> None:
    dead = evidence.EVENT_PATIENCE_SECONDS
    coming = Look(Init.REAPED, INIT, event_is_coming=True, dead_seconds=dead - 0.1)
    assert judge(coming) == Pending(evidence.EVENT_RETRY_SECONDS)
    assert reported(replace(coming, dead_seconds=dead)).status == Unknown(evidence.MONITORS_KILLED)
    assert reported(replace(coming, event_status=11 << 8)).source is Source.PROCEVENTS


@pytest.mark.parametrize("executed", [True, False])
def test_where_no_witness_knows_whether_it_began_what_exitd_saw_counts(executed: bool) -> None:
    silent = replace(OURS, began=None)
    for look in (
        Look(Init.REAPED, INIT, pidfd_status=1 << 8, executed=executed),
        Look(Init.REAPED, INIT, event_status=1 << 8, executed=executed),
        Look(Init.REAPED, INIT, entry=silent, executed=executed),
        Look(Init.REAPED, INIT, silent, executed=executed),
        Look(Init.REAPED, INIT, fifo_number=1, executed=executed),
    ):
        report = reported(look)
        assert (report.status, report.began, report.unseen) == (Exited(1), executed or None, not executed)
        assert not reported(replace(look, executes=False)).unseen
