"""The relay between containerd and exitd: each request is answered once, whatever becomes of exitd."""

import struct

import pytest

from shim._native import ffi, lib
from tests.shim.relaysession import Session, session, sessions
from tests.shim.relaywords import (
    AGAIN,
    BYE,
    C1,
    C2,
    CACHEABLE,
    DONE,
    HELLO,
    KEEP,
    LEAVE,
    PID,
    REQUEST,
    RESPONSE,
    SOON,
    Frame,
    call,
    code_of,
    encode,
    failure,
    success,
    types,
)  # fmt: skip


@pytest.mark.parametrize("piece", [0, 1, 7])
def test_requests_go_to_exitd_and_replies_to_containerd_unchanged_but_for_the_flags(piece: int) -> None:
    with session() as s:
        s.up()
        asked = [Frame(1, REQUEST, 0, call("Create", C1)), Frame(3, REQUEST, 0, call("Wait", C1))]
        s.from_containerd(b"".join(map(encode, asked)), piece)
        assert s.hear() == [Frame(0, HELLO, 0, b"hi"), *asked]
        s.answer(3, PID)
        s.answer(1, PID, KEEP | CACHEABLE)
        assert s.take() == [Frame(3, RESPONSE, 0, PID), Frame(1, RESPONSE, 0, PID)]


def test_a_done_follows_a_kept_reply_once_containerd_has_all_of_it() -> None:
    with session() as s:
        s.up()
        s.ask(1, "Create", C1)
        s.hear()
        s.answer(1, PID, KEEP)
        s.take(len(encode(Frame(1, RESPONSE, 0, PID))) - 1)
        assert s.hear() == []
        s.take()
        assert s.hear() == [Frame(1, DONE, 0, b"")]


def test_a_done_that_exitd_was_away_for_is_reported_behind_the_next_hello() -> None:
    with session() as s:
        s.up()
        s.ask(1, "Create", C1)
        s.ask(3, "Wait", C1)
        s.hear()
        s.answer(1, PID, KEEP)
        s.down()
        s.take()
        s.up()
        assert types(s.hear()) == [(HELLO, 0), (DONE, 1), (AGAIN, 3), (REQUEST, 3)]


def test_a_done_that_exitd_may_not_have_read_is_reported_again_and_the_last_64_at_most() -> None:
    with session() as s:
        s.up()
        for n in range(70):
            s.ask(2 * n + 1, "Exec", C1)
            s.hear()
            s.answer(2 * n + 1, PID, KEEP)
            s.take()
        s.down()
        s.up()
        assert types(s.hear()) == [(HELLO, 0), *((DONE, 2 * n + 1) for n in range(6, 70))]


def test_what_is_not_answered_is_sent_again_in_its_order_and_before_anything_newer() -> None:
    with session() as s:
        s.up()
        s.ask(1, "Create", C1)
        s.ask(3, "Wait", C1)
        s.hear()
        s.passes(250)
        s.down()
        s.ask(5, "Start", C1)
        s.passes(50)
        s.up()
        heard = s.hear()
        assert types(heard) == [(HELLO, 0), (AGAIN, 1), (REQUEST, 1), (AGAIN, 3), (REQUEST, 3), (REQUEST, 5)]
        assert struct.unpack(">II", heard[1].data) == (2, 300)
        assert heard[2].data == call("Create", C1)


def test_the_third_attempt_of_a_call_is_an_error_and_that_of_a_wait_is_not() -> None:
    with session() as s:
        s.ask(1, "Create", C1)
        s.ask(3, "Wait", C1)
        for _ in range(3):
            s.up()
            s.hear()
            s.down()
        s.up()
        assert types(s.hear()) == [(HELLO, 0), (AGAIN, 3), (REQUEST, 3)]
        (refused,) = s.take()
        assert (refused.stream, code_of(refused.data)) == (1, 14)
        assert b"exitd ended twice while it answered this" in refused.data


def test_an_exitd_that_has_not_taken_in_a_call_has_not_ended_by_it() -> None:
    """A connection to one that is dying, which nobody accepts any more."""
    with session() as s:
        s.ask(1, "Create", C1)
        for _ in range(5):
            s.up()
            s.hear()
            s.unheard()
            s.down()
        s.up()
        heard = s.hear()
        assert types(heard) == [(HELLO, 0), (AGAIN, 1), (REQUEST, 1)]
        assert struct.unpack(">II", heard[1].data)[0] == 6
        assert s.take() == []


@pytest.mark.parametrize("method", ["Connect", "Pids", "State"])
def test_while_exitd_is_away_what_it_said_last_is_said_again(method: str) -> None:
    with sessions(2) as (s, other):
        s.up()
        s.ask(1, method, C1)
        s.hear()
        s.answer(1, success(b"old"), CACHEABLE)
        s.ask(3, method, C1)
        s.hear()
        s.answer(3, success(b"new"), CACHEABLE)
        s.take()
        s.ask(5, method, C1)
        s.hear()
        s.down()
        other.ask(1, method, C1)
        other.ask(3, method, C2)
        assert s.take() == [Frame(5, RESPONSE, 0, success(b"new"))]
        assert other.take() == [Frame(1, RESPONSE, 0, success(b"new"))]
        other.up()
        assert types(other.hear()) == [(HELLO, 0), (REQUEST, 3)]


@pytest.mark.parametrize(
    ("method", "flags"), [("Exec", CACHEABLE), ("Create", CACHEABLE), ("Wait", CACHEABLE), ("State", 0)]
)
def test_nothing_else_is_ever_answered_from_memory(method: str, flags: int) -> None:
    with session() as s:
        s.up()
        s.ask(1, method, C1)
        s.hear()
        s.answer(1, PID, flags)
        s.take()
        s.down()
        s.ask(3, method, C1)
        s.passes(5000)
        assert s.take() == []


@pytest.mark.parametrize("method", ["Start", "Pause", "Resume", "Wait"])
def test_a_state_that_is_known_to_have_changed_is_not_told_from_memory(method: str) -> None:
    """Who has heard of the end must not be told that the task runs; for Connect nothing has changed."""
    with session() as s:
        s.up()
        for stream, look in ((1, "State"), (3, "Connect")):
            s.ask(stream, look, C1)
            s.hear()
            s.answer(stream, success(b"old"), CACHEABLE)
        s.ask(5, method, C1)
        s.hear()
        s.answer(5, success(b""))
        s.take()
        s.down()
        s.ask(7, "State", C1)
        s.ask(9, "Connect", C1)
        s.passes(5000)
        assert s.take() == [Frame(9, RESPONSE, 0, success(b"old"))]


def test_a_method_of_another_service_is_not_taken_for_a_tasks() -> None:
    with session() as s:
        s.up()
        s.ask(1, "State", C1)
        s.hear()
        s.answer(1, PID, CACHEABLE)
        s.take()
        s.down()
        s.from_containerd(encode(Frame(3, REQUEST, 0, call("State", C1, "exitd.ttrpc.Other"))))
        assert s.take() == []


def test_exitd_that_is_silent_for_a_second_is_stood_in_for_and_its_late_reply_is_remembered_only() -> None:
    with session() as s:
        s.up()
        s.ask(1, "State", C1)
        s.hear()
        s.answer(1, success(b"old"), CACHEABLE)
        s.take()
        s.ask(3, "State", C1)
        s.passes(999)
        assert s.take() == []
        s.passes(1)
        assert s.take() == [Frame(3, RESPONSE, 0, success(b"old"))]
        s.answer(3, success(b"late"), CACHEABLE)
        assert s.take() == []
        s.down()
        s.ask(5, "State", C1)
        assert s.take() == [Frame(5, RESPONSE, 0, success(b"late"))]


def test_silence_counts_from_exitds_return() -> None:
    with session() as s:
        s.ask(1, "State", C1)
        s.passes(3000)
        s.up()
        s.passes(999)
        assert (s.take(), s.c.look_ms) == ([], s.now_ms + 1)


def test_a_task_that_is_deleted_is_forgotten_and_one_that_could_not_be_is_not() -> None:
    with session() as s:
        s.up()
        for stream, (method, payload) in enumerate([("State", C1), ("State", C2), ("Delete", C1), ("Delete", C2)]):
            s.ask(2 * stream + 1, method, payload)
            s.hear()
            reply = failure(9) if (method, payload) == ("Delete", C2) else PID
            s.answer(2 * stream + 1, reply, CACHEABLE)
        s.take()
        s.down()
        s.ask(21, "State", C1)
        s.ask(23, "State", C2)
        assert types(s.take()) == [(RESPONSE, 23)]


def test_when_containerd_is_gone_exitd_hears_bye_and_nothing_is_sent_again() -> None:
    with session() as s:
        s.up()
        s.ask(1, "Wait", C1)
        s.hear()
        s.over()
        assert s.hear() == [Frame(0, BYE, 0, b"")]
        s.answer(1, PID)
        assert (s.take(), s.c.pending.count) == ([], 0)


def test_a_reply_with_leave_ends_the_relay_once_it_is_given() -> None:
    with session() as s:
        s.up()
        s.ask(1, "Shutdown", C1)
        s.hear()
        s.answer(1, b"", LEAVE)
        assert not s.c.is_leaving
        s.take()
        assert s.c.is_leaving


@pytest.mark.parametrize("moment", ["before the reply", "before it is read", "while exitd is away"])
def test_a_shutdown_whose_caller_is_gone_still_ends_the_relay(moment: str) -> None:
    with session() as s:
        s.up()
        s.ask(1, "Shutdown", C1)
        s.ask(3, "Wait", C1)
        s.hear()
        if moment == "before it is read":
            s.answer(1, b"", LEAVE)
        s.over()
        if moment == "while exitd is away":
            for _ in range(4):
                s.down()
                s.up()
            assert types(s.hear()) == [(HELLO, 0), (AGAIN, 1), (REQUEST, 1)]
        if moment != "before it is read":
            s.answer(1, b"", LEAVE)
        assert s.c.is_leaving
        assert s.hear()[-1:] == [Frame(0, BYE, 0, b"")]


def after_the_word_to_leave(s: Session) -> tuple[bool, bool]:
    """Whether this connection keeps the relay, and whether that word still counts."""
    word = ffi.new("int *", 1)
    return bool(lib.session_stays(s.c, word)), bool(word[0])


@pytest.mark.parametrize(
    "method, found",
    [
        ("Wait", (False, True)),
        ("CloseIO", (True, True)),
        ("State", (True, True)),
        ("Delete", (True, True)),
        ("Create", (True, False)),
    ],
)
def test_the_word_to_leave_is_put_off_by_what_is_unanswered_and_taken_back_by_a_create(
    method: str, found: tuple[bool, bool]
) -> None:
    with session() as s:
        assert after_the_word_to_leave(s) == (True, True)  # who has just connected is waited for
        s.up()
        s.ask(1, method, C1)
        s.hear()
        assert after_the_word_to_leave(s) == found
        s.answer(1, b"")
        assert after_the_word_to_leave(s) == (False, True)


def test_a_connection_that_start_has_promised_is_counted_and_the_first_request_of_one_keeps_the_promise() -> None:
    with session() as promise, session() as s:
        promise.from_containerd(encode(Frame(0, SOON, 0, b"")), piece=3)
        promise.over()
        assert (promise.c.promised, promise.c.is_used) == (1, 0)
        s.ask(1, "Connect", C1)
        s.ask(3, "State", C1)
        assert s.c.promised == -1


def test_a_relay_without_containerd_asks_by_itself_until_exitd_has_answered() -> None:
    with session() as s:
        lib.session_own(s.c, s.now_ms)
        for _ in range(3):
            s.up()
            hello, *_, asked = s.hear()
            assert (hello.type, asked) == (HELLO, Frame(1, REQUEST, 0, call("Shutdown")))
            s.down()
        s.up()
        s.answer(1, b"")
        assert (s.c.is_leaving, types(s.hear())[-1]) == (0, (BYE, 0))
    with session() as s:
        lib.session_own(s.c, s.now_ms)
        s.up()
        s.answer(1, b"", LEAVE)
        assert s.c.is_leaving
        assert after_the_word_to_leave(s) == (False, True)
