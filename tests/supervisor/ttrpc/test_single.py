"""One call on a connection of its own, used by many threads."""

import select
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.wrappers_pb2 import BytesValue, StringValue

from supervisor.model.errors import Code, NotPermitted
from supervisor.ttrpc.faults import CallFailed, Closed
from supervisor.ttrpc.services import CallKind
from supervisor.ttrpc.single import SingleCall
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.ttrpc.rig import SERVICE, Words, word
from tests.supervisor.ttrpc.test_blocking import SECONDS, connected, mute

SHORT_SECONDS = 0.05
MUCH = 16 * 1024 * 1024  # more than sockets and inboxes hold


def call(path: Path, method: str, kind: CallKind, request: Any = None, **more: Any) -> SingleCall[Any]:
    reply = BytesValue if method in ("Blob", "Flood") else StringValue
    return SingleCall(str(path), f"{SERVICE}/{method}", kind, reply, request, **more)


def in_thread(act: Callable[..., Any], *arguments: Any) -> "Future[Any]":
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(act, *arguments)
    finally:
        pool.shutdown(wait=False)


def arrived(words: Words) -> None:
    """The server has begun a call, in its own thread."""
    deadline = time.monotonic() + SECONDS
    while not words.calls:
        assert time.monotonic() < deadline, "no call has come"
        select.select([], [], [], 0.001)


def test_every_kind_of_call_gets_its_answers_and_then_none(tmp_path: Path) -> None:
    with connected(tmp_path / "s"):
        one = call(tmp_path / "s", "Echo", CallKind.UNARY, word("a"))
        assert [one.receive(), one.receive()] == [word("a"), None]
        several = call(tmp_path / "s", "Letters", CallKind.SERVER, word("ab"))
        assert [several.receive() for _ in range(4)] == [word("a"), word("b"), None, None]
        joined = call(tmp_path / "s", "Join", CallKind.CLIENT)
        assert [joined.send(word("x")), joined.send(word("y")), joined.end()] == [True] * 3
        assert [joined.receive(), joined.receive()] == [word("xy"), None]
        both = call(tmp_path / "s", "Upper", CallKind.BIDI)
        assert both.send(word("a"))
        assert both.receive() == word("A")
        assert both.end()
        assert not both.send(word("b"))
        assert both.receive() is None


def test_an_error_is_raised_as_often_as_it_is_asked_for(tmp_path: Path) -> None:
    words = Words()
    words.raises = NotPermitted("not you")
    with connected(tmp_path / "s", words):
        letters = call(tmp_path / "s", "Letters", CallKind.SERVER, word("a"))
        assert letters.receive() == word("a")
        for _ in range(2):
            with pytest.raises(CallFailed, match="not you"):
                letters.receive()
        assert not letters.send(word("more"))


def test_a_wait_that_was_too_short_can_be_repeated(tmp_path: Path) -> None:
    words = Words()
    with connected(tmp_path / "s", words):
        waiting = call(tmp_path / "s", "Wait", CallKind.UNARY, word("a"))
        with pytest.raises(TimeoutError):
            waiting.receive(SHORT_SECONDS)
        arrived(words)
        words.calls[0].connection._loop.call_soon_threadsafe(words.go.set)
        assert waiting.receive(SECONDS) == word("a")


def test_the_whole_calls_limit_is_the_servers_and_its_own(tmp_path: Path) -> None:
    with connected(tmp_path / "s"):
        late = call(tmp_path / "s", "Wait", CallKind.UNARY, word("a"), seconds=SHORT_SECONDS)
        with pytest.raises(CallFailed) as caught:
            late.receive()
        assert caught.value.code is Code.DEADLINE_EXCEEDED
    with mute(tmp_path / "m"):
        late = call(tmp_path / "m", "Wait", CallKind.UNARY, word("a"), seconds=SHORT_SECONDS)
        with pytest.raises(CallFailed) as caught:
            late.receive()
        assert caught.value.code is Code.DEADLINE_EXCEEDED


def test_giving_up_ends_the_handler_and_lets_every_thread_go(tmp_path: Path) -> None:
    words = Words()
    before = held_now()
    with connected(tmp_path / "s", words):
        deaf = call(tmp_path / "s", "Deaf", CallKind.CLIENT)
        reading = in_thread(deaf.receive)
        writing = in_thread(lambda: all(deaf.send(word("x" * 100_000)) for _ in range(MUCH // 100_000)))
        arrived(words)
        assert not wait((reading, writing), timeout=SHORT_SECONDS).done
        deaf.cancel()
        deaf.cancel()
        assert reading.result(SECONDS) is None
        assert writing.result(SECONDS) is False
        assert not deaf.send(word("x"))
        call(tmp_path / "s", "Echo", CallKind.UNARY, word("a")).receive()
    assert words.cancelled == [1]
    assert not opened_since(before)


def test_a_writer_is_let_go_when_the_server_ends_the_call(tmp_path: Path) -> None:
    words = Words()
    with connected(tmp_path / "s", words):
        deaf = call(tmp_path / "s", "Deaf", CallKind.CLIENT, seconds=0.3)
        writing = in_thread(lambda: all(deaf.send(word("x" * 100_000)) for _ in range(MUCH // 100_000)))
        with pytest.raises(CallFailed):
            deaf.receive()
        assert writing.result(SECONDS) is False


def test_the_last_message_is_waited_for_and_not_longer_than_that(tmp_path: Path) -> None:
    words = Words()
    with connected(tmp_path / "s", words):
        upper = call(tmp_path / "s", "Upper", CallKind.BIDI)
        began = time.monotonic()
        upper.send_last(word("a"), SHORT_SECONDS)
        assert time.monotonic() - began < SECONDS / 2
        assert upper.receive() is None
        deaf = call(tmp_path / "s", "Deaf", CallKind.CLIENT)
        writing = in_thread(lambda: all(deaf.send(word("x" * 100_000)) for _ in range(MUCH // 100_000)))
        deaf.send_last(word("never there"), SHORT_SECONDS)
        assert writing.result(SECONDS) is False


def test_the_end_that_comes_after_the_last_message_ends_the_waiting(tmp_path: Path) -> None:
    with connected(tmp_path / "s"):
        letters = call(tmp_path / "s", "Letters", CallKind.SERVER, word("abc"))
        began = time.monotonic()
        letters.send_last(word(""), SECONDS)
        assert time.monotonic() - began < SECONDS / 2


@pytest.mark.parametrize("reading", [True, False])
def test_a_server_that_goes_away_is_reported(tmp_path: Path, reading: bool) -> None:
    with mute(tmp_path / "m"):  # its end is the end of whoever waits in the queue
        lost = call(tmp_path / "m", "Wait", CallKind.UNARY, word("a"))
        told = in_thread(lost.receive) if reading else None
    with pytest.raises(Closed):
        lost.receive() if told is None else told.result(SECONDS)


def test_nobody_there_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(Closed, match="cannot connect"):
        call(tmp_path / "none", "Echo", CallKind.UNARY, word("a"))
