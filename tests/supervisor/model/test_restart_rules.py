"""Rules by exit code: read, written, and decided before the policy."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model import restart
from supervisor.model.errors import BadRequest
from supervisor.model.restart import RestartAt, RunEnded
from supervisor.model.values import Action, Exited, ExitStatus, Phase, Reason, RestartRule, Signaled, Unknown, fold
from tests.supervisor.model.test_restart import LOST, NOW, make

RULES = st.lists(
    st.builds(
        RestartRule,
        st.lists(st.integers(0, 255), min_size=1, max_size=5).map(tuple),
        st.sampled_from(Action),
        st.booleans(),
    ),
    max_size=4,
).map(tuple)
STATUSES = st.one_of(st.integers(0, 255).map(Exited), st.integers(1, 64).map(Signaled), st.just(LOST))


def restarts(rules: str, status: ExitStatus, policy: str = "no", **how: bool) -> bool:
    container = make(policy, **how)  # type: ignore[arg-type]  # flags only
    spec = replace(container.spec, restart_rules=restart.parse_rules(rules.split("; ")))
    decision = restart.decide(replace(container, spec=spec), status, NOW, None)
    assert isinstance(decision, RunEnded | RestartAt)
    return isinstance(decision, RestartAt)


@pytest.mark.parametrize(
    ("rules", "status", "policy", "expected"),
    [
        ("exit in 42,43 => no", Exited(42), "always", False),
        ("exit in 42,43 => no", Exited(44), "always", True),
        ("exit in 42 => restart", Exited(42), "no", True),
        ("exit in 42 => restart", Exited(43), "no", False),
        ("exit not in 0 => restart", Exited(1), "no", True),
        ("exit not in 0 => restart", Exited(0), "always", True),
        ("exit in 1 => no; exit in 1 => restart", Exited(1), "always", False),
        ("exit in 1 => restart; exit in 1 => no", Exited(1), "no", True),
        ("exit in 137 => no", Signaled(9), "always", False),
        ("exit in 137 => no", Exited(137), "always", False),
        ("exit not in 0 => no", LOST, "on-failure", True),
        ("exit in 255 => no", LOST, "on-failure", True),
        ("exit not in 0 => restart", LOST, "no", False),
        ("exit in 42 => no", Unknown("fifo-number-only", 42), "on-failure", True),
    ],
)
def test_the_first_rule_that_fits_decides_and_the_policy_where_none_does(
    rules: str, status: ExitStatus, policy: str, expected: bool
) -> None:
    assert restarts(rules, status, policy) is expected


def test_a_rule_holds_over_a_reboot_for_what_had_ended_and_says_nothing_of_what_was_lost() -> None:
    rules = restart.parse_rules(["exit in 42 => no", "exit not in 42 => restart"])
    for policy, phase, last, restarted in (
        ("always", Phase.EXITED, Exited(42), False),
        ("always", Phase.EXITED, Exited(1), True),
        ("no", Phase.EXITED, Exited(1), True),
        ("no", Phase.RUNNING, None, False),
        ("on-failure", Phase.RUNNING, None, True),
    ):
        made = make(policy, phase=phase, last=last)
        decision = restart.after_reboot(replace(made, spec=replace(made.spec, restart_rules=rules)), NOW)
        assert isinstance(decision, RestartAt) is restarted, (policy, phase, last)


def test_no_rule_brings_back_what_a_user_has_stopped() -> None:
    assert not restarts("exit not in 0 => restart", Exited(1), "always", stopped=True)


def test_a_rule_that_restarts_needs_something_that_stays() -> None:
    assert restart.parse_rules(["exit in 1 => no"], auto_remove=True)
    with pytest.raises(BadRequest, match="exclude each other"):
        restart.parse_rules(["exit in 1 => no", "exit in 2 => restart"], auto_remove=True)


@pytest.mark.parametrize(
    "text",
    [
        *("", "exit", "exit in => no", "exit in 1", "exit in 1 =>", "exit in 1 => maybe", "exit in -1 => no"),
        *("exit in 256 => no", "exit in 1,,2 => no", "exit in 1 2 => no", "exitin 1 => no", "exit in \u0661 => no"),
        *("exit  not not in 1 => no", "exit in 1 => no;", "exit in 9999999999999 => no"),
    ],
)
def test_what_is_no_rule_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadRequest, match="restart rule"):
        restart.parse_rules([text])


def test_spaces_do_not_matter() -> None:
    assert restart.parse_rules(["  exit  not  in 1 , 2=>no "]) == (RestartRule((1, 2), Action.NO, True),)


@given(RULES)
def test_what_is_written_is_read_again(rules: tuple[RestartRule, ...]) -> None:
    assert restart.parse_rules(map(restart.format_rule, rules)) == rules


@given(RULES, STATUSES)
def test_a_rule_fits_by_the_folded_number_and_never_an_unknown_end(
    rules: tuple[RestartRule, ...], status: ExitStatus
) -> None:
    found = restart.rule_for(rules, status)
    fitting = [rule for rule in rules if (fold(status) in rule.numbers) != rule.negated]
    assert found == (None if isinstance(status, Unknown) or not fitting else fitting[0])


PAUSE_EXIT, SELF = Reason.PAUSE_EXIT, Reason.SELF


@pytest.mark.parametrize(
    ("policy", "rules", "status", "reason", "revived"),
    [
        ("always", "", Exited(0), SELF, True),
        ("unless-stopped", "", Exited(0), SELF, True),
        ("no", "", Exited(1), SELF, False),
        ("on-failure", "", Exited(0), SELF, False),
        ("on-failure", "", Exited(1), SELF, True),
        ("on-failure:2", "", Exited(1), SELF, False),  # two failures are counted below
        ("always", "exit in 42 => no", Exited(42), SELF, False),
        ("no", "exit in 42 => restart", Exited(42), SELF, True),
        ("no", "exit in 42 => restart", LOST, SELF, False),
        ("on-failure", "", LOST, SELF, True),
        # With its sandbox it ended by somebody else's will: its code says nothing, and no retry was used up.
        ("always", "exit in 143 => no", Signaled(15), PAUSE_EXIT, True),
        ("no", "exit in 143 => restart", Signaled(15), PAUSE_EXIT, False),
        ("on-failure:2", "", Signaled(15), PAUSE_EXIT, True),
        ("on-failure", "", Exited(0), PAUSE_EXIT, False),
        ("no", "", Signaled(9), PAUSE_EXIT, False),
    ],
)
def test_who_comes_back_with_a_new_sandbox_is_who_would_have_been_restarted(
    policy: str, rules: str, status: ExitStatus, reason: Reason, revived: bool
) -> None:
    made = make(policy, phase=Phase.EXITED, last=status, failures=2)
    assert made.exit is not None
    spec = replace(made.spec, restart_rules=restart.parse_rules(filter(None, [rules])))
    ended = replace(made, spec=spec, exit=replace(made.exit, reason=reason))
    assert restart.wants_revival(ended) is revived
    assert not restart.wants_revival(replace(ended, stopped_by_user=True))
    assert not restart.wants_revival(replace(ended, exit=None))
    for phase in set(Phase) - {Phase.EXITED}:
        assert not restart.wants_revival(replace(ended, phase=phase))


def test_who_was_never_started_is_not_brought_to_life_by_a_new_sandbox() -> None:
    made = make("always", phase=Phase.EXITED, last=Signaled(9))
    assert made.exit is not None
    idle = replace(made, exit=replace(made.exit, started_ns=None))
    assert not restart.wants_revival(idle)
    again = replace(made.exit, started_ns=None, key=replace(made.exit.key, run=2))
    assert restart.wants_revival(replace(made, run=2, exit=again))  # ended in the middle of a restart or a revival


def test_a_run_that_could_not_be_made_counts_as_a_failure_for_a_new_sandbox() -> None:
    for policy, revived in (("on-failure", True), ("on-failure:1", False), ("no", False)):
        made = make(policy, phase=Phase.EXITED, last=Exited(0), failures=1)
        assert restart.wants_revival(replace(made, run=2, error="no such file")) is revived


def test_at_most_twenty_rules_are_taken() -> None:
    assert len(restart.parse_rules(["exit in 1 => no"] * 20)) == 20
    with pytest.raises(BadRequest, match="21 restart rules; at most 20"):
        restart.parse_rules(["exit in 1 => no"] * 21)


@given(RULES, STATUSES, st.sampled_from(["no", "always", "on-failure", "on-failure:2", "unless-stopped"]))
def test_rules_only_ever_speak_before_the_policy(
    rules: tuple[RestartRule, ...], status: ExitStatus, policy: str
) -> None:
    """Without a rule that fits, all is as if there were none; with one, as if there were no policy."""
    plain = make(policy, failures=1)
    ruled = replace(plain, spec=replace(plain.spec, restart_rules=rules))
    decision, rule = restart.decide(ruled, status, NOW, None), restart.rule_for(rules, status)
    if rule is None:
        assert decision == restart.decide(plain, status, NOW, None)
    elif rule.action is Action.NO:
        assert decision == RunEnded()
    else:
        assert isinstance(decision, RestartAt) and decision.failures == 1
