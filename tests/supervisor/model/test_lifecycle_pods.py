"""The life of a pod's containers: which pod an event is of, and what the end of a sandbox makes of its members."""

from dataclasses import replace

import pytest

from supervisor.model import lifecycle as life
from supervisor.model.errors import WrongState
from supervisor.model.values import LIVE, By, Container, Exited, ExitStatus, Phase, Pod, Reason, Signaled, Spec
from tests.supervisor.happenings import ALL, INIT, SECOND, asked, container, ended, moment

PAUSE_EXIT = By(policy="pause-exit")


def member(phase: Phase = Phase.RUNNING, *, policy: str = "no", auto_remove: bool = False) -> Container:
    made = container(phase, policy=policy, auto_remove=auto_remove)
    return replace(made, spec=replace(made.spec, sandbox="p1"), sandbox_run=1)


def after(c: Container, happening: life.Happening) -> Container:
    stepped = life.step(c, happening, moment()).container
    assert stepped is not None
    return stepped


def test_every_event_names_the_pod_of_its_container() -> None:
    seen = set()
    for phase in Phase:
        for happening in ALL:
            for spec, pod in ((Spec("m", sandbox="p1"), "p1"), (Spec("p", pod=Pod()), "c1"), (Spec("s"), "")):
                try:
                    step = life.step(replace(container(phase), spec=spec), happening, moment())
                except WrongState:
                    continue
                seen |= {event.type for event in step.events}
                assert {event.pod_id for event in step.events} <= {pod}
    assert {"create", "start", "exit", "remove", "failed"} <= seen


@pytest.mark.parametrize("policy", ["always", "unless-stopped", "on-failure"])
def test_who_ends_with_the_sandbox_is_not_restarted_into_nothing(policy: str) -> None:
    told = after(member(policy=policy), asked(Reason.PAUSE_EXIT, 15, PAUSE_EXIT))
    assert not told.stopped_by_user
    gone = after(told, ended(Signaled(15)))
    assert gone.exit is not None
    assert (gone.phase, gone.exit.reason, gone.exit.by) == (Phase.EXITED, Reason.PAUSE_EXIT, PAUSE_EXIT)


def test_a_pod_is_evicted_once_and_a_caller_who_starts_it_again_has_a_new_one() -> None:
    grown = life.Overgrown(1, "cache", 2, 1)
    pause = replace(container(policy="always"), spec=replace(container(policy="always").spec, pod=Pod()))
    evicted = after(pause, grown)
    assert evicted.evicted == "volume cache took 2 bytes, 1 is its limit"
    for none in (evicted, replace(pause, run=2), replace(pause, phase=Phase.EXITED)):
        with pytest.raises(WrongState):
            life.step(none, grown, moment())
    over = replace(evicted, phase=Phase.EXITED, clean=True)
    assert after(over, life.Again(PAUSE_EXIT)).evicted and not after(over, life.Again(By(uid=0))).evicted


def test_who_was_to_remove_itself_does_so_also_when_the_sandbox_ends() -> None:
    told = after(member(auto_remove=True), asked(Reason.PAUSE_EXIT, 15, PAUSE_EXIT))
    assert after(told, ended(Exited(0))).phase is Phase.REMOVING


@pytest.mark.parametrize(
    ("status", "sandbox_ended", "reason"),
    [
        (Signaled(9), True, Reason.PAUSE_EXIT),
        (Signaled(9), False, Reason.UNKNOWN),
        (Signaled(15), True, Reason.UNKNOWN),
        (Exited(137), True, Reason.SELF),
        (Exited(0), True, Reason.SELF),
    ],
)
def test_a_kill_by_the_kernel_with_the_pid_namespace_is_the_pause_containers_doing(
    status: ExitStatus, sandbox_ended: bool, reason: Reason
) -> None:
    gone = after(member(), replace(ended(status), sandbox_ended=sandbox_ended))
    assert gone.exit is not None
    assert gone.exit.reason is reason


def test_somebody_who_asked_first_keeps_the_reason() -> None:
    told = after(member(), asked(Reason.KILL, 9))
    gone = after(told, replace(ended(Signaled(9)), sandbox_ended=True))
    assert gone.exit is not None
    assert gone.exit.reason is Reason.KILL


@pytest.mark.parametrize("phase", sorted(LIVE))
def test_after_a_reboot_members_wait_for_their_next_sandbox(phase: Phase) -> None:
    gone = after(member(phase, policy="always"), ended(Signaled(9), rebooted=True))
    assert (gone.phase, gone.restart_at) == (Phase.EXITED, None)
    assert after(member(Phase.RESTARTING, policy="always"), life.Rebooted()).phase is Phase.EXITED


def test_a_planned_restart_without_a_sandbox_is_given_up_and_its_timer_too() -> None:
    step = life.step(member(Phase.RESTARTING, policy="always"), life.SandboxGone(), moment())
    assert step.container is not None
    assert (step.container.phase, step.container.restart_at) == (Phase.EXITED, None)
    assert not step.container.stopped_by_user
    assert step.effects == (life.CancelTimer(),)


def test_a_member_remembers_which_run_of_the_pause_container_it_has_joined() -> None:
    made = after(member(Phase.CREATING), life.Made(INIT, None, 3))
    assert made.sandbox_run == 3


def test_only_who_removes_itself_is_kept_for_late_waiters() -> None:
    for auto_remove in (True, False):
        removing = container(Phase.REMOVING, auto_remove=auto_remove)
        step = life.step(removing, life.Removed(), moment(7))
        assert [one.container for one in step.retained] == (["c1"] if auto_remove else [])
        assert all(one.at.ns == 7 * SECOND and one.name == "web" for one in step.retained)
