"""The server and clients that ask much, do not read, break the rules or go away."""

import asyncio
import socket
import tracemalloc
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from supervisor.model.errors import Code
from supervisor.ttrpc import frames, server, wire
from supervisor.ttrpc.frames import MAX_DATA, REMOTE_CLOSED, REQUEST
from supervisor.ttrpc.server import Connection
from tests.supervisor.fakes import in_loop, until
from tests.supervisor.ttrpc.rig import Raw, Words, data_bytes, header, request_bytes, serving, word

OK = 0


def payload(text: str) -> bytes:
    return word(text).SerializeToString()


@in_loop
async def test_too_large_a_request_gets_code_8_and_the_connection_stays(tmp_path: Path) -> None:
    async with serving(tmp_path / "s", Words()):
        raw = Raw(tmp_path / "s")
        sending = asyncio.create_task(raw.send(header(MAX_DATA + 1, 1, REQUEST) + bytes(MAX_DATA + 1)))
        assert (await raw.answer())[:2] == (1, Code.RESOURCE_EXHAUSTED)
        await sending
        await raw.send(request_bytes(3, "Echo"))
        assert await raw.answer() == (3, OK, "")
        raw.close()


@in_loop
async def test_a_response_too_large_is_code_8_and_the_connection_stays(tmp_path: Path) -> None:
    async with serving(tmp_path / "s", Words()):
        raw = Raw(tmp_path / "s")
        await raw.send(request_bytes(1, "Blob", payload(str(MAX_DATA))) + request_bytes(3, "Echo"))
        assert [(await raw.answer())[:2] for _ in range(2)] == [(1, Code.RESOURCE_EXHAUSTED), (3, OK)]
        raw.close()


@in_loop
async def test_more_connections_than_the_server_takes_are_closed(tmp_path: Path) -> None:
    async with serving(tmp_path / "s", Words(), max_connections=1) as server:
        first = Raw(tmp_path / "s")
        await until(lambda: server.connections)
        second = Raw(tmp_path / "s")
        with capture_logs():
            assert await second.read() == b""
        await first.send(request_bytes(1, "Echo"))
        assert await first.answer() == (1, OK, "")
        for raw in (first, second):
            raw.close()


@pytest.mark.parametrize("half", [False, True])
def test_handlers_are_cancelled_when_their_client_goes_or_ends_its_side(tmp_path: Path, half: bool) -> None:
    async def run() -> None:
        words, lost = Words(), list[list[int]]()
        async with serving(tmp_path / "s", words, on_lost=lambda _: lost.append([])) as server:
            raw = Raw(tmp_path / "s")
            await raw.send(request_bytes(1, "Wait") + request_bytes(3, "Join") + request_bytes(5, "Wait"))
            await until(lambda: len(words.calls) == 2)
            if half:
                raw.socket.shutdown(socket.SHUT_WR)
                assert await raw.read() == b""
            raw.close()
            await until(lambda: len(words.cancelled) == 2)
            assert (len(lost), server.connections) == (1, set())

    asyncio.run(run())


@in_loop
async def test_half_a_frame_and_no_more_ends_quietly(tmp_path: Path) -> None:
    async with serving(tmp_path / "s", Words()) as server:
        with capture_logs() as logs:
            raw = Raw(tmp_path / "s")
            await raw.send(b"\0\0\0")
            await until(lambda: server.connections)
            raw.close()
            await until(lambda: not server.connections)
        assert logs == []


@in_loop
async def test_the_deadline_of_a_call_cancels_its_handler_and_is_reported(tmp_path: Path) -> None:
    words = Words()
    async with serving(tmp_path / "s", words):
        raw = Raw(tmp_path / "s")
        await raw.send(request_bytes(1, "Wait", timeout_ns=20_000_000))
        assert (await raw.answer())[:2] == (1, Code.DEADLINE_EXCEEDED)
        await until(lambda: words.cancelled == [1])
        assert words.calls[0].deadline == 0.02
        await raw.send(request_bytes(3, "Join", timeout_ns=-1) + data_bytes(3))
        assert (await raw.answer())[:2] == (3, Code.DEADLINE_EXCEEDED)
        assert len(words.calls) == 1
        raw.close()


@in_loop
async def test_a_client_that_breaks_a_streams_rules_loses_that_call_alone(tmp_path: Path) -> None:
    words = Words()
    async with serving(tmp_path / "s", words):
        raw = Raw(tmp_path / "s")
        await raw.send(request_bytes(1, "Wait") + request_bytes(3, "Wait"))
        await until(lambda: len(words.calls) == 2)
        await raw.send(data_bytes(1, b"x"))
        assert (await raw.answer())[:2] == (1, Code.INVALID_ARGUMENT)
        await until(lambda: words.cancelled == [1])
        words.go.set()
        assert await raw.answer() == (3, OK, "")
        raw.close()


@in_loop
async def test_a_thousand_calls_wait_on_one_connection_and_others_go_on(tmp_path: Path) -> None:
    words = Words()
    async with serving(tmp_path / "s", words):
        raw = Raw(tmp_path / "s")
        await raw.send(b"".join(request_bytes(stream, "Wait") for stream in range(1, 2001, 2)))
        await until(lambda: len(words.calls) == 1000)
        await raw.send(request_bytes(2001, "Echo"))
        assert await raw.answer() == (2001, OK, "")
        words.go.set()
        assert [(await raw.answer())[:2] for _ in range(1000)] == [(stream, OK) for stream in range(1, 2001, 2)]
        raw.close()


@in_loop
async def test_a_call_that_waits_costs_three_kibibytes_at_most(tmp_path: Path) -> None:
    words = Words()
    async with serving(tmp_path / "s", words):
        raw, calls = Raw(tmp_path / "s"), 1000
        requests = b"".join(request_bytes(stream, "Wait", payload("c1")) for stream in range(1, 2 * calls, 2))
        tracemalloc.start()
        try:
            await raw.send(requests)
            await until(lambda: len(words.calls) == calls)
            assert tracemalloc.get_traced_memory()[0] / calls < 3 * 1024
        finally:
            tracemalloc.stop()
        raw.close()


@in_loop
async def test_a_client_that_does_not_read_loses_its_connection_at_the_bound(tmp_path: Path) -> None:
    words, lost = Words(), list[Connection]()
    async with serving(tmp_path / "s", words, on_lost=lost.append) as server:
        raw = Raw(tmp_path / "s")
        blob = payload(str(1024 * 1024))
        await raw.send(b"".join(request_bytes(stream, "Blob", blob) for stream in range(1, 41, 2)))
        await until(lambda: lost)
        assert wire.MAX_UNSENT / 2 < max(words.unsent) <= wire.MAX_UNSENT
        assert server.connections == set()
        raw.close()


@in_loop
async def test_a_stream_waits_for_a_client_that_does_not_read_and_others_are_served(tmp_path: Path) -> None:
    words = Words()
    async with serving(tmp_path / "s", words) as server:
        slow, other = Raw(tmp_path / "s"), Raw(tmp_path / "s")
        await slow.send(request_bytes(1, "Flood", payload("10000"), flags=REMOTE_CLOSED))
        await until(lambda: any(not connection._room.is_set() for connection in server.connections))
        await other.send(request_bytes(1, "Echo"))
        assert await other.answer() == (1, OK, "")
        yields = len(words.calls)
        await other.send(request_bytes(3, "Wait", timeout_ns=50_000_000))
        assert (await other.answer())[0] == 3
        assert len(words.calls) == yields + 1  # the one that waited; the flood stands still
        assert all(connection.unsent_bytes < 1024 * 1024 for connection in server.connections)
        slow.close()
        await until(lambda: 1 in words.cancelled)
        other.close()


@in_loop
async def test_a_handler_that_takes_nothing_stops_the_reading_and_a_hang_up_is_still_seen(tmp_path: Path) -> None:
    words = Words()
    async with serving(tmp_path / "s", words) as server:
        raw = Raw(tmp_path / "s")
        await raw.send(request_bytes(1, "Deaf"))
        flood = asyncio.create_task(raw.send(data_bytes(1, payload("x" * 1000)) * 4000))
        await until(lambda: any(connection._holders for connection in server.connections))
        await asyncio.wait((flood,), timeout=0.05)
        assert not flood.done()
        flood.cancel()
        await asyncio.wait((flood,))
        raw.close()
        await until(lambda: words.cancelled == [1] and not server.connections)


@in_loop
async def test_reading_goes_on_once_the_handler_takes(tmp_path: Path) -> None:
    words = Words()
    async with serving(tmp_path / "s", words) as server:
        raw = Raw(tmp_path / "s")
        await raw.send(request_bytes(1, "Deaf"))
        end = data_bytes(1, b"", frames.REMOTE_CLOSED | frames.NO_DATA)
        flood = asyncio.create_task(raw.send(data_bytes(1, payload("x" * 1000)) * 1000 + end))
        await until(lambda: any(connection._holders for connection in server.connections))
        words.go.set()
        frame = await raw.frame()
        assert len(frame.data) > 1_000_000
        await flood
        raw.close()


@in_loop
async def test_a_burst_of_connections_finds_room_in_the_queue(tmp_path: Path) -> None:
    async with serving(tmp_path / "s", Words()) as server:
        clients = [Raw(tmp_path / "s") for _ in range(300)]
        await until(lambda: len(server.connections) == 300)
        for raw in clients:
            raw.close()
        await until(lambda: not server.connections)


@in_loop
async def test_a_frame_that_does_not_come_to_its_end_ends_its_connection_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "FRAME_SECONDS", 0.05)
    async with serving(tmp_path / "s", Words()) as serves:
        good, late = Raw(tmp_path / "s"), Raw(tmp_path / "s")
        await late.send(header(1000, 1, REQUEST) + bytes(999))
        with capture_logs():
            assert await late.read() == b""
        await good.send(request_bytes(1, "Echo"))
        assert await good.answer() == (1, OK, "")
        await until(lambda: len(serves.connections) == 1)
        for raw in (good, late):
            raw.close()


@in_loop
async def test_unfinished_frames_have_a_bound_together_and_whoever_holds_most_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_UNFINISHED_BYTES", 300_000)
    async with serving(tmp_path / "s", Words()) as serves:
        most, less = Raw(tmp_path / "s"), Raw(tmp_path / "s")
        with capture_logs():
            await most.send(header(MAX_DATA, 1, REQUEST) + bytes(200_000))
            await until(lambda: serves._unfinished_bytes >= 200_000)
            whole = request_bytes(1, "Echo", payload("x" * 150_000))
            await less.send(whole[:-1])
            assert await most.read() == b""
            await less.send(whole[-1:])
            assert await less.answer() == (1, OK, "")
            assert serves._unfinished_bytes == 0
        for raw in (most, less):
            raw.close()
