"""Which events containerd is told of, as containers and execs write them."""

from dataclasses import replace
from pathlib import Path

from supervisor.model import execs, lifecycle
from supervisor.model import lifecycle as life
from supervisor.model.execs import ExecSpec
from supervisor.model.lifecycle import Happening
from supervisor.model.taskfacts import CLEANED_UP, Notice, Stdio, Task
from supervisor.model.values import Container, Event, Exited, Phase, Pod, RunKey, Signaled, Spec
from supervisor.store import codec
from tests.supervisor.exec_fakes import ExecWorld, running
from tests.supervisor.fakes import in_loop, until
from tests.supervisor.happenings import INIT, SECOND, SHIM, USER, container, ended, moment, report

TASK = Task("/bundle", stdio=Stdio(stdout="/out"), address="/containerd.ttrpc", courier="7/77")
MADE = life.Made(INIT, SHIM)
OVER = (ended(Exited(3)), life.Cleaned(), life.RemoveAsked(USER), life.Removed())


def lived(c: Container, *happenings: Happening) -> list[Event]:
    """What they leave in the log."""
    reported: list[Event] = []
    for happening in happenings:
        step = life.step(c, happening, moment())
        reported += step.events
        c = step.container or c
    return reported


def task(phase: Phase = Phase.CREATING, run: int = 1) -> Container:
    made = container(phase, run=run)
    return replace(made, spec=replace(made.spec, task=TASK))


def noticed(events: list[Event]) -> list[str]:
    return [event.type for event in events if event.task is not None]


def test_containerd_hears_nothing_of_a_sandbox_whose_events_it_publishes_itself() -> None:
    one = task()
    happenings = (MADE, life.StartAsked(USER), life.Started(SECOND), *OVER)
    assert "exit" in noticed(lived(one, *happenings))
    assert noticed(lived(replace(one, spec=replace(one.spec, pod=Pod())), *happenings)) == []


def test_the_life_of_a_task_is_reported_with_its_pid() -> None:
    happenings = (life.StartAsked(USER), life.Started(SECOND), life.Paused(), life.Resumed(), life.OomSeen(1, 1))
    events = lived(task(), MADE, *happenings, *OVER)
    assert noticed(events) == ["create", "start", "pause", "resume", "oom", "exit", "remove"]
    notice = Notice(TASK.address, INIT.pid, courier=TASK.courier)
    assert events[0].task == replace(notice, made=TASK)
    assert events[1].task == notice
    assert all(event.task is not None and event.task.courier == TASK.courier for event in events)
    assert events[-1].task is not None
    assert (events[-1].task.status, events[-1].task.pid) == (3, INIT.pid)


def test_a_last_kill_for_memory_is_reported_before_the_exit() -> None:
    assert noticed(lived(task(Phase.RUNNING), ended(Signaled(9), oom_kills=1))) == ["oom", "exit"]


def test_nothing_is_reported_of_a_create_that_has_failed() -> None:
    events = lived(task(), life.MakeFailed("no"), life.Cleaned(), life.Removed())
    assert [event.type for event in events] == ["failed", "remove"]
    assert noticed(events) == []


def test_nothing_is_reported_of_a_container_that_is_no_task() -> None:
    assert noticed(lived(container(Phase.CREATING), MADE, life.StartAsked(USER), life.Started(SECOND), *OVER)) == []


def test_of_a_later_run_only_the_removal_is_reported() -> None:
    assert noticed(lived(task(Phase.RUNNING, run=2), *OVER)) == ["remove"]


def test_a_removal_that_containerd_reports_of_itself_says_so() -> None:
    (event,) = lived(task(Phase.EXITED), life.RemoveAsked(USER, CLEANED_UP), life.Removed())
    assert event.task is not None
    assert event.task.silent


def test_a_notice_comes_back_from_its_row() -> None:
    for event in lived(task(), MADE, *OVER):
        assert codec.event_from(event.seq, codec.encode(event)) == event


def test_an_event_of_an_older_exitd_has_none() -> None:
    (event,) = lived(container(Phase.CREATING), MADE)
    body = codec.encode(event)
    assert codec.event_from(0, body.replace(',"task":null', "")) == event


def test_an_exec_is_reported_under_containerds_name_for_it() -> None:
    e = execs.born(task(Phase.RUNNING), "x1", ExecSpec(("true",), name="mine"), USER, moment())
    started = execs.step(e, execs.ExecMade(INIT, SHIM), moment())
    assert started.exec is not None
    over = execs.step(started.exec, execs.ExecEnded(report(Exited(3))), moment())
    notice = Notice(TASK.address, INIT.pid, "mine", courier=TASK.courier)
    assert [event.task for event in (*started.events, *over.events)] == [notice] * 2
    assert execs.step(e, execs.ExecMakeFailed("no"), moment()).events[0].task is None


def test_an_exec_that_containerd_did_not_ask_for_is_not_reported() -> None:
    e = execs.born(task(Phase.RUNNING), "x1", ExecSpec(("true",)), USER, moment())
    assert execs.step(e, execs.ExecMade(INIT, SHIM), moment()).events[0].task is None


def test_an_added_exec_is_reported_with_its_name() -> None:
    (event,) = lifecycle.events(task(Phase.RUNNING), moment(), "exec_added", exec_name="mine")
    assert event.task is not None
    assert event.task.exec_name == "mine"


@in_loop
async def test_the_ends_of_a_tasks_execs_are_in_the_log_before_its_own(tmp_path: Path) -> None:
    async with running(tmp_path) as r:
        await check_order(r)


async def check_order(r: ExecWorld) -> None:
    r.id = await r.w.running(Spec(name="t", task=TASK))
    live = await r.begin(ExecSpec(("true",), name="mine"))
    signalled: list[int] = []
    r.manager.on_signal = lambda e, number, everyone: signalled.append(number)
    r.w.manager.ends(r.id)
    await until(lambda: signalled)
    r.ends(live.key)
    await until(lambda: r.container.phase is Phase.EXITED)
    ends = [event for event in await r.w.store.events_after(0, 100) if event.type == "exit" and event.task is not None]
    assert [event.exec_id for event in ends] == [live.key.exec_id, ""]
    assert ends[0].exit is not None
    assert ends[0].exit.key == RunKey(r.id, 1, live.key.exec_id)
