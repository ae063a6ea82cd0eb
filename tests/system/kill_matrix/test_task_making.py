"""What befalls a task of a real containerd while it is being made: at moments that shims have got wrong."""

import contextlib
import os
import pathlib
import shutil
import signal
import sqlite3

import pytest
from google.protobuf.empty_pb2 import Empty

from protos.containerd import task_pb2 as pb
from supervisor.model.errors import Code
from supervisor.ttrpc.blocking import BlockingClient
from supervisor.ttrpc.faults import CallFailed
from tests.system.containerd.server import EXITD, NOTHING, Box, Containerd
from tests.system.kill_matrix.table import row
from tests.system.processes import cgroup_pids, killed
from tests.system.runtimes import gated
from tests.system.waits import LIMIT_SECONDS, until

# As containerd calls a shim. It halts when the task's relay is there and containerd has not heard of it.
HALTED = """#!/bin/sh
containerd-shim-exitd-v2 "$@" || exit
for word; do :; done
[ $word = start ] || exit 0
echo >{place}/here
read line <{place}/gate
"""

TASK = "containerd.task.v2.Task"


def test_a_create_that_hangs_holds_up_no_other_task_of_its_shim(containerd: Containerd) -> None:
    box = containerd.box(EXITD, "slow")
    containerd.keys.add(group := f"group-{box.id}")
    together = ("--annotation", f"io.containerd.runc.v2.group={group}")
    other = box.another().started("--null-io", *together, "--", "sleep", "1000")
    with gated(containerd.with_exitd()) as gates:
        gates.close("create.after")
        slow = box.begun("--rm", *together, *gates.flags(), "--", "sh", "-c", "exit 5")
        gates.reached("create.after")
        assert (len(containerd.shims()), other.state) == (1, "RUNNING")
        assert other.exec("one", "--", "sh", "-c", "exit 4").code == 4
        assert (other.end().code, slow.poll()) == (0, None)
        gates.open()
        assert (slow.communicate(timeout=LIMIT_SECONDS), slow.returncode) == ((b"", b""), 5)
    containerd.left_is()


@pytest.mark.parametrize("moment", row("task, hanging create").moments)
def test_of_a_create_that_hangs_when_its_relay_dies_nothing_is_left_and_nothing_reported(
    containerd: Containerd, moment: str
) -> None:
    """`delete` waits for three seconds, and leaves word then. The runtime comes to its end after that."""
    box = containerd.box(EXITD, "hangs")
    with gated(containerd.with_exitd()) as gates, containerd.events() as events:
        gates.close(moment)
        made = box.begun("--rm", *gates.flags(), "--", "sleep", "1000")
        gates.reached(moment)
        (relay,) = containerd.shims(box.id)
        killed(relay)
        _, err = made.communicate(timeout=LIMIT_SECONDS)
        assert (made.returncode, b"ttrpc: closed" in err) == (1, True), err
        words = pathlib.Path(containerd.with_exitd().state) / "shimv2" / "gone"
        until(lambda: list(words.iterdir()), "`delete` has left no word")
        gates.open()
        until(lambda: not list(words.iterdir()), "the word is not taken up")
        containerd.left_is()
        assert events.settled().of(box.id) == []


def test_of_a_create_that_hangs_when_its_client_dies_nothing_is_left(containerd: Containerd) -> None:
    """containerd asks for a Delete, for five seconds; then for a Shutdown, and has `delete` run. Of a task that it has
    not made it wants to hear nothing."""
    box = containerd.box(EXITD, "hangs")
    with gated(containerd.with_exitd()) as gates, containerd.events() as events:
        gates.close("create.after")
        made = box.begun(*gates.flags(), "--", "sleep", "1000")
        gates.reached("create.after")
        (relay,) = containerd.shims(box.id)
        killed(made.pid)
        until(lambda: not containerd.left().bundles, "containerd does not give up", LIMIT_SECONDS * 2)
        gates.open()
        until(lambda: not containerd.left().rows, "it is still there")
        assert events.settled().of(box.id) == []
    with contextlib.suppress(ProcessLookupError):
        os.kill(relay, signal.SIGTERM)  # it would ask by itself whether it is needed, 30 s after its last connection
    containerd.left_is(NOTHING, "fifos")  # of ctr, which was killed
    containerd.wanted("container", "rm", box.id)
    shutil.rmtree(containerd.fifos)
    containerd.fifos.mkdir()


def test_an_init_that_dies_during_its_create_holds_nobody_up_and_leaves_nothing(containerd: Containerd) -> None:
    box = containerd.box(EXITD, "dies")
    with gated(containerd.with_exitd()) as gates, containerd.events() as events:
        gates.close("create.after")
        made = box.begun("--rm", *gates.flags(), "--", "sleep", "1000")
        gates.reached("create.after")
        (init,) = cgroup_pids(containerd.cgroup)
        killed(init)
        gates.open()
        _, err = made.communicate(timeout=LIMIT_SECONDS)
        # By whom the start is refused depends on which comes first, it or the end.
        words = (b"cannot start a stopped process", b"cannot start a container that has stopped")
        assert (made.returncode, any(each in err for each in words)) == (1, True), err
        told = events.wait(box.id, "/tasks/delete")
        assert [event.topic for event in told] == ["/tasks/create", "/tasks/exit", "/tasks/delete"]
        assert {(event.fields["pid"], event.fields.get("exit_status", 255)) for event in told} == {(init, 255)}
    containerd.left_is()


def test_a_shim_whose_containerd_died_before_the_create_says_that_it_has_nothing_and_goes(
    containerd: Containerd,
) -> None:
    """containerd 1.7 and later finds it by that; 1.6 keeps it, whatever runtime it is of."""
    box = containerd.box(EXITD, "early")
    (place := containerd.base / f"gate-{box.id}").mkdir()
    (shim := place / "containerd-shim").write_text(HALTED.format(place=place))
    shim.chmod(0o755)
    os.mkfifo(place / "gate")
    made = Box(containerd, str(shim), box.id).begun("-d", "--null-io", "--", "sleep", "1000")
    until((place / "here").exists, "the shim is not started")
    containerd.kill()
    (place / "gate").write_text("\n")
    assert made.wait(LIMIT_SECONDS) == 1
    with BlockingClient(containerd.socket_of(box.id)) as later:
        assert later.call(f"{TASK}/Connect", pb.ConnectRequest(id=box.id), pb.ConnectResponse, 5).task_pid == 0
        for method, request in (("Pids", pb.PidsRequest(id=box.id)), ("Delete", pb.DeleteRequest(id=box.id))):
            with pytest.raises(CallFailed) as refused:
                later.call(f"{TASK}/{method}", request, Empty, 5)
            assert refused.value.code == Code.NOT_FOUND
        later.call(f"{TASK}/Shutdown", pb.ShutdownRequest(id=box.id), Empty, 5)
    containerd.start()
    assert box.row() == (0, "")
    containerd.wanted("container", "rm", box.id)
    containerd.left_is()


def test_of_a_delete_whose_answer_containerd_has_not_lived_to_hear_the_true_end_is_reported(
    containerd: Containerd,
) -> None:
    """It has the bundle still, and calls `delete` when it finds no relay: here it is the relay that dies."""
    box = containerd.box(EXITD, "deleted")
    with containerd.events() as events:
        box.started("--null-io", "--", "sh", "-c", "exit 43")
        events.wait(box.id, "/tasks/exit")
        with BlockingClient(containerd.socket_of(box.id)) as lost:
            answer = lost.call(f"{TASK}/Delete", pb.DeleteRequest(id=box.id), pb.DeleteResponse, LIMIT_SECONDS)
        until(lambda: not remembered(box), "exitd keeps the answer for nobody")
        for pid in containerd.shims(box.id):
            killed(pid)
        until(lambda: not containerd.wanted("task", "ls", "-q"), "containerd does not find out")
        told = [
            event.fields for event in events.settled().of(box.id) if event.topic in ("/tasks/exit", "/tasks/delete")
        ]
    ends = {(end["pid"], end["exit_status"], str(end["exited_at"])) for end in told}
    assert len(told) >= 2 and len(ends) == 1, told
    assert [(pid, code) for pid, code, _ in ends] == [(answer.pid, 43)], told
    containerd.wanted("container", "rm", box.id)
    containerd.left_is()


def remembered(box: Box) -> int:
    """How many answers about it exitd keeps for those who may ask again."""
    words = "SELECT count(*) FROM tombstones WHERE json_extract(body, '$.task') = ?"
    with contextlib.closing(
        sqlite3.connect(f"file:{box.containerd.with_exitd().root}/exitd.db?mode=ro", uri=True)
    ) as store:
        (count,) = store.execute(words, (box.id,)).fetchone()
    return int(count)
