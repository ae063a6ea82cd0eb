"""exitd is killed, and a relay sends again what was not answered: each request is answered once, and done once."""

import hashlib
import os
import pathlib
import signal
import time

import pytest
from google.protobuf.message import Message

from protos.containerd import process_pb2
from protos.containerd import task_pb2 as pb
from protos.exitd.v1.exitd_pb2 import ExitsRequest
from shim import fields
from supervisor.api.client import Client
from supervisor.ttrpc.faults import CallFailed
from supervisor.ttrpc.frames import Frame
from tests.system.daemons import remove_all
from tests.system.processes import killed
from tests.system.tasks import BYE, DONE, Relay, Tasks
from tests.system.waits import until

# What is under way is given so long when exitd gets SIGTERM: longer than any stop takes here that waits for nothing.
pytestmark = pytest.mark.limits({"supervisor.containerd.taskserver.GRACE_SECONDS": 20.0})

CREATED, RUNNING, STOPPED, PAUSED = process_pb2.CREATED, process_pb2.RUNNING, process_pb2.STOPPED, process_pb2.PAUSED


def test_an_answered_request_that_comes_again_gets_the_same_answer_and_does_nothing(lone_tasks: Tasks) -> None:
    r = lone_tasks.relay
    bundle, rootfs = lone_tasks.mounted("box", "/bin/sleep", "60")
    asked: list[tuple[str, Message]] = [
        ("Create", pb.CreateTaskRequest(id="box", bundle=str(bundle), rootfs=rootfs)),
        ("Start", pb.StartRequest(id="box")),
    ]
    answers = []
    for method, request in asked:
        stream = r.begin(method, request)
        answers.append((stream, r.answer(stream)))
        before = lone_tasks.log()
        lone_tasks.restart()
        r.again(*(old for old, _ in answers))
        for old, answer in answers:
            assert r.answer(old) == answer
        assert lone_tasks.log() == before and lone_tasks.mounts() == 1
    for verb, status in (("Pause", PAUSED), ("Resume", RUNNING)):
        stream = r.begin(verb, pb.PauseRequest(id="box"))  # of the same form as a ResumeRequest
        r.answer(stream)
        before = lone_tasks.log()
        lone_tasks.restart()
        r.again(stream)
        r.answer(stream)
        assert r.state("box").status == status and lone_tasks.log() == before
    assert r.kill("box") == 0
    r.wait("box")
    deleting = r.begin("Delete", pb.DeleteRequest(id="box"))
    deleted = r.answer(deleting)
    before = lone_tasks.log()
    lone_tasks.restart()
    r.again(deleting)
    assert r.answer(deleting) == deleted and deleted.exit_status == 137  # type: ignore[attr-defined]
    assert lone_tasks.log() == before
    assert r.delete("box") == deleted  # another request: who asked may not have had the answer of the first


def test_the_requests_of_an_exec_come_again_too(lone_tasks: Tasks) -> None:
    r = lone_tasks.relay
    r.create("box", lone_tasks.bundle("box", "/bin/sleep", "60"))
    r.start("box")
    adding = r._next
    assert r.add_exec("box", "e", "/bin/sleep", "60") == 0
    lone_tasks.restart()
    r.again(adding)
    r.answer(adding)
    starting = r.begin("Start", pb.StartRequest(id="box", exec_id="e"))
    started = r.answer(starting)
    before = lone_tasks.log()
    lone_tasks.restart()
    r.again(starting)
    assert r.answer(starting) == started and lone_tasks.log() == before
    waiting = r.begin("Wait", pb.WaitRequest(id="box", exec_id="e"))
    lone_tasks.restart()
    assert r.kill("box", 15, "e") == 0
    ended = r.answer(waiting)
    deleting = r.begin("Delete", pb.DeleteRequest(id="box", exec_id="e"))
    deleted = r.answer(deleting)
    lone_tasks.restart()
    r.again(waiting, deleting)
    assert r.answer(deleting) == deleted and r.answer(waiting) == ended
    assert r.code("Delete", pb.DeleteRequest(id="box", exec_id="e")) == 5
    r.kill("box")
    r.wait("box")
    r.delete("box")


def test_an_end_while_exitd_is_away_is_told_to_who_waits_with_its_true_code_and_time(lone_tasks: Tasks) -> None:
    r = lone_tasks.relay
    go = lone_tasks.base / "box" / "rootfs" / "go"
    r.create("box", lone_tasks.bundle("box", "/bin/sh", "-c", "until test -e /go; do sleep 0.01; done; exit 43"))
    pid = r.start("box")
    waiting = [r.begin("Wait", pb.WaitRequest(id="box")) for _ in range(3)]
    lone_tasks.daemon.kill()
    go.touch()
    until(lambda: not os.path.exists(f"/proc/{pid}"), "its end")
    lone_tasks.daemon.start()
    r.again()
    ends = [r.answer(stream) for stream in waiting]
    assert ends[0].exit_status == 43 and ends[0] == ends[1] == ends[2]  # type: ignore[attr-defined]
    r.delete("box")


def test_a_create_that_was_broken_off_leaves_no_mount_when_nobody_asks_again(lone_tasks: Tasks) -> None:
    bundle, rootfs = lone_tasks.mounted("box", "/bin/sleep", "60")
    lone_tasks.relay.begin("Create", pb.CreateTaskRequest(id="box", bundle=str(bundle), rootfs=rootfs))
    until(lambda: lone_tasks.mounts() == 1, "its root file system")
    lone_tasks.daemon.kill()
    lone_tasks.daemon.start()
    lone_tasks.relay.connect()
    with lone_tasks.daemon.client() as client:
        _end_if_made(lone_tasks, client)
    until(lambda: lone_tasks.mounts() == 0, "the mount is taken down")


def _end_if_made(lone_tasks: Tasks, client: Client) -> None:
    """It may have been quicker than the kill."""
    until(lambda: not any(each.recovering for each in client.list(all_of_them=True)), "the look-ups")
    remove_all(client)


def test_a_connection_that_goes_takes_its_waits_along_and_nothing_else(lone_tasks: Tasks) -> None:
    r = lone_tasks.relay
    r.create("box", lone_tasks.bundle("box", "/bin/sleep", "60"))
    r.start("box")
    with lone_tasks.daemon.client() as client:
        client.info()
        before = len(os.listdir(f"/proc/{lone_tasks.daemon.pid}/fd"))
        other = Relay(lone_tasks.daemon, r.namespace, number=2).connect()
        for _ in range(50):
            other.begin("Wait", pb.WaitRequest(id="box"))
        until(lambda: client.info().settings["waiters"] == "50", "they wait")
        other.close()
        until(lambda: client.info().settings["waiters"] == "0", "they are gone")
        until(lambda: len(os.listdir(f"/proc/{lone_tasks.daemon.pid}/fd")) == before, "its descriptor is gone")
    assert r.state("box").status == RUNNING
    r.kill("box")
    r.wait("box")
    r.delete("box")


def test_a_request_is_done_to_its_end_when_its_connection_goes(lone_tasks: Tasks) -> None:
    r = lone_tasks.relay
    creating = r.begin(
        "Create", pb.CreateTaskRequest(id="box", bundle=str(lone_tasks.bundle("box", "/bin/sleep", "60")))
    )
    r.again()
    pid = r.answer(creating).pid  # type: ignore[attr-defined]
    assert pid > 1 and lone_tasks.log().count("create") == 1
    r.delete("box")


def test_an_answer_that_has_arrived_is_forgotten(lone_tasks: Tasks) -> None:
    r = lone_tasks.relay
    streams = []
    for n in range(3):
        r.create(f"box{n}", lone_tasks.bundle(f"box{n}", "/bin/true"))
        streams.append(r.begin("Delete", pb.DeleteRequest(id=f"box{n}")))
        r.answer(streams[-1])
    r.say(Frame(streams[0], DONE, 0, b""))
    until(lambda: not known_again(r, streams[0]), "the answer is forgotten")
    assert known_again(r, streams[1]) and known_again(r, streams[2])
    r.say(Frame(0, BYE, 0, b""))
    until(lambda: not known_again(r, streams[1]), "all answers of the connection are forgotten")
    assert not known_again(r, streams[2])


def known_again(r: Relay, stream: int) -> bool:
    r.again(stream)
    try:
        r.answer(stream)
    except CallFailed as error:
        assert error.code == 5
        return False
    return True


def test_a_task_that_containerd_has_given_up_is_ended_and_its_true_end_is_reported(lone_tasks: Tasks) -> None:
    r = lone_tasks.relay
    bundle, rootfs = lone_tasks.mounted("box", "/bin/sleep", "60")
    pid = r.create("box", bundle, rootfs=rootfs)
    r.start("box")
    r.close()
    helper = Relay(lone_tasks.daemon, r.namespace).connect(hello=False)
    told = helper.clean_up("box", bundle)
    assert (told.pid, told.exit_status) == (pid, 137) and told.exited_at.seconds > 0
    assert lone_tasks.mounts() == 0
    assert helper.clean_up("box", bundle) == told  # as often as it is asked
    nobody = helper.clean_up("nobody", bundle)
    assert (nobody.pid, nobody.exit_status) == (0, 255)
    helper.close()


def test_a_task_that_was_deleted_for_a_containerd_that_died_meanwhile_has_its_true_end(lone_tasks: Tasks) -> None:
    """It calls `delete` of the relay when it is back, with the bundle that it had no time to remove."""
    r, bundle = lone_tasks.relay, lone_tasks.bundle("box", "/bin/sh", "-c", "exit 43")
    pid = r.create("box", bundle)
    r.start("box")
    end = r.ask("Wait", pb.WaitRequest(id="box"))
    r.delete("box")
    r.say(Frame(0, BYE, 0, b""))
    r.close()
    helper = Relay(lone_tasks.daemon, r.namespace).connect(hello=False)
    elsewhere = bundle.with_name("elsewhere")
    until(lambda: helper.clean_up("box", elsewhere).exit_status == 255, "the answer to its Delete is forgotten")
    told = helper.clean_up("box", bundle)
    assert (told.pid, told.exit_status, told.exited_at) == (pid, 43, end.exited_at)  # type: ignore[attr-defined]
    (bundle / "exitd.task").write_bytes(b"nonsense")
    assert helper.clean_up("box", bundle).exit_status == 255
    helper.close()


def test_the_word_that_was_left_while_exitd_was_away_is_acted_on(lone_tasks: Tasks) -> None:
    r = lone_tasks.relay
    bundle = lone_tasks.bundle("box", "/bin/sleep", "60")
    r.create("box", bundle)
    r.start("box")
    lone_tasks.daemon.kill()
    gone = leave_word(lone_tasks, bundle)
    lone_tasks.daemon.start()
    r.connect()
    assert r.create("box", bundle) > 1  # a new one, at once
    until(lambda: not gone.exists(), "the word is taken up")
    assert r.state("box").status == CREATED
    r.delete("box")


def leave_word(lone_tasks: Tasks, bundle: pathlib.Path) -> pathlib.Path:
    """As the relay's `delete` does it."""
    gone = (
        lone_tasks.daemon.state
        / "shimv2"
        / "gone"
        / hashlib.sha256(f"{lone_tasks.relay.namespace}/box".encode()).hexdigest()
    )
    made = gone.with_suffix(".1")
    pairs = (("namespace", lone_tasks.relay.namespace), ("id", "box"), ("bundle", str(bundle)))
    made.write_bytes(fields.encode("gone", pairs))
    return made.rename(gone)


def test_the_word_of_who_could_not_reach_exitd_is_acted_on_while_it_is_there(lone_tasks: Tasks) -> None:
    """It is stopped, say, for longer than `delete` waits."""
    r = lone_tasks.relay
    r.create("box", bundle := lone_tasks.bundle("box", "/bin/sleep", "60"))
    r.start("box")
    waiting = r.begin("Wait", pb.WaitRequest(id="box"))
    gone = leave_word(lone_tasks, bundle)
    assert r.answer(waiting).exit_status == 137  # type: ignore[attr-defined]
    until(lambda: not gone.exists(), "the word is taken up")
    assert r.code("State", pb.StateRequest(id="box")) == 5


def test_the_word_of_a_task_that_was_ended_too_while_exitd_was_away_is_acted_on(lone_tasks: Tasks) -> None:
    """As it is when a relay has died. Nobody asks for the task any more."""
    r, bundle = lone_tasks.relay, lone_tasks.bundle("box", "/bin/sleep", "60")
    init = r.create("box", bundle)
    r.start("box")
    lone_tasks.daemon.kill()
    killed(init)
    gone = leave_word(lone_tasks, bundle)
    lone_tasks.daemon.start()
    until(lambda: not gone.exists(), "the word is taken up")
    with lone_tasks.daemon.client() as client:
        assert not client.list(all_of_them=True)
        (end,) = [row for row in client.exits(ExitsRequest()) if row.namespace == r.namespace]
    assert (end.kind, end.signal, end.init.pid) == ("signaled", signal.SIGKILL, init)


def test_exitd_that_is_told_to_stop_does_not_wait_for_who_waits(lone_tasks: Tasks) -> None:
    r = lone_tasks.relay
    r.create("box", lone_tasks.bundle("box", "/bin/sleep", "60"))
    r.start("box")
    waiting = r.begin("Wait", pb.WaitRequest(id="box"))
    begun = time.monotonic()
    lone_tasks.daemon.kill(signal.SIGTERM)
    assert time.monotonic() - begun < 15
    with pytest.raises(ConnectionError):
        r.answer(waiting)
    lone_tasks.daemon.start()
    r.again()
    r.kill("box")
    assert r.answer(waiting).exit_status == 137  # type: ignore[attr-defined]
    r.delete("box")
