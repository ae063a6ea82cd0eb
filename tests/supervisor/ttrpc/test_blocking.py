"""The client without an event loop."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.wrappers_pb2 import BytesValue, StringValue

from supervisor.model.errors import Code, NotPermitted
from supervisor.ttrpc.blocking import BlockingClient
from supervisor.ttrpc.faults import CallFailed, Closed
from supervisor.ttrpc.frames import MAX_DATA
from tests.supervisor.ttrpc.rig import SERVICE, Words, header, serving, word

SECONDS = 10.0


@contextlib.contextmanager
def connected(path: Path, words: Words | None = None) -> Iterator[BlockingClient]:
    """With a server in a thread."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        async with serving(path, words or Words()):
            ready.set()
            async with asyncio.timeout(30):
                await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(SECONDS)
        with BlockingClient(str(path)) as client:
            yield client
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(SECONDS)
        loop.close()


@contextlib.contextmanager
def mute(path: Path) -> Iterator[tuple[BlockingClient, socket.socket]]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(1)
        with BlockingClient(str(path)) as client:
            peer, _ = listening.accept()
            with peer:
                yield client, peer


def test_calls_one_after_the_other(tmp_path: Path) -> None:
    words = Words()
    with connected(tmp_path / "s", words) as client:
        for text in ("a", "x" * 1_000_000, ""):
            assert client.call(f"{SERVICE}/Echo", word(text), StringValue, SECONDS, (("k", "v"),)) == word(text)
        assert [call.peer.pid for call in words.calls] == [os.getpid()] * 3
        assert words.calls[0].metadata == (("k", "v"),)


def test_an_error_is_raised_with_its_code_and_the_next_call_works(tmp_path: Path) -> None:
    words = Words()
    with connected(tmp_path / "s", words) as client:
        words.raises = NotPermitted("not for you")
        with pytest.raises(CallFailed) as error:
            client.call(f"{SERVICE}/Echo", word("x"), StringValue, SECONDS)
        assert (error.value.code, error.value.text) == (Code.PERMISSION_DENIED, "not for you")
        words.raises = None
        with pytest.raises(CallFailed) as error:
            client.call(f"{SERVICE}/Blob", word(str(MAX_DATA)), BytesValue, SECONDS)
        assert error.value.code == Code.RESOURCE_EXHAUSTED
        assert client.call(f"{SERVICE}/Echo", word("x"), StringValue, None) == word("x")


def test_a_stream_is_read_to_its_end_or_to_its_error(tmp_path: Path) -> None:
    words = Words()
    with connected(tmp_path / "s", words) as client:
        letters = client.stream(f"{SERVICE}/Letters", word("abc"), StringValue, SECONDS)
        assert [each.value for each in letters] == ["a", "b", "c"]
        words.raises = NotPermitted("enough")
        letters = client.stream(f"{SERVICE}/Letters", word("a"), StringValue, SECONDS)
        assert next(letters) == word("a")
        with pytest.raises(CallFailed) as error:
            next(letters)
        assert error.value.code == Code.PERMISSION_DENIED


def test_a_stream_may_be_left_and_what_comes_of_it_is_dropped(tmp_path: Path) -> None:
    with connected(tmp_path / "s") as client:
        letters = client.stream(f"{SERVICE}/Letters", word("abc" * 100), StringValue, SECONDS)
        assert next(letters) == word("a")
        assert client.call(f"{SERVICE}/Echo", word("x"), StringValue, SECONDS) == word("x")


def test_every_wait_has_a_limit(tmp_path: Path) -> None:
    with mute(tmp_path / "s") as (client, peer):
        with pytest.raises(CallFailed) as late:
            client.call(f"{SERVICE}/Echo", word("x"), StringValue, 0.01)
        with pytest.raises(CallFailed) as silent:
            next(client.stream(f"{SERVICE}/Letters", word(""), StringValue, SECONDS, silent_seconds=0.01))
        assert late.value.code == silent.value.code == Code.DEADLINE_EXCEEDED
        peer.sendall(header(0, 1, 2) + header(0, 3, 3) + header(0, 5, 2))  # two come too late, and are dropped
        assert client.call(f"{SERVICE}/Echo", word("x"), StringValue, SECONDS) == word("")


def test_a_request_that_nobody_reads_has_a_limit_and_ends_the_connection(tmp_path: Path) -> None:
    with mute(tmp_path / "s") as (client, _):
        with pytest.raises(CallFailed) as late:
            client.call(f"{SERVICE}/Echo", word("x" * 3_000_000), StringValue, 0.05)
        assert late.value.code == Code.DEADLINE_EXCEEDED
        with pytest.raises(Closed):
            client.call(f"{SERVICE}/Echo", word("x"), StringValue, SECONDS)


def test_a_server_that_goes_is_a_closed_connection(tmp_path: Path) -> None:
    with mute(tmp_path / "s") as (client, peer):
        peer.close()
        with pytest.raises(Closed):
            client.call(f"{SERVICE}/Echo", word("x"), StringValue, SECONDS)
    with pytest.raises(Closed):
        BlockingClient(str(tmp_path / "nobody"))


def test_a_full_queue_of_connections_is_waited_for_within_the_limit(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen(0)
        with BlockingClient(str(tmp_path / "s")), pytest.raises(Closed):
            BlockingClient(str(tmp_path / "s"), seconds=0.05)


def test_it_needs_neither_grpc_nor_asyncio_nor_threads() -> None:
    code = "import sys, supervisor.ttrpc.blocking; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert {"grpc", "asyncio", "structlog", "click"} & set(done.stdout.split()) == set()


def test_the_server_and_the_asyncio_client_need_no_grpc() -> None:
    code = "import sys, supervisor.ttrpc.server, supervisor.ttrpc.client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert "grpc" not in done.stdout.split()
