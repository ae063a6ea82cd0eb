"""The health of one run: every state by every happening, and any sequence of them beside a model of docker's rules."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.model import health
from supervisor.model.errors import WrongState
from supervisor.model.health import DropProbe, Froze, Health, Probe, Probed, ProbeResult, Skipped, Thawed, Tick
from supervisor.model.values import (
    SECOND_NS,
    Exited,
    ExitStatus,
    HealthSpec,
    HealthStatus,
    OnUnhealthy,
    Signaled,
    Unknown,
)

SPEC = HealthSpec(("true",), 30 * SECOND_NS, 5 * SECOND_NS, 3, 0, OnUnhealthy.KILL)
NOW = 1000 * SECOND_NS
FAILURES: tuple[tuple[ExitStatus, bool], ...] = (
    (Exited(1), False),
    (Exited(2), False),
    (Exited(255), False),
    (Signaled(9), False),
    (Unknown("monitors-killed"), False),
    (Unknown("fifo", 0), False),
    (Signaled(9), True),
    (Exited(0), True),
)


def result(status: ExitStatus = Exited(0), timed_out: bool = False, output: bytes = b"") -> ProbeResult:  # noqa: B008  (frozen)
    return ProbeResult(1, 2, status, output, timed_out)


GOOD, BAD = Probed(result()), Probed(result(Exited(1)))


HAPPENINGS: tuple[health.Happening, ...] = (Tick(), GOOD, BAD, Skipped(), Froze(), Thawed())


def state(**fields: object) -> Health:
    return replace(Health(SPEC, NOW - SECOND_NS, NOW), **fields)  # type: ignore[arg-type]


STATES = [
    state(status=status, paused=paused, probing_since_ns=None if paused else probing, failing_streak=streak, due_ns=due)
    for status, paused, probing, streak, due in itertools.product(
        HealthStatus, (False, True), (None, NOW - 1), (0, 1, 2, 3), (NOW - 1, NOW, NOW + 1)
    )
]


def refused(before: Health, happening: health.Happening) -> bool:
    match happening:
        case Probed() | Skipped():
            return before.probing_since_ns is None
        case Froze():
            return before.paused
        case Thawed():
            return not before.paused
    return False


def test_one_of_each_happening_is_tried() -> None:
    assert {type(each) for each in HAPPENINGS} == set(health.Happening.__args__)


@pytest.mark.parametrize("happening", HAPPENINGS, ids=repr)
def test_each_state_hears_what_can_happen_in_it_and_everything_else_is_the_wrong_state(
    happening: health.Happening,
) -> None:
    for before in STATES:
        if refused(before, happening):
            with pytest.raises(WrongState):
                health.step(before, happening, NOW)
            continue
        stepped = health.step(before, happening, NOW)
        after = stepped.health
        assert health.step(before, happening, NOW) == stepped
        assert (after.spec, after.began_ns) == (before.spec, before.began_ns)
        assert not (after.paused and after.probing_since_ns is not None)
        if not isinstance(happening, Probed):
            reported = (after.status, after.failing_streak, after.log)
            assert reported == (before.status, before.failing_streak, before.log)


def test_a_probe_begins_when_it_is_due_and_none_is_under_way() -> None:
    for before in STATES:
        stepped = health.step(before, Tick(), NOW)
        due = not before.paused and before.probing_since_ns is None and before.due_ns <= NOW
        assert stepped == (
            health.HealthStep(replace(before, probing_since_ns=NOW), Probe()) if due else health.HealthStep(before)
        )


def test_the_first_probe_is_an_interval_after_the_start_and_each_further_one_after_the_end_of_the_last() -> None:
    born = health.begin(SPEC, NOW, NOW)
    assert (born.due_ns, born.status) == (NOW + SPEC.interval_ns, HealthStatus.STARTING)
    late = NOW + 77 * SECOND_NS
    for answer in (GOOD, BAD):
        assert health.step(replace(born, probing_since_ns=NOW), answer, late).health.due_ns == late + SPEC.interval_ns


@pytest.mark.parametrize("before", HealthStatus)
@pytest.mark.parametrize("streak", [0, 2, 7])
def test_one_success_makes_it_healthy_and_forgets_all_failures(before: HealthStatus, streak: int) -> None:
    stepped = health.step(state(status=before, failing_streak=streak, probing_since_ns=NOW), GOOD, NOW)
    assert (stepped.health.status, stepped.health.failing_streak) == (HealthStatus.HEALTHY, 0)
    assert stepped.action is None


@pytest.mark.parametrize(("status", "timed_out"), FAILURES)
def test_everything_but_code_0_in_time_is_a_failure_and_an_unknown_end_is_too(
    status: ExitStatus, timed_out: bool
) -> None:
    stepped = health.step(state(probing_since_ns=NOW), Probed(result(status, timed_out)), NOW)
    assert stepped.health.failing_streak == 1


@pytest.mark.parametrize("on_failure", OnUnhealthy)
def test_the_last_failure_of_so_many_in_a_row_makes_it_unhealthy_and_has_its_consequence(
    on_failure: OnUnhealthy,
) -> None:
    now = state(spec=replace(SPEC, on_failure=on_failure), status=HealthStatus.HEALTHY)
    seen = []
    for _ in range(4):
        stepped = health.step(replace(now, probing_since_ns=NOW), BAD, NOW)
        now = stepped.health
        seen.append((now.status, now.failing_streak, stepped.action))
    follows = None if on_failure is OnUnhealthy.NONE else on_failure
    assert seen == [
        (HealthStatus.HEALTHY, 1, None),
        (HealthStatus.HEALTHY, 2, None),
        (HealthStatus.UNHEALTHY, 3, follows),
        (HealthStatus.UNHEALTHY, 4, follows),  # what did not work is tried again
    ]


def test_failures_of_probes_that_began_in_the_start_period_do_not_count() -> None:
    spec = replace(SPEC, start_period_ns=10 * SECOND_NS, retries=1)
    born = health.begin(spec, NOW, NOW)
    for began, streak in ((NOW, 0), (NOW + 10 * SECOND_NS - 1, 0), (NOW + 10 * SECOND_NS, 1)):
        after = health.step(replace(born, probing_since_ns=began), BAD, NOW + 60 * SECOND_NS).health
        assert (after.failing_streak, after.status) == (
            streak,
            HealthStatus.UNHEALTHY if streak else HealthStatus.STARTING,
        )


def test_the_first_success_ends_the_start_period() -> None:
    spec = replace(SPEC, start_period_ns=1000 * SECOND_NS, retries=1)
    born = replace(health.begin(spec, NOW, NOW), probing_since_ns=NOW)
    healthy = health.step(born, GOOD, NOW).health
    after = health.step(replace(healthy, probing_since_ns=NOW), BAD, NOW)
    assert (after.health.status, after.action) == (HealthStatus.UNHEALTHY, OnUnhealthy.KILL)


def test_a_pause_drops_the_probe_that_is_under_way_and_the_next_one_waits_a_whole_interval_afterwards() -> None:
    probing = state(probing_since_ns=NOW)
    frozen = health.step(probing, Froze(), NOW)
    assert frozen == health.HealthStep(replace(probing, paused=True, probing_since_ns=None), DropProbe())
    assert health.step(state(), Froze(), NOW).action is None
    assert health.step(frozen.health, Tick(), NOW + 10**15) == health.HealthStep(frozen.health)
    thawed = health.step(frozen.health, Thawed(), NOW + 5)
    assert thawed == health.HealthStep(replace(probing, probing_since_ns=None, due_ns=NOW + 5 + SPEC.interval_ns))


def test_the_newest_results_are_kept_with_the_beginning_of_their_output() -> None:
    now = state()
    for number in range(health.LOG_MAX + 2):
        answer = Probed(result(output=bytes([number]) * (health.OUTPUT_MAX + 1)))
        now = health.step(replace(now, probing_since_ns=NOW), answer, NOW).health
    assert [each.output for each in now.log] == [bytes([n]) * health.OUTPUT_MAX for n in range(2, health.LOG_MAX + 2)]


def test_a_daemon_that_finds_it_goes_on_with_the_status_it_had() -> None:
    found = health.begin(SPEC, NOW - 500 * SECOND_NS, NOW, HealthStatus.UNHEALTHY)
    assert (found.status, found.due_ns, found.failing_streak) == (HealthStatus.UNHEALTHY, NOW + SPEC.interval_ns, 0)


RESULTS = st.builds(
    ProbeResult,
    st.integers(0, 9),
    st.integers(0, 9),
    st.one_of(
        st.integers(0, 2).map(Exited),
        st.builds(Signaled, st.integers(1, 64)),
        st.builds(Unknown, st.just("?"), st.none() | st.just(0)),
    ),
    st.binary(max_size=8),
    st.booleans(),
)
SPECS = st.builds(
    HealthSpec,
    st.just(("x",)),
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(0, 20),
    st.sampled_from(OnUnhealthy),
)
EVENTS = st.lists(
    st.one_of(st.just(Tick()), st.just(Tick()), RESULTS.map(Probed), st.sampled_from((Skipped(), Froze(), Thawed()))),
    max_size=60,
)


def clean(answer: ProbeResult) -> bool:
    return answer.status == Exited(0) and not answer.timed_out


@settings(deadline=None)
@given(SPECS, EVENTS, st.lists(st.integers(0, 4), min_size=60, max_size=60))
def test_any_sequence_obeys_dockers_rules(spec: HealthSpec, events: list[health.Happening], steps: list[int]) -> None:
    """The model counts from the list of results alone."""
    time = 100
    now = health.begin(spec, time, time)
    counted: list[bool] = []  # of the probes that count, whether they succeeded
    began, idle_since, frozen = None, time, False
    for happening, passed in zip(events, steps, strict=False):
        time += passed
        if refused(now, happening):
            continue
        stepped = health.step(now, happening, time)
        match happening:
            case Tick() if isinstance(stepped.action, Probe):
                assert not frozen and began is None and time >= idle_since + spec.interval_ns
                began = time
            case Tick():
                assert frozen or began is not None or time < idle_since + spec.interval_ns
            case Probed(answer):
                assert began is not None
                if clean(answer) or any(counted) or began >= 100 + spec.start_period_ns or len(counted) >= spec.retries:
                    counted.append(clean(answer))
                began, idle_since = None, time
            case Skipped():
                assert stepped.action is None
                began, idle_since = None, time
            case Froze():
                assert (stepped.action is not None) == (began is not None)
                frozen, began = True, None
            case Thawed():
                frozen, idle_since = False, time
        now = stepped.health
        streak = len(counted) - 1 - max((n for n, good in enumerate(counted) if good), default=-1)
        assert now.failing_streak == streak
        assert (now.status is HealthStatus.UNHEALTHY) == (streak >= spec.retries)
        assert (now.status is HealthStatus.STARTING) == (not any(counted) and streak < spec.retries)
        ends = isinstance(stepped.action, OnUnhealthy)
        assert ends <= (now.status is HealthStatus.UNHEALTHY and spec.on_failure is stepped.action)
        assert len(now.log) <= health.LOG_MAX
