"""The server of the three pages, on real sockets: what it answers, and what it does to those who do not behave."""

import asyncio
import gc
import socket
import stat
import weakref
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path

import pytest

from supervisor.config.listen import TcpPlace, UnixPlace
from supervisor.metrics import server
from supervisor.metrics.server import MetricsServer, Reply
from tests.supervisor.descriptors import held_now, opened_since

LIMIT_SECONDS = 20.0


async def fine() -> Reply:
    return Reply(b"fine\n", kind="text/x")


async def broken() -> Reply:
    raise ValueError("broken")


async def large() -> Reply:
    return Reply(b"x" * (16 << 20))


async def not_ready() -> Reply:
    return Reply(b"no\n", HTTPStatus.SERVICE_UNAVAILABLE)


PAGES = {"/metrics": fine, "/broken": broken, "/large": large, "/readyz": not_ready}


def served(tmp_path: Path, story: Callable[[str, MetricsServer], Awaitable[None]]) -> None:
    """A server at a socket for the story, and nothing left of it afterwards."""

    async def main() -> None:
        path, before = str(tmp_path / "s"), held_now()
        made = MetricsServer(UnixPlace(path), PAGES, lambda _: None)
        await made.serve()
        async with asyncio.timeout(LIMIT_SECONDS):
            await story(path, made)
        await made.close()
        await asyncio.sleep(0)
        await until(lambda: not opened_since(before))

    asyncio.run(main())
    assert not (tmp_path / "s").exists()


async def until(look: Callable[[], bool]) -> None:
    """Within the test's own limit."""
    while not look():  # noqa: ASYNC110 - nobody reports it
        await asyncio.sleep(0)


async def ask(path: str, data: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(data)
    try:
        return await reader.read(-1)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def test_pages_are_answered_and_the_connection_ends(tmp_path: Path) -> None:
    async def story(path: str, _: MetricsServer) -> None:
        whole = await ask(path, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert whole.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/x\r\n") and whole.endswith(b"\r\n\r\nfine\n")
        assert (await ask(path, b"HEAD /metrics HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\n")
        assert b" 503 " in await ask(path, b"GET /readyz HTTP/1.1\r\n\r\n")
        assert b" 404 " in await ask(path, b"GET /elsewhere HTTP/1.1\r\n\r\n")
        assert b" 405 " in await ask(path, b"DELETE /metrics HTTP/1.1\r\n\r\n")
        assert b" 500 " in await ask(path, b"GET /broken HTTP/1.1\r\n\r\n")
        assert b" 431 " in await ask(path, b"x" * 9000)
        assert len(await ask(path, b"GET /large HTTP/1.1\r\n\r\n")) > 16 << 20

    served(tmp_path, story)


def test_a_client_that_has_no_more_to_say_is_answered(tmp_path: Path) -> None:
    async def story(path: str, _: MetricsServer) -> None:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        writer.write_eof()
        assert (await reader.read(-1)).endswith(b"fine\n")
        writer.close()

    served(tmp_path, story)


def test_what_comes_behind_a_request_is_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, go = list[int](), asyncio.Event()

    async def waits() -> Reply:
        asked.append(1)
        await go.wait()
        return Reply(b"once\n")

    async def story(path: str, made: MetricsServer) -> None:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        await until(lambda: bool(asked))
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        await writer.drain()
        assert b" 200 " in await ask(path, b"HEAD /large HTTP/1.1\r\n\r\n")  # turns of the loop
        go.set()
        assert (await reader.read(6000)).endswith(b"once\n")
        writer.close()
        assert asked == [1]

    monkeypatch.setitem(PAGES, "/metrics", waits)
    served(tmp_path, story)


def test_more_connections_than_there_may_be_are_refused_and_the_others_served(tmp_path: Path) -> None:
    async def story(path: str, made: MetricsServer) -> None:
        idle = [await asyncio.open_unix_connection(path) for _ in range(server.MOST_CONNECTIONS)]
        assert b" 503 " in await ask(path, b"GET /metrics HTTP/1.1\r\n\r\n")
        idle[0][1].close()
        await idle[0][1].wait_closed()
        await until(lambda: len(made._connections) < server.MOST_CONNECTIONS)
        assert b" 200 " in await ask(path, b"GET /metrics HTTP/1.1\r\n\r\n")
        for _, writer in idle[1:]:
            writer.close()

    served(tmp_path, story)


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\n"])
def test_a_request_that_does_not_come_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.05)

    async def story(path: str, _: MetricsServer) -> None:
        assert await ask(path, sent) == b""

    served(tmp_path, story)


def test_an_answer_that_is_not_read_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ANSWER_SECONDS", 0.05)

    async def story(path: str, made: MetricsServer) -> None:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(path)
            line.sendall(b"GET /large HTTP/1.1\r\n\r\n")
            await until(lambda: bool(made._connections))
            await until(lambda: not made._connections)

    served(tmp_path, story)


def test_a_page_that_is_not_made_in_time_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given_up = list[str]()

    async def endless() -> Reply:
        try:
            await asyncio.Event().wait()
        finally:
            given_up.append("endless")
        raise AssertionError

    async def story(path: str, _: MetricsServer) -> None:
        assert await ask(path, b"GET /metrics HTTP/1.1\r\n\r\n") == b""
        await until(lambda: bool(given_up))

    monkeypatch.setattr(server, "ANSWER_SECONDS", 0.05)
    monkeypatch.setitem(PAGES, "/metrics", endless)
    served(tmp_path, story)


def test_nothing_is_kept_of_a_connection_that_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ANSWER_SECONDS", 1000.0)

    async def story(path: str, made: MetricsServer) -> None:
        reader, writer = await asyncio.open_unix_connection(path)
        await until(lambda: bool(made._connections))
        kept = [weakref.ref(each) for each in made._connections]
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert (await reader.read(-1)).endswith(b"fine\n")
        writer.close()
        await until(lambda: gc.collect() >= 0 and not any(each() for each in kept))

    served(tmp_path, story)


def test_who_is_connected_at_the_end_is_hung_up(tmp_path: Path) -> None:
    async def story(path: str, made: MetricsServer) -> None:
        reader, writer = await asyncio.open_unix_connection(path)
        await until(lambda: bool(made._connections))
        await made.close()
        assert await reader.read(-1) == b""
        writer.close()

    served(tmp_path, story)


def test_a_socket_somebody_listens_at_is_not_taken_and_one_that_is_left_over_is(tmp_path: Path) -> None:
    path = tmp_path / "s"

    async def main() -> None:
        made = MetricsServer(UnixPlace(str(path)), PAGES, lambda _: None)
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
            other.listen()
            with pytest.raises(OSError, match="Address already in use"):
                made.listen()
        made.listen()  # nobody listens any more
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        await made.close()
        path.write_text("a file")
        with pytest.raises(OSError, match="something else"):
            made.listen()
        assert path.read_text() == "a file"

    asyncio.run(main())


def test_a_place_that_is_taken_is_had_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "AGAIN_SECONDS", 0.01)

    async def main() -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            port = other.getsockname()[1]
            made = MetricsServer(TcpPlace("127.0.0.1", port), PAGES, lambda _: None)
            serving = asyncio.create_task(made.serve())
            await asyncio.sleep(0)
            assert not serving.done()
        async with asyncio.timeout(LIMIT_SECONDS):
            await serving
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert (await reader.read(-1)).endswith(b"fine\n")
        writer.close()
        await made.close()

    asyncio.run(main())
