from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model import execs
from supervisor.model.errors import WrongState
from supervisor.model.execs import CONTAINER_EXIT, TIMEOUT, Exec, ExecHappening, ExecPhase, ExecSpec, ExecStep, step
from supervisor.model.values import (
    Asked,
    BootTime,
    By,
    Exit,
    Exited,
    ExitStatus,
    Process,
    Reason,
    RunKey,
    Signaled,
    Unknown,
)
from tests.supervisor.happenings import INIT, POLICY, SECOND, SHIM, USER, container, moment, report

SPEC = ExecSpec(("sh", "-c", "exit 3"))
LIMITED = replace(SPEC, timeout_seconds=30.0)
KILLED = Signaled(9)
TIMED_OUT = Asked(Reason.TIMEOUT, TIMEOUT, 9)
ALL: tuple[ExecHappening, ...] = (
    execs.ExecMade(INIT, SHIM, 0),
    execs.ExecMakeFailed("no such file"),
    execs.ExecEndAsked(Asked(Reason.KILL, USER, 15)),
    execs.ExecEnded(report()),
    execs.ExecCleaned(),
)
ALLOWED = {
    (ExecPhase.CREATING, execs.ExecMade): ExecPhase.RUNNING,
    (ExecPhase.CREATING, execs.ExecMakeFailed): ExecPhase.EXITED,
    (ExecPhase.RUNNING, execs.ExecEndAsked): ExecPhase.RUNNING,
    (ExecPhase.RUNNING, execs.ExecEnded): ExecPhase.EXITED,
    (ExecPhase.EXITED, execs.ExecCleaned): None,
}


def born(spec: ExecSpec = SPEC) -> Exec:
    return execs.born(container(), "e1", spec, USER, moment())


def running(spec: ExecSpec = SPEC, kills: int = 0) -> Exec:
    made = step(born(spec), execs.ExecMade(INIT, SHIM, kills), moment(101)).exec
    assert made is not None
    return made


def in_phase(phase: ExecPhase) -> Exec:
    return replace(running() if phase is not ExecPhase.CREATING else born(), phase=phase)


def asked(e: Exec, *wanted: Asked) -> Exec:
    for each in wanted:
        now = step(e, execs.ExecEndAsked(each), moment()).exec
        assert now is not None
        e = now
    return e


def ended(e: Exec, status: ExitStatus, kills: int = 0, *, with_container: bool = False) -> Exit:
    (exit,) = step(e, execs.ExecEnded(report(status, oom_kills=kills), with_container), moment()).exits
    return exit


@pytest.mark.parametrize(("phase", "happening"), list(product(ExecPhase, ALL)), ids=str)
def test_the_table_is_complete_and_everything_else_is_the_wrong_state(
    phase: ExecPhase, happening: ExecHappening
) -> None:
    if (phase, type(happening)) not in ALLOWED:
        with pytest.raises(WrongState, match=f"while exec e1 of .* is {phase.value}") as refused:
            step(in_phase(phase), happening, moment())
        assert refused.value.metadata == {"id": "c1", "exec": "e1", "phase": phase.value}
    else:
        after = step(in_phase(phase), happening, moment()).exec
        assert (after.phase if after is not None else None) is ALLOWED[phase, type(happening)]


def test_an_exec_belongs_to_the_run_its_container_is_at() -> None:
    e = execs.born(container(run=3), "e1", SPEC, USER, moment())
    assert (e.key, e.phase, e.boot_id, e.by) == (RunKey("c1", 3, "e1"), ExecPhase.CREATING, "boot", USER)
    assert (e.name, e.namespace) == (container().spec.name, "default")


def test_every_event_of_an_exec_names_it_and_its_container() -> None:
    steps = [
        step(born(), execs.ExecMade(INIT, SHIM), moment()),
        step(born(), execs.ExecMakeFailed("gone"), moment()),
        step(running(), execs.ExecEndAsked(Asked(Reason.KILL, USER, 15)), moment()),
        step(running(), execs.ExecEnded(report()), moment()),
    ]
    events = [event for each in steps for event in each.events]
    assert [event.type for event in events] == ["exec", "failed", "kill", "exit"]
    assert {(event.id, event.exec_id) for event in events} == {("c1", "e1")}
    assert events[1].attributes == (("error", "gone"),)
    assert events[2].attributes == (("signal", "15"),)


def test_an_end_is_one_exit_under_its_own_key_and_one_event_that_holds_it() -> None:
    over = step(running(), execs.ExecEnded(report(Exited(3))), moment())
    (exit,) = over.exits
    assert exit == over.events[0].exit
    assert (exit.key, exit.status, exit.reason, exit.decision) == (
        RunKey("c1", 1, "e1"),
        Exited(3),
        Reason.SELF,
        "ended",
    )
    assert over.exec is not None and (over.exec.exit, over.exec.deadline) == (exit, None)


def test_what_failed_to_begin_has_no_exit() -> None:
    failed = step(born(), execs.ExecMakeFailed("no such file"), moment())
    assert failed.exits == ()
    assert failed.exec is not None and (failed.exec.error, failed.exec.exit) == ("no such file", None)


def test_the_limit_counts_from_the_start_in_boot_time() -> None:
    assert running().deadline is None
    assert running(LIMITED).deadline == BootTime("boot", 131 * SECOND)


@pytest.mark.parametrize(
    ("now", "left"),
    [
        (BootTime("boot", 101 * SECOND), 30.0),
        (BootTime("boot", 130 * SECOND), 1.0),
        (BootTime("boot", 131 * SECOND), 0.0),
        (BootTime("boot", 999 * SECOND), 0.0),
        (BootTime("another", 5), 0.0),
    ],
)
def test_what_is_left_until_the_limit_outlives_the_daemon_but_not_the_host(now: BootTime, left: float) -> None:
    assert execs.seconds_left(running(LIMITED), now) == left
    assert execs.seconds_left(running(), now) is None


@pytest.mark.parametrize(
    ("wanted", "status", "reason", "by"),
    [
        ((), Exited(3), Reason.SELF, By()),
        ((), Signaled(11, core=True), Reason.SELF, By()),
        ((), KILLED, Reason.UNKNOWN, By()),
        ((), Unknown("monitors-killed"), Reason.UNKNOWN, By()),
        ((Asked(Reason.KILL, USER, 15),), Exited(0), Reason.KILL, USER),
        ((Asked(Reason.KILL, USER, 15),), Signaled(15), Reason.KILL, USER),
        ((Asked(Reason.KILL, USER, 10),), Exited(0), Reason.SELF, By()),
        ((Asked(Reason.KILL, USER, 10),), Signaled(10), Reason.KILL, USER),
        ((Asked(Reason.KILL, USER, 10), Asked(Reason.KILL, POLICY, 15)), Exited(0), Reason.KILL, POLICY),
        ((Asked(Reason.KILL, USER, 15), Asked(Reason.KILL, POLICY, 10)), Exited(0), Reason.KILL, USER),
        ((TIMED_OUT,), KILLED, Reason.TIMEOUT, TIMEOUT),
        ((TIMED_OUT,), Exited(0), Reason.TIMEOUT, TIMEOUT),
        ((Asked(Reason.KILL, USER, 15), TIMED_OUT), KILLED, Reason.TIMEOUT, TIMEOUT),
        ((TIMED_OUT, Asked(Reason.KILL, USER, 9)), KILLED, Reason.TIMEOUT, TIMEOUT),
        ((Asked(Reason.KILL, USER, 9), TIMED_OUT), KILLED, Reason.KILL, USER),
    ],
)
def test_the_reason_is_who_asked_for_what_came(
    wanted: tuple[Asked, ...], status: ExitStatus, reason: Reason, by: By
) -> None:
    exit = ended(asked(running(), *wanted), status)
    assert (exit.reason, exit.by) == (reason, by)


@pytest.mark.parametrize(
    ("status", "reason", "by"),
    [(KILLED, Reason.KILL, CONTAINER_EXIT), (Exited(0), Reason.SELF, By()), (Signaled(15), Reason.UNKNOWN, By())],
)
def test_what_its_container_has_taken_along_says_so(status: ExitStatus, reason: Reason, by: By) -> None:
    exit = ended(running(), status, with_container=True)
    assert (exit.reason, exit.by) == (reason, by)


def test_a_timeout_stays_one_though_its_container_ends_meanwhile() -> None:
    assert ended(asked(running(), TIMED_OUT), KILLED, with_container=True).reason is Reason.TIMEOUT


@pytest.mark.parametrize(
    ("before", "after", "status", "reason"),
    [
        (0, 1, KILLED, Reason.OOM),
        (2, 2, KILLED, Reason.UNKNOWN),
        (2, 3, KILLED, Reason.OOM),
        (0, 1, Exited(1), Reason.SELF),
    ],
)
def test_memory_kills_count_from_its_own_beginning(before: int, after: int, status: ExitStatus, reason: Reason) -> None:
    exit = ended(running(kills=before), status, after)
    assert (exit.reason, exit.oom.kills, exit.oom.init) == (reason, after - before, reason is Reason.OOM)


def test_a_sigkill_that_was_asked_for_is_no_memory_kill() -> None:
    assert ended(asked(running(), Asked(Reason.KILL, USER, 9)), KILLED, 1).reason is Reason.KILL


def test_an_end_that_comes_before_its_noted_start_moves_the_start() -> None:
    e = replace(running(), started_ns=report().at_ns + SECOND)
    assert ended(e, Exited(0)).started_ns == report().at_ns


def test_the_witness_knows_the_process_better() -> None:
    e = replace(running(), init=Process(7, 7))
    assert ended(e, Exited(0)).init == INIT


@given(st.lists(st.sampled_from(ALL), max_size=12))
def test_in_any_sequence_there_is_one_exit_at_most_and_nothing_after_the_end(happenings: list[ExecHappening]) -> None:
    e: Exec | None = born()
    exits: list[Exit] = []
    kinds: list[str] = []
    for happening in happenings:
        if e is None:
            break
        try:
            taken: ExecStep = step(e, happening, moment())
        except WrongState:
            continue
        exits += taken.exits
        kinds += [event.type for event in taken.events]
        e = taken.exec
    assert len(exits) <= 1
    assert kinds.count("exit") == len(exits)
    assert "exit" not in kinds or kinds[-1] == "exit"
