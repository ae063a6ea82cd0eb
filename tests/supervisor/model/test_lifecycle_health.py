"""What a health check says, and what it ends, in the life of its container."""

from dataclasses import replace

import pytest

from supervisor.model import lifecycle as life
from supervisor.model import restart
from supervisor.model.errors import WrongState
from supervisor.model.restart import Backoff
from supervisor.model.values import (
    SECOND_NS,
    Asked,
    By,
    Container,
    Exited,
    HealthSpec,
    HealthStatus,
    OnUnhealthy,
    Phase,
    Policy,
    Reason,
    Signaled,
)
from tests.supervisor.happenings import KILLED, MS, SECOND, STOP, after, asked, container, ended, moment

HEALTH = By(policy="health")
NEVER = life.HealthSeen(1, HealthStatus.UNHEALTHY, 3)


def checked(on_failure: OnUnhealthy, phase: Phase = Phase.RUNNING, policy: str = "no") -> Container:
    spec = HealthSpec(("true",), 30 * SECOND_NS, 30 * SECOND_NS, 3, 0, on_failure)
    plain = container(phase, policy=policy)
    return replace(plain, spec=replace(plain.spec, health=spec))


def test_a_run_with_a_check_begins_as_starting_and_one_without_has_no_health() -> None:
    begun = [after(c, life.Started(1)) for c in (checked(OnUnhealthy.NONE, Phase.STARTING), container(Phase.STARTING))]
    assert [c.health for c in begun] == [HealthStatus.STARTING, None]


def test_health_is_reported_when_it_becomes_another_and_only_then() -> None:
    c = replace(checked(OnUnhealthy.NONE), health=HealthStatus.STARTING)
    reported = []
    for status, streak in (("starting", 1), ("healthy", 0), ("healthy", 2), ("unhealthy", 3), ("unhealthy", 4)):
        seen = life.HealthSeen(1, HealthStatus(status), streak)
        if c.health is seen.status:
            with pytest.raises(WrongState):
                life.step(c, seen, moment())
            continue
        step = life.step(c, seen, moment())
        assert step.container is not None and step.effects == ()
        c = step.container
        reported += [(event.type, dict(event.attributes)) for event in step.events]
    assert reported == [
        ("health_status", {"health": "healthy", "failing_streak": "0"}),
        ("health_status", {"health": "unhealthy", "failing_streak": "3"}),
    ]


def test_what_a_probe_of_an_earlier_run_found_is_not_this_ones() -> None:
    with pytest.raises(WrongState):
        life.step(replace(checked(OnUnhealthy.NONE), run=2), NEVER, moment())


def test_the_health_of_the_last_run_stays_until_the_next_one_is_made() -> None:
    c = after(checked(OnUnhealthy.NONE, policy="always"), NEVER, ended(Exited(1)), life.Cleaned())
    assert (c.phase, c.health) == (Phase.RESTARTING, HealthStatus.UNHEALTHY)
    assert after(c, life.Again(None)).health is None


ENDINGS = [
    (OnUnhealthy.KILL, "no", "ended"),
    (OnUnhealthy.KILL, "always", "restart"),
    (OnUnhealthy.KILL, "on-failure", "restart"),
    (OnUnhealthy.STOP, "no", "ended"),
    (OnUnhealthy.STOP, "always", "ended"),
    (OnUnhealthy.STOP, "unless-stopped", "ended"),
    (OnUnhealthy.RESTART, "no", "restart"),
    (OnUnhealthy.RESTART, "always", "restart"),
    (OnUnhealthy.RESTART, "on-failure:1", "restart"),
]


@pytest.mark.parametrize(("on_failure", "policy", "decision"), ENDINGS)
def test_what_follows_an_end_by_the_health_check(on_failure: OnUnhealthy, policy: str, decision: str) -> None:
    signal = 9 if on_failure is OnUnhealthy.KILL else 15
    c = after(checked(on_failure, policy=policy), NEVER, asked(Reason.HEALTH, signal, HEALTH))
    step = life.step(c, ended(Signaled(signal)), moment())
    (exit_,) = step.exits
    assert (exit_.reason, exit_.by, exit_.decision, exit_.rule) == (Reason.HEALTH, HEALTH, decision, "")


def test_a_restart_by_the_check_takes_no_retry_and_waits_as_any_restart() -> None:
    c = replace(checked(OnUnhealthy.RESTART, policy="on-failure:1"), failures=1, delay_ns=400 * MS)
    dying = after(c, asked(Reason.HEALTH, 15, HEALTH))
    quick = replace(moment(91), backoff=Backoff(max_ns=60 * SECOND))
    again = after(dying, ended(Exited(0)), at=quick)
    assert (again.phase, again.failures, again.delay_ns) == (Phase.RESTARTING, 1, 800 * MS)
    assert after(dying, ended(Exited(0)), at=moment(101)).delay_ns == 100 * MS  # it had run for more than 10 s


def test_a_user_who_stops_it_meanwhile_has_the_last_word() -> None:
    c = after(checked(OnUnhealthy.RESTART), asked(Reason.HEALTH, 15, HEALTH), life.EndAsked(STOP))
    assert after(c, ended(KILLED)).phase is Phase.EXITED


def test_what_the_check_has_stopped_a_reboot_brings_back_as_what_a_user_has() -> None:
    for policy, phase in ((Policy.ALWAYS, Phase.RESTARTING), (Policy.UNLESS_STOPPED, Phase.EXITED)):
        c = after(
            checked(OnUnhealthy.STOP, policy=policy.value), asked(Reason.HEALTH, 15, HEALTH), ended(), life.Cleaned()
        )
        assert after(c, life.Rebooted(), at=moment(5, "next")).phase is phase


def test_a_member_that_was_to_be_restarted_by_its_check_comes_back_with_the_next_sandbox() -> None:
    for on_failure, back in ((OnUnhealthy.RESTART, True), (OnUnhealthy.STOP, False), (OnUnhealthy.KILL, False)):
        c = after(checked(on_failure), life.EndAsked(Asked(Reason.HEALTH, HEALTH, 9)), ended(KILLED))
        assert restart.wants_revival(replace(c, phase=Phase.EXITED, restart_at=None)) is back
