import itertools
import re
from dataclasses import replace

import pytest

from supervisor.model import lifecycle as life
from supervisor.model.errors import WrongState
from supervisor.model.lifecycle import Happening
from supervisor.model.limits import Change
from supervisor.model.networks import Attached
from supervisor.model.taskfacts import Task
from supervisor.model.values import (
    LIVE,
    Asked,
    BootTime,
    By,
    Exited,
    ExitStatus,
    Oom,
    Phase,
    Policy,
    Reason,
    Report,
    RestartPolicy,
    Signaled,
    Source,
    Unknown,
)
from tests.supervisor.happenings import (
    ALL,
    CHANGE,
    INIT,
    KILL,
    KILLED,
    POLICY,
    SECOND,
    SHIM,
    STOP,
    USER,
    after,
    asked,
    container,
    ended,
    moment,
)

CHANGES = ("Renamed", "ChangeAsked", "ChangeGivenUp")
# What each phase hears, and the phase that follows for a clean container with policy no. All else is WrongState.
TABLE: dict[tuple[Phase, str], Phase | None] = {
    (Phase.CREATING, "Made"): Phase.CREATED,
    (Phase.CREATING, "MakeFailed"): Phase.REMOVING,
    (Phase.CREATED, "StartAsked"): Phase.STARTING,
    (Phase.STARTING, "Started"): Phase.RUNNING,
    (Phase.STARTING, "StartFailed"): Phase.STARTING,
    (Phase.RUNNING, "Paused"): Phase.PAUSED,
    (Phase.PAUSED, "Resumed"): Phase.RUNNING,
    **{(phase, "EndAsked"): phase for phase in LIVE},
    **{(phase, "Ended"): Phase.EXITED for phase in LIVE},
    (Phase.RUNNING, "OomSeen"): Phase.RUNNING,
    (Phase.PAUSED, "OomSeen"): Phase.PAUSED,
    (Phase.RUNNING, "HealthSeen"): Phase.RUNNING,
    (Phase.RUNNING, "HookMoved"): Phase.RUNNING,
    (Phase.PAUSED, "HookMoved"): Phase.PAUSED,
    (Phase.EXITED, "Cleaned"): Phase.EXITED,
    (Phase.RESTARTING, "Cleaned"): Phase.RESTARTING,
    (Phase.REMOVING, "Cleaned"): Phase.REMOVING,
    (Phase.EXITED, "Again by somebody"): Phase.CREATING,
    (Phase.RESTARTING, "Again by somebody"): Phase.CREATING,
    (Phase.RESTARTING, "Again by its timer"): Phase.CREATING,
    (Phase.EXITED, "StopAsked"): Phase.EXITED,
    (Phase.RESTARTING, "StopAsked"): Phase.EXITED,
    (Phase.EXITED, "Rebooted"): Phase.EXITED,
    (Phase.RESTARTING, "Rebooted"): Phase.RESTARTING,
    (Phase.RESTARTING, "SandboxGone"): Phase.EXITED,
    (Phase.EXITED, "RemoveAsked"): Phase.REMOVING,
    (Phase.RESTARTING, "RemoveAsked"): Phase.REMOVING,
    (Phase.REMOVING, "Removed"): None,
    **{(phase, name): phase for phase in Phase for name in CHANGES if phase is not Phase.REMOVING},
    **{(phase, "ChangeMade"): phase for phase in (*LIVE, Phase.EXITED, Phase.RESTARTING)},
}


def name_of(happening: Happening) -> str:
    match happening:
        case life.Again(None):
            return "Again by its timer"
        case life.Again():
            return "Again by somebody"
    return type(happening).__name__


def test_one_of_each_happening_is_tried() -> None:
    assert {type(each) for each in ALL} == set(life.Happening.__args__)


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("happening", ALL, ids=name_of)
def test_the_table_is_complete_and_everything_else_is_the_wrong_state(phase: Phase, happening: Happening) -> None:
    before = container(phase)
    if (phase, name_of(happening)) not in TABLE:
        with pytest.raises(WrongState) as caught:
            life.step(before, happening, moment())
        assert caught.value.metadata == {"id": "c1", "phase": phase.value}
        assert phase.value in str(caught.value)
        return
    stepped = life.step(before, happening, moment())
    following = TABLE[phase, name_of(happening)]
    assert (stepped.container.phase if stepped.container else None) is following


def test_what_need_not_outlive_the_host_is_just_what_nobody_hears_of() -> None:
    ahead = {"StartAsked", "Cleaned", "Again by somebody", "Again by its timer", "ChangeAsked", "ChangeGivenUp"}
    ahead |= {"HookMoved"}
    for phase, happening in itertools.product(Phase, ALL):
        if (phase, name_of(happening)) in TABLE:
            stepped = life.step(container(phase), happening, moment())
            assert stepped.ahead is (name_of(happening) in ahead), (phase, happening)
            assert not (stepped.ahead and (stepped.exits or stepped.events or stepped.retained or stepped.tombstones))


def test_the_diagram_names_every_phase_and_every_happening_that_changes_one() -> None:
    diagram = (life.__doc__ or "").partition("\n\n")[2].partition("What an event")[0]
    words = set(re.findall(r"[A-Za-z]+", diagram))
    assert {phase.value for phase in Phase} <= words
    moving = {name.partition(" ")[0] for (phase, name), following in TABLE.items() if following is not phase}
    aside = {"StopAsked", "RemoveAsked", "SandboxGone"}  # described in words below it
    assert moving - aside <= words
    assert not {word for word in words if word[0].isupper()} - {type(each).__name__ for each in ALL}


@pytest.mark.parametrize("phase", [Phase.EXITED, Phase.RESTARTING])
@pytest.mark.parametrize("by", [None, USER])
def test_no_run_begins_while_anything_of_the_last_one_is_left(phase: Phase, by: By | None) -> None:
    with pytest.raises(WrongState):
        life.step(replace(container(phase), clean=False), life.Again(by), moment())


def test_a_container_is_born_into_its_first_run_with_nothing_clean() -> None:
    c = container(Phase.CREATING)
    assert (c.run, c.phase, c.clean, c.boot_id, c.created_ns) == (1, Phase.CREATING, False, "boot", moment(0).now_ns)


def test_only_the_first_create_is_an_event() -> None:
    first, later = (life.step(container(Phase.CREATING, run=run), life.Made(INIT, SHIM), moment()) for run in (1, 2))
    assert [event.type for event in first.events] == ["create"]
    assert later.events == ()
    assert first.container is not None
    assert (first.container.init, first.container.shim, first.container.error) == (INIT, SHIM, "")


def test_what_a_network_has_given_a_run_is_known_until_that_run_is_cleaned_up() -> None:
    attached = (Attached("pods", "eth0", addresses=("10.88.0.2/16",)),)
    made = life.step(container(Phase.CREATING), life.Made(INIT, SHIM, networks=attached), moment()).container
    assert made is not None and made.networks == attached
    ended = replace(made, phase=Phase.EXITED, clean=False)
    cleaned = life.step(ended, life.Cleaned(), moment()).container
    assert cleaned is not None and cleaned.networks == ()


def test_a_first_create_that_fails_leaves_nothing() -> None:
    step = life.step(container(Phase.CREATING), life.MakeFailed("no rootfs"), moment())
    assert step.container is not None
    assert (step.container.phase, step.container.error, step.exits) == (Phase.REMOVING, "no rootfs", ())
    assert (step.events[0].type, step.events[0].attributes) == ("failed", (("error", "no rootfs"),))
    assert step.effects == (life.CleanUp(),)


@pytest.mark.parametrize(
    ("policy", "phase"),
    [("no", Phase.EXITED), ("always", Phase.RESTARTING), ("on-failure", Phase.RESTARTING)],
)
def test_a_later_create_that_fails_counts_as_a_failed_run_without_an_exit(policy: str, phase: Phase) -> None:
    c = replace(container(Phase.CREATING, policy=policy, run=2), exit=container(Phase.EXITED).exit)
    step = life.step(c, life.MakeFailed("no rootfs"), moment(boot_id="new"))
    assert step.container is not None
    assert (step.container.phase, step.container.clean, step.container.boot_id) == (phase, False, "new")
    assert (step.exits, step.container.exit, step.effects) == ((), c.exit, (life.CleanUp(),))


@pytest.mark.parametrize("policy", ["always", "unless-stopped", "on-failure", "on-failure:2"])
def test_a_run_that_a_host_going_down_does_not_take_is_planned_anew_and_no_failure(policy: str) -> None:
    tried = replace(container(Phase.CREATING, policy=policy, run=3), failures=2, restart_count=2)
    c = replace(tried, exit=container(Phase.EXITED).exit)
    step = life.step(c, life.MakeFailed("refused", put_off=True), moment(boot_id="new"))
    assert step.container is not None
    found = step.container
    assert (found.phase, found.failures, found.restart_count) == (Phase.RESTARTING, 2, 1)
    assert (step.events, step.exits, found.exit, step.effects) == ((), (), c.exit, (life.CleanUp(),))
    assert found.restart_at is not None


@pytest.mark.parametrize(("policy", "run"), [("no", 2), ("always", 1), ("always", 2), ("on-failure:2", 2)])
def test_a_run_that_a_caller_has_begun_fails_as_ever_where_the_host_goes_down(policy: str, run: int) -> None:
    c = replace(container(Phase.CREATING, policy=policy, run=run), exit=container(Phase.EXITED).exit)
    as_ever = life.step(c, life.MakeFailed("refused"), moment())
    assert life.step(c, life.MakeFailed("refused", put_off=True), moment()) == as_ever
    assert [event.type for event in as_ever.events] == ["failed"]


def test_started_notes_both_clocks_and_a_failed_start_keeps_waiting_for_the_end() -> None:
    running = after(container(Phase.STARTING), life.Started(77))
    assert (running.started_ns, running.started_boot_ns) == (moment().now_ns, 77)
    failed = after(container(Phase.STARTING), life.StartFailed("broken"))
    assert (failed.phase, failed.error, failed.started_ns) == (Phase.STARTING, "broken", None)


@pytest.mark.parametrize("phase", sorted(LIVE))
def test_an_end_is_one_row_one_event_and_effects_in_their_order(phase: Phase) -> None:
    step = life.step(container(phase), ended(Exited(43)), moment())
    assert step.container is not None
    (exit,) = step.exits
    assert step.effects == (life.LogExit(exit), life.CleanUp())
    assert [(event.type, event.exit) for event in step.events] == [("exit", exit)]
    assert (exit.key.run, exit.status, exit.decision) == (1, Exited(43), "ended")
    assert (step.container.exit, step.container.clean, step.container.init, step.container.shim) == (
        *(exit, False, None),
        None,
    )


@pytest.mark.parametrize("phase", sorted(LIVE))
def test_a_late_second_report_of_an_earlier_run_ends_no_other(phase: Phase) -> None:
    """It may have waited for execs and for a pod while its run was cleaned up, and the next one began."""
    late = replace(ended(Exited(43)), run=1)
    assert life.step(container(phase), late, moment()).exits
    with pytest.raises(WrongState):
        life.step(replace(container(phase), run=2), late, moment())


def test_the_exit_names_the_process_even_when_the_evidence_could_not() -> None:
    nothing = replace(ended(Unknown("monitors-killed")), report=replace(ended().report, init=None))
    (exit,) = life.step(container(), nothing, moment()).exits
    assert (exit.init, exit.started_ns) == (INIT, moment(90).now_ns)


UNKNOWN = Unknown("monitors-killed")


@pytest.mark.parametrize(
    ("asks", "status", "reason", "by"),
    [
        ((), Exited(0), Reason.SELF, By()),
        ((), KILLED, Reason.UNKNOWN, By()),  # somebody sent it, and not through us
        ((), Signaled(11, core=True), Reason.SELF, By()),
        ((), UNKNOWN, Reason.UNKNOWN, By()),
        ((asked(Reason.STOP, 15),), Exited(0), Reason.STOP, USER),
        ((asked(Reason.STOP, 15),), UNKNOWN, Reason.STOP, USER),
        ((asked(Reason.KILL, 9),), KILLED, Reason.KILL, USER),
        # SIGKILL after a stop's grace is still a stop, whoever sent it
        ((asked(Reason.STOP, 15), asked(Reason.STOP, 9)), KILLED, Reason.STOP, USER),
        ((asked(Reason.STOP, 15), asked(Reason.KILL, 9, POLICY)), KILLED, Reason.STOP, USER),
        # a signal that was not meant to end, and did not
        ((asked(Reason.KILL, 10),), Exited(3), Reason.SELF, By()),
        ((asked(Reason.KILL, 10),), KILLED, Reason.UNKNOWN, By()),
        ((asked(Reason.KILL, 10),), UNKNOWN, Reason.UNKNOWN, By()),
        # one that was not meant to end, and did
        ((asked(Reason.KILL, 10),), Signaled(10), Reason.KILL, USER),
        ((asked(Reason.KILL, 4),), Signaled(4, core=True), Reason.KILL, USER),
        # what is meant to end outweighs what is not, in either order
        ((asked(Reason.KILL, 10, POLICY), asked(Reason.KILL, 15)), Exited(0), Reason.KILL, USER),
        ((asked(Reason.KILL, 15), asked(Reason.KILL, 10, POLICY)), Exited(0), Reason.KILL, USER),
        # a kill that was not obeyed, and the stop that was
        ((asked(Reason.KILL, 15, POLICY), asked(Reason.STOP, 15)), Exited(0), Reason.STOP, USER),
        # nothing is quicker than SIGKILL
        ((asked(Reason.KILL, 9), asked(Reason.STOP, 15, POLICY)), KILLED, Reason.KILL, USER),
    ],
)
def test_the_reason_is_who_asked(asks: tuple[life.EndAsked, ...], status: ExitStatus, reason: Reason, by: By) -> None:
    (exit,) = life.step(after(container(), *asks), ended(status), moment()).exits
    assert (exit.reason, exit.by) == (reason, by)


def test_a_stop_signal_of_its_own_is_meant_to_end() -> None:
    c = container()
    c = after(replace(c, spec=replace(c.spec, stop_signal=10)), asked(Reason.KILL, 10))
    (exit,) = life.step(c, ended(Exited(0)), moment()).exits
    assert (exit.reason, c.stopped_by_user) == (Reason.KILL, True)


@pytest.mark.parametrize(
    ("asks", "status", "kills", "init", "reason"),
    [
        ((), KILLED, 1, True, Reason.OOM),
        ((), KILLED, 0, False, Reason.UNKNOWN),
        ((), Exited(1), 2, False, Reason.SELF),  # a child of it was the victim
        ((), Signaled(11), 1, False, Reason.SELF),
        ((asked(Reason.STOP, 15),), KILLED, 1, True, Reason.OOM),  # within the grace: it was not us
        ((asked(Reason.KILL, 9),), KILLED, 1, False, Reason.KILL),
        ((asked(Reason.STOP, 15), asked(Reason.STOP, 9)), KILLED, 3, False, Reason.STOP),
        ((), UNKNOWN, 1, False, Reason.UNKNOWN),
    ],
)
def test_the_oom_killer_is_the_reason_only_where_nobody_else_sent_sigkill(
    asks: tuple[life.EndAsked, ...], status: ExitStatus, kills: int, init: bool, reason: Reason
) -> None:
    step = life.step(after(container(), *asks), ended(status, oom_kills=kills), moment())
    (exit,) = step.exits
    assert (exit.oom, exit.reason) == (Oom(init, kills, 64 << 20), reason)
    assert [event.type for event in step.events] == (["oom", "exit"] if kills else ["exit"])


def test_every_signal_is_an_event_even_one_that_changes_nothing_else() -> None:
    step = life.step(container(), asked(Reason.KILL, 10), moment())
    assert (step.events[0].type, step.events[0].attributes) == ("kill", (("signal", "10"),))


@pytest.mark.parametrize(
    ("ask", "stopped"),
    [
        (asked(Reason.STOP, 15), True),
        (asked(Reason.KILL, 9), True),
        (asked(Reason.KILL, 15), True),  # the stop signal
        (asked(Reason.KILL, 2), False),
        (asked(Reason.KILL, 9, POLICY), False),
        (asked(Reason.HEALTH, 9, POLICY), False),
    ],
)
def test_only_a_users_stop_or_kill_keeps_the_policy_from_a_restart(ask: life.EndAsked, stopped: bool) -> None:
    step = life.step(after(container(policy="always"), ask), ended(KILLED), moment())
    assert step.container is not None
    assert (step.container.stopped_by_user, step.container.phase) == (
        stopped,
        Phase.EXITED if stopped else Phase.RESTARTING,
    )
    assert step.exits[0].decision == ("ended" if stopped else "restart")


def test_a_restart_waits_for_the_clean_up_and_then_for_its_time() -> None:
    step = life.step(container(policy="always"), ended(Exited(1)), moment())
    assert step.container is not None
    at = BootTime("boot", moment().boot.ns + SECOND // 5)
    assert step.container.restart_at is not None and step.container.restart_at.ns <= at.ns
    cleaned = life.step(step.container, life.Cleaned(), moment())
    assert cleaned.effects == (life.ArmTimer(step.container.restart_at),)
    again = life.step(cleaned.container or container(), life.Again(None), moment())
    assert again.container is not None
    assert (again.container.run, again.container.restart_count, again.effects) == (2, 1, ())
    assert again.container.restart_at is None


def test_a_start_by_somebody_forgets_what_the_policy_had_counted() -> None:
    c = replace(container(Phase.RESTARTING, policy="on-failure:3"), restart_count=2, failures=2, stopped_by_user=True)
    step = life.step(c, life.Again(USER), moment(boot_id="new"))
    n = step.container
    assert n is not None
    assert (n.run, n.restart_count, n.failures, n.delay_ns, n.stopped_by_user) == (2, 0, 0, 0, False)
    assert (n.asked, n.started_ns, n.init, n.boot_id, n.clean) == (None, None, None, "new", False)
    assert step.effects == (life.CancelTimer(),)


def test_a_container_that_never_started_is_not_restarted() -> None:
    for phase in (Phase.CREATED, Phase.STARTING):
        assert after(container(phase, policy="always"), ended(KILLED)).phase is Phase.EXITED


OURS = "ab" * 32


def status_of_end(id: str, phase: Phase, report: Report, runtime_type: str = "") -> ExitStatus:
    made = container(phase)
    made = replace(made, id=id, spec=replace(made.spec, runtime_type=runtime_type))
    (exit,) = life.step(made, life.Ended(report, 0), moment()).exits
    return exit.status


def test_what_exitd_never_asked_to_start_has_no_code_but_for_a_witness_of_its_beginning() -> None:
    report = Report(Exited(2), Source.PIDFD, INIT, moment().now_ns)
    assert status_of_end(OURS, Phase.CREATED, report) == Unknown("never-started")
    assert status_of_end(OURS, Phase.CREATED, replace(report, began=True)) == Exited(2)
    assert status_of_end("by-hand", Phase.CREATED, report) == Exited(2)
    unseen = replace(report, source=Source.SHIMV2_WAIT, unseen=True)
    assert status_of_end(OURS, Phase.CREATED, unseen, "io.containerd.runc.v2") == Unknown("never-started")


@pytest.mark.parametrize("cause", ["monitors-killed", "journal-unread", "record-unread"])
def test_what_exitd_never_asked_to_start_never_began_also_where_no_witness_is_left(cause: str) -> None:
    report = Report(Unknown(cause), Source.NONE, INIT, moment().now_ns)
    for runtime_type in ("", "io.containerd.runc.v2"):
        assert status_of_end(OURS, Phase.CREATED, report, runtime_type) == Unknown("never-started")
    assert status_of_end("by-hand", Phase.CREATED, report) == Unknown(cause)
    assert status_of_end(OURS, Phase.STARTING, report) == status_of_end(OURS, Phase.RUNNING, report) == Unknown(cause)
    for other in ("host-rebooted", "state-lost", "row-damaged"):  # these say more
        assert status_of_end(OURS, Phase.CREATED, replace(report, status=Unknown(other))) == Unknown(other)


@pytest.mark.parametrize("source", Source)
def test_an_end_before_the_start_was_confirmed_has_a_code_from_who_may_know(source: Source) -> None:
    report = Report(Exited(2), source, INIT, moment().now_ns)
    doubtful = source in (Source.FIFO, Source.PIDFD, Source.PROCEVENTS, Source.NONE)
    wanted = Unknown("start-unconfirmed") if doubtful else Exited(2)
    assert status_of_end(OURS, Phase.STARTING, report) == wanted
    assert status_of_end(OURS, Phase.STARTING, report, "io.containerd.runc.v2") == Exited(2)
    for phase in (Phase.RUNNING, Phase.PAUSED):
        assert status_of_end(OURS, phase, report) == Exited(2)


@pytest.mark.parametrize("source", Source)
def test_no_number_counts_of_a_program_that_nobody_saw_executed(source: Source) -> None:
    report = Report(Exited(1), source, INIT, moment().now_ns, unseen=True)
    assert status_of_end(OURS, Phase.STARTING, report) == Unknown("start-unconfirmed")
    assert status_of_end("by-hand", Phase.CREATED, report) == Unknown("start-unconfirmed")
    for unseen in (True, False):
        running = after(container(Phase.STARTING), life.Started(1, unseen))
        (exit,) = life.step(running, life.Ended(report, 0), moment()).exits
        assert exit.status == (Unknown("start-unconfirmed") if unseen else Exited(1))


@pytest.mark.parametrize("phase", sorted(LIVE))
def test_an_auto_removed_container_goes_with_its_end_whenever_that_is(phase: Phase) -> None:
    step = life.step(container(phase, auto_remove=True), ended(Exited(0)), moment())
    assert step.container is not None
    assert (step.container.phase, step.exits[0].decision) == (Phase.REMOVING, "remove")
    assert life.step(step.container, life.Cleaned(), moment()).effects == (life.Discard(),)


def test_a_stop_cancels_a_planned_restart() -> None:
    step = life.step(container(Phase.RESTARTING, policy="always"), life.StopAsked(USER), moment())
    assert step.container is not None
    assert (step.container.phase, step.container.restart_at, step.container.stopped_by_user) == (
        *(Phase.EXITED, None),
        True,
    )
    assert step.effects == (life.CancelTimer(),)
    assert [event.type for event in step.events] == ["stop"]


@pytest.mark.parametrize("clean", [True, False])
def test_files_are_discarded_once_nothing_of_the_run_is_left(clean: bool) -> None:
    step = life.step(replace(container(Phase.EXITED), clean=clean), life.RemoveAsked(USER), moment())
    assert step.effects == (life.CancelTimer(), *((life.Discard(),) if clean else ()))
    gone = life.step(container(Phase.REMOVING), life.Removed(), moment())
    assert (gone.container, gone.effects, [event.type for event in gone.events]) == (None, (), ["remove"])


@pytest.mark.parametrize(
    ("policy", "stopped", "phase"),
    [
        ("no", False, Phase.EXITED),
        ("always", False, Phase.RESTARTING),
        ("always", True, Phase.RESTARTING),
        ("unless-stopped", True, Phase.EXITED),
        ("unless-stopped", False, Phase.RESTARTING),
        ("on-failure", False, Phase.RESTARTING),
    ],
)
def test_a_reboot_ends_what_ran_and_brings_back_what_the_policy_says(policy: str, stopped: bool, phase: Phase) -> None:
    c = replace(container(policy=policy), stopped_by_user=stopped)
    now = moment(3, "new")
    step = life.step(c, ended(Unknown("host-rebooted"), rebooted=True), now)
    assert step.container is not None
    assert (step.container.phase, step.container.boot_id) == (phase, "new")
    assert (step.exits[0].status, step.exits[0].reason) == (Unknown("host-rebooted"), Reason.UNKNOWN)
    if step.container.restart_at is not None:
        assert step.container.restart_at.boot_id == "new"


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_planned_before_a_reboot_is_planned_anew(clean: bool) -> None:
    now = moment(3, "new")
    c = replace(container(Phase.RESTARTING, policy="always"), clean=clean)
    step = life.step(c, life.Rebooted(), now)
    assert step.container is not None and step.container.restart_at is not None
    assert step.container.restart_at.boot_id == "new"
    assert step.container.boot_id == "new"
    assert step.effects == ((life.ArmTimer(step.container.restart_at),) if clean else (life.CleanUp(),))


def test_a_task_of_containerds_stays_one_of_the_boot_that_it_ran_in() -> None:
    """containerd knows nothing of it after a reboot, so exitd removes it by that."""
    c = container(Phase.EXITED)
    task = replace(c, spec=replace(c.spec, task=Task("/b")))
    for each, boot_id in ((c, "new"), (task, c.boot_id)):
        after_boot = life.step(each, life.Rebooted(), moment(3, "new")).container
        assert after_boot is not None and after_boot.boot_id == boot_id != ""


def test_what_was_asked_is_in_the_container_until_its_end_and_not_after() -> None:
    c = after(container(), life.EndAsked(STOP))
    assert c.asked == STOP
    assert after(c, life.EndAsked(KILL)).asked == Asked(Reason.STOP, USER, 9)
    assert after(c, ended()).asked is None


def test_a_change_is_in_the_spec_once_it_is_made_and_not_before() -> None:
    change = Change(pids_limit=5, memory_bytes=0, restart="always")
    before = replace(container(), change=None)
    asked_for = after(before, life.ChangeAsked(change))
    assert asked_for == replace(before, change=change)
    assert after(asked_for, life.ChangeGivenUp()) == before
    stepped = life.step(asked_for, life.ChangeMade(change, 1, USER), moment())
    made = stepped.container
    assert made is not None and (made.change, made.spec.rights.pids_limit) == (None, 5)
    assert made.spec.restart == RestartPolicy(Policy.ALWAYS)
    assert made.changed == ("memory_bytes", "pids_limit", "memory_swap_bytes")
    (event,) = stepped.events
    assert dict(event.attributes) == {"memory_bytes": "0", "pids_limit": "5", "restart": "always"}


@pytest.mark.parametrize("phase", [*sorted(LIVE), Phase.CREATING])
def test_limits_that_another_run_got_are_not_those_of_this_one(phase: Phase) -> None:
    """Nor is a change made that nobody asked for, or that was given up meanwhile."""
    two = container(phase, run=2)
    for happening in (life.ChangeMade(CHANGE, 1, USER), life.ChangeMade(Change(pids_limit=6), 2, USER)):
        with pytest.raises(WrongState):
            life.step(two, happening, moment())
    with pytest.raises(WrongState):
        life.step(replace(two, change=None), life.ChangeMade(CHANGE, 2, USER), moment())


def test_a_rename_is_an_event_of_the_new_name_with_the_old_one_beside_it() -> None:
    stepped = life.step(container(), life.Renamed("other", USER), moment())
    assert stepped.container is not None and stepped.container.spec.name == "other"
    (event,) = stepped.events
    assert (event.type, event.name, dict(event.attributes)) == ("rename", "other", {"old_name": "web"})
