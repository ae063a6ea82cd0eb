"""Sidecars and the end of a pod's time: who is ended when, in every combination of phases."""

import itertools
from dataclasses import replace

from supervisor.model import pods
from supervisor.model.pods import GOES_ON, Duty
from supervisor.model.values import (
    BootTime,
    By,
    Container,
    Exit,
    Exited,
    ExitPolicy,
    Oom,
    Phase,
    Pod,
    Policy,
    Reason,
    RestartPolicy,
    RunKey,
    Source,
    Spec,
    TimeLimit,
)

POD = Pod(exit_policy=ExitPolicy.STOP, sidecars=("a", "b"), active_deadline_seconds=60)
NOW, LATER = BootTime("boot", 10), BootTime("boot", 30)
LIMIT = TimeLimit(BootTime("boot", 20), 20)


def pause(phase: Phase = Phase.RUNNING, run: int = 1) -> Container:
    return Container("p", Spec("pod", pod=POD), phase, run, 0, deadline=LIMIT)


def member(name: str, phase: Phase, joined: int = 1) -> Container:
    spec = Spec(name, sandbox="p", restart=RestartPolicy(Policy.ALWAYS if name in POD.sidecars else Policy.NO))
    ended = Exit(RunKey(name, 1), name, "default", Exited(0), Source.RECORD, Reason.PAUSE_EXIT, By(), Oom(), 0, 0, None)
    return Container(name, spec, phase, 1, 0, sandbox_run=joined, exit=ended if phase is Phase.EXITED else None)


PHASES = (Phase.CREATED, Phase.RUNNING, Phase.RESTARTING, Phase.EXITED)


def test_a_sidecar_is_dismissed_when_all_that_it_served_have_ended_and_one_after_another_in_reverse() -> None:
    for phases in itertools.product(PHASES, repeat=4):
        members = [member(name, phase) for name, phase in zip(("app", "other", "a", "b"), phases, strict=True)]
        served, serving = phases[:2], phases[2:]
        found = pods.duties(pause(), members, NOW)
        if any(phase is not Phase.EXITED for phase in served):
            assert found == []
        elif serving[1] in GOES_ON:
            assert found == [(Duty.DISMISS, members[3])]
        elif serving[0] in GOES_ON:
            assert found == [(Duty.DISMISS, members[2])]
        else:
            assert found == [(Duty.STOP, pause())]


def test_an_evicted_pod_ends_as_a_whole_and_nothing_of_it_begins_again() -> None:
    evicted = replace(pause(), evicted="volume cache took 2 bytes, 1 is its limit")
    members = [member("app", Phase.RUNNING), member("a", Phase.RESTARTING), member("other", Phase.EXITED)]
    assert pods.duties(evicted, members, NOW) == [(Duty.EVICT, members[0]), (Duty.EVICT, members[1])]
    assert pods.duties(evicted, members[2:], LATER) == [(Duty.EVICT, evicted)]
    assert pods.duties(replace(evicted, phase=Phase.EXITED), members[2:], NOW) == []


def test_the_end_of_init_containers_alone_is_not_the_pods() -> None:
    before = replace(pause(), spec=Spec("pod", pod=replace(POD, inits=("first", "second"))))
    inits = [member("first", Phase.EXITED), member("second", Phase.EXITED)]
    assert pods.duties(before, [*inits, member("a", Phase.RUNNING)], NOW) == []
    assert pods.duties(before, inits, NOW) == []
    assert pods.duties(before, [*inits, member("app", Phase.EXITED)], NOW) == [(Duty.STOP, before)]


def test_they_are_stopped_after_the_others_in_the_reverse_order_of_their_start() -> None:
    members = [member(name, Phase.RUNNING) for name in ("b", "app", "a", "other")]
    order = [[each.id for each in group] for group in pods.stop_order(pause(), members)]
    assert order == [["app", "other"], ["b"], ["a"]]


def test_in_a_new_sandbox_a_sidecar_comes_back_before_those_that_come_after_it() -> None:
    app = replace(member("app", Phase.EXITED), spec=Spec("app", sandbox="p", restart=RestartPolicy(Policy.ALWAYS)))
    first, second = member("a", Phase.EXITED), member("b", Phase.EXITED)

    def revived(*members: Container) -> list[str]:
        return [each.id for duty, each in pods.duties(pause(run=2), members, NOW) if duty is Duty.REVIVE]

    assert revived(app, first, second) == ["a"]
    back = replace(member("a", Phase.RUNNING, joined=2), exit=None)
    assert revived(app, back, second) == ["b"]
    assert revived(app, back, replace(back, id="b", spec=replace(back.spec, name="b"))) == ["app"]


def test_no_sidecar_is_dismissed_while_a_member_waits_for_its_run_in_the_new_sandbox() -> None:
    waits = replace(member("app", Phase.EXITED), spec=Spec("app", sandbox="p", restart=RestartPolicy(Policy.ALWAYS)))
    ended = member("other", Phase.EXITED, joined=2)
    first, second = member("a", Phase.RUNNING, joined=2), member("b", Phase.STARTING, joined=2)
    assert pods.duties(pause(run=2), [waits, ended, first, second], NOW) == []
    for_good = replace(waits, stopped_by_user=True)
    assert pods.duties(pause(run=2), [for_good, ended, first, second], NOW) == [(Duty.DISMISS, second)]


def test_when_its_time_is_over_every_member_goes_and_then_the_pod_in_every_phase() -> None:
    for pause_phase, *phases in itertools.product(Phase, PHASES, PHASES, PHASES):
        members = [member(name, phase) for name, phase in zip(("app", "a", "b"), phases, strict=True)]
        found = pods.duties(pause(pause_phase), members, LATER)
        if pause_phase is Phase.REMOVING:
            assert Duty.EXPIRE not in [duty for duty, _ in found]
            continue
        live = [each for each in members if each.phase in GOES_ON]
        last = [pause(pause_phase)] if pause_phase in GOES_ON else []
        assert found == [(Duty.EXPIRE, each) for each in live or last]


def test_before_that_and_in_another_boot_nothing_expires() -> None:
    members = [member("app", Phase.RUNNING)]
    for now in (NOW, BootTime("other", 1000), pods.NO_TIME):
        assert pods.duties(pause(), members, now) == []
