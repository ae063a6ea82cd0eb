"""Many runs under a real containerd, and its bad days: killed, restarted, its shims killed. Nothing is lost or left."""

import os
import signal

import pytest

from shim import native
from tests.system.containerd.events import Event, Recorder, once
from tests.system.containerd.server import NOTHING, RUNC, Box, Containerd, Left, Said
from tests.system.containerd.verbs import OURS, TRUTH, outcome, require
from tests.system.processes import end_process
from tests.system.waits import LIMIT_SECONDS, scaled, until, wait_readable

SEQUENTIAL, AT_ONCE, KILLS = scaled(300, least=6), scaled(50, least=6), scaled(200, least=4)
MOST_SECONDS = 0.06  # from the word to end until everybody has been told

each_runtime = pytest.mark.parametrize("runtime", dict.fromkeys((TRUTH, OURS)))


def warmed_up(containerd: Containerd, runtime: str) -> int:
    """How many descriptors containerd has, after one container's life."""
    assert containerd.box(runtime, "first").run("--rm", "--", "true") == Said(0, "", "")
    containerd.left_is()
    return containerd.descriptors()


@each_runtime
def test_runs_one_after_another_have_their_codes_and_leave_nothing(containerd: Containerd, runtime: str) -> None:
    before = warmed_up(containerd, runtime)
    for number in range(SEQUENTIAL):
        said = (box := containerd.box(runtime, "run")).run(
            "--rm", "--", "sh", "-c", f"echo {number}; exit {number % 256}"
        )
        assert said.code == number % 256
        require(box, said == Said(number % 256, f"{number}\n", ""), said)
    containerd.left_is()
    until(lambda: containerd.descriptors() <= before, f"more than {before} descriptors")


@each_runtime
def test_runs_at_once_have_their_codes_and_leave_nothing(containerd: Containerd, runtime: str) -> None:
    before = warmed_up(containerd, runtime)
    script = "echo {0}; exit {0}"
    boxes = [containerd.box(runtime, "run") for _ in range(AT_ONCE)]
    running = [box.begun("--rm", "--", "sh", "-c", script.format(number)) for number, box in enumerate(boxes)]
    ends = [process.communicate(timeout=LIMIT_SECONDS) for process in running]
    assert [process.returncode for process in running] == list(range(AT_ONCE))
    for number, (box, end) in enumerate(zip(boxes, ends, strict=True)):
        require(box, end == (b"%d\n" % number, b""), (number, end))
    containerd.left_is()
    until(lambda: containerd.descriptors() <= before + 2, f"more than {before} descriptors")


class Ending:
    """A container that runs until it is told to end, by a file: with 33."""

    def __init__(self, box: Box, *flags: str) -> None:
        self.box, place = box, box.containerd.base / f"m-{box.id}"
        place.mkdir()
        self._word = place / "go"
        mount = ("--mount", f"type=bind,src={place},dst=/mnt,options=rbind")
        script = "until [ -e /mnt/go ]; do sleep 0.02; done; exit 33"
        box.started(*mount, *flags, "--", "sh", "-c", script)
        self.pid = box.pid
        self._pidfd = os.pidfd_open(self.pid)

    def go(self) -> None:
        self._word.touch()

    @property
    def went(self) -> float:
        return self._word.stat().st_mtime

    def is_over(self, seconds: float = LIMIT_SECONDS) -> bool:
        """Whether it has ended, or does within this time."""
        return wait_readable(self._pidfd, seconds)

    def removed(self, events: Recorder) -> Event:
        """The event that says so. Its code is checked, and that its task was kept for whom asks late."""
        self.box.until("STOPPED")
        assert "exit code 33" in self.box.task("rm").err
        deleted = events.wait(self.box.id, "/tasks/delete")[-1]
        assert (deleted.fields["exit_status"], deleted.fields["pid"]) == (33, self.pid)
        self.box.end()
        os.close(self._pidfd)
        return deleted


@each_runtime
@pytest.mark.parametrize("killed_first", [True, False], ids=["before the end", "after the end"])
def test_an_end_while_containerd_is_away_is_reported_with_its_code_and_time(
    containerd: Containerd, runtime: str, killed_first: bool
) -> None:
    ending = Ending(containerd.box(runtime, "ending"))
    other = containerd.box(runtime, "other").started("--null-io", "--", "sleep", "1000")
    if killed_first:
        containerd.kill()
    ending.go()
    assert ending.is_over()
    if not killed_first:
        containerd.kill()
    with containerd.start().events() as events:
        deleted = ending.removed(events)
    assert ending.went <= deleted.fields["exited_at"] < ending.went + 2
    assert (other.state, other.exec("one", "--", "sh", "-c", "exit 4").code) == ("RUNNING", 4)
    other.end()
    containerd.left_is()


@each_runtime
def test_an_end_is_reported_whenever_containerd_is_killed(containerd: Containerd, runtime: str) -> None:
    for number in range(KILLS):
        ending = Ending(containerd.box(runtime, "ending"))
        ending.go()
        ending.is_over(number / KILLS * MOST_SECONDS)
        with containerd.restart().events() as events:
            ending.removed(events)
    containerd.left_is()


@each_runtime
def test_a_wait_that_lasts_over_a_restart_of_containerd_is_asked_again(containerd: Containerd, runtime: str) -> None:
    box = containerd.box(runtime, "waited").started("--", "sh", "-c", 'read x; echo "got $x"; exit 6')
    containerd.restart()
    said = box.task("attach", stdin=b"word\n")
    assert said.code == 6
    require(box, said == Said(6, "got word\n", ""), said)
    box.end()
    containerd.left_is()


def the_shim_is_killed(box: Box) -> object:
    """Its tasks are reported dead, once; those of other shims live on."""
    group = f"group-{box.id}"
    box.containerd.keys.add(group)
    flags = ("--null-io", "--annotation", f"io.containerd.runc.v2.group={group}")
    mate, other = box.another(), box.another()
    other.started("--null-io", "--", "sleep", "1000")
    other.program()
    alone = box.containerd.left()
    with box.containerd.events() as events:  # what the shim has still to send may die with it
        for one in (box, mate):
            one.started(*flags, "--", "sleep", "1000")
            events.wait(one.id, "/tasks/start")
    pids = [one.pid for one in (box, mate)]
    (shim,) = box.containerd.shims(box.id)
    assert box.containerd.shims(mate.id) == []
    end_process(shim)
    until(lambda: not any(map(alive, pids)), "its containers live")
    until(lambda: (box.state, mate.state) == ("", ""), "the tasks of a dead shim are listed")
    said = [box.exec("one", "--", "true").code, other.exec("one", "--", "sh", "-c", "exit 3").code]
    left_but_for_the_socket(box, group, alone)
    return said, other.state, [one.end().code for one in (box, mate, other)]


def left_but_for_the_socket(box: Box, key: str, wanted: Left) -> None:
    """containerd's own shim leaves its socket when it is killed."""
    if box.runtime == RUNC:
        os.unlink(box.containerd.socket_of(key))
    box.containerd.left_is(wanted)


def alive(pid: int) -> bool:
    try:
        return native.process_stat(pid)[0] != "Z"
    except ProcessLookupError:
        return False


def test_the_tasks_of_a_killed_shim_are_reported_dead_once_and_those_of_others_live_on(containerd: Containerd) -> None:
    truth, ours = (outcome(containerd, runtime, the_shim_is_killed) for runtime in (TRUTH, OURS))
    assert (ours[0], [once(sent, lambda one: str(one[0])) for sent in ours[1]]) == truth
    for told in filter(None, ours[1]):  # a group has none
        exits = [fields for topic, fields in told if topic == "/tasks/exit"]
        assert [fields["id"] for fields in exits].count(exits[0]["container_id"]) == 1


@each_runtime
def test_a_shim_killed_while_containerd_is_away_is_found_dead_and_cleaned_up(
    containerd: Containerd, runtime: str
) -> None:
    box = containerd.box(runtime, "orphan").started("--null-io", "--", "sleep", "1000")
    pid, (shim,) = box.pid, containerd.shims(box.id)
    containerd.kill()
    end_process(shim)
    containerd.start()
    until(lambda: not alive(pid), "its container lives")
    assert box.row() == (0, "")
    box.end()
    left_but_for_the_socket(box, box.id, NOTHING)


@each_runtime
def test_a_shim_asked_to_end_leaves_its_task_to_containerds_cleaning(containerd: Containerd, runtime: str) -> None:
    with containerd.events() as events:
        box = containerd.box(runtime, "term").started("--null-io", "--", "sleep", "1000")
        pid, (shim,) = box.pid, containerd.shims(box.id)
        os.kill(shim, signal.SIGTERM)
        until(lambda: not alive(pid) and not alive(shim), "they live")
        exits = [event for event in events.wait(box.id, "/tasks/delete") if event.topic == "/tasks/exit"]
        assert [event.fields["exit_status"] for event in exits] == [137]
    box.end()
    containerd.left_is()
