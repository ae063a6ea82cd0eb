"""What a real containerd is told of exitd's tasks, while exitd, the relay or nothing at all is killed."""

import os
import signal

from tests.system.containerd.events import Event, once
from tests.system.containerd.server import EXITD, Containerd
from tests.system.waits import until

BEGUN = ["/tasks/create", "/tasks/start"]
OVER = ["/tasks/exit", "/tasks/delete"]


def topics(events: list[Event]) -> list[str]:
    return [event.topic for event in events]


def test_a_whole_life_is_reported_in_order_with_one_pid_and_one_time(containerd: Containerd) -> None:
    with containerd.events() as events:
        box = containerd.box(EXITD, "life").started("--", "sleep", "1000")
        assert box.exec("mine", "--", "sh", "-c", "exit 5").code == 5
        box.task("pause")
        box.task("resume")
        box.end()
        told = events.wait(box.id, "/tasks/delete")
    execs = ["/tasks/exec-added", "/tasks/exec-started", "/tasks/exit"]
    assert topics(told) == [*BEGUN, *execs, "/tasks/paused", "/tasks/resumed", *OVER]
    assert [event.fields.get("id") for event in told if event.topic == "/tasks/exit"] == ["mine", box.id]
    exit, delete = told[-2:]
    assert {event.fields["pid"] for event in (*told[:2], exit, delete)} == {exit.fields["pid"]}
    assert exit.fields["exited_at"] == delete.fields["exited_at"]
    containerd.left_is()


def test_an_exit_while_exitd_is_away_is_reported_once_by_the_next(containerd: Containerd) -> None:
    with containerd.events() as events:
        box = containerd.box(EXITD, "away").started("--", "sleep", "1000")
        events.wait(box.id, "/tasks/start")
        daemon = containerd.with_exitd()
        init = box.pid
        daemon.kill()
        os.kill(init, signal.SIGKILL)
        daemon.start()
        events.wait(box.id, "/tasks/exit")
        box.end()
        told = events.settled().wait(box.id, "/tasks/delete")
    assert topics(told) == [*BEGUN, *OVER]
    assert told[-2].fields["exit_status"] == 137
    containerd.left_is()


def test_fifty_quick_ones_have_four_events_each(containerd: Containerd) -> None:
    with containerd.events() as events:
        running = [containerd.box(EXITD, "quick").begun("--rm", "--", "true") for _ in range(50)]
        for each in running:
            each.communicate(timeout=120)
            assert each.returncode == 0
        ids = [id for id in containerd.keys if id.startswith("quick")]
        for id in ids:
            assert topics(events.wait(id, "/tasks/delete")) == [*BEGUN, *OVER]
    assert len(ids) == 50


def test_of_a_task_whose_relay_is_killed_the_end_is_reported_once_and_by_containerd(containerd: Containerd) -> None:
    with containerd.events() as events:
        box = containerd.box(EXITD, "orphan").started("--", "sleep", "1000")
        (relay,) = containerd.shims(box.id)[:1]
        events.wait(box.id, "/tasks/start")  # what it has still to send may die with it
        os.kill(relay, signal.SIGKILL)
        events.wait(box.id, "/tasks/delete")
        until(lambda: not containerd.left().rows, "the task's container is not gone")
        other = containerd.box(EXITD, "other")
        assert other.run("--rm", "--", "true").code == 0
        events.wait(other.id, "/tasks/delete")
        told = events.settled().of(box.id)
    assert once(topics(told), str) == [*BEGUN, *OVER]
    assert told[-2].fields["exit_status"] == 137
    containerd.clear()  # ctr has left the task's fifos
