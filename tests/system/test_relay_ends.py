"""The relay as a program answers for an exitd that is away or silent: the end of a task whose record, or
exitd's note of it, it has read."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from protos.containerd import events_pb2, forward_pb2, process_pb2
from protos.containerd import task_pb2 as pb
from protos.ttrpc.v1.ttrpc_pb2 import Request, Response
from shim import fields, prepare, record
from tests.shim.relaywords import (
    C1,
    CACHEABLE,
    EXEC,
    HELLO,
    KEEP,
    PID,
    REQUEST,
    RESPONSE,
    Frame,
    code_of,
    of_task,
    success,
)  # fmt: skip
from tests.shim.test_relay_news import forwarded
from tests.system.processes import open_files, private_kb
from tests.system.relay import Chain, Container, Containerd, Peer, Relays, chain_of, container, ends, is_watched
from tests.system.test_relay_events import Taker, hand
from tests.system.waits import until

CODE, UNAVAILABLE = 7, 14
AT_NS = 1_700_000_000_250_000_000
E1 = of_task("c1", "e")


@pytest.fixture
def c(relays: Relays) -> Iterator[Container]:
    with container(relays, f"read x; exit {CODE}") as made:
        yield made


def made(c: Container) -> Chain:
    """A task, by exitd; of a Wait on stream 1 the answer is still to come."""
    chain = chain_of(c.relays, c.bundle)
    create = pb.CreateTaskRequest(id="c1", bundle=str(c.bundle.directory), stdout="/f/out")
    chain.ask(3, "Create", create.SerializeToString(), PID, KEEP)
    done = chain.up.next()
    assert done is not None and done.stream == 3
    return chain


def answered(chain: Chain, stream: int, message: Any) -> Any:
    frame = chain.client.next()
    assert frame is not None and (frame.stream, frame.type) == (stream, RESPONSE), frame
    response = Response.FromString(frame.data)
    assert not response.status.code
    message.ParseFromString(response.payload)
    return message


def test_with_exitd_away_a_wait_and_a_state_are_answered_with_the_true_code_and_time(c: Container) -> None:
    chain = made(c)
    chain.ask(5, "State", C1, success(pb.StateResponse(status=process_pb2.RUNNING).SerializeToString()), CACHEABLE)
    c.watched()
    chain.exitd.end()
    assert chain.client.silent()
    ends(c)
    waited = answered(chain, 1, pb.WaitResponse())
    chain.client.ask(7, "State", C1)
    state = answered(chain, 7, pb.StateResponse())
    assert (waited.exit_status, state.status, state.pid) == (CODE, process_pb2.STOPPED, c.init.pid)
    assert (state.exit_status, state.exited_at, state.stdout) == (CODE, waited.exited_at, "/f/out")
    chain.exitd.again()
    up, _ = chain.exitd.greeted()
    chain.client.ask(9, "Delete", C1)
    assert [frame.stream for frame in up.frames(2)] == [3, 9]  # a DONE, and no Wait


def test_an_end_before_exitd_went_away_is_reported_too(c: Container) -> None:
    chain = made(c)
    c.watched()
    ends(c)
    chain.exitd.end()
    assert answered(chain, 1, pb.WaitResponse()).exit_status == CODE


def test_an_exitd_that_is_there_and_silent_is_stood_in_for(c: Container) -> None:
    chain = made(c)
    c.watched()
    ends(c)
    assert answered(chain, 1, pb.WaitResponse()).exit_status == CODE
    chain.answer(1, success(pb.WaitResponse(exit_status=CODE).SerializeToString()))
    chain.ask(5, "Kill", C1, success())  # the late answer was passed over


def test_a_record_that_is_written_late_is_found(c: Container) -> None:
    chain = made(c)
    chain.exitd.end()
    started = c.started
    ends(c)
    assert chain.client.silent(2.5)
    c.record(CODE, False, started)
    assert answered(chain, 1, pb.WaitResponse()).exit_status == CODE


@pytest.mark.parametrize("how", ["none", "another process's", "damaged"])
def test_without_its_record_an_end_waits_for_exitd(c: Container, how: str) -> None:
    chain = made(c)
    chain.exitd.end()
    started = c.started
    ends(c)
    if how != "none":
        c.record(CODE, False, started + (how == "another process's"))
    if how == "damaged":
        with (c.directory / "exit.json").open("r+b") as file:
            file.seek(100)
            file.write(b"~")
    c.init.wait(20)
    assert chain.client.silent(3)
    chain.exitd.again()
    up, _ = chain.exitd.greeted()
    assert [frame.stream for frame in up.frames(3)] == [3, 1, 1]
    up.send(Frame(1, RESPONSE, 0, PID))
    assert chain.client.next() == Frame(1, RESPONSE, 0, PID)


@pytest.mark.parametrize("code", [CODE, 255])
def test_an_end_that_exitd_has_noted_before_it_removed_the_record_is_reported(c: Container, code: int) -> None:
    chain = made(c)
    is_watched(chain)
    c.leave_end(code, AT_NS)
    ends(c)
    c.init.wait(20)
    (c.directory / record.NAME).unlink()
    chain.exitd.end()
    waited = answered(chain, 1, pb.WaitResponse())
    assert (waited.exit_status, waited.exited_at.ToNanoseconds()) == (code, AT_NS)


def test_the_noted_end_of_another_process_is_not_that_of_init(c: Container) -> None:
    chain = made(c)
    is_watched(chain)
    c.leave_end(CODE, AT_NS, started=c.started + 1)
    ends(c)
    c.init.wait(20)
    chain.exitd.end()
    assert chain.client.silent(2.5)


def test_memory_kills_of_an_end_that_exitd_has_noted_are_an_event(c: Container) -> None:
    chain, started = made(c), events_pb2.TaskStart(container_id="c1", pid=c.init.pid)
    with contextlib.closing(Taker(chain)) as taker:
        hand(chain, 1, Request(payload=forwarded(started).SerializeToString()).SerializeToString())
        peer = taker.accept()
        is_watched(chain)
        c.leave_end(137, AT_NS, oom_kills=2)
        c.init.kill()
        c.init.wait(20)
        found = []
        for _ in range(3):
            frame = peer.next()
            assert frame is not None
            found.append(forward_pb2.ForwardRequest.FromString(Request.FromString(frame.data).payload).envelope.topic)
            peer.send(Frame(frame.stream, RESPONSE, 0, success()))
            if len(found) == 1:
                chain.exitd.end()
        assert found == ["/tasks/start", "/tasks/oom", "/tasks/exit"]


def test_one_that_had_ended_before_its_create_was_answered_is_reported_too(c: Container) -> None:
    started = c.started
    ends(c)
    c.record(CODE, False, started)
    c.init.wait(20)
    chain = made(c)
    chain.exitd.end()
    assert answered(chain, 1, pb.WaitResponse()).exit_status == CODE


def test_a_killed_task_that_the_relay_has_reported_ends_as_it_did_after_the_relays_death_too(c: Container) -> None:
    chain = made(c)
    c.watched()
    chain.exitd.end()
    c.init.kill()
    assert answered(chain, 1, pb.WaitResponse()).exit_status == 128 + signal.SIGKILL
    os.kill(chain.pid, signal.SIGKILL)
    chain.relays.gone(chain.pid)
    deleted = pb.DeleteResponse.FromString(chain.relays.delete(c.bundle)[0])
    assert (deleted.exit_status, deleted.pid) == (128 + signal.SIGKILL, c.init.pid)


def test_with_exitd_away_a_containerd_that_restarts_finds_a_task_of_which_exitd_was_never_asked(c: Container) -> None:
    chain = made(c)
    is_watched(chain)
    chain.ask(5, "Start", C1, PID)
    chain.exitd.end()
    chain.client.close()
    chain.client = chain.relays.connect(c.bundle.address)
    for stream, method in ((1, "Connect"), (3, "Pids"), (5, "State")):
        chain.client.ask(stream, method, C1)
    connect = answered(chain, 1, pb.ConnectResponse())
    pids = answered(chain, 3, pb.PidsResponse())
    state = answered(chain, 5, pb.StateResponse())
    assert (connect.shim_pid, connect.task_pid) == (chain.pid, c.init.pid)
    assert [each.pid for each in pids.processes] == [state.pid] == [c.init.pid]
    assert state.status == process_pb2.RUNNING


def test_with_exitd_away_the_end_of_an_exec_is_reported_and_its_delete_reaches_exitd_when_it_is_back(
    c: Container,
) -> None:
    chain = made(c)
    is_watched(chain)  # or its descriptor would be taken for the exec's
    directory = c.relays.directory / "exec"
    directory.mkdir()
    prepare.make_record(str(directory / record.NAME))
    with subprocess.Popen(["sh", "-c", "read x; exit 21"], stdin=subprocess.PIPE) as process:
        exec_ = Container(c.relays, c.bundle, process, directory)
        before = len(open_files(chain.pid))
        word: list[tuple[str, str | int]] = [("id", "c1"), ("exec", "e"), ("record", str(directory / record.NAME))]
        word += [("pid", process.pid), ("started", exec_.started)]
        chain.client.ask(5, "Start", E1)
        asked = chain.up.next()
        assert asked is not None and asked.stream == 5
        chain.up.send(Frame(0, EXEC, 0, fields.encode("exec", word)), Frame(5, RESPONSE, 0, PID))
        assert chain.client.next() == Frame(5, RESPONSE, 0, PID)
        until(lambda: len(open_files(chain.pid)) == before + 1, "the exec is watched")
        exec_.watched()
        chain.exitd.end()
        chain.client.ask(7, "Wait", E1)
        chain.client.ask(9, "Delete", E1)
        assert chain.client.silent()
        ends(exec_)
        waited = answered(chain, 7, pb.WaitResponse())
        deleted = answered(chain, 9, pb.DeleteResponse())
        assert (waited.exit_status, deleted.exit_status, deleted.pid) == (21, 21, process.pid)
        assert waited.exited_at == deleted.exited_at
        assert exec_.thread is not None
        exec_.thread.join(20)
    chain.exitd.again()
    up, _ = chain.exitd.greeted()
    assert [(frame.type, frame.stream) for frame in up.frames(4) if frame.type == REQUEST] == [
        (REQUEST, 1),
        (REQUEST, 9),
    ]
    until(lambda: len(open_files(chain.pid)) <= before, "the exec is no longer watched")


def test_a_silent_exitd_holds_up_neither_state_nor_pids_nor_connect(c: Container) -> None:
    chain = made(c)
    is_watched(chain)
    chain.ask(5, "Start", C1, PID)
    began = time.monotonic()
    for stream, method in ((7, "Connect"), (9, "Pids"), (11, "State")):
        chain.client.ask(stream, method, C1)
    assert answered(chain, 7, pb.ConnectResponse()).task_pid == c.init.pid
    assert [each.pid for each in answered(chain, 9, pb.PidsResponse()).processes] == [c.init.pid]
    assert answered(chain, 11, pb.StateResponse()).status == process_pb2.RUNNING
    assert 0.99 < time.monotonic() - began < 2.9, "the limit of silence, in whole milliseconds, and not one for each"


def test_what_one_relay_has_found_of_a_silent_exitd_the_others_need_not_wait_for(relays: Relays) -> None:
    """They wait again once it has been heard."""
    (word := relays.state / "shimv2").mkdir()
    first, other, ups = asked_of_two(relays)
    began = time.monotonic()
    first.ask(3, "Stats", C1)
    assert (refused := first.next()) is not None and code_of(refused.data) == UNAVAILABLE
    assert 0.99 < time.monotonic() - began < 3
    assert [path.name for path in word.iterdir()] == ["silent"], "it was the limit of statistics, which leaves no word"
    began = time.monotonic()
    other.ask(3, "Stats", C1)
    assert (refused := other.next()) is not None and code_of(refused.data) == UNAVAILABLE
    assert time.monotonic() - began < 0.99, "it has waited for itself"
    assert [path.name for path in word.iterdir()] == ["silent"]
    assert [frame.stream for frame in ups[0].frames(2)] == [1, 3]
    ups[0].send(Frame(3, RESPONSE, 0, PID))
    until(lambda: not [*word.iterdir()], "it counts as silent")
    other.ask(5, "Stats", C1)
    assert [frame.stream for frame in ups[1].frames(3)] == [1, 3, 5]  # within the limit of silence, or it is refused
    assert other.silent(0.2)
    ups[1].send(Frame(5, RESPONSE, 0, PID))
    assert other.next() == Frame(5, RESPONSE, 0, PID)


def test_an_exitd_that_reads_and_is_slow_with_one_answer_is_silent_to_nobody_else(relays: Relays) -> None:
    (word := relays.state / "shimv2").mkdir()
    first, other, ups = asked_of_two(relays)
    for up in ups:
        assert [frame.stream for frame in up.frames(1)] == [1]
    began = time.monotonic()
    first.ask(3, "Stats", C1)
    assert [frame.stream for frame in ups[0].frames(1)] == [3]
    assert (refused := first.next()) is not None and code_of(refused.data) == UNAVAILABLE
    assert time.monotonic() - began > 1.49, "the limit of statistics, not that of silence"
    assert [*word.iterdir()] == []
    other.ask(3, "Stats", C1)
    assert [frame.stream for frame in ups[1].frames(1)] == [3]
    ups[1].send(Frame(3, RESPONSE, 0, PID))
    assert other.next() == Frame(3, RESPONSE, 0, PID)


def asked_of_two(relays: Relays) -> tuple[Containerd, Containerd, list[Peer]]:
    """Two pods' relays, and the ends that exitd has of them: each hands on a Wait first."""
    exitd, clients, ups = relays.exitd(), [], []
    for id in ("one", "two"):
        client = relays.connect(relays.start(relays.bundle(id)))
        client.ask(1, "Wait", C1)
        clients.append(client)
        ups.append(exitd.accept())
        hello = ups[-1].next()
        assert hello is not None and hello.type == HELLO
    return clients[0], clients[1], ups


def test_a_task_costs_a_descriptor_until_it_has_ended(c: Container) -> None:
    chain = made(c)
    before = len(open_files(chain.pid))
    is_watched(chain)
    c.watched()
    ends(c)
    answered(chain, 1, pb.WaitResponse())
    assert len(open_files(chain.pid)) < before + 1
    size = private_kb(chain.pid)
    print(f"private memory after an end: {size} kB")
    assert size <= 60
