"""Connections on a listening socket, with many descriptors and with few."""

import asyncio
import errno
import os
import resource
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from supervisor.system import listening
from supervisor.system.listening import Listener, bound
from tests.supervisor.api.fake_node import until

LIMIT_SECONDS = 30
HIGH = 1 << 20


class Greets(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")


def listens(
    folder: Path, test: Callable[[Listener, str], Awaitable[None]], *, ceiling: int = HIGH, backlog: int = 100
) -> None:
    async def main() -> None:
        path = str(folder / "s")
        listener = Listener(bound(path, 0o600), Greets, backlog=backlog, ceiling=ceiling)
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                await test(listener, path)
        finally:
            listener.close()

    asyncio.run(main())


async def first_word(path: str) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        return await reader.read(5)
    finally:
        writer.close()


def next_number() -> int:
    """The number that the next descriptor gets."""
    fd = os.dup(0)
    os.close(fd)
    return fd


def test_who_connects_is_served_and_more_at_once_than_one_turn_takes(tmp_path: Path) -> None:
    async def test(_: Listener, path: str) -> None:
        many = 3 * listening.AT_ONCE
        assert await asyncio.gather(*(first_word(path) for _ in range(many))) == [b"hello"] * many

    listens(tmp_path, test, backlog=1000)


def test_above_its_ceiling_a_connection_is_ended_at_once_and_taken_again_when_there_is_room(tmp_path: Path) -> None:
    async def test(listener: Listener, path: str) -> None:
        listener._ceiling = 0
        with capture_logs() as logs:
            assert [await first_word(path) for _ in range(3)] == [b""] * 3
        assert [(line["event"], line["socket"]) for line in logs] == [("no descriptors for more connections", path)]
        listener._ceiling = HIGH
        assert await first_word(path) == b"hello"

    listens(tmp_path, test)


def test_without_any_descriptor_it_pauses_says_so_once_and_goes_on_with_who_waited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EMFILE, made by a limit below what is open."""

    async def test(listener: Listener, path: str) -> None:
        asked = 0
        pause = listener._pause

        def counted(why: str) -> None:
            nonlocal asked
            asked += 1
            pause(why)

        monkeypatch.setattr(listener, "_pause", counted)
        with socket.socket(socket.AF_UNIX) as waiting, capture_logs() as logs:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            waiting.setblocking(False)
            waiting.connect(path)
            resource.setrlimit(resource.RLIMIT_NOFILE, (next_number(), hard))
            try:
                await until(lambda: asked >= 3)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert await asyncio.get_running_loop().sock_recv(waiting, 5) == b"hello"
        assert [line["why"] for line in logs] == ["Too many open files"]

    listens(tmp_path, test)


def test_it_goes_on_though_the_kernel_had_no_room_for_that_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(listener: Listener, path: str) -> None:
        loop = asyncio.get_running_loop()
        refused, add_reader = [OSError(errno.ENOMEM, "Cannot allocate memory")] * 2, loop.add_reader

        def added(fd: Any, *words: Any) -> None:
            if refused and fd is listener._socket:
                raise refused.pop()
            add_reader(fd, *words)

        monkeypatch.setattr(loop, "add_reader", added)
        listener._pause("the test says so")
        await until(lambda: not refused)
        with socket.socket(socket.AF_UNIX) as late:
            late.setblocking(False)
            late.connect(path)
            assert await loop.sock_recv(late, 5) == b"hello"

    listens(tmp_path, test)


def test_a_closed_listener_listens_no_more_also_while_it_pauses(tmp_path: Path) -> None:
    async def test(listener: Listener, path: str) -> None:
        listener._ceiling = 0
        assert await first_word(path) == b""
        listener.close()
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_unix_connection(path)

    listens(tmp_path, test)


@pytest.mark.parametrize("limit", [256, 1024, 4096, 1 << 20])
def test_clients_and_grpc_together_leave_some_for_relays_and_those_for_containers(limit: int) -> None:
    clients = listening.client_ceiling(limit) + listening.grpc_connections(limit)
    assert limit // 2 < clients < listening.peer_ceiling(limit) < limit
