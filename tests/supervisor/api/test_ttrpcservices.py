"""The same service table over ttrpc: its errors, its callers, its health, and its end."""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from google.rpc import error_details_pb2  # type: ignore[import-untyped]  # ships no py.typed
from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]  # ships no py.typed
from structlog.testing import capture_logs

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api import health
from supervisor.api.server import ApiServer
from supervisor.api.table import EXITD, classes
from supervisor.api.ttrpcservices import KINDS
from supervisor.model import errors
from supervisor.model.errors import CannotStart, Code
from supervisor.model.values import By
from supervisor.system.inotify import Inotify
from supervisor.ttrpc.client import TtrpcClient
from supervisor.ttrpc.faults import CallFailed
from supervisor.ttrpc.services import CallKind
from tests.supervisor.api.fake_node import FakeNode, until
from tests.supervisor.api.rig import LIMIT_SECONDS, SPEC, Rig, doors_of, serving

ME = By(uid=os.getuid(), pid=os.getpid())


class Caller:
    """A ttrpc client that finds a method by its name."""

    def __init__(self, client: TtrpcClient, rig: Rig) -> None:
        self.client = client
        self.rig = rig

    async def call(self, method: str, request: Any, seconds: float | None = None) -> Any:
        reply = classes(EXITD.methods_by_name[method])[1]
        return await self.client.call(f"{EXITD.full_name}/{method}", request, reply, seconds)

    def stream(self, method: str, request: Any) -> Any:
        reply = classes(EXITD.methods_by_name[method])[1]
        return self.client.stream(f"{EXITD.full_name}/{method}", CallKind.SERVER, reply, None, request=request)

    async def first(self, method: str, request: Any) -> Any:
        async with self.stream(method, request) as replies:
            return await anext(replies)

    async def health(self, method: str, service: str) -> Any:
        name, request = f"{health.SERVICE.full_name}/{method}", health_pb2.HealthCheckRequest(service=service)
        return await self.client.call(name, request, health_pb2.HealthCheckResponse, None)


def run(folder: Path, test: Callable[[Caller], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(LIMIT_SECONDS), serving(folder) as rig, calling(folder, rig) as caller:
            await test(caller)

    asyncio.run(main())


@asynccontextmanager
async def calling(folder: Path, rig: Rig) -> AsyncIterator[Caller]:
    client = await TtrpcClient.connect(str(folder / "exitd.ttrpc"))
    try:
        yield Caller(client, rig)
    finally:
        client.close()


async def refused(call: Awaitable[object]) -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        await call
    return caught.value


def reason(error: CallFailed) -> error_details_pb2.ErrorInfo:
    info = error_details_pb2.ErrorInfo()
    assert error.details[0].Unpack(info)
    assert info.domain == "exitd"
    return info


@pytest.mark.parametrize("error", errors.CODES)
def test_a_named_error_has_the_code_the_words_and_the_reason_it_has_over_grpc(
    tmp_path: Path, error: type[errors.ExitdError]
) -> None:
    async def test(caller: Caller) -> None:
        caller.rig.node.failure = error("these words", id="c1")
        for call in (
            caller.call("Start", pb.StartRequest(id="c1")),
            caller.call("Wait", pb.WaitRequest(id="c1")),
            caller.first("Events", pb.EventsRequest()),
            caller.first("Logs", pb.LogsRequest(id="c1")),
        ):
            refusal = await refused(call)
            assert (refusal.code, refusal.text) == (errors.CODES[error], "these words")
            assert (reason(refusal).reason, dict(reason(refusal).metadata)) == (error.reason, {"id": "c1"})

    run(tmp_path, test)


def test_a_bug_tells_the_peer_nothing_and_the_log_everything(tmp_path: Path) -> None:
    async def test(caller: Caller) -> None:
        caller.rig.node.failure = ZeroDivisionError("a secret")
        with capture_logs() as lines:
            for call in (
                caller.call("Start", pb.StartRequest(id="c1")),
                caller.call("Inspect", pb.InspectRequest(id="c1")),
                caller.first("Events", pb.EventsRequest()),
            ):
                refusal = await refused(call)
                assert (refusal.code, refusal.text) == (Code.INTERNAL, "internal error")
        assert [line["call"] for line in lines] == ["Start", "Inspect", "Events"]

    run(tmp_path, test)


def test_every_method_of_the_table_is_served_with_its_own_kind(tmp_path: Path) -> None:
    async def test(caller: Caller) -> None:
        served = caller.rig.server._ttrpc.services[EXITD.full_name]
        assert {name: method.kind for name, method in served.items()} == {
            method.name: KINDS[method.client_streaming, method.server_streaming] for method in EXITD.methods
        }

    run(tmp_path, test)


def test_who_asks_is_known_without_a_token(tmp_path: Path) -> None:
    async def test(caller: Caller) -> None:
        await caller.call("CreateContainer", pb.CreateContainerRequest(spec=SPEC))
        await caller.call("Start", pb.StartRequest(id="c1"))
        await caller.call("Stop", pb.StopRequest(id="c1"))
        assert caller.rig.node.asked[1:] == [("start", "c1", False, ME), ("stop", "c1", None, 0, ME)]

    run(tmp_path, test)


def test_a_change_runs_to_its_end_when_its_caller_goes_away_or_its_time_is_up(tmp_path: Path) -> None:
    async def test(caller: Caller) -> None:
        node = caller.rig.node
        await caller.call("CreateContainer", pb.CreateContainerRequest(spec=SPEC))
        node.gate.clear()
        late = await refused(caller.call("Stop", pb.StopRequest(id="c1"), 0.05))
        assert late.code is Code.DEADLINE_EXCEEDED
        node.gate.set()
        await until(lambda: "stop" in node.finished)
        node.gate.clear()
        node.entered.clear()
        asking = asyncio.ensure_future(caller.call("Restart", pb.RestartRequest(id="c1")))
        await node.entered.wait()
        caller.client.close()
        assert (await refused(asking)).code is Code.UNAVAILABLE
        node.gate.set()
        await until(lambda: "restart" in node.finished)

    run(tmp_path, test)


def test_who_only_waits_is_let_go_with_his_connection(tmp_path: Path) -> None:
    async def test(caller: Caller) -> None:
        node = caller.rig.node
        waits = [asyncio.ensure_future(caller.call("Wait", pb.WaitRequest(id="c1"))) for _ in range(2000)]
        await until(lambda: node.waiting == 2000)
        assert (await caller.call("Version", pb.VersionRequest())).api == "exitd.v1"  # others are served meanwhile
        await caller.first("Events", pb.EventsRequest())
        caller.client.close()
        await asyncio.wait(waits)
        assert all(wait.exception() is not None for wait in waits)
        await until(lambda: not node.waiting and not node.streams_open)
        await until(lambda: not caller.rig.server._calls._waiting)

    run(tmp_path, test)


def test_at_the_end_who_waits_is_told_why_and_the_sockets_are_gone(tmp_path: Path) -> None:
    async def test(caller: Caller) -> None:
        waiting = asyncio.ensure_future(refused(caller.call("Wait", pb.WaitRequest(id="c1"))))
        async with caller.stream("Events", pb.EventsRequest()) as events:
            for _ in range(3):
                await anext(events)
            following = asyncio.ensure_future(refused(anext(events)))
            await until(lambda: caller.rig.node.waiting == 1)
            await caller.rig.server.stop(1)
            for refusal in (await waiting, await following):
                assert (refusal.code, reason(refusal).reason) == (Code.UNAVAILABLE, "SHUTTING_DOWN")
        assert not (tmp_path / "exitd.ttrpc").exists()

    run(tmp_path, test)


def test_health_is_reported_here_too(tmp_path: Path) -> None:
    async def test(caller: Caller) -> None:
        answer = health_pb2.HealthCheckResponse
        assert (await caller.health("Check", EXITD.full_name)).status == answer.SERVING
        assert (await refused(caller.health("Check", "no.such.Service"))).code is Code.NOT_FOUND
        request = health_pb2.HealthCheckRequest()
        watch = f"{health.SERVICE.full_name}/Watch"
        async with caller.client.stream(watch, CallKind.SERVER, answer, None, request=request) as seen:
            assert (await anext(seen)).status == answer.SERVING
            caller.rig.server.health.set(False)
            assert (await anext(seen)).status == answer.NOT_SERVING
        assert (await caller.health("Check", "")).status == answer.NOT_SERVING

    run(tmp_path, test)


def test_both_sockets_let_the_same_people_in(tmp_path: Path) -> None:
    async def test(caller: Caller) -> None:
        ours, other = os.stat(tmp_path / "exitd.ttrpc"), os.stat(caller.rig.server.path)
        assert (ours.st_mode, ours.st_gid) == (other.st_mode, other.st_gid)
        assert stat.S_IMODE(ours.st_mode) in (0o600, 0o660)

    run(tmp_path, test)


def test_a_socket_of_the_service_manager_is_served_and_stays(tmp_path: Path) -> None:
    async def main() -> None:
        changes = Inotify()
        for _ in range(2):  # whoever holds it gives it to the next daemon, too
            server = ApiServer(str(tmp_path / "exitd.sock"), doors_of(FakeNode(), changes), ttrpc=held.dup())
            await server.start()
            client = await TtrpcClient.connect(path)
            request, name = pb.VersionRequest(), f"{EXITD.full_name}/Version"
            assert (await client.call(name, request, pb.VersionReply, LIMIT_SECONDS)).api == "exitd.v1"
            client.close()
            await server.stop(0)
            assert "exitd.ttrpc" in os.listdir(tmp_path)
        changes.close()

    path = str(tmp_path / "exitd.ttrpc")
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(path)
        held.listen()
        asyncio.run(main())


@pytest.mark.parametrize("name", ["none/exitd.ttrpc", "file", "x" * 200])
def test_a_path_that_cannot_be_bound_is_a_clear_error_and_nothing_is_left_of_the_other(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "file").write_text("a regular file")

    async def main() -> None:
        changes = Inotify()
        server = ApiServer(str(tmp_path / "exitd.sock"), doors_of(FakeNode(), changes), ttrpc=str(tmp_path / name))
        try:
            await server.start()
        finally:
            changes.close()

    with pytest.raises(CannotStart, match=name):
        asyncio.run(main())
    assert sorted(os.listdir(tmp_path)) == ["file"]


def test_when_the_other_socket_cannot_be_bound_this_one_is_not_left(tmp_path: Path) -> None:
    (tmp_path / "exitd.sock").write_text("a regular file")

    async def main() -> None:
        changes = Inotify()
        paths = str(tmp_path / "exitd.sock"), str(tmp_path / "exitd.ttrpc")
        try:
            await ApiServer(paths[0], doors_of(FakeNode(), changes), ttrpc=paths[1]).start()
        finally:
            changes.close()

    with pytest.raises(CannotStart, match=r"exitd\.sock"):
        asyncio.run(main())
    assert os.listdir(tmp_path) == ["exitd.sock"]
