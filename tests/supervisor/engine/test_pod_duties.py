"""What a pod's policies ask for, in every phase of its pause container and of a member."""

from dataclasses import replace
from itertools import product

from supervisor.model import pods
from supervisor.model.pods import Duty
from supervisor.model.values import (
    LIVE,
    By,
    Container,
    Exit,
    Exited,
    ExitPolicy,
    OnPauseExit,
    Oom,
    Phase,
    Pod,
    Policy,
    Reason,
    RestartPolicy,
    RunKey,
    Source,
    Spec,
)

PLAIN = Pod()
OVER = (Phase.EXITED, Phase.RESTARTING, Phase.REMOVING)


def pause(phase: Phase = Phase.RUNNING, *, run: int = 1, pod: Pod = PLAIN) -> Container:
    return Container("p", Spec("pod", pod=pod), phase, run, 0)


def member(phase: Phase = Phase.RUNNING, *, joined: int = 1, policy: Policy = Policy.NO, code: int = 0) -> Container:
    key = RunKey("m", 1)
    ended = Exit(key, "m", "default", Exited(code), Source.RECORD, Reason.PAUSE_EXIT, By(), Oom(), 0, 0, None)
    exit_ = ended if phase in (Phase.EXITED, Phase.RESTARTING, Phase.REMOVING) else None
    return Container(
        "m", Spec("m", sandbox="p", restart=RestartPolicy(policy)), phase, 1, 0, sandbox_run=joined, exit=exit_
    )


def duty(pause: Container, *members: Container) -> Duty | None:
    found = pods.duties(pause, members)
    assert len(found) <= 1
    return found[0][0] if found else None


def test_live_members_end_with_their_sandbox_in_every_phase_of_both() -> None:
    for pause_phase, member_phase in product(Phase, Phase):
        asked = duty(pause(pause_phase), member(member_phase))
        if pause_phase in OVER and member_phase in LIVE:
            assert asked is Duty.STOP, (pause_phase, member_phase)
        elif pause_phase in OVER and member_phase is Phase.RESTARTING:
            assert asked is Duty.CANCEL
        elif (pause_phase, member_phase) == (Phase.REMOVING, Phase.EXITED):
            assert asked is Duty.REMOVE
        else:
            assert asked is None, (pause_phase, member_phase)


def test_members_of_the_sandbox_before_this_one_end_too() -> None:
    assert duty(pause(run=2), member(joined=1)) is Duty.STOP
    assert duty(pause(run=2), member(joined=2)) is None


def test_a_member_that_is_being_made_belongs_to_no_sandbox_yet() -> None:
    assert duty(pause(run=2), member(Phase.CREATING, joined=0)) is None


def test_members_that_are_to_be_kept_are_until_their_pod_is_removed() -> None:
    keep = Pod(on_pause_exit=OnPauseExit.KEEP)
    for pause_phase, member_phase in product(Phase, Phase):
        asked = duty(pause(pause_phase, pod=keep), member(member_phase))
        assert asked is (duty(pause(pause_phase), member(member_phase)) if pause_phase is Phase.REMOVING else None)


def test_a_new_sandbox_takes_along_whom_its_own_policy_would_have_restarted() -> None:
    for policy, code, revived in (
        (Policy.NO, 1, False),
        (Policy.ALWAYS, 0, True),
        (Policy.UNLESS_STOPPED, 0, True),
        (Policy.ON_FAILURE, 0, False),
        (Policy.ON_FAILURE, 1, True),
    ):
        ended = member(Phase.EXITED, policy=policy, code=code)
        assert duty(pause(run=2), ended) is (Duty.REVIVE if revived else None), (policy, code)
        assert duty(pause(run=1), ended) is None
        assert duty(pause(Phase.STARTING, run=2), ended) is None
        assert duty(pause(run=2), replace(ended, stopped_by_user=True)) is None


def test_a_pod_that_is_to_end_with_its_last_member_waits_for_all_of_them() -> None:
    last = pause(pod=Pod(exit_policy=ExitPolicy.STOP))
    assert duty(last) is None
    assert duty(last, member(Phase.EXITED)) is Duty.STOP
    assert duty(last, member(Phase.EXITED), member(Phase.RUNNING)) is None
    assert duty(last, member(Phase.EXITED), member(Phase.RESTARTING)) is None
    assert duty(last, member(Phase.EXITED), member(Phase.CREATED)) is None
    assert duty(replace(last, phase=Phase.PAUSED), member(Phase.EXITED)) is None
    assert duty(pause(), member(Phase.EXITED)) is None


def test_a_pod_that_is_started_again_is_not_stopped_before_one_of_its_members_could_be() -> None:
    again = pause(run=2, pod=Pod(exit_policy=ExitPolicy.STOP))
    assert duty(again, member(Phase.EXITED)) is None
    assert duty(again, member(Phase.EXITED), member(Phase.EXITED, joined=2)) is Duty.STOP


def test_nothing_is_asked_for_twice_of_one_container() -> None:
    for pause_phase, member_phase, run in product(Phase, Phase, (1, 2)):
        both = pods.duties(pause(pause_phase, run=run), (member(member_phase), replace(member(member_phase), id="n")))
        assert len({container.id for _, container in both}) == len(both)
