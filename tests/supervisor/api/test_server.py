"""The API over a real unix socket, in front of a fake node."""

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_reflection.v1alpha import reflection_pb2  # type: ignore[import-untyped]
from structlog.testing import capture_logs

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api import begun, grpcserver, rpc
from supervisor.api.calls import Method
from supervisor.api.client import Client
from supervisor.api.server import ApiServer
from supervisor.api.table import MUTATING
from supervisor.model import errors
from supervisor.model.limits import Change
from supervisor.model.values import By
from supervisor.streams.logs import WantedLog
from supervisor.system.inotify import Inotify
from tests.supervisor.api.fake_node import AT_NS, FakeNode, until
from tests.supervisor.api.rig import LINE, SPEC, Rig, created, doors_of, first, reason, refused, run
from tests.system.slowclients import crowd


def test_a_container_goes_through_its_life(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        reply = await rig.exitd.CreateContainer(pb.CreateContainerRequest(spec=SPEC))
        assert (reply.container.id, reply.container.phase) == ("c1", pb.PHASE_CREATED)
        assert (await rig.exitd.Start(pb.StartRequest(id="c1"))).container.phase == pb.PHASE_RUNNING
        await rig.exitd.Stop(pb.StopRequest(id="c1"))
        await rig.exitd.Start(pb.StartRequest(id="c1", prepare=True))
        await rig.exitd.Stop(pb.StopRequest(id="c1", signal="QUIT"))
        await rig.exitd.Restart(pb.RestartRequest(id="c1", timeout_seconds=0))
        await rig.exitd.Kill(pb.KillRequest(id="c1"))
        await rig.exitd.Kill(pb.KillRequest(id="c1", signal="hup", all=True))
        await rig.exitd.Pause(pb.PauseRequest(id="c1"))
        await rig.exitd.Resume(pb.ResumeRequest(id="c1"))
        await rig.exitd.Remove(pb.RemoveRequest(id="c1", force=True))
        nobody = By()
        assert rig.node.asked[1:] == [
            ("start", "c1", False, nobody),
            ("stop", "c1", None, 0, nobody),
            ("start", "c1", True, nobody),
            ("stop", "c1", None, 3, nobody),
            ("restart", "c1", 0, 0, nobody),
            ("kill", "c1", 9, False, nobody),
            ("kill", "c1", 1, True, nobody),
            ("pause", "c1", nobody),
            ("resume", "c1", nobody),
            ("remove", "c1", True, nobody),
        ]

    run(tmp_path, test)


def test_what_only_looks_gives_what_the_node_knows(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await created(rig)
        listed = await rig.exitd.List(pb.ListRequest(all=True, filters=["name=web"]))
        assert ([container.id for container in listed.containers], listed.seq) == (["c1"], 17)
        assert ("listing", True, ("name=web",)) in rig.node.asked
        assert (await rig.exitd.Inspect(pb.InspectRequest(id="c1"))).container.monitored_by == "shim"
        assert list((await rig.exitd.Pids(pb.PidsRequest(id="c1"))).pids) == [1, 2]
        assert (await rig.exitd.Version(pb.VersionRequest())).api == "exitd.v1"
        assert (await rig.exitd.Info(pb.InfoRequest())).seq == 17

    run(tmp_path, test)


def test_changes_and_what_is_used_are_passed_on(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await rig.exitd.Rename(pb.RenameRequest(id="c1", name="web-2"))
        await rig.exitd.Update(pb.UpdateRequest(id="c1", memory_bytes=0, cpuset_cpus="", restart="always"))
        change = Change(memory_bytes=0, cpuset_cpus="", restart="always")
        assert rig.node.asked == [("rename", "c1", "web-2", By()), ("update", "c1", change, By())]
        first, second = (await rig.exitd.Stats(pb.StatsRequest(ids=["c1", "c2"]))).containers
        network = pb.NetworkCounters(received_bytes=4, sent_bytes=5)
        assert first == pb.ContainerStats(
            id="c1", name="web", measured=True, read_boot_ns=AT_NS, cpu_ns=1, memory_bytes=2, memory_limit_bytes=3,
            network=network, read_bytes=6, written_bytes=7, pids=8, pids_limit=9,
        )  # fmt: skip
        assert second == pb.ContainerStats(id="c2", name="gone")
        checked = await rig.exitd.RunHealthcheck(pb.RunHealthcheckRequest(id="c1"))
        assert (checked.result.code, checked.result.output, checked.status) == (3, b"no", "unhealthy")

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.UpdateRequest(id="c1"), "nothing to update"),
        (pb.UpdateRequest(id="c1", memory_bytes=1), "memory_bytes"),
        (pb.UpdateRequest(id="c1", memory_swap_bytes=-2), "memory_swap_bytes"),
        (pb.UpdateRequest(id="c1", memory_reservation_bytes=2**63), "memory_reservation_bytes"),
        (pb.UpdateRequest(id="c1", cpu_limit_milli=1), "cpu_limit_milli"),
        (pb.UpdateRequest(id="c1", cpu_shares=1), "cpu_shares"),
        (pb.UpdateRequest(id="c1", cpuset_cpus="a"), "cpuset_cpus"),
        (pb.UpdateRequest(id="c1", cpuset_mems="0-\n"), "cpuset_mems"),
        (pb.UpdateRequest(id="c1", pids_limit=2**31 - 1), "pids_limit"),
        (pb.UpdateRequest(id="c1", restart="often"), "restart"),
        (pb.UpdateRequest(id="c\n1", pids_limit=1), "id"),
        (pb.RenameRequest(id="c1", name=""), "name"),
        (pb.RenameRequest(id="c1", name="a/b"), "name"),
        (pb.StopRequest(id="c1", signal="NOPE"), "signal"),
        (pb.StatsRequest(ids=["c1"] * 4097), "ids"),
        (pb.StatsRequest(ids=["c/1"]), "id"),
    ],
)
def test_a_change_that_cannot_be_is_refused_by_its_field(tmp_path: Path, request_: Any, field: str) -> None:
    async def test(rig: Rig) -> None:
        await created(rig)
        call = getattr(rig.exitd, type(request_).__name__.removesuffix("Request"))
        error = await refused(call(request_))
        assert reason(error).reason == "BAD_REQUEST" and field in (error.details() or "")
        assert len(rig.node.asked) == 1

    run(tmp_path, test)


def test_waiting_answers_with_the_exit_or_with_nothing(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        rig.node.exit_now.set()
        reply = await rig.exitd.Wait(pb.WaitRequest(id="c1", run=3))
        assert (reply.exit.kind, reply.exit.code) == ("exited", 7)
        gone = await rig.exitd.Wait(pb.WaitRequest(id="c1", condition="removed"))
        assert not gone.HasField("exit")
        assert rig.node.asked == [("wait", "c1", "exited", 3), ("wait", "c1", "removed", 0)]

    run(tmp_path, test)


def test_events_bookmarks_and_losses_are_streamed(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        request = pb.EventsRequest(from_seq=5, filters=["type=exit"], no_follow=True)
        kinds = [item.WhichOneof("item") async for item in rig.exitd.Events(request)]
        assert kinds == ["event", "bookmark", "lost"]
        assert rig.node.asked == [("subscribe", 5, None, None, ("type=exit",), False)]

    run(tmp_path, test)


def test_the_ledger_is_streamed(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        request = pb.ExitsRequest(unknown=True)
        request.since.FromNanoseconds(AT_NS)
        assert [reply.exit.code async for reply in rig.exitd.Exits(request)] == [0, 1, 2]
        assert rig.node.asked == [("exits", AT_NS, True, "")]

    run(tmp_path, test)


def test_output_is_followed_until_the_run_is_complete(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        log = tmp_path / "log"
        log.write_bytes(LINE % b"one" + LINE % b"two")
        rig.node.log = (WantedLog(str(log)), asyncio.Event())
        stored = [reply.data async for reply in rig.exitd.Logs(pb.LogsRequest(id="c1", tail_lines=1))]
        assert stored == [b"two\n"]
        request = pb.LogsRequest(id="c1", timestamps=True, until=Timestamp(seconds=2**33))
        stamped = b"".join([reply.data async for reply in rig.exitd.Logs(request)])
        assert stamped == (LINE % b"one" + LINE % b"two").replace(b" stdout F", b"")
        call = rig.exitd.Logs(pb.LogsRequest(id="c1", follow=True, run=4))
        assert (await call.read()).data == b"one\ntwo\n"
        with log.open("ab") as writing:
            writing.write(LINE % b"three")
        assert (await call.read()).data == b"three\n"
        rig.node.log[1].set()
        assert await call.read() is grpc.aio.EOF
        assert ("done", 4) in rig.node.asked

    run(tmp_path, test)


def test_a_bad_request_does_not_reach_the_node(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        for call in (
            rig.exitd.CreateContainer(pb.CreateContainerRequest(spec=pb.ContainerSpec(name="/"))),
            rig.exitd.Start(pb.StartRequest()),
            rig.exitd.Kill(pb.KillRequest(id="c1", signal="SIGNOPE")),
            rig.exitd.Wait(pb.WaitRequest(id="c1", condition="sometime")),
            rig.exitd.Wait(pb.WaitRequest(id="c1", run=2**64 - 1)),
            first(rig.exitd.Events(pb.EventsRequest(from_seq=2**64 - 1))),
        ):
            assert (await refused(call)).code() is grpc.StatusCode.INVALID_ARGUMENT
        assert rig.node.asked == []

    run(tmp_path, test)


def test_reflection_names_the_services(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        service = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"]
        stub: Any = rpc.Stub(rig.channel, service)
        call = stub.ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        listed = {each.name for each in (await call.read()).list_services_response.service}
        assert {"exitd.v1.Exitd", "grpc.health.v1.Health"} <= listed
        await call.done_writing()

    run(tmp_path, test)


def test_a_later_reflection_request_that_is_none_is_refused(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        method = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        request = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
        call: Any = rig.channel.stream_stream(method)(iter([request, b"\xff\xff"]))
        assert await call.read()
        assert (await refused(call.read())).code() is grpc.StatusCode.INVALID_ARGUMENT

    run(tmp_path, test)


class Counted(dict[str, Method]):
    """Counts the gRPC servers that are made of it."""

    made = 0

    def __getitem__(self, name: str) -> Method:
        if name == "Version":
            Counted.made += 1
        return super().__getitem__(name)


async def served(server: ApiServer) -> None:
    """Return once gRPC has begun."""
    async with grpc.aio.insecure_channel(f"unix:{server.path}") as channel:
        stub: Any = rpc.Stub(channel)
        await stub.Version(pb.VersionRequest(), wait_for_ready=True)


def test_grpc_that_cannot_begin_anew_rests_between_tries_says_so_once_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(begun, "AGAIN_SECONDS", 0.01)
    folder, aside = tmp_path / "s", tmp_path / "aside"
    folder.mkdir()

    async def main() -> None:
        changes, node = Inotify(), FakeNode()
        server = ApiServer(str(folder / "exitd.sock"), Counted(doors_of(node, changes)))
        await server.start()
        await served(server)
        with crowd(server.path, 1, 1, b"/\xff\xfe") as clients:
            folder.rename(aside)
            before = Counted.made
            await until(lambda: clients.turn() == 0 and Counted.made >= before + 4)
        aside.rename(folder)
        await served(server)
        await server.stop(0)
        changes.close()

    with capture_logs() as logs:
        asyncio.run(main())
    assert [line["event"] for line in logs].count("gRPC cannot begin anew") == 1


def test_grpc_that_serves_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer of its own would wake up an idle daemon: its end is an event, see above."""
    looks: list[float | None] = []
    waited_for = grpc.aio.Server.wait_for_termination

    def counted(self: grpc.aio.Server, *limit: float | None) -> Awaitable[bool]:
        looks.extend(limit)
        return waited_for(self, *limit)

    monkeypatch.setattr("grpc.aio._server.Server.wait_for_termination", counted)
    monkeypatch.setattr(grpcserver, "_LOOK_SECONDS", 0.0)

    async def test(rig: Rig) -> None:
        for _ in range(20):
            await rig.exitd.Version(pb.VersionRequest())
        assert looks == []
        with crowd(rig.server.path, 1, 1, b"/\xff\xfe") as clients:
            await until(lambda: clients.turn() == 0 and bool(looks))

    run(tmp_path, test)


@pytest.mark.parametrize("turns", range(12))
def test_a_stop_while_grpc_begins_anew_leaves_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    monkeypatch.setattr(begun, "AGAIN_SECONDS", 0)

    async def main() -> None:
        changes, node = Inotify(), FakeNode()
        server = ApiServer(str(tmp_path / "exitd.sock"), Counted(doors_of(node, changes)))
        await server.start()
        await served(server)
        with crowd(server.path, 1, 1, b"/\xff\xfe") as clients:
            before = Counted.made
            await until(lambda: bool(clients.turn() == 0 and Counted.made > before))
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.stop(0)
        assert os.listdir(tmp_path) == []
        changes.close()

    asyncio.run(main())


def test_the_socket_is_not_for_everybody(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        assert stat.S_IMODE(os.stat(rig.server.path).st_mode) in (0o600, 0o660)

    run(tmp_path, test)


@pytest.mark.parametrize("name", ["with space", "100%20", "a?b#c"])
def test_a_state_directory_may_have_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()

    async def main() -> None:
        changes = Inotify()
        server = ApiServer(str(folder / "exitd.sock"), doors_of(FakeNode(), changes))
        await server.start()
        assert "exitd.sock" in os.listdir(folder)
        await server.stop(0)
        changes.close()

    asyncio.run(main())


@pytest.mark.parametrize("name", ["x" * 200 + "/exitd.sock", "none/exitd.sock", "file"])
def test_a_path_that_cannot_be_bound_is_a_clear_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("a regular file")

    async def main() -> None:
        changes = Inotify()
        try:
            await ApiServer(str(tmp_path / name), doors_of(FakeNode(), changes)).start()
        finally:
            changes.close()

    with pytest.raises(errors.CannotStart, match=r"exitd\.sock|file"):
        asyncio.run(main())
    assert (tmp_path / "file").read_text() == "a regular file"


def test_ttrpc_answers_before_grpc_is_begun(tmp_path: Path) -> None:
    async def main() -> None:
        changes = Inotify()
        server = ApiServer(str(tmp_path / "exitd.sock"), doors_of(FakeNode(), changes), ttrpc=str(tmp_path / "t"))
        await server.start_ttrpc()
        assert not (tmp_path / "exitd.sock").exists()
        with Client(str(tmp_path / "exitd.sock"), str(tmp_path / "t")) as client:
            assert (await asyncio.to_thread(client.version)).api
        await server.start()
        assert (tmp_path / "exitd.sock").is_socket()
        await server.stop(0)
        changes.close()

    asyncio.run(main())


BEGIN_WITH_FEW = """
import asyncio, os, socket, sys
from supervisor.system import room
from supervisor.api.server import ApiServer
from supervisor.system.inotify import Inotify
from tests.supervisor.api.fake_node import FakeNode
from tests.supervisor.api.rig import doors_of
from tests.supervisor.descriptors import only
from structlog.testing import capture_logs

async def main():
    changes = Inotify()
    server = ApiServer(sys.argv[1], doors_of(FakeNode(), changes))
    await server.start()
    client, first = socket.socket(socket.AF_UNIX), os.stat(server.path).st_ino
    with only(int(sys.argv[2])), capture_logs() as logs:
        client.connect(server.path)
        while not logs and os.stat(server.path).st_ino == first:
            await asyncio.sleep(0.01)
    print("begins" if not logs else logs[0]["why"])
    client.send(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    print("serves" if await asyncio.to_thread(client.recv, 9) else "hung up")
    await server.stop(0)
    changes.close()

room.PATIENCE_SECONDS = 0.0
asyncio.run(main())
"""


def test_without_descriptors_for_grpc_it_is_not_begun_and_serves_its_first_client_once_there_are_some(
    tmp_path: Path,
) -> None:
    counts = (0, 2, 4, 6, 64)
    words = [[sys.executable, "-c", BEGIN_WITH_FEW, str(tmp_path / f"{count}.sock"), str(count)] for count in counts]
    children = [subprocess.Popen(each, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for each in words]
    for count, each in zip(counts, children, strict=True):
        said, _ = each.communicate(timeout=60)
        refusal = f"cannot listen on {tmp_path}/{count}.sock: out of descriptors, no room for gRPC's server"
        expected = "begins" if count == max(counts) else refusal
        assert (each.returncode, said.startswith(expected), "\nserves\n" in said) == (0, True, True), said


def test_every_call_is_either_known_to_change_something_or_to_only_look() -> None:
    looking = {"List", "Inspect", "Pids", "Wait", "Events", "Exits", "Logs", "Version", "Info"}
    looking |= {"ListPods", "InspectPod", "ListImages", "Attach", "Watches", "Metrics", "ListVolumes", "DiskUsage"}
    looking |= {"Stats", "RunHealthcheck", "ListNetworks"}
    looking |= {"StatPath", "CopyFrom", "Export", "Changes", "InspectImage", "SaveImages"}
    looking |= {"CopyTo"}  # as cp(1) it ends with the client that sends, and what it has made stays
    assert {method.name for method in rpc.EXITD.methods} == looking | MUTATING
