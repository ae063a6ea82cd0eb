"""Kubernetes' three checks: which of them are made when, and what any sequence of results means."""

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from supervisor.model import health
from supervisor.model import lifecycle as life
from supervisor.model.health import ProbeAnswer, Probed, ProbeResult, Tick
from supervisor.model.values import (
    SECOND_NS,
    Asked,
    BootTime,
    By,
    CheckKind,
    Container,
    HealthSpec,
    HealthStatus,
    HookAction,
    Hooks,
    HookStage,
    OnUnhealthy,
    Phase,
    ProbeMarks,
    Probes,
    Reason,
    Spec,
    Termination,
)
from tests.supervisor.happenings import moment

CHECK = HealthSpec(("true",), SECOND_NS, SECOND_NS, 3, first_ns=5 * SECOND_NS)
ALL = Probes(CHECK, CHECK, CHECK)
STATUSES = tuple(HealthStatus)


def answered(good: bool) -> Probed:
    return Probed(ProbeResult(1, 2, ProbeAnswer(good)))


def up(probes: Probes = ALL, phase: Phase = Phase.RUNNING, **fields: object) -> Container:
    return Container("c1", Spec("web", probes=probes), phase, 1, 0, **fields)  # type: ignore[arg-type]


@given(
    st.lists(st.booleans(), max_size=40),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from([OnUnhealthy.NONE, OnUnhealthy.END]),
)
def test_any_sequence_of_results_means_what_the_last_ones_in_a_row_are(
    results: list[bool], successes: int, failures: int, action: OnUnhealthy
) -> None:
    spec = replace(CHECK, successes=successes, retries=failures, on_failure=action)
    now, expected = health.begin(spec, 0, 0), HealthStatus.STARTING
    for number, good in enumerate(results, 1):
        at_ns = number * 10 * SECOND_NS
        now = health.step(now, Tick(), at_ns).health
        stepped = health.step(now, answered(good), at_ns)
        now = stepped.health
        row = len(list(itertools.takewhile(lambda each: each is good, reversed(results[:number]))))  # noqa: B023
        if row >= (successes if good else failures):
            expected = HealthStatus.HEALTHY if good else HealthStatus.UNHEALTHY
        elif good is False and expected is HealthStatus.UNHEALTHY:
            expected = HealthStatus.UNHEALTHY
        assert now.status is expected
        ends = not good and row >= failures and action is OnUnhealthy.END
        assert stepped.action is (OnUnhealthy.END if ends else None)
        assert now.due_ns == at_ns + SECOND_NS


def test_the_first_probe_comes_so_long_after_the_start_and_at_once_if_that_is_past() -> None:
    assert health.begin(CHECK, 0, SECOND_NS).due_ns == 5 * SECOND_NS
    assert health.begin(CHECK, 0, 7 * SECOND_NS).due_ns == 7 * SECOND_NS


def test_the_startup_probe_is_alone_until_its_first_success_and_while_it_ends_only_readiness_is_asked() -> None:
    for startup, liveness, ending in itertools.product(STATUSES, STATUSES, (False, True)):
        termination = Termination(1, BootTime("boot", 0)) if ending else None
        container = up(probes_of_run := ALL, ending=termination)
        container = replace(container, probes=ProbeMarks(startup, liveness))
        asked = set(health.wanted(container))
        assert probes_of_run is ALL
        if ending:
            assert asked == {CheckKind.READINESS}
        elif startup is HealthStatus.HEALTHY:
            assert asked == {CheckKind.LIVENESS, CheckKind.READINESS}
        else:
            assert asked == {CheckKind.STARTUP}
    assert set(health.wanted(up(Probes(liveness=CHECK)))) == {CheckKind.LIVENESS}
    assert set(health.wanted(Container("c", Spec("w", health=CHECK), Phase.RUNNING, 1, 0))) == {CheckKind.CHECK}


def test_started_and_ready_need_all_that_was_asked_for() -> None:
    hooks = Hooks(post_start=HookAction(("a",)))
    for phase, startup, readiness, stage in itertools.product(Phase, STATUSES, STATUSES, HookStage):
        container = up(phase=phase, post_start=stage)
        container = replace(container, spec=replace(container.spec, hooks=hooks))
        container = replace(container, probes=ProbeMarks(startup, readiness=readiness))
        is_up = phase in (Phase.RUNNING, Phase.PAUSED)
        started = is_up and startup is HealthStatus.HEALTHY and stage is HookStage.DONE
        assert health.has_started(container) is started
        assert health.is_ready(container) is (started and readiness is HealthStatus.HEALTHY)
    bare = Container("c", Spec("w"), Phase.RUNNING, 1, 0)
    assert health.is_ready(bare)
    assert not health.is_ready(replace(bare, ending=Termination(1, BootTime("boot", 0))))


def test_each_kind_is_stored_for_itself_and_the_next_run_begins_anew() -> None:
    for kind in (CheckKind.STARTUP, CheckKind.LIVENESS, CheckKind.READINESS):
        step = life.step(up(), life.HealthSeen(1, HealthStatus.HEALTHY, 0, kind), moment())
        assert step.container is not None
        seen = {each: life.health_of(step.container, each) for each in CheckKind if each is not CheckKind.CHECK}
        assert [each for each, status in seen.items() if status is HealthStatus.HEALTHY] == [kind]
        assert dict(step.events[0].attributes)["probe"] == kind.value
        again = life.step(replace(step.container, phase=Phase.RESTARTING, clean=True), life.Again(None), moment())
        assert again.container is not None and again.container.probes == ProbeMarks()


def test_who_was_asked_to_end_is_not_ended_by_a_probe_and_a_signal_for_something_else_changes_nothing() -> None:
    started = up(probes=replace(ALL, startup=None))
    started = replace(started, probes=ProbeMarks(readiness=HealthStatus.HEALTHY))
    for reason, signal, ends in (
        (Reason.STOP, 15, True),
        (Reason.NODE_SHUTDOWN, 15, True),
        (Reason.KILL, 9, True),
        (Reason.KILL, 15, False),  # its stop signal, with no grace behind it: it may ignore that
        (Reason.KILL, 1, False),
        (Reason.KILL, 10, False),
    ):
        asked = replace(started, asked=Asked(reason, By(), signal), spec=replace(started.spec, stop_signal=15))
        assert (CheckKind.LIVENESS in health.wanted(asked)) is not ends
        assert CheckKind.READINESS in health.wanted(asked)
        assert health.is_ready(asked) is not ends
