"""What the relay knows of a sandbox, a pod's pause container: it answers for exitd as it does for a task."""

import pytest

from protos.containerd import sandbox_pb2 as sb
from protos.containerd import task_pb2 as pb
from shim._native import ffi, lib
from tests.shim.relaysession import Session, session
from tests.shim.relaywords import C1, CACHEABLE, LEAVE, RESPONSE, Frame, code_of, failure, success
from tests.shim.test_relay_witness import (
    AWAY_MS,
    OVERDUE_MS,
    READ_MS,
    SILENCE_MS,
    dies,
    ended,
    is_read,
    record,
    reply,
    task,
)  # fmt: skip

SANDBOX = "containerd.runtime.sandbox.v1.Sandbox"
CREATE = sb.CreateSandboxRequest(sandbox_id="c1", bundle_path="/b/c1", netns_path="/run/netns/x")
READY = sb.SandboxStatusResponse(sandbox_id="c1", pid=42, state="SANDBOX_READY")


def created(s: Session) -> None:
    s.up()
    s.ask(1, "CreateSandbox", CREATE.SerializeToString(), SANDBOX)
    s.hear()
    s.answer(1, success())
    s.take()


def started(s: Session) -> None:
    created(s)
    s.ask(3, "StartSandbox", C1, SANDBOX)
    s.hear()
    s.answer(3, success(sb.StartSandboxResponse(pid=42).SerializeToString()))
    s.take()


def watched(s: Session) -> None:
    lib.witness_watched(s.witness, task(s), 42, 99, -1)


def only(s: Session) -> Frame:
    """The one frame that containerd reads now."""
    (frame,) = s.take()
    return frame


def test_a_wait_is_answered_from_the_record_while_exitd_is_away() -> None:
    with session() as s:
        started(s)
        s.ask(5, "WaitSandbox", C1, SANDBOX)
        s.hear()
        s.down()
        s.passes(60_000)
        assert s.take() == []
        ended(s)
        (frame,) = s.take()
        found = reply(frame, sb.WaitSandboxResponse())
        assert (frame.stream, found.exit_status, found.exited_at.seconds) == (5, 7, 1_700_000_000)


def test_and_while_exitd_is_there_and_silent() -> None:
    with session() as s:
        started(s)
        s.ask(5, "WaitSandbox", C1, SANDBOX)
        s.hear()
        ended(s)
        s.passes(OVERDUE_MS - 1)
        assert s.take() == []
        s.passes(1)
        assert reply(only(s), sb.WaitSandboxResponse()).exit_status == 7


def test_its_status_is_what_exitd_said_last_until_something_has_changed_it() -> None:
    with session() as s:
        created(s)
        s.ask(3, "SandboxStatus", C1, SANDBOX)
        s.hear()
        s.answer(3, success(sb.SandboxStatusResponse(state="SANDBOX_NOTREADY").SerializeToString()), CACHEABLE)
        s.ask(5, "StartSandbox", C1, SANDBOX)
        s.hear()
        s.answer(5, success())
        s.take()
        watched(s)
        s.down()
        s.ask(7, "SandboxStatus", C1, SANDBOX)
        assert reply(only(s), sb.SandboxStatusResponse()) == READY


def test_a_containerd_that_starts_while_exitd_is_away_finds_it_ready() -> None:
    """It asks for Connect and Pids of the sandbox, and for its status."""
    with session() as s:
        started(s)
        watched(s)
        s.down()
        for stream, method, service, found, wanted in (
            (5, "SandboxStatus", SANDBOX, sb.SandboxStatusResponse(), READY),
            (7, "PingSandbox", SANDBOX, sb.PingResponse(), sb.PingResponse()),
            (9, "Connect", "containerd.task.v2.Task", pb.ConnectResponse(), pb.ConnectResponse(task_pid=42)),
        ):
            s.ask(stream, method, C1, service)
            assert reply(only(s), found) == wanted, method


def test_of_an_end_that_was_read_it_says_not_ready_and_since_when() -> None:
    with session() as s:
        started(s)
        s.down()
        ended(s)
        s.ask(5, "SandboxStatus", C1, SANDBOX)
        found = reply(only(s), sb.SandboxStatusResponse())
        assert (found.sandbox_id, found.state, found.pid) == ("c1", "SANDBOX_NOTREADY", 42)
        assert found.exited_at.seconds == 1_700_000_000
        s.ask(7, "PingSandbox", C1, SANDBOX)
        (frame,) = s.take()
        assert code_of(frame.data) == 9


def test_a_stop_of_what_has_ended_finds_nothing() -> None:
    with session() as s:
        started(s)
        s.down()
        ended(s)
        s.ask(5, "StopSandbox", sb.StopSandboxRequest(sandbox_id="c1", timeout_secs=3).SerializeToString(), SANDBOX)
        s.passes(AWAY_MS)
        (frame,) = s.take()
        assert code_of(frame.data) == 5


def test_a_stop_of_what_lives_waits_for_exitd() -> None:
    with session() as s:
        started(s)
        watched(s)
        s.down()
        s.ask(5, "StopSandbox", C1, SANDBOX)
        s.passes(60_000)
        assert s.take() == []


def test_a_shutdown_is_answered_when_exitd_has_been_left_word_and_waits_for_no_event() -> None:
    with session() as s:
        started(s)
        s.down()
        ended(s)
        s.ask(5, "ShutdownSandbox", C1, SANDBOX)
        s.passes(AWAY_MS)
        found = task(s)
        assert s.take() == [] and found.is_wanted
        found.is_noted = 1
        s.passes(0)
        (frame,) = s.take()
        assert frame == Frame(5, RESPONSE, 0, frame.data) and code_of(frame.data) == 0
        assert reply(frame, sb.ShutdownSandboxResponse()) == sb.ShutdownSandboxResponse()
        assert found.is_deleted


def test_no_event_of_its_end_is_brought() -> None:
    """containerd publishes those itself."""
    with session() as s:
        started(s)
        s.down()
        ended(s)
        note, size = ffi.new("struct news *"), ffi.new("size_t *")
        assert lib.news_next(s.witness, 1, note, size) == ffi.NULL


def test_its_network_namespace_is_no_stream() -> None:
    with session() as s:
        started(s)
        watched(s)
        s.down()
        s.ask(5, "State", C1)
        assert reply(only(s), pb.StateResponse()).stdin == ""


def test_metrics_are_refused_within_their_limit() -> None:
    with session() as s:
        started(s)
        s.down()
        s.ask(5, "SandboxMetrics", C1, SANDBOX)
        s.passes(0)
        s.passes(AWAY_MS)
        (frame,) = s.take()
        assert code_of(frame.data) == 14


def test_the_answer_to_a_shutdown_may_be_the_word_to_leave() -> None:
    with session() as s:
        started(s)
        s.ask(5, "ShutdownSandbox", C1, SANDBOX)
        s.hear()
        s.answer(5, success(), LEAVE)
        s.take()
        assert s.c.is_leaving


@pytest.mark.parametrize("method", ["UpdateSandbox", "Create", "Wait", "Shutdown"])
def test_what_the_sandbox_service_does_not_have_is_exitds_to_refuse(method: str) -> None:
    with session() as s:
        created(s)
        s.ask(3, method, C1, SANDBOX)
        s.hear()
        s.answer(3, failure(12))
        (frame,) = s.take()
        assert code_of(frame.data) == 12


def test_an_exitd_that_is_silent_about_a_status_is_stood_in_for() -> None:
    with session() as s:
        started(s)
        watched(s)
        s.ask(5, "SandboxStatus", C1, SANDBOX)
        s.hear()
        s.passes(SILENCE_MS)
        assert reply(only(s), sb.SandboxStatusResponse()) == READY


def test_before_its_end_has_been_read_nothing_is_said_of_it() -> None:
    with session() as s:
        started(s)
        s.ask(5, "WaitSandbox", C1, SANDBOX)
        s.hear()
        s.down()
        dies(s)
        s.passes(READ_MS - 1)
        assert s.take() == []
        is_read(s, record(signal=9))
        s.passes(AWAY_MS)
        assert reply(only(s), sb.WaitSandboxResponse()).exit_status == 137
