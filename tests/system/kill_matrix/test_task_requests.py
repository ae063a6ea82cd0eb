"""exitd is killed so long after a relay's request: it is answered after exitd's return, once, and done once."""

import pytest
from google.protobuf.message import Message

from protos.containerd import process_pb2
from protos.containerd import task_pb2 as pb
from tests.system.kill_matrix.table import Case, cases
from tests.system.tasks import Tasks

RUNNING = process_pb2.RUNNING


@pytest.mark.parametrize("case", cases("task, a relay's request"), ids=str)
def test_exitd_killed_during_any_request_answers_it_after_its_return(lone_tasks: Tasks, case: Case) -> None:
    r = lone_tasks.relay
    bundle, rootfs = lone_tasks.mounted("box", "/bin/sh", "-c", "sleep 60")
    pid = _through_a_kill(
        lone_tasks, case, "Create", pb.CreateTaskRequest(id="box", bundle=str(bundle), rootfs=rootfs)
    ).pid  # type: ignore[attr-defined]
    assert pid > 1 and lone_tasks.mounts() == 1
    waiting = r.begin("Wait", pb.WaitRequest(id="box"))
    assert _through_a_kill(lone_tasks, case, "Start", pb.StartRequest(id="box")).pid == pid  # type: ignore[attr-defined]
    assert r.state("box").status == RUNNING
    _through_a_kill(lone_tasks, case, "Kill", pb.KillRequest(id="box", signal=9))
    ended = r.answer(waiting)
    assert ended.exit_status == 137  # type: ignore[attr-defined]
    deleted = _through_a_kill(lone_tasks, case, "Delete", pb.DeleteRequest(id="box"))
    assert (deleted.pid, deleted.exit_status) == (pid, 137)  # type: ignore[attr-defined]
    told = [each for each in lone_tasks.log() if each in ("create", "start", "exit", "failed")]
    made = told.index("create")
    assert told[made:] == ["create", "start", "exit"] and set(told[:made]) <= {"failed"}
    assert lone_tasks.mounts() == 0


@pytest.mark.parametrize("case", cases("task, a relay's request"), ids=str)
def test_exitd_killed_while_an_exec_starts_starts_it_after_its_return(lone_tasks: Tasks, case: Case) -> None:
    r = lone_tasks.relay
    bundle, rootfs = lone_tasks.mounted("box", "/bin/sleep", "60")
    r.create("box", bundle, rootfs=rootfs)
    r.start("box")
    assert r.add_exec("box", "e", "/bin/sh", "-c", "echo once >>/count; exit 3") == 0
    waiting = r.begin("Wait", pb.WaitRequest(id="box", exec_id="e"))
    _through_a_kill(lone_tasks, case, "Start", pb.StartRequest(id="box", exec_id="e"))
    assert r.answer(waiting).exit_status == 3  # type: ignore[attr-defined]
    assert _through_a_kill(lone_tasks, case, "Delete", pb.DeleteRequest(id="box", exec_id="e")).exit_status == 3  # type: ignore[attr-defined]
    assert lone_tasks.log().count("exit") == 1
    assert (lone_tasks.base / "box-upper" / "count").read_text() == "once\n"
    r.kill("box")
    r.wait("box")
    r.delete("box")


def _through_a_kill(lone_tasks: Tasks, case: Case, method: str, request: Message) -> Message:
    stream = lone_tasks.relay.begin(method, request)
    lone_tasks.relay.is_answered(stream, int(case.moment.removesuffix(" ms")) / 1000)
    lone_tasks.restart()
    return lone_tasks.relay.answer(stream)
