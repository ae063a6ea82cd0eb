from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model import restart
from supervisor.model.errors import BadRequest
from supervisor.model.restart import RemoveNow, RestartAt, RunEnded
from supervisor.model.values import (
    BootTime,
    By,
    Container,
    Exit,
    Exited,
    ExitStatus,
    Oom,
    Phase,
    Policy,
    Reason,
    RestartPolicy,
    RunKey,
    Signaled,
    Source,
    Spec,
    Unknown,
)

MS = 10**6
SECOND = 10**9
NOW = BootTime("boot", 1000 * SECOND)
LOST = Unknown("monitors-killed")


def make(
    policy: str = "no",
    *,
    auto_remove: bool = False,
    phase: Phase = Phase.RUNNING,
    stopped: bool = False,
    failures: int = 0,
    delay_ns: int = 0,
    last: ExitStatus | None = None,
) -> Container:
    spec = Spec(name="web", restart=restart.parse(policy), auto_remove=auto_remove)
    exit = None
    if last is not None:
        key = RunKey("c1", 1)
        exit = Exit(key, "web", "default", last, Source.RECORD, Reason.SELF, By(), Oom(), 5, 4, None)
    return Container("c1", spec, phase, 1, 1, exit=exit, stopped_by_user=stopped, failures=failures, delay_ns=delay_ns)


@pytest.mark.parametrize(
    ("policy", "status", "restarts"),
    [
        ("no", Exited(0), False),
        ("no", Exited(1), False),
        ("no", LOST, False),
        ("always", Exited(0), True),
        ("always", Signaled(9), True),
        ("always", LOST, True),
        ("unless-stopped", Exited(0), True),
        ("unless-stopped", Exited(3), True),
        ("on-failure", Exited(0), False),
        ("on-failure", Exited(1), True),
        ("on-failure", Signaled(11, core=True), True),
        ("on-failure", LOST, True),
        ("on-failure", Unknown("monitors-killed", number=0), True),
        ("on-failure:3", Exited(1), True),
    ],
)
def test_the_policy_says_whether_the_next_run_follows(policy: str, status: ExitStatus, restarts: bool) -> None:
    decision = restart.decide(make(policy), status, NOW, 1 * SECOND)
    assert isinstance(decision, RestartAt) is restarts
    stopped = restart.decide(make(policy, stopped=True), status, NOW, 1 * SECOND)
    assert stopped == RunEnded()


@pytest.mark.parametrize(
    ("used_ms", "ran_seconds", "next_ms"),
    [
        (0, 1, 100),
        (100, 1, 200),
        (200, 9.999, 400),
        (25_600, 0, 51_200),
        (51_200, 0, 60_000),
        (60_000, 0, 60_000),
        (60_000, 10, 100),
        (60_000, 3600, 100),
        (400, None, 800),
    ],
)
def test_the_delay_doubles_to_a_minute_and_a_run_of_ten_seconds_resets_it(
    used_ms: int, ran_seconds: float | None, next_ms: int
) -> None:
    ran_ns = None if ran_seconds is None else round(ran_seconds * SECOND)
    decision = restart.decide(make("always", delay_ns=used_ms * MS), Exited(1), NOW, ran_ns)
    assert decision == RestartAt(BootTime("boot", NOW.ns + next_ms * MS), next_ms * MS, 1)


@pytest.mark.parametrize(
    ("max_seconds", "reset_seconds", "used_ms", "ran_seconds", "next_ms"),
    [
        (60, 10, 51_200, 0, 60_000),
        (300, 10, 51_200, 0, 102_400),  # Kubernetes' five minutes
        (300, 600, 51_200, 599, 102_400),
        (300, 600, 51_200, 600, 100),
        (1, 10, 0, 0, 100),
        (1, 10, 800, 0, 1_000),
        (0.05, 10, 0, 0, 50),
        (0.05, 10, 0, 20, 50),
        (60, 0, 51_200, 0, 100),
        (60, 0, 51_200, None, 60_000),
    ],
)
def test_the_bound_of_the_delay_and_the_run_that_resets_it_can_be_set(
    max_seconds: float, reset_seconds: float, used_ms: int, ran_seconds: float | None, next_ms: int
) -> None:
    backoff = restart.Backoff(round(max_seconds * SECOND), round(reset_seconds * SECOND))
    ran_ns = None if ran_seconds is None else round(ran_seconds * SECOND)
    decision = restart.decide(make("always", delay_ns=used_ms * MS), Exited(1), NOW, ran_ns, backoff)
    assert decision == RestartAt(BootTime("boot", NOW.ns + next_ms * MS), next_ms * MS, 1)
    rebooted = restart.after_reboot(make("always"), NOW, backoff)
    assert isinstance(rebooted, RestartAt) and rebooted.delay_ns == min(100, max_seconds * 1000) * MS


def test_on_failure_with_a_number_gives_up_after_that_many_restarts() -> None:
    assert restart.decide(make("on-failure:3", failures=2), Exited(1), NOW, 0) == RestartAt(
        BootTime("boot", NOW.ns + 100 * MS), 100 * MS, 3
    )
    assert restart.decide(make("on-failure:3", failures=3), Exited(1), NOW, 0) == RunEnded()
    assert restart.decide(make("on-failure:3", failures=3), Exited(1), NOW, 3600 * SECOND) == RunEnded()


def test_a_success_sets_the_count_of_failures_back() -> None:
    decision = restart.decide(make("always", failures=7), Exited(0), NOW, 0)
    assert isinstance(decision, RestartAt)
    assert decision.failures == 0


def test_automatic_removal_follows_any_end_that_no_restart_follows() -> None:
    assert restart.decide(make("no", auto_remove=True), Exited(1), NOW, 0) == RemoveNow()
    assert restart.decide(make("no", auto_remove=True, stopped=True), LOST, NOW, None) == RemoveNow()


@pytest.mark.parametrize(
    ("container", "restarts"),
    [
        (make("always"), True),
        (make("always", stopped=True), True),
        (make("always", phase=Phase.EXITED, stopped=True, last=Signaled(15)), True),
        (make("always", phase=Phase.CREATED), False),
        (make("always", phase=Phase.CREATING), False),
        (make("unless-stopped", phase=Phase.PAUSED), True),
        (make("unless-stopped", stopped=True), False),
        (make("unless-stopped", phase=Phase.EXITED, stopped=True, last=Exited(0)), False),
        (make("unless-stopped", phase=Phase.RESTARTING, last=Exited(0)), True),
        (make("on-failure"), True),
        (make("on-failure", phase=Phase.STARTING), True),
        (make("on-failure", stopped=True), False),
        (make("on-failure", phase=Phase.EXITED, last=Exited(0)), False),
        (make("on-failure:2", failures=2), False),
        (make("on-failure:2", failures=2, phase=Phase.RESTARTING, last=Exited(1)), True),
        (make("no"), False),
        (make("no", phase=Phase.EXITED, last=Exited(1)), False),
    ],
)
def test_a_reboot_restarts_what_docker_restarts(container: Container, restarts: bool) -> None:
    decision = restart.after_reboot(container, NOW)
    if restarts:
        assert isinstance(decision, RestartAt)
        assert decision.at == BootTime("boot", NOW.ns + 100 * MS)
    else:
        assert decision == RunEnded()


def test_a_reboot_counts_as_a_failure_once() -> None:
    running = restart.after_reboot(make("on-failure:5", failures=1), NOW)
    waiting = restart.after_reboot(make("on-failure:5", failures=1, phase=Phase.RESTARTING, last=Exited(1)), NOW)
    assert isinstance(running, RestartAt) and running.failures == 2
    assert isinstance(waiting, RestartAt) and waiting.failures == 1


def test_a_reboot_removes_what_was_to_be_removed_at_its_end() -> None:
    assert restart.after_reboot(make("no", auto_remove=True), NOW) == RemoveNow()


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("", RestartPolicy()),
        ("no", RestartPolicy()),
        ("always", RestartPolicy(Policy.ALWAYS)),
        ("unless-stopped", RestartPolicy(Policy.UNLESS_STOPPED)),
        ("on-failure", RestartPolicy(Policy.ON_FAILURE)),
        ("on-failure:0", RestartPolicy(Policy.ON_FAILURE)),
        ("on-failure:12", RestartPolicy(Policy.ON_FAILURE, 12)),
    ],
)
def test_policies_are_read_as_docker_reads_them(text: str, policy: RestartPolicy) -> None:
    assert restart.parse(text) == policy


@pytest.mark.parametrize(
    "text",
    [
        "sometimes",
        "Always",
        "always:3",
        "no:",
        "unless-stopped:1",
        "on-failure:",
        "on-failure:-1",
        "on-failure:1.5",
        "on-failure:٣",
        "on-failure:99999999999",
        "on-failure:1:2",
        " no",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        restart.parse(text)


def test_automatic_removal_and_a_restart_policy_exclude_each_other() -> None:
    assert restart.parse("no", auto_remove=True) == RestartPolicy()
    with pytest.raises(BadRequest):
        restart.parse("on-failure:3", auto_remove=True)


@given(st.sampled_from(Policy), st.integers(1, 2**31 - 1))
def test_a_written_policy_reads_back(policy: Policy, retries: int) -> None:
    value = RestartPolicy(policy, retries if policy is Policy.ON_FAILURE else 0)
    assert restart.parse(restart.format(value)) == value


@given(st.text(max_size=30))
def test_parse_answers_or_refuses_and_never_fails(text: str) -> None:
    try:
        policy = restart.parse(text)
    except BadRequest:
        return
    assert restart.parse(restart.format(policy)) == policy


statuses = st.one_of(
    st.builds(Exited, st.integers(0, 255)),
    st.builds(Signaled, st.integers(1, 64), st.booleans()),
    st.builds(Unknown, st.text(max_size=5)),
)


@given(
    st.lists(st.tuples(statuses, st.one_of(st.none(), st.integers(0, 20 * SECOND))), max_size=30),
    st.sampled_from(["always", "unless-stopped", "on-failure", "on-failure:4"]),
)
def test_over_any_series_of_runs_the_delay_stays_between_its_bounds_and_retries_within_their_number(
    runs: list[tuple[ExitStatus, int | None]], policy: str
) -> None:
    container, restarts = make(policy), 0
    for status, ran_ns in runs:
        decision = restart.decide(container, status, NOW, ran_ns)
        assert decision == restart.decide(container, status, NOW, ran_ns)
        if not isinstance(decision, RestartAt):
            break
        restarts += 1
        assert 100 * MS <= decision.delay_ns <= 60 * SECOND
        assert decision.at == BootTime(NOW.boot_id, NOW.ns + decision.delay_ns)
        assert decision.delay_ns in (100 * MS, min(2 * container.delay_ns, 60 * SECOND))
        container = make(policy, failures=decision.failures, delay_ns=decision.delay_ns)
    if policy == "on-failure:4":
        assert restarts <= 4


def shut_down(policy: str, status: ExitStatus = Exited(0), *, started_ns: int | None = 4) -> Container:  # noqa: B008
    """Ended because the node went down, and at rest since."""
    ended = make(policy, phase=Phase.EXITED, last=status)
    assert ended.exit is not None
    exit = replace(ended.exit, reason=Reason.NODE_SHUTDOWN, started_ns=started_ns)
    return replace(ended, exit=exit)


@pytest.mark.parametrize(
    ("policy", "restarts"), [("no", False), ("always", True), ("unless-stopped", True), ("on-failure", True)]
)
@pytest.mark.parametrize("status", [Exited(0), Signaled(15), LOST])
def test_after_a_shutdown_of_the_node_the_policy_takes_up_as_after_a_power_cut(
    policy: str, restarts: bool, status: ExitStatus
) -> None:
    """Whatever number the program has left: nobody knows what it would have done by itself."""
    assert isinstance(restart.after_reboot(shut_down(policy, status), NOW), RestartAt) is restarts
    assert restart.wants_revival(shut_down(policy, status)) is restarts


def test_what_was_never_started_is_not_started_by_the_boot_after_a_shutdown() -> None:
    assert restart.after_reboot(shut_down("always", LOST, started_ns=None), NOW) == RunEnded()


def test_a_rule_by_exit_code_does_not_speak_of_an_end_by_the_nodes_shutdown() -> None:
    container = shut_down("always", Exited(42))
    container = replace(
        container, spec=replace(container.spec, restart_rules=restart.parse_rules(["exit in 42 => no"]))
    )
    assert isinstance(restart.after_reboot(container, NOW), RestartAt)
