"""Tokens that the kernel's word stands behind, over a real socket."""

import asyncio
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from supervisor.api.callers import Callers
from supervisor.model.errors import CannotStart
from supervisor.model.values import By
from tests.supervisor.api.fake_node import until

LIMIT_SECONDS = 20


def with_callers(folder: Path, test: Callable[[Callers], Awaitable[None]], max_connections: int = 10_000) -> None:
    async def main() -> None:
        callers = Callers(str(folder / "caller.sock"), max_connections)
        await callers.start()
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                await test(callers)
        finally:
            await callers.stop()

    asyncio.run(main())


async def forgotten(callers: Callers, left: int) -> None:
    """A closed connection is noticed in a later turn of the loop."""
    await until(lambda: len(callers) == left)


def test_a_token_stands_for_the_uid_and_pid_of_its_connection(tmp_path: Path) -> None:
    async def test(callers: Callers) -> None:
        reader, writer = await asyncio.open_unix_connection(callers.path)
        token = (await reader.readline()).decode().strip()
        assert callers.lookup(token) == By(uid=os.getuid(), pid=os.getpid())
        writer.close()
        await forgotten(callers, 0)
        assert callers.lookup(token) is None

    with_callers(tmp_path, test)


def test_a_guessed_token_is_nobodys(tmp_path: Path) -> None:
    async def test(callers: Callers) -> None:
        assert callers.lookup("") is None
        assert callers.lookup("0" * 32) is None

    with_callers(tmp_path, test)


def test_no_two_connections_share_a_token(tmp_path: Path) -> None:
    async def test(callers: Callers) -> None:
        links = [await asyncio.open_unix_connection(callers.path) for _ in range(50)]
        tokens = {await reader.readline() for reader, _ in links}
        assert len(tokens) == 50
        for _, writer in links:
            writer.close()

    with_callers(tmp_path, test)


def test_who_talks_back_is_sent_away(tmp_path: Path) -> None:
    async def test(callers: Callers) -> None:
        reader, writer = await asyncio.open_unix_connection(callers.path)
        token = (await reader.readline()).decode().strip()
        writer.write(b"hello")
        assert await reader.read() == b""
        assert callers.lookup(token) is None
        writer.close()

    with_callers(tmp_path, test)


def test_too_many_connections_are_refused_and_the_others_go_on(tmp_path: Path) -> None:
    async def test(callers: Callers) -> None:
        links = [await asyncio.open_unix_connection(callers.path) for _ in range(3)]
        lines = [await reader.readline() for reader, _ in links]
        assert [bool(line) for line in lines] == [True, True, False]
        links[0][1].close()
        await forgotten(callers, 1)
        reader, writer = await asyncio.open_unix_connection(callers.path)
        assert await reader.readline()
        for each in (*(writer for _, writer in links), writer):
            each.close()

    with_callers(tmp_path, test, max_connections=2)


def test_a_burst_of_connections_is_not_refused(tmp_path: Path) -> None:
    async def test(callers: Callers) -> None:
        with ExitStack() as open_ones:
            for _ in range(400):  # nobody accepts meanwhile: they all wait in the backlog
                one = open_ones.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                one.setblocking(False)
                one.connect(callers.path)
            await forgotten(callers, 400)

    with_callers(tmp_path, test)


def test_the_socket_is_not_for_everybody_and_goes_with_the_server(tmp_path: Path) -> None:
    async def test(callers: Callers) -> None:
        assert stat.S_IMODE(os.stat(callers.path).st_mode) in (0o600, 0o660)

    with_callers(tmp_path, test)
    assert not (tmp_path / "caller.sock").exists()


def test_a_socket_left_behind_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(tmp_path / "caller.sock"))

    async def test(callers: Callers) -> None:
        reader, writer = await asyncio.open_unix_connection(callers.path)
        assert await reader.readline()
        writer.close()

    with_callers(tmp_path, test)


def test_stopping_ends_every_connection_and_can_be_repeated(tmp_path: Path) -> None:
    async def test(callers: Callers) -> None:
        reader, writer = await asyncio.open_unix_connection(callers.path)
        token = (await reader.readline()).decode().strip()
        await callers.stop()
        await callers.stop()
        assert await reader.read() == b""
        assert callers.lookup(token) is None
        writer.close()

    with_callers(tmp_path, test)


def test_a_path_too_long_for_a_socket_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"caller\.sock"):
        asyncio.run(Callers(str(tmp_path / ("x" * 120) / "caller.sock")).start())
