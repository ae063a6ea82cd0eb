"""gRPC begins with its first client, who notices nothing of it."""

import asyncio
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]  # ships no py.typed

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api import begun, firstclient, health, rpc, sockets
from supervisor.api.firstclient import LateGrpc
from supervisor.api.server import ApiServer
from supervisor.model.errors import CannotStart
from supervisor.system.inotify import Inotify
from tests.supervisor.api.fake_node import FakeNode
from tests.supervisor.api.rig import LIMIT_SECONDS, doors_of


def run(folder: Path, test: Callable[[ApiServer], Awaitable[None]]) -> None:
    """Nothing is left of the server in its folder."""

    async def main() -> None:
        changes = Inotify()
        server = ApiServer(str(folder / "exitd.sock"), doors_of(FakeNode(), changes))
        await server.start()
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                await test(server)
        finally:
            await server.stop(0)
            changes.close()

    asyncio.run(main())
    assert os.listdir(folder) == []


async def version(path: str) -> str:
    async with grpc.aio.insecure_channel(f"unix:{path}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub: Any = rpc.Stub(channel)
        return str((await stub.Version(pb.VersionRequest())).api)


def identity(path: str) -> tuple[int, int, int, int]:
    found = os.stat(path)
    return found.st_ino, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid


def test_many_that_come_at_once_as_the_first_are_all_answered_at_their_first_try(tmp_path: Path) -> None:
    async def test(server: ApiServer) -> None:
        before = identity(server.path)
        assert set(await asyncio.gather(*(version(server.path) for _ in range(20)))) == {"exitd.v1"}
        after = identity(server.path)
        assert after[0] != before[0]
        assert after[1:] == before[1:]
        assert await version(server.path) == "exitd.v1"
        assert os.listdir(tmp_path) == ["exitd.sock"]

    run(tmp_path, test)


def test_a_health_check_is_answered_at_its_first_try(tmp_path: Path) -> None:
    async def test(server: ApiServer) -> None:
        async with grpc.aio.insecure_channel(f"unix:{server.path}") as channel:
            check: Any = rpc.Stub(channel, health.SERVICE)
            answer = await check.Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING

    run(tmp_path, test)


@pytest.mark.parametrize("turns", [0, 1, 2, 4, 8, 16, 32])
def test_a_stop_while_grpc_begins_leaves_nothing_and_ends_the_first_client(tmp_path: Path, turns: int) -> None:
    async def test(server: ApiServer) -> None:
        reader, writer = await asyncio.open_unix_connection(server.path)
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.stop(0)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1 << 20)
        writer.close()

    run(tmp_path, test)


def test_what_a_killed_exitd_has_left_is_replaced(tmp_path: Path) -> None:
    for name in ("exitd.sock", sockets.name_before("exitd.sock")):
        socket.socket(socket.AF_UNIX).bind(str(tmp_path / name))

    async def test(server: ApiServer) -> None:
        assert os.listdir(tmp_path) == ["exitd.sock"]

    run(tmp_path, test)


class Echo:
    """In gRPC's place: gives back what comes, until the end of it, and then that."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.tries = 0
        self._server: asyncio.Server | None = None

    async def begin(self) -> "Echo":
        self.tries += 1
        if self.tries < 3:
            raise CannotStart("not yet") if self.tries == 1 else RuntimeError("a broken installation")
        self._server = await asyncio.start_unix_server(self._echo, sockets.name_before(self._path))
        os.rename(sockets.name_before(self._path), self._path)
        return self

    async def begin_no_more(self) -> None:
        assert self._server is not None
        self._server.close()

    async def stop(self) -> None: ...

    async def _echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while part := await reader.read(1 << 16):
            writer.write(part)
            await writer.drain()
        writer.close()


def late(tmp_path: Path, test: Callable[[LateGrpc, Echo, str], Awaitable[None]]) -> None:
    async def main() -> None:
        path = str(tmp_path / "exitd.sock")
        echo = Echo(path)
        server = LateGrpc(path, echo.begin)
        server.start()
        async with asyncio.timeout(LIMIT_SECONDS):
            await test(server, echo, path)
        await server.begin_no_more()
        await server.stop()

    asyncio.run(main())
    assert os.listdir(tmp_path) == []


def test_what_is_read_before_grpc_is_connected_is_not_lost(tmp_path: Path) -> None:
    """asyncio of Python 3.11.2 reads where reading was paused at the connection's beginning."""

    async def test(server: LateGrpc, echo: Echo, path: str) -> None:
        reader, writer = await asyncio.open_unix_connection(path)  # so that there is something to connect to
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        ours, theirs = socket.socketpair()
        line = firstclient._Line(path, set())
        line.client.data_received(b"PRI * ")
        line.client.data_received(b"HTTP/2.0")
        line.client.eof_received()
        await asyncio.get_running_loop().connect_accepted_socket(lambda: line.client, theirs)
        with ours:
            ours.setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(ours, 100) == b"PRI * HTTP/2.0"
            assert await asyncio.get_running_loop().sock_recv(ours, 100) == b""

    late(tmp_path, test)


def test_all_bytes_pass_both_ways_and_the_end_too_whatever_kept_grpc_from_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(begun, "AGAIN_SECONDS", 0.01)
    sent = os.urandom(8 << 20)

    async def test(server: LateGrpc, echo: Echo, path: str) -> None:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(sent)
        writer.write_eof()
        assert await reader.read() == sent
        assert echo.tries == 3
        writer.close()

    late(tmp_path, test)


def test_a_client_that_does_not_read_is_not_read_from_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(begun, "AGAIN_SECONDS", 0.01)

    async def test(server: LateGrpc, echo: Echo, path: str) -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            client.setblocking(False)
            sent, still = 0, 0
            while still < 20:  # turns in which nothing more is taken
                try:
                    sent += client.send(bytes(1 << 16))
                    still = 0
                except BlockingIOError:
                    still += 1
                    await asyncio.sleep(0.01)
            assert 0 < sent < 16 << 20

    late(tmp_path, test)


def test_more_first_clients_than_may_be_handed_over_are_refused_and_the_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(begun, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(firstclient, "MOST_HANDED_OVER", 2)

    async def test(server: LateGrpc, echo: Echo, path: str) -> None:
        lines = [await asyncio.open_unix_connection(path) for _ in range(4)]
        answers = []
        for reader, writer in lines:
            writer.write(b"x")
            try:
                answers.append(await reader.read(1))
            except ConnectionError:
                answers.append(b"")
        assert sorted(answers) == [b"", b"", b"x", b"x"]
        for _, writer in lines:
            writer.close()
        _, writer = await asyncio.open_unix_connection(path)  # gRPC's own by now
        writer.close()

    late(tmp_path, test)
