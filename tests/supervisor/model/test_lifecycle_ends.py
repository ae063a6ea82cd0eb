"""Ends that take time: which run they mean, when SIGKILL comes, their hook, and the end of a pod's time."""

from dataclasses import replace

import pytest

from supervisor.model import lifecycle as life
from supervisor.model.errors import WrongState
from supervisor.model.values import (
    LIVE,
    SECOND_NS,
    Asked,
    BootTime,
    By,
    Container,
    HookKind,
    HookStage,
    Phase,
    Pod,
    Policy,
    Reason,
    RestartPolicy,
    Signaled,
    Spec,
)
from supervisor.store import codec
from tests.supervisor.happenings import ended, moment

PROBE = By(policy="liveness-probe")
ASKED = Asked(Reason.HEALTH, PROBE, 15)


def container(phase: Phase = Phase.RUNNING, **fields: object) -> Container:
    always = Spec("web", restart=RestartPolicy(Policy.ALWAYS))
    return Container("c1", always, phase, 3, 0, **{"started_ns": 1, "started_boot_ns": 1, **fields})  # type: ignore[arg-type]


def stepped(before: Container, happening: life.Happening, seconds: int = 100, boot: str = "boot") -> Container:
    after = life.step(before, happening, moment(seconds, boot)).container
    assert after is not None
    return after


def test_an_end_hits_the_run_that_it_means_and_no_other() -> None:
    for phase in LIVE:
        for run in (1, 2, 4):
            with pytest.raises(WrongState):
                life.step(container(phase), life.EndAsked(ASKED, run), moment())
        assert stepped(container(phase), life.EndAsked(ASKED, 3)).asked == ASKED
        assert stepped(container(phase), life.EndAsked(ASKED)).asked == ASKED


def test_what_is_to_be_completed_is_stored_with_its_run_and_its_last_moment_and_goes_with_the_run() -> None:
    until = BootTime("boot", 130 * SECOND_NS)
    begun = stepped(container(), life.EndAsked(ASKED, 3, until))
    assert begun.ending is not None and (begun.ending.run, begun.ending.until) == (3, until)
    assert codec.container_from(codec.encode(begun)) == begun
    sooner = BootTime("boot", 110 * SECOND_NS)
    assert stepped(begun, life.EndAsked(ASKED, 3, sooner)).ending == replace(begun.ending, until=sooner)
    later = BootTime("boot", 150 * SECOND_NS)
    assert stepped(begun, life.EndAsked(ASKED, 3, later)).ending == begun.ending
    over = stepped(begun, ended(Signaled(9)))
    assert over.ending is None and over.exit is not None
    assert (over.exit.reason, over.exit.by, over.exit.decision) == (Reason.HEALTH, PROBE, "restart")


def test_after_a_final_end_no_policy_begins_another_run() -> None:
    final = stepped(container(), life.EndAsked(ASKED, 3, final=True))
    over = stepped(final, ended(Signaled(9)))
    assert (over.phase, over.exit.decision if over.exit else "") == (Phase.EXITED, "ended")


def test_a_hook_goes_forward_and_never_back() -> None:
    stages = list(HookStage)
    for hook in HookKind:
        for before in stages:
            begun = replace(container(), post_start=before)
            begun = stepped(begun, life.EndAsked(ASKED, 3, BootTime("boot", 0)))
            assert begun.ending is not None
            begun = replace(begun, ending=replace(begun.ending, pre_stop=before))
            for after in stages:
                happening = life.HookMoved(3, hook, after)
                if stages.index(after) <= stages.index(before):
                    with pytest.raises(WrongState):
                        life.step(begun, happening, moment())
                    continue
                found = stepped(begun, happening)
                assert found.ending is not None
                assert (found.post_start if hook is HookKind.POST_START else found.ending.pre_stop) is after
    with pytest.raises(WrongState):
        life.step(container(), life.HookMoved(3, HookKind.PRE_STOP, HookStage.BEGUN), moment())  # nobody ends it
    with pytest.raises(WrongState):
        life.step(container(), life.HookMoved(2, HookKind.POST_START, HookStage.BEGUN), moment())  # another run's


def pause(**fields: object) -> Container:
    spec = Spec("pod", pod=Pod(active_deadline_seconds=60))
    return Container("p", spec, Phase.STARTING, 1, 0, **fields)  # type: ignore[arg-type]


def test_a_pods_time_counts_from_its_first_start_whatever_becomes_of_its_sandbox_and_of_the_host() -> None:
    first = stepped(pause(), life.Started(0), 100)
    assert first.deadline is not None and first.deadline.at == BootTime("boot", 160 * SECOND_NS)
    assert codec.container_from(codec.encode(first)).deadline == first.deadline
    again = stepped(replace(first, phase=Phase.RESTARTING, clean=True), life.Again(None), 110)
    assert again.deadline == first.deadline
    second = stepped(replace(again, phase=Phase.STARTING), life.Started(0), 120)
    assert second.deadline == first.deadline
    # After a reboot it is the same moment by the wall clock: at 130 s of it, 30 are left.
    in_next = stepped(replace(again, phase=Phase.STARTING), life.Started(0), 130, "next")
    assert in_next.deadline is not None and in_next.deadline.at == BootTime("next", 160 * SECOND_NS)
    late = stepped(replace(again, phase=Phase.STARTING), life.Started(0), 500, "next")
    assert late.deadline is not None and late.deadline.is_over(BootTime("next", 500 * SECOND_NS))
    # A caller who starts it begins anew.
    fresh = stepped(replace(first, phase=Phase.EXITED, clean=True), life.Again(By(uid=0)), 170)
    assert fresh.deadline is None
    assert stepped(replace(pause(), spec=Spec("pod", pod=Pod())), life.Started(0)).deadline is None
