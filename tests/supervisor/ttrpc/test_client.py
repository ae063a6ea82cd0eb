"""The asyncio client, with our server and with servers that are not well."""

import asyncio
import contextlib
import errno
import socket
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NoReturn, TypeVar

import pytest
from google.protobuf.wrappers_pb2 import BytesValue, StringValue

from supervisor.model.errors import Code, NotPermitted
from supervisor.system.aside import Aside
from supervisor.ttrpc import wire
from supervisor.ttrpc.client import TtrpcClient
from supervisor.ttrpc.faults import CallFailed, Closed
from supervisor.ttrpc.frames import MAX_DATA
from supervisor.ttrpc.services import CallKind
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.fakes import in_loop, until
from tests.supervisor.ttrpc.rig import SERVICE, Words, header, serving, word

ECHO, WAIT, BLOB = (f"{SERVICE}/{name}" for name in ("Echo", "Wait", "Blob"))
LETTERS, FLOOD, JOIN, DEAF, UPPER = (f"{SERVICE}/{name}" for name in ("Letters", "Flood", "Join", "Deaf", "Upper"))
SECONDS = 10.0
T = TypeVar("T")


@contextlib.asynccontextmanager
async def connected(tmp_path: Path, words: Words) -> AsyncIterator[TtrpcClient]:
    async with serving(tmp_path / "s", words):
        client = await TtrpcClient.connect(str(tmp_path / "s"))
        try:
            yield client
        finally:
            client.close()


@contextlib.asynccontextmanager
async def mute(tmp_path: Path) -> AsyncIterator[tuple[TtrpcClient, socket.socket]]:
    """A client of a server that takes the connection and does nothing; the server's end of it."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen(1)
        client = await TtrpcClient.connect(str(tmp_path / "s"))
        peer, _ = listening.accept()
        with peer:
            yield client, peer
            client.close()


@in_loop
async def test_calls_are_answered_in_any_order(tmp_path: Path) -> None:
    words = Words()
    async with connected(tmp_path, words) as client:
        waiting = [asyncio.create_task(client.call(WAIT, word(str(n)), StringValue, None)) for n in range(100)]
        await until(lambda: len(words.calls) == 100)
        assert await client.call(ECHO, word("x"), StringValue, SECONDS) == word("x")
        words.go.set()
        assert [(await each).value for each in waiting] == [str(n) for n in range(100)]


@in_loop
async def test_the_limit_and_metadata_reach_the_handler(tmp_path: Path) -> None:
    words = Words()
    async with connected(tmp_path, words) as client:
        await client.call(ECHO, word("x"), StringValue, 2.0, (("k", "v"),))
        await client.call(ECHO, word("x"), StringValue, None)
    assert [call.deadline for call in words.calls] == [2.0, None]
    assert words.calls[0].metadata == (("k", "v"),)


@in_loop
async def test_an_error_of_the_handler_is_raised_with_its_code(tmp_path: Path) -> None:
    words = Words()
    words.raises = NotPermitted("not for you")
    async with connected(tmp_path, words) as client:
        with pytest.raises(CallFailed) as error:
            await client.call(ECHO, word("x"), StringValue, SECONDS)
        assert (error.value.code, error.value.text) == (Code.PERMISSION_DENIED, "not for you")


@in_loop
async def test_a_client_has_a_clock_of_its_own(tmp_path: Path) -> None:
    async with mute(tmp_path) as (client, peer):
        with pytest.raises(CallFailed) as error:
            await client.call(ECHO, word("x"), StringValue, 0.01)
        assert error.value.code == Code.DEADLINE_EXCEEDED
        peer.sendall(header(0, 1, 2))  # too late, and dropped
        second = asyncio.create_task(client.call(ECHO, word("x"), StringValue, SECONDS))
        await asyncio.sleep(0)
        peer.sendall(header(0, 3, 2))
        assert await second == word("")


@in_loop
async def test_all_calls_fail_when_the_server_goes_and_the_callback_comes_once(tmp_path: Path) -> None:
    words, closes = Words(), list[int]()
    async with serving(tmp_path / "s", words) as server:
        client = await TtrpcClient.connect(str(tmp_path / "s"), lambda: closes.append(1))
        waiting = asyncio.create_task(client.call(WAIT, word("x"), StringValue, None))
        await until(lambda: words.calls)
        async with client.stream(LETTERS, CallKind.SERVER, StringValue, None, request=word("")) as letters:
            await server.stop(0)
            with pytest.raises(Closed):
                await waiting
            with contextlib.suppress(StopAsyncIteration, Closed):  # it may have ended before
                await anext(letters)
        with pytest.raises(Closed):
            await client.call(ECHO, word("x"), StringValue, SECONDS)
        client.close()
        await asyncio.sleep(0)
        assert closes == [1]


@in_loop
async def test_nobody_there_is_a_closed_connection(tmp_path: Path) -> None:
    with pytest.raises(Closed):
        await TtrpcClient.connect(str(tmp_path / "nobody"))


@in_loop
async def test_without_a_descriptor_nothing_is_said_of_a_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socket", refused)
    with pytest.raises(OSError, match="Too many open files"):
        await TtrpcClient.connect(str(tmp_path / "s"))


@in_loop
async def test_a_full_queue_of_connections_is_waited_for_within_the_limit(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen(0)
        first = await TtrpcClient.connect(str(tmp_path / "s"))
        with pytest.raises(Closed):
            await TtrpcClient.connect(str(tmp_path / "s"), seconds=0.05)
        second = asyncio.create_task(TtrpcClient.connect(str(tmp_path / "s")))
        await asyncio.sleep(0)
        listening.accept()[0].close()
        (await second).close()
        first.close()


@in_loop
async def test_a_look_up_that_hangs_holds_up_nobody_and_its_socket_is_closed_when_it_has_ended(tmp_path: Path) -> None:
    """The number of a socket that a thread is about to connect must not become another's."""
    threads, before = HangingLooks(), held_now()
    with pytest.raises(Closed, match=r"no process takes a connection on .* within 0\.05 s"):
        await TtrpcClient.connect(str(tmp_path / "nobody"), seconds=0.05, looks=threads)
    assert sum(opened_since(before).values()) == 1
    threads.go.set()
    await until(lambda: not opened_since(before))


class HangingLooks(Aside):
    """Its threads wait before they begin with their work."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    async def run(
        self,
        what: str,
        work: Callable[[], T],
        whose: str = "",
        late: Callable[[], None] = lambda: None,
        *,
        seconds: float | None = None,
    ) -> T:
        def waits() -> T:
            self.go.wait(SECONDS)
            return work()

        return await super().run(what, waits, whose, late, seconds=seconds)


@pytest.mark.parametrize("path", ["/nobody", "\0nobody"])
@in_loop
async def test_nobody_there_is_a_closed_connection_also_for_a_thread_that_looks(path: str) -> None:
    before = held_now()
    with pytest.raises(Closed) as error:
        await TtrpcClient.connect(path, looks=Aside())
    assert isinstance(error.value.__cause__, FileNotFoundError | ConnectionRefusedError)
    assert not opened_since(before)


@in_loop
async def test_what_is_too_large_fails_its_call_and_the_connection_stays(tmp_path: Path) -> None:
    async with connected(tmp_path, Words()) as client:
        for name, text in ((ECHO, "x" * (MAX_DATA + 1)), (BLOB, str(MAX_DATA))):
            with pytest.raises(CallFailed) as error:
                await client.call(name, word(text), BytesValue, SECONDS)
            assert error.value.code == Code.RESOURCE_EXHAUSTED
        most = MAX_DATA - 20
        assert len((await client.call(BLOB, word(str(most)), BytesValue, SECONDS)).value) == most


@in_loop
async def test_a_server_that_does_not_read_costs_a_bounded_buffer(tmp_path: Path) -> None:
    async with mute(tmp_path) as (client, _):
        calls = [asyncio.create_task(client.call(ECHO, word("x" * 1_000_000), StringValue, SECONDS)) for _ in range(20)]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        refused = [each.exception() for each in calls if each.done()]
        assert {error.code for error in refused if isinstance(error, CallFailed)} == {Code.RESOURCE_EXHAUSTED}
        assert client.unsent_bytes <= wire.MAX_UNSENT
        assert not client.is_closed
        for each in calls:
            each.cancel()
        await asyncio.wait(calls)


@in_loop
async def test_a_servers_stream(tmp_path: Path) -> None:
    words = Words()
    async with connected(tmp_path, words) as client:
        async with client.stream(LETTERS, CallKind.SERVER, StringValue, SECONDS, request=word("abc")) as letters:
            assert [each.value async for each in letters] == ["a", "b", "c"]
        words.raises = NotPermitted("enough")
        async with client.stream(LETTERS, CallKind.SERVER, StringValue, SECONDS, request=word("a")) as letters:
            assert await anext(letters) == word("a")
            with pytest.raises(CallFailed) as error:
                await anext(letters)
        assert error.value.code == Code.PERMISSION_DENIED


@in_loop
async def test_a_clients_stream(tmp_path: Path) -> None:
    async with (
        connected(tmp_path, Words()) as client,
        client.stream(JOIN, CallKind.CLIENT, StringValue, SECONDS) as join,
    ):
        for text in ("a", "", "b"):
            await join.send(word(text))
        join.end()
        assert await join.reply() == word("ab")


@in_loop
async def test_both_ways_at_once_in_turns(tmp_path: Path) -> None:
    async with (
        connected(tmp_path, Words()) as client,
        client.stream(UPPER, CallKind.BIDI, StringValue, SECONDS) as upper,
    ):
        for text in ("a", "b"):
            await upper.send(word(text))
            assert await anext(upper) == word(text.upper())
        upper.end()
        assert [each async for each in upper] == []
        with pytest.raises(CallFailed) as error:
            await upper.send(word("c"))
        assert error.value.code == Code.FAILED_PRECONDITION


@in_loop
async def test_a_stream_that_is_left_is_ended_and_what_comes_yet_is_dropped(tmp_path: Path) -> None:
    words = Words()
    async with connected(tmp_path, words) as client:
        async with client.stream(UPPER, CallKind.BIDI, StringValue, SECONDS) as upper:
            await upper.send(word("a"))
        async with client.stream(FLOOD, CallKind.SERVER, BytesValue, 2.0, request=word("10")) as flood:
            await anext(flood)
        assert await client.call(ECHO, word("x"), StringValue, SECONDS) == word("x")
        await until(lambda: words.cancelled)  # the server has the limit from the request


@in_loop
async def test_a_stream_has_a_limit_too(tmp_path: Path) -> None:
    async with mute(tmp_path) as (client, _):
        async with client.stream(LETTERS, CallKind.SERVER, StringValue, 0.01, request=word("")) as letters:
            with pytest.raises(CallFailed) as error:
                await anext(letters)
        assert error.value.code == Code.DEADLINE_EXCEEDED


@in_loop
async def test_a_taker_that_is_slow_holds_the_server_back(tmp_path: Path) -> None:
    words = Words()
    async with (
        connected(tmp_path, words) as client,
        client.stream(FLOOD, CallKind.SERVER, BytesValue, SECONDS, request=word("100000")) as flood,
    ):
        await until(lambda: client._holders and words.calls[0].connection.unsent_bytes)
        assert len(words.calls) <= 20
        for _ in range(100):
            await anext(flood)
        assert len(words.calls) > 100


@in_loop
async def test_a_sender_waits_for_a_server_that_takes_nothing(tmp_path: Path) -> None:
    words = Words()
    async with connected(tmp_path, words) as client, client.stream(DEAF, CallKind.CLIENT, StringValue, SECONDS) as deaf:

        async def send() -> None:
            for _ in range(100):
                await deaf.send(word("x" * 30_000))
            deaf.end()

        sending = asyncio.create_task(send())
        await asyncio.wait((sending,), timeout=0.1)
        assert not sending.done()
        words.go.set()
        await sending
        assert len((await deaf.reply()).value) == 3_000_000
