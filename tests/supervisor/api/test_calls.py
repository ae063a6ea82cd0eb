"""The RPC door: bursts, errors, callers that go away, and shutdown."""

import asyncio
import os
from pathlib import Path

import grpc
import grpc.aio
import pytest
from structlog.testing import capture_logs

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.servicers import ContainerServicer, methods_of
from supervisor.api.table import EXITD
from supervisor.model import errors
from supervisor.model.values import By
from supervisor.system import listening
from supervisor.system.inotify import Inotify
from tests.supervisor.api.fake_execs import FakeExecs
from tests.supervisor.api.fake_node import FakeNode, until
from tests.supervisor.api.fake_stores import FakePods
from tests.supervisor.api.fake_streams import FakeStreams
from tests.supervisor.api.rig import LIMIT_SECONDS, Rig, created, doors_of, first, reason, refused, run


@pytest.mark.parametrize("error", errors.CODES)
def test_a_named_error_has_its_code_its_words_and_its_reason(tmp_path: Path, error: type[errors.ExitdError]) -> None:
    async def test(rig: Rig) -> None:
        rig.node.failure = error("these words", id="c1")
        for call in (
            rig.exitd.Start(pb.StartRequest(id="c1")),
            rig.exitd.Wait(pb.WaitRequest(id="c1")),
            first(rig.exitd.Events(pb.EventsRequest())),
            first(rig.exitd.Exits(pb.ExitsRequest())),
            first(rig.exitd.Logs(pb.LogsRequest(id="c1"))),
        ):
            refusal = await refused(call)
            assert (refusal.code().value[0], refusal.details()) == (errors.CODES[error], "these words")
            assert (reason(refusal).reason, dict(reason(refusal).metadata)) == (error.reason, {"id": "c1"})

    run(tmp_path, test)


def test_a_bug_tells_the_peer_nothing_and_the_log_everything(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        rig.node.failure = ZeroDivisionError("a secret")
        with capture_logs() as lines:
            for ask in (
                lambda: rig.exitd.Start(pb.StartRequest(id="c1")),
                lambda: rig.exitd.Inspect(pb.InspectRequest(id="c1")),
                lambda: first(rig.exitd.Events(pb.EventsRequest())),
            ):
                call = ask()
                refusal = await refused(call)
                assert (refusal.code(), refusal.details()) == (grpc.StatusCode.INTERNAL, "internal error")
        assert [line["call"] for line in lines] == ["Start", "Inspect", "Events"]
        assert all(line["log_level"] == "error" and line["exc_info"] for line in lines)

    run(tmp_path, test)


@pytest.mark.parametrize("words", ["é" * 100_000, "\n\0\x1b[31m", "caf\udce9", ""])
def test_any_words_of_a_runtime_reach_the_client_with_the_right_code(tmp_path: Path, words: str) -> None:
    async def test(rig: Rig) -> None:
        rig.node.failure = errors.RuntimeFailed(words, **{f"k{n}": words for n in range(20)})
        refusal = await refused(rig.exitd.Start(pb.StartRequest(id="c1")))
        assert refusal.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert reason(refusal).reason == "RUNTIME_FAILED"

    run(tmp_path, test)


def test_two_thousand_waits_are_held_over_one_connection_and_all_are_answered(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        calls = [asyncio.ensure_future(rig.exitd.Wait(pb.WaitRequest(id="c1"))) for _ in range(2000)]
        await until(lambda: rig.node.waiting == 2000)
        assert (await rig.exitd.Version(pb.VersionRequest())).api == "exitd.v1"  # others are served meanwhile
        rig.node.exit_now.set()
        replies = await asyncio.gather(*calls)
        assert [reply.exit.code for reply in replies] == [7] * 2000

    run(tmp_path, test)


def test_a_burst_of_five_thousand_calls_loses_none(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await created(rig)
        calls = (rig.exitd.Inspect(pb.InspectRequest(id="c1")) for _ in range(5000))
        replies = await asyncio.gather(*calls)
        assert all(reply.container.id == "c1" for reply in replies)

    run(tmp_path, test)


def test_a_change_runs_to_its_end_when_its_caller_goes_away(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await created(rig)
        rig.node.gate.clear()
        call = rig.exitd.Stop(pb.StopRequest(id="c1"))
        await rig.node.entered.wait()
        call.cancel()
        await rig.exitd.Version(pb.VersionRequest())
        rig.node.gate.set()
        await until(lambda: "stop" in rig.node.finished)

    run(tmp_path, test)


def test_a_change_runs_to_its_end_when_its_deadline_passes(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await created(rig)
        rig.node.gate.clear()
        seconds = 0.05
        while not rig.node.entered.is_set():  # a deadline may pass before the daemon has heard of the call
            late = await refused(rig.exitd.Stop(pb.StopRequest(id="c1"), timeout=seconds))
            assert late.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            seconds *= 2
        rig.node.gate.set()
        await until(lambda: "stop" in rig.node.finished)

    run(tmp_path, test)


def test_a_change_that_fails_after_its_caller_has_gone_is_logged(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        rig.node.gate.clear()
        with capture_logs() as lines:
            call = rig.exitd.Stop(pb.StopRequest(id="gone"))
            await rig.node.entered.wait()
            call.cancel()
            await until(lambda: bool(rig.server._calls._work))
            for _ in range(3):
                await rig.exitd.Version(pb.VersionRequest())  # by then the server knows that the caller has gone
            rig.node.gate.set()
            await until(lambda: bool(lines))
        assert lines[0]["event"] == "failed after its caller had gone"

    run(tmp_path, test)


def test_a_wait_ends_when_its_caller_goes_away(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        call = rig.exitd.Wait(pb.WaitRequest(id="c1"))
        await rig.node.entered.wait()
        call.cancel()
        await until(lambda: not rig.node.waiting)
        await until(lambda: not rig.server._calls._waiting)

    run(tmp_path, test)


def test_a_subscription_is_closed_when_its_caller_goes_away(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        call = rig.exitd.Events(pb.EventsRequest())
        for _ in range(3):
            await call.read()
        assert rig.node.streams_open == 1
        call.cancel()
        await rig.node.streams_closed.wait()
        assert rig.node.streams_open == 0

    run(tmp_path, test)


def test_more_changes_than_the_limit_are_refused_not_queued(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await created(rig)
        rig.server._calls._max_work = 1
        rig.node.gate.clear()
        first = asyncio.ensure_future(rig.exitd.Stop(pb.StopRequest(id="c1")))
        await rig.node.entered.wait()
        refusal = await refused(rig.exitd.Stop(pb.StopRequest(id="c1")))
        assert (refusal.code(), reason(refusal).reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "BUSY")
        rig.node.gate.set()
        await first

    run(tmp_path, test)


def test_stopping_sends_waiters_away_with_the_reason_and_lets_changes_finish(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await created(rig)
        wait = asyncio.ensure_future(rig.exitd.Wait(pb.WaitRequest(id="c1")))
        events = rig.exitd.Events(pb.EventsRequest())
        for _ in range(3):
            await events.read()
        await until(lambda: bool(rig.node.waiting))
        rig.node.entered.clear()
        rig.node.gate.clear()
        stop = asyncio.ensure_future(rig.exitd.Stop(pb.StopRequest(id="c1")))
        await rig.node.entered.wait()
        stopping = asyncio.ensure_future(rig.server.stop(LIMIT_SECONDS))
        for refusal in (await refused(wait), await refused(events.read())):
            assert (refusal.code(), reason(refusal).reason) == (grpc.StatusCode.UNAVAILABLE, "SHUTTING_DOWN")
        late = await refused(rig.exitd.Start(pb.StartRequest(id="c1")))
        assert (late.code(), reason(late).reason) == (grpc.StatusCode.UNAVAILABLE, "SHUTTING_DOWN")
        rig.node.gate.set()
        assert (await stop).container.id == "c1"
        await stopping

    run(tmp_path, test)
    assert not (tmp_path / "exitd.sock").exists()


def test_a_change_that_does_not_end_in_time_is_given_up_at_shutdown(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await created(rig)
        rig.node.gate.clear()
        stop = asyncio.ensure_future(rig.exitd.Stop(pb.StopRequest(id="c1")))
        await rig.node.entered.wait()
        with capture_logs() as lines:
            await rig.server.stop(0.05)
        refusal = await refused(stop)
        assert (refusal.code(), reason(refusal).reason) == (grpc.StatusCode.UNAVAILABLE, "SHUTTING_DOWN")
        assert [line["calls"] for line in lines if line["log_level"] == "warning"] == [1]
        await rig.server.stop(0.05)

    run(tmp_path, test)


def test_a_token_names_the_caller_and_a_stale_one_is_refused(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await created(rig)
        reader, writer = await asyncio.open_unix_connection(rig.callers.path)
        metadata = (("exitd-caller", (await reader.readline()).decode().strip()),)
        await rig.exitd.Start(pb.StartRequest(id="c1"), metadata=metadata)
        assert rig.node.asked[-1] == ("start", "c1", False, By(uid=os.getuid(), pid=os.getpid()))
        writer.close()
        await until(lambda: len(rig.callers) == 0)
        refusal = await refused(rig.exitd.Start(pb.StartRequest(id="c1"), metadata=metadata))
        assert (refusal.code(), reason(refusal).reason) == (grpc.StatusCode.PERMISSION_DENIED, "NOT_PERMITTED")
        streamed = await refused(first(rig.exitd.Events(pb.EventsRequest(), metadata=metadata)))
        assert reason(streamed).reason == "NOT_PERMITTED"

    run(tmp_path, test)


def test_a_call_that_would_hold_descriptors_is_refused_when_the_rest_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await created(rig)
        monkeypatch.setattr(listening, "limit", lambda: 8)
        attach = rig.exitd.Attach(iter([pb.AttachRequest(start=pb.AttachStart(id="c1"))]))
        for call in (attach, rig.exitd.Logs(pb.LogsRequest(id="c1", follow=True))):
            assert reason(await refused(first(call))).reason == "BUSY"
        await rig.exitd.Inspect(pb.InspectRequest(id="c1"))

    run(tmp_path, test)


def test_each_method_of_the_table_is_of_exactly_one_group() -> None:
    node, changes = FakeNode(), Inotify()
    containers = ContainerServicer(node, FakePods(node), FakeExecs(node), FakeStreams(node))
    with pytest.raises(KeyError, match=r"\w+ is a method of 0 groups"):
        methods_of(containers)
    with pytest.raises(KeyError, match="CreateContainer is a method of 2 groups"):
        methods_of(containers, containers)
    assert doors_of(node, changes).keys() == {method.name for method in EXITD.methods}
    changes.close()
