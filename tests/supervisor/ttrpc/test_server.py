"""The server on a real socket: answers, errors, hooks, who may connect, the socket itself, the end."""

import asyncio
import contextlib
import os
import socket
import stat
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from supervisor.model.errors import Code, NoSuchContainer
from supervisor.ttrpc import frames
from supervisor.ttrpc.client import TtrpcClient
from supervisor.ttrpc.faults import CallFailed
from supervisor.ttrpc.frames import Frame
from supervisor.ttrpc.server import Connection, PeerCredentials, Server
from tests.supervisor.fakes import in_loop, until
from tests.supervisor.ttrpc.rig import Raw, Words, request_bytes, serving, word

OK = 0


def payload(text: str) -> bytes:
    return word(text).SerializeToString()


@in_loop
async def test_a_call_is_answered_on_its_stream(tmp_path: Path) -> None:
    words = Words()
    async with serving(tmp_path / "s", words):
        raw = Raw(tmp_path / "s")
        await raw.send(request_bytes(7, "Echo", payload("x")))
        assert await raw.answer() == (7, OK, "")
        raw.close()
    (call,) = words.calls
    assert (call.peer, call.deadline, call.metadata) == (
        PeerCredentials(os.getuid(), os.getgid(), os.getpid()),
        None,
        (),
    )
    assert call.cancelled  # which is: nobody waits for it


@in_loop
async def test_bytes_may_come_one_by_one(tmp_path: Path) -> None:
    async with serving(tmp_path / "s", Words()):
        raw = Raw(tmp_path / "s")
        for byte in request_bytes(1, "Echo", payload("x")):
            await raw.send(bytes([byte]))
        assert await raw.answer() == (1, OK, "")
        raw.close()


@in_loop
async def test_a_handlers_exceptions_become_codes_and_a_bug_is_logged_and_not_told(tmp_path: Path) -> None:
    words = Words()
    async with serving(tmp_path / "s", words):
        raw = Raw(tmp_path / "s")
        answers = list[tuple[int, str]]()
        with capture_logs() as logs:
            for number, error in enumerate((NoSuchContainer("no c1"), CallFailed(9, "not now"), ValueError("secret"))):
                words.raises = error
                await raw.send(request_bytes(2 * number + 1, "Echo"))
                answers.append((await raw.answer())[1:])
        assert answers[:2] == [(Code.NOT_FOUND, "no c1"), (Code.FAILED_PRECONDITION, "not now")]
        assert answers[2][0] == Code.UNKNOWN and "secret" not in answers[2][1]
        raw.close()
    (line,) = (line for line in logs if line["log_level"] == "error")
    assert line["call"] == "test.v1.Words/Echo" and isinstance(line["exc_info"], ValueError)


@in_loop
async def test_an_answer_of_the_wrong_type_is_a_bug(tmp_path: Path) -> None:
    words = Words()

    async def lies(request: object, call: object) -> int:
        return 43

    words.echo = lies  # type: ignore[method-assign, assignment]
    async with serving(tmp_path / "s", words):
        raw = Raw(tmp_path / "s")
        with capture_logs() as logs:
            await raw.send(request_bytes(1, "Echo"))
            assert (await raw.answer())[:2] == (1, Code.UNKNOWN)
        assert len(logs) == 1
        raw.close()


@in_loop
async def test_errors_are_translated_by_whoever_runs_the_server(tmp_path: Path) -> None:
    words = Words()
    words.raises = ValueError("bad")
    async with serving(tmp_path / "s", words, failure_of=lambda error: CallFailed(3, f"it was {error}")):
        raw = Raw(tmp_path / "s")
        await raw.send(request_bytes(1, "Echo"))
        assert await raw.answer() == (1, 3, "it was bad")
        raw.close()


@in_loop
async def test_a_translation_that_fails_is_a_bug_and_the_call_is_answered(tmp_path: Path) -> None:
    def failure_of(error: Exception) -> CallFailed:
        raise KeyError("no such error")

    words = Words()
    words.raises = ValueError("bad")
    async with serving(tmp_path / "s", words, failure_of=failure_of):
        raw = Raw(tmp_path / "s")
        with capture_logs() as logs:
            await raw.send(request_bytes(1, "Echo"))
            assert (await raw.answer())[:2] == (1, Code.UNKNOWN)
        assert isinstance(logs[0]["exc_info"], KeyError)
        raw.close()


@pytest.mark.parametrize("error", [None, ValueError("x")])
def test_a_handler_sets_the_flags_of_its_answer(tmp_path: Path, error: Exception | None) -> None:
    async def run() -> None:
        words = Words()
        words.flags, words.raises = 0xA0, error
        async with serving(tmp_path / "s", words):
            raw = Raw(tmp_path / "s")
            with capture_logs():
                await raw.send(request_bytes(1, "Echo"))
                assert (await raw.frame()).flags == 0xA0
            raw.close()

    asyncio.run(run())


@in_loop
async def test_private_frames_reach_their_hook_with_the_connection_in_order(tmp_path: Path) -> None:
    words, seen = Words(), list[tuple[int, int, int]]()

    def on_frame(connection: Connection, frame: Frame) -> None:
        connection.state = frame.data
        seen.append((frame.type, frame.stream, len(connection.tasks())))

    async with serving(tmp_path / "s", words, on_frame=on_frame):
        raw = Raw(tmp_path / "s")
        hello, again, done = (frames.encode(Frame(n, 0x80 + n, 0, b"x")) for n in range(3))
        await raw.send(hello + request_bytes(1, "Wait") + again + request_bytes(3, "Wait") + done)
        await until(lambda: len(words.calls) == 2)
        assert seen == [(0x80, 0, 0), (0x81, 1, 1), (0x82, 2, 2)]
        assert words.calls[0].connection.state == b"x"
        raw.close()


@in_loop
async def test_a_hook_that_raises_ends_the_connection_and_says_so(tmp_path: Path) -> None:
    def on_frame(connection: Connection, frame: Frame) -> None:
        raise ValueError("no hello of ours")

    async with serving(tmp_path / "s", Words(), on_frame=on_frame):
        raw = Raw(tmp_path / "s")
        with capture_logs() as logs:
            await raw.send(frames.encode(Frame(0, 0x80)) + request_bytes(1, "Echo"))
            assert await raw.read() == b""
        assert [line["log_level"] for line in logs] == ["error"]
        raw.close()


@in_loop
async def test_a_client_that_is_not_admitted_sees_the_end_at_once(tmp_path: Path) -> None:
    words, asked, lost = Words(), list[PeerCredentials](), list[Connection]()

    def check(peer: PeerCredentials) -> bool:
        asked.append(peer)
        return False

    async with serving(tmp_path / "s", words, check=check, on_lost=lost.append):
        raw = Raw(tmp_path / "s")
        with capture_logs():
            assert await raw.read() == b""
        raw.close()
    assert [peer.pid for peer in asked] == [os.getpid()]
    assert (words.calls, lost) == ([], [])


@in_loop
async def test_a_check_that_fails_admits_nobody(tmp_path: Path) -> None:
    def check(peer: PeerCredentials) -> bool:
        raise ValueError("no such user")

    words = Words()
    async with serving(tmp_path / "s", words, check=check):
        with capture_logs() as logs:
            raw = Raw(tmp_path / "s")
            with contextlib.suppress(BrokenPipeError):
                await raw.send(request_bytes(1, "Echo"))
            assert await raw.read() == b""
            raw.close()
    assert ([line["log_level"] for line in logs], words.calls) == (["error"], [])


@in_loop
async def test_the_socket_is_its_owners_alone_and_goes_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    async with serving(path, Words()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()
    path.write_text("not a socket")
    with pytest.raises(OSError):
        await Server({}).listen(str(path))
    assert path.read_text() == "not a socket"


@in_loop
async def test_a_socket_that_was_handed_over_is_served_and_its_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(8)
        raw = Raw(path)
        server = Server(Words().services())
        await server.listen(listening)
        await raw.send(request_bytes(1, "Echo"))
        assert await raw.answer() == (1, OK, "")
        await server.stop(0)
        assert await raw.read() == b""
        raw.close()
    assert path.exists()


@in_loop
async def test_stopping_lets_calls_end_within_the_grace_and_leaves_new_ones_unanswered(tmp_path: Path) -> None:
    words = Words()
    async with serving(tmp_path / "s", words) as server:
        raw = Raw(tmp_path / "s")
        await raw.send(request_bytes(1, "Wait"))
        await until(lambda: words.calls)
        stopping = asyncio.create_task(server.stop(5.0))
        await asyncio.sleep(0)
        await raw.send(request_bytes(3, "Echo"))
        words.go.set()
        await stopping
        assert await raw.answer() == (1, OK, "")
        with pytest.raises(EOFError):
            await raw.frame()
        raw.close()
    assert len(words.calls) == 1


@in_loop
async def test_after_the_grace_what_waits_is_cancelled_without_an_answer(tmp_path: Path) -> None:
    words = Words()
    async with serving(tmp_path / "s", words) as server:
        raw = Raw(tmp_path / "s")
        await raw.send(request_bytes(1, "Wait"))
        await until(lambda: words.calls)
        await server.stop(0.01)
        assert words.cancelled == [1]
        assert await raw.read() == b""
        raw.close()


@in_loop
async def test_a_handler_that_is_cancelled_from_inside_is_answered(tmp_path: Path) -> None:
    words = Words()
    words.raises = asyncio.CancelledError()  # type: ignore[assignment]
    async with serving(tmp_path / "s", words):
        client = await TtrpcClient.connect(str(tmp_path / "s"))
        with pytest.raises(CallFailed) as error:
            await client.call("test.v1.Words/Echo", word("x"), type(word("x")), 5.0)
        assert error.value.code == Code.CANCELLED
        client.close()
