"""What rules, memory kills and a kill of what is not running do to the life of a container."""

from dataclasses import replace

import pytest

from supervisor.model import lifecycle as life
from supervisor.model import restart
from supervisor.model.errors import WrongState
from supervisor.model.restart import Backoff
from supervisor.model.values import By, Container, Exited, ExitStatus, Oom, Phase, Reason, Signaled, Unknown
from tests.supervisor.happenings import KILLED, MS, SECOND, USER, after, asked, container, ended, moment


def ruled(*rules: str, policy: str = "no", phase: Phase = Phase.RUNNING) -> Container:
    made = container(phase, policy=policy)
    return replace(made, spec=replace(made.spec, restart_rules=restart.parse_rules(rules)))


@pytest.mark.parametrize(
    ("rules", "policy", "status", "decision", "rule"),
    [
        (("exit in 42,43 => no",), "always", Exited(42), "ended", "exit in 42,43 => no"),
        (("exit in 42,43 => no",), "always", Exited(1), "restart", ""),
        (("exit not in 0 => restart",), "no", Exited(3), "restart", "exit not in 0 => restart"),
        (("exit not in 0 => restart",), "no", Unknown("monitors-killed"), "ended", ""),
        (("exit in 1 => no", "exit in 137 => restart"), "no", KILLED, "restart", "exit in 137 => restart"),
        ((), "always", Exited(1), "restart", ""),
    ],
)
def test_an_exit_says_what_follows_and_by_which_rule(
    rules: tuple[str, ...], policy: str, status: ExitStatus, decision: str, rule: str
) -> None:
    step = life.step(ruled(*rules, policy=policy), ended(status), moment())
    (exit_,) = step.exits
    assert (exit_.decision, exit_.rule) == (decision, rule)
    assert dict(step.events[-1].attributes) == {"run": "1"} | ({"rule": rule} if rule else {})


def test_no_rule_is_named_where_none_was_asked() -> None:
    everything = "exit not in 254 => restart"
    stopped = after(ruled(everything), asked(Reason.STOP, 15))
    never_started = ruled(everything, phase=Phase.CREATED)
    for c, happening in ((stopped, ended(Exited(0))), (never_started, ended(KILLED))):
        (exit_,) = life.step(c, happening, moment()).exits
        assert (exit_.decision, exit_.rule) == ("ended", "")
    lost = ended(Unknown("host-rebooted"), rebooted=True)
    (exit_,) = life.step(ruled(everything, policy="always"), lost, moment()).exits
    assert (exit_.decision, exit_.rule) == ("restart", "")


def test_a_restart_by_a_rule_backs_off_and_leaves_the_retries_alone() -> None:
    c = ruled("exit in 7 => restart", policy="on-failure:2")
    for number in range(1, 6):
        c = after(c, ended(Exited(7)), at=moment(91))
        assert (c.phase, c.failures, c.delay_ns) == (Phase.RESTARTING, 0, 100 * MS * 2 ** (number - 1))
        c = again(c)
    for failures in (1, 2):
        c = again(after(c, ended(Exited(1))))
        assert c.failures == failures
    assert after(c, ended(Exited(7))).failures == 2
    assert after(c, ended(Exited(1))).phase is Phase.EXITED


def again(c: Container) -> Container:
    """Its next run, up and running since second 90."""
    running = after(c, life.Cleaned(), life.Again(None))
    return replace(container(policy="no"), spec=c.spec, run=running.run, failures=c.failures, delay_ns=c.delay_ns)


def test_the_longest_wait_and_when_it_begins_anew_are_as_they_are_set_at_that_moment() -> None:
    c = replace(container(policy="always"), delay_ns=400 * MS)
    quick = replace(moment(91), backoff=Backoff(max_ns=500 * MS, reset_after_ns=SECOND))
    for at, ran, delay in ((moment(91), 1, 800), (replace(quick, boot=moment(90).boot), 0, 500), (quick, 1, 100)):
        assert after(c, ended(Exited(1)), at=at).delay_ns == delay * MS, (ran, delay)
    shorter = replace(quick, backoff=Backoff(max_ns=50 * MS, reset_after_ns=SECOND))
    assert after(c, ended(Exited(1)), at=shorter).delay_ns == 50 * MS


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.PAUSED])
def test_memory_kills_that_init_outlives_are_reported_once_for_each_count(phase: Phase) -> None:
    step = life.step(container(phase), life.OomSeen(1, 2), moment())
    assert step.container is not None and step.container.phase is phase
    assert [(e.type, dict(e.attributes)) for e in step.events] == [("oom", {"init": "false", "kills": "2"})]
    for kills in (1, 2):
        with pytest.raises(WrongState):
            life.step(step.container, life.OomSeen(1, kills), moment())
    assert life.step(step.container, life.OomSeen(1, 3), moment()).events


def test_of_a_memory_kill_that_nobody_saw_init_outlive_it_is_not_said_whom_it_hit() -> None:
    step = life.step(container(), life.OomSeen(1, 1, is_init_seen=False), moment())
    assert dict(step.events[0].attributes) == {"init": "unknown", "kills": "1"}
    number_only = Unknown("shim-number-only", 137)
    step = life.step(container(), ended(number_only, oom_kills=1), moment())
    assert dict(step.events[0].attributes) == {"init": "unknown", "kills": "1"}
    assert (step.exits[0].oom.init, step.exits[0].reason) == (False, Reason.OOM)


def test_memory_kills_of_an_earlier_run_are_not_this_ones() -> None:
    with pytest.raises(WrongState):
        life.step(container(run=2), life.OomSeen(1, 5), moment())
    again = after(container(policy="always"), life.OomSeen(1, 5), ended(Exited(1)), life.Cleaned(), life.Again(None))
    assert again.oom_told == 0


@pytest.mark.parametrize(
    ("reported", "at_end", "status", "oom", "reason", "events"),
    [
        (1, 1, Exited(0), Oom(False, 1, 64 << 20), Reason.SELF, ["exit"]),
        (1, 3, Exited(0), Oom(False, 3, 64 << 20), Reason.SELF, ["oom", "exit"]),
        (1, 2, KILLED, Oom(True, 2, 64 << 20), Reason.OOM, ["oom", "exit"]),
        (1, 1, KILLED, Oom(False, 1, 64 << 20), Reason.UNKNOWN, ["exit"]),  # somebody else's SIGKILL
        (2, 0, Unknown("monitors-killed"), Oom(False, 2, 64 << 20), Reason.UNKNOWN, ["exit"]),  # nobody counted then
        (0, 1, KILLED, Oom(True, 1, 64 << 20), Reason.OOM, ["oom", "exit"]),
    ],
)
def test_what_was_reported_of_memory_kills_before_the_end_agrees_with_the_exit(
    reported: int, at_end: int, status: ExitStatus, oom: Oom, reason: Reason, events: list[str]
) -> None:
    c = after(container(), *([life.OomSeen(1, reported)] if reported else []))
    step = life.step(c, ended(status, oom_kills=at_end), moment())
    (exit_,) = step.exits
    assert (exit_.oom, exit_.reason) == (oom, reason)
    assert [event.type for event in step.events] == events


@pytest.mark.parametrize(
    ("number", "code", "kills", "reason"),
    [
        (None, 137, 1, Reason.OOM),
        (None, 137, 0, Reason.UNKNOWN),  # whoever sent it, if anybody did
        (None, 139, 0, Reason.SELF),
        (None, 128, 0, Reason.SELF),
        (None, 255, 0, Reason.SELF),
        (10, 138, 0, Reason.KILL),
        (10, 143, 0, Reason.UNKNOWN),
    ],
)
def test_the_number_of_an_init_program_may_stand_for_a_signal_and_stays_its_code(
    number: int | None, code: int, kills: int, reason: Reason
) -> None:
    begun = replace(container(), spec=replace(container().spec, init=True))
    c = after(begun, *([asked(Reason.KILL, number)] if number else []))
    (exit_,) = life.step(c, ended(Exited(code), oom_kills=kills), moment()).exits
    assert (exit_.status, exit_.reason, exit_.oom.init) == (Exited(code), reason, reason is Reason.OOM)


@pytest.mark.parametrize("reason", [Reason.STOP, Reason.KILL])
def test_who_cancels_a_planned_restart_says_so(reason: Reason) -> None:
    step = life.step(container(Phase.RESTARTING, policy="always"), life.StopAsked(USER, reason), moment())
    assert step.container is not None
    assert (step.container.phase, step.container.stopped_by_user) == (Phase.EXITED, True)
    assert [(e.type, dict(e.attributes)) for e in step.events] == [(reason.value, {"cancelled": "restart"})]
    assert step.effects == (life.CancelTimer(),)


def test_a_signal_stops_for_good_if_it_is_sigkill_or_the_containers_own() -> None:
    spec = replace(container().spec, stop_signal=10)
    assert [number for number in range(1, 65) if life.stops(spec, number)] == [9, 10]
    assert not life.stops(spec, int(Signaled(15).signal))


SHUTDOWN = asked(Reason.NODE_SHUTDOWN, 15, By(policy="node-shutdown"))


def test_what_ends_with_the_node_rests_for_this_boot_and_comes_back_in_the_next_one() -> None:
    """Also by a rule, and though it had used up its retries' delay: nothing is restarted while the host goes down."""
    c = after(ruled("exit in 143 => restart", policy="always"), SHUTDOWN)
    step = life.step(c, ended(Signaled(15)), moment())
    assert step.container is not None and step.container.phase is Phase.EXITED
    assert (step.exits[0].reason, step.exits[0].decision, step.exits[0].rule) == (Reason.NODE_SHUTDOWN, "ended", "")
    rested = after(step.container, life.Cleaned())
    back = after(rested, life.Rebooted(), at=moment(5, "next boot"))
    assert back.phase is Phase.RESTARTING and not back.stopped_by_user


def test_what_a_power_cut_ended_in_the_middle_of_a_shutdown_comes_back_too() -> None:
    c = after(container(policy="unless-stopped"), SHUTDOWN)
    step = life.step(c, ended(Unknown("host-rebooted"), rebooted=True), moment(5, "next boot"))
    assert step.container is not None and step.container.phase is Phase.RESTARTING
    assert (step.exits[0].status, step.exits[0].reason) == (Unknown("host-rebooted"), Reason.NODE_SHUTDOWN)


def test_what_a_user_had_stopped_before_is_not_the_shutdowns() -> None:
    c = after(container(policy="unless-stopped"), asked(Reason.STOP, 15), SHUTDOWN)
    ended_ = after(c, ended(Signaled(15)), life.Cleaned())
    assert ended_.exit is not None and ended_.exit.reason is Reason.STOP
    assert after(ended_, life.Rebooted(), at=moment(5, "next boot")).phase is Phase.EXITED
