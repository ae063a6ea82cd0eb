"""containerd's Task service of a real exitd, with real runc underneath: the life of a task, and what is left of it."""

import json
import os
import pathlib
import time

import pytest
from google.protobuf.any_pb2 import Any

from protos.containerd import cgroups1_pb2, cgroups2_pb2, process_pb2, runc_pb2
from protos.containerd import task_pb2 as pb
from protos.exitd.v1 import exitd_pb2 as pb_exitd
from protos.ttrpc.v1.ttrpc_pb2 import Request
from shim import fields
from supervisor.api.client import Client
from supervisor.containerd.service import READ_SECONDS
from supervisor.model.errors import AmbiguousId
from supervisor.ttrpc.faults import CallFailed
from tests.system import lives
from tests.system.daemons import Daemon, left
from tests.system.processes import cgroup_directories
from tests.system.tasks import CACHEABLE, KEEP, LEAVE, RESOURCES, V3, Relay, Tasks
from tests.system.waits import LIMIT_SECONDS, until, wait_readable

CREATED, RUNNING, STOPPED, PAUSED = process_pb2.CREATED, process_pb2.RUNNING, process_pb2.STOPPED, process_pb2.PAUSED


@pytest.fixture
def tasks(client: Client, tasks: Tasks) -> Tasks:
    """The client counts what is left."""
    return tasks


def test_the_life_of_a_task_is_the_one_containerd_drives(tasks: Tasks, client: Client) -> None:
    bundle, relay = tasks.bundle("box", "/bin/sh", "-c", "exit 43"), tasks.relay
    created = relay.begin("Create", pb.CreateTaskRequest(id="box", bundle=str(bundle)))
    answer = relay.answer(created)
    assert isinstance(answer, pb.CreateTaskResponse) and answer.pid > 1 and relay.flags[created] == KEEP
    connected = relay.begin("Connect", pb.ConnectRequest(id="box"))
    assert relay.answer(connected) == pb.ConnectResponse(shim_pid=os.getpid(), task_pid=answer.pid)
    assert relay.flags[connected] == CACHEABLE
    assert relay.state("box") == pb.StateResponse(id="box", bundle=str(bundle), pid=answer.pid, status=CREATED)
    waiting = relay.begin("Wait", pb.WaitRequest(id="box"))
    assert relay.start("box") == answer.pid
    ended = relay.answer(waiting)
    assert isinstance(ended, pb.WaitResponse)
    assert ended.exit_status == 43 and ended.exited_at.seconds > 0
    state = relay.state("box")
    assert (state.status, state.pid, state.exit_status) == (STOPPED, answer.pid, 43)
    assert state.exited_at == ended.exited_at and relay.wait("box") == ended
    assert [each.pid for each in relay.ask("Pids", pb.PidsRequest(id="box")).processes] == [answer.pid]  # type: ignore[attr-defined]
    deleted = relay.delete("box")
    assert (deleted.pid, deleted.exit_status, deleted.exited_at) == (answer.pid, 43, ended.exited_at)
    shutdown = relay.begin("Shutdown", pb.ShutdownRequest(id="box"))
    relay.answer(shutdown)
    assert relay.flags[shutdown] == LEAVE
    assert relay.delete("box") == deleted  # as long as the relay has not confirmed the first answer
    relay.confirm()
    until(lambda: relay.code("Delete", pb.DeleteRequest(id="box")) == 5, "the answer is not forgotten")
    for method, request in (
        ("State", pb.StateRequest(id="box")),
        ("Kill", pb.KillRequest(id="box", signal=9)),
        ("Wait", pb.WaitRequest(id="box")),
    ):
        assert relay.code(method, request) == 5, method
    assert relay.ask("Connect", pb.ConnectRequest(id="box")) == pb.ConnectResponse(shim_pid=os.getpid())


@pytest.mark.parametrize("exec_id", ["", "e"])
def test_a_wait_is_answered_when_its_client_has_read_the_output(tasks: Tasks, exec_id: str) -> None:
    """containerd's Go library closes its ends of the fifos with the answer. Who reads nothing waits READ_SECONDS."""
    out, relay, says = tasks.base / "out", tasks.relay, ("/bin/sh", "-c", "echo said")
    os.mkfifo(out)
    reader = os.open(out, os.O_RDONLY | os.O_NONBLOCK)
    if exec_id:
        relay.create("box", tasks.bundle("box", "/bin/sleep", "60"))
        relay.start("box")
        assert relay.add_exec("box", exec_id, *says, stdout=str(out)) == 0
    else:
        relay.create("box", tasks.bundle("box", *says), stdout=str(out))
    waiting, begun = relay.begin("Wait", pb.WaitRequest(id="box", exec_id=exec_id)), time.monotonic()
    relay.start("box", exec_id)
    until(lambda: relay.state("box", exec_id).status == STOPPED, "it does not end")
    assert not relay.is_answered(waiting) or time.monotonic() - begun >= READ_SECONDS
    assert wait_readable(reader)  # the end is reported before what is in the pipe is moved
    assert os.read(reader, 100) == b"said\n"
    ended = relay.answer(waiting)
    assert isinstance(ended, pb.WaitResponse) and ended.exit_status == 0
    os.close(reader)
    if exec_id:
        relay.delete("box", exec_id)
        relay.kill("box")
        relay.wait("box")
    relay.delete("box")


def test_a_task_shows_in_exitds_own_api_with_its_namespace(tasks: Tasks, client: Client) -> None:
    tasks.relay.create("box", tasks.bundle("box", "/bin/sleep", "60"))
    tasks.relay.start("box")
    (shown,) = (each for each in client.list(all_of_them=False) if each.spec.name == "box")
    assert shown.spec.namespace == tasks.relay.namespace
    waiting = client.begin_wait(shown.id)
    assert tasks.relay.kill("box") == 0
    assert lives.word(lives.ended(waiting.result(LIMIT_SECONDS))) == "signaled 9"
    tasks.relay.delete("box")


def test_a_task_may_have_the_name_of_a_container_and_a_word_that_means_both_is_refused(
    tasks: Tasks, client: Client
) -> None:
    """`default` is the name of a namespace of both."""
    tasks.relay.close()
    relay = Relay(tasks.daemon, "default").connect()
    bundle = tasks.bundle("box", "/bin/sleep", "60")
    own = client.create(pb_exitd.ContainerSpec(image="pause", name="box")).id
    relay.create("box", bundle)
    relay.start("box")
    with pytest.raises(AmbiguousId, match=own[:12]):
        client.kill("box", "KILL")
    client.remove(own, force=False)
    client.kill("box", "KILL")
    assert relay.wait("box").exit_status == 137
    relay.delete("box")
    relay.close()


def test_version_3_of_the_service_is_the_same_one(tasks: Tasks) -> None:
    tasks.relay.create("box", tasks.bundle("box", "/bin/true"))
    assert tasks.relay.ask("State", pb.StateRequest(id="box"), V3) == tasks.relay.state("box")
    assert tasks.relay.delete("box").exit_status == 255  # it was killed before it was started


def test_what_cannot_be_asked_now_is_refused_by_the_code_that_containerd_knows(tasks: Tasks) -> None:
    r = tasks.relay
    r.create("box", tasks.bundle("box", "/bin/sleep", "60"))
    assert r.code("Create", pb.CreateTaskRequest(id="box", bundle=str(tasks.base / "box"))) == 6
    assert r.code("Pause", pb.PauseRequest(id="box")) == 2
    r.start("box")
    assert r.code("Start", pb.StartRequest(id="box")) == 2
    assert r.code("Delete", pb.DeleteRequest(id="box")) == 2
    assert r.code("Resume", pb.ResumeRequest(id="box")) == 2
    assert r.code("Checkpoint", pb.CheckpointTaskRequest(id="box", path="/tmp")) == 12
    assert r.code("Kill", pb.KillRequest(id="box", signal=77)) == 3
    assert r.code("Pause", pb.PauseRequest(id="box")) == 0
    assert r.state("box").status == PAUSED
    assert r.add_exec("box", "e", "/bin/true") == 2
    assert r.code("Resume", pb.ResumeRequest(id="box")) == 0
    assert r.state("box").status == RUNNING
    assert r.code("ResizePty", pb.ResizePtyRequest(id="box", width=80, height=24)) == 0
    assert r.code("CloseIO", pb.CloseIORequest(id="box", stdin=True)) == 0
    assert r.kill("box", 15, all=True) == 0
    assert r.kill("box") == 0
    assert r.wait("box").exit_status == 137
    assert r.kill("box") == 5
    assert r.add_exec("box", "e", "/bin/true") == 2
    r.delete("box")


def test_an_exec_is_added_started_waited_for_and_deleted(tasks: Tasks) -> None:
    r = tasks.relay
    r.create("box", tasks.bundle("box", "/bin/sleep", "60"))
    init = r.start("box")
    out = tasks.base / "out"
    assert r.add_exec("box", "e1", "/bin/sh", "-c", "echo said; exit 3", stdout=f"file://{out}") == 0
    assert r.add_exec("box", "e1", "/bin/true") == 6
    assert r.state("box", "e1").status == CREATED
    assert r.kill("box", 9, "e1") == 9
    waiting = r.begin("Wait", pb.WaitRequest(id="box", exec_id="e1"))
    pid = r.start("box", "e1")
    ended = r.answer(waiting)
    assert isinstance(ended, pb.WaitResponse) and ended.exit_status == 3 and ended.exited_at.seconds > 0
    state = r.state("box", "e1")
    assert (state.status, state.pid, state.exit_status, state.exec_id) == (STOPPED, pid, 3, "e1")
    assert r.kill("box", 9, "e1") == 5
    deleted = r.delete("box", "e1")
    assert (deleted.pid, deleted.exit_status, deleted.exited_at) == (pid, 3, ended.exited_at)
    assert out.read_text() == "said\n"
    assert r.code("State", pb.StateRequest(id="box", exec_id="e1")) == 5
    assert r.code("Delete", pb.DeleteRequest(id="box", exec_id="e1")) == 5
    assert r.add_exec("box", "e1", "/bin/sleep", "60") == 0  # the id is free again
    pid = r.start("box", "e1")
    word = r.begun[-1]
    assert (word.get("id"), word.get("exec"), word.number("pid")) == ("box", "e1", pid)
    assert os.path.exists(word.get("record"))
    there = {each.pid: each.info.value for each in r.ask("Pids", pb.PidsRequest(id="box")).processes}  # type: ignore[attr-defined]
    assert there == {init: b"", pid: runc_pb2.ProcessDetails(exec_id="e1").SerializeToString()}
    assert r.code("Delete", pb.DeleteRequest(id="box", exec_id="e1")) == 2
    assert r.kill("box", 15, "e1") == 0
    assert r.wait("box", "e1").exit_status == 143
    r.delete("box", "e1")
    r.kill("box")
    r.wait("box")
    r.delete("box")


def test_of_two_execs_with_one_id_that_come_at_once_one_is_refused(tasks: Tasks) -> None:
    r = tasks.relay
    r.create("box", tasks.bundle("box", "/bin/sleep", "60"))
    r.start("box")
    assert r.add_exec("box", "other", "/bin/true") == 0
    (asked,) = (data for method, data in r._asked.values() if method == "Exec")
    request = pb.ExecProcessRequest.FromString(Request.FromString(asked).payload)
    request.exec_id = "e"
    both = [r.begin("Exec", request) for _ in range(2)]
    assert sorted(code_of(r, stream) for stream in both) == [0, 6]
    both = [r.begin("Start", pb.StartRequest(id="box", exec_id="e")) for _ in range(2)]
    assert sorted(code_of(r, stream) for stream in both) == [0, 2]
    r.kill("box")
    r.wait("box")
    r.delete("box")


def code_of(r: Relay, stream: int) -> int:
    try:
        r.answer(stream)
    except CallFailed as error:
        return error.code
    return 0


def test_thirty_short_execs_at_once_have_their_codes_and_end_before_their_container(
    tasks: Tasks, client: Client
) -> None:
    r = tasks.relay
    r.create("box", tasks.bundle("box", "/bin/sleep", "60"))
    r.start("box")
    names = {f"e{n}": n for n in range(30)}
    for name, code in names.items():
        assert r.add_exec("box", name, "/bin/sh", "-c", f"exit {code}") == 0
    waiting = {name: r.begin("Wait", pb.WaitRequest(id="box", exec_id=name)) for name in names}
    for stream in [r.begin("Start", pb.StartRequest(id="box", exec_id=name)) for name in names]:
        r.answer(stream)
    assert {name: r.answer(stream).exit_status for name, stream in waiting.items()} == names  # type: ignore[attr-defined]
    r.kill("box")
    r.wait("box")
    told = [event.exec_id for event in lives.events(client) if event.type == "exit" and event.name == "box"]
    assert len(told) >= 31 and told[-1] == "" and told[-31:-1].count("") == 0
    r.delete("box")


def test_an_exec_that_cannot_start_says_so_and_never_ends(tasks: Tasks) -> None:
    r = tasks.relay
    r.create("box", tasks.bundle("box", "/bin/sleep", "60"))
    r.start("box")
    assert r.add_exec("box", "e1", "/no/such/program") == 0
    assert r.code("Start", pb.StartRequest(id="box", exec_id="e1")) == 2
    state = r.state("box", "e1")
    assert (state.status, state.pid) == (CREATED, 0)
    assert r.wait("box", "e1") == pb.WaitResponse()
    assert r.delete("box", "e1") == pb.DeleteResponse()
    r.kill("box")
    r.wait("box")
    r.delete("box")


def test_a_create_that_fails_leaves_nothing(tasks: Tasks, daemon: Daemon, client: Client) -> None:
    bundle, rootfs = tasks.mounted("box", "/no/such/program")
    for _ in range(2):
        assert tasks.relay.code("Create", pb.CreateTaskRequest(id="box", bundle=str(bundle), rootfs=rootfs)) == 2
        assert tasks.mounts() == 0
        assert tasks.relay.code("Delete", pb.DeleteRequest(id="box")) == 5
    told = {event.type for event in lives.events(client) if event.namespace == tasks.relay.namespace}
    assert told == {"failed", "remove"}
    assert tasks.relay.code("Create", pb.CreateTaskRequest(id="box", bundle=str(bundle), stdout="gopher://x")) == 3


def test_a_hundred_failed_creates_leave_the_number_of_descriptors_as_it_was(tasks: Tasks, daemon: Daemon) -> None:
    bundle = tasks.bundle("box", "/no/such/program")
    tasks.relay.code("Create", pb.CreateTaskRequest(id="box", bundle=str(bundle)))
    before = left(daemon).descriptors
    for _ in range(100):
        assert tasks.relay.code("Create", pb.CreateTaskRequest(id="box", bundle=str(bundle))) == 2
    until(lambda: left(daemon).descriptors <= before, f"{left(daemon).descriptors} descriptors, before: {before}")


def test_the_root_file_system_is_mounted_for_the_life_of_the_task(tasks: Tasks) -> None:
    bundle, rootfs = tasks.mounted("box", "/bin/sh", "-c", "echo was here >/trace")
    tasks.relay.create("box", bundle, rootfs=rootfs)
    assert tasks.mounts() == 1
    tasks.relay.start("box")
    tasks.relay.wait("box")
    assert (tasks.base / "box-upper" / "trace").read_text() == "was here\n"
    tasks.relay.delete("box")
    assert tasks.mounts() == 0


def test_stats_have_every_message_within_also_after_the_end(tasks: Tasks) -> None:
    r = tasks.relay
    r.create("box", tasks.bundle("box", "/bin/sleep", "60"))
    r.start("box")
    limit = {"memory": {"limit": 64 << 20}}
    update = pb.UpdateTaskRequest(id="box", resources=Any(type_url=RESOURCES, value=json.dumps(limit).encode()))
    assert r.code("Update", update) == 0
    for ending in (False, True):
        if ending:
            r.kill("box")
            r.wait("box")
        stats = r.ask("Stats", pb.StatsRequest(id="box")).stats  # type: ignore[attr-defined]
        if stats.type_url == "io.containerd.cgroups.v1.Metrics":
            one = cgroups1_pb2.Metrics.FromString(stats.value)
            assert one.HasField("cpu") and one.cpu.HasField("throttling") and one.memory.usage.limit == 64 << 20
        else:
            two = cgroups2_pb2.Metrics.FromString(stats.value)
            assert two.HasField("cpu") and two.HasField("memory_events") and two.memory.usage_limit == 64 << 20
            assert two.cpu.usage_usec > 0 and (ending or (two.memory.usage > 0 and two.pids.current == 1))
    r.delete("box")


def test_a_relay_leaves_when_its_last_task_is_gone(tasks: Tasks) -> None:
    r, other = tasks.relay, Relay(tasks.daemon, tasks.relay.namespace).connect()
    other.create("other", tasks.bundle("other", "/bin/sleep", "60"))
    r.create("box", tasks.bundle("box", "/bin/true"))

    def leaves() -> bool:
        stream = r.begin("Shutdown", pb.ShutdownRequest(id="box"))
        r.answer(stream)
        return r.flags[stream] == LEAVE

    assert not leaves()
    r.delete("box")
    assert leaves()  # the other relay's is none of its business
    r.delete("other")
    other.close()


def test_who_does_not_say_hello_is_refused(tasks: Tasks) -> None:
    stranger = Relay(tasks.daemon, "x").connect(hello=False)
    assert stranger.code("State", pb.StateRequest(id="box")) == 9
    stranger.close()


def test_the_word_in_the_bundle_says_where_the_record_will_be(tasks: Tasks) -> None:
    bundle = tasks.bundle("box", "/bin/true")
    pid = tasks.relay.create("box", bundle)
    word = fields.decode((bundle / "exitd.task").read_bytes(), "task")
    assert word.number("pid") == pid and word.number("started") > 0
    assert (pathlib.Path(word.get("directory")) / "exit.json").exists()
    tasks.relay.delete("box")


def test_nothing_of_a_task_is_left_in_its_cgroup(tasks: Tasks) -> None:
    tasks.relay.create("box", tasks.bundle("box", "/bin/sh", "-c", "sleep 60 & exit 0"))
    tasks.relay.start("box")
    tasks.relay.wait("box")
    tasks.relay.delete("box")
    assert not any((path / "box").exists() for path in cgroup_directories(f"/{tasks.relay.namespace}"))
