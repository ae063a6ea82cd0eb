"""The relay between peers that do anything: it keeps no more than it may, and answers each request once."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shim._native import lib
from tests.shim.relaysession import Session, session
from tests.shim.relaywords import (
    AGAIN,
    BYE,
    C1,
    C2,
    CACHEABLE,
    DATA_MAX,
    DONE,
    HELLO,
    KEEP,
    PID,
    REQUEST,
    RESPONSE,
    SOON,
    Frame,
    call,
    code_of,
    encode,
    failure,
    of_task,
    success,
    types,
)  # fmt: skip


def test_the_cache_is_bounded_and_the_oldest_goes() -> None:
    with session() as s:
        s.up()
        for n in range(300):
            s.ask(2 * n + 1, "State", of_task(f"c{n}"))
            s.hear()
            s.answer(2 * n + 1, PID, CACHEABLE)
            s.take()
        assert s.cache.count == lib.CACHE_MAX
        s.ask(1001, "State", C1)
        s.hear()
        s.answer(1001, success(bytes(65_000)), CACHEABLE)
        assert s.cache.bytes <= lib.CACHE_BYTES
        s.ask(1003, "State", C2)
        s.hear()
        s.answer(1003, success(bytes(70_000)), CACHEABLE)
        s.down()
        s.take()
        s.ask(1005, "State", C1)
        s.ask(1007, "State", C2)
        assert types(s.take()) == [(RESPONSE, 1005)]


def test_more_than_4096_requests_or_8_mib_of_them_are_refused_at_once() -> None:
    with session() as s:
        s.from_containerd(b"".join(encode(Frame(2 * n + 1, REQUEST, 0, call("Wait", C1))) for n in range(4097)))
        assert [(f.stream, code_of(f.data)) for f in s.take()] == [(8193, 14)]
    with session() as s:
        for stream in (1, 3, 5):
            s.from_containerd(encode(Frame(stream, REQUEST, 0, call("Create", bytes(4_000_000)))))
        assert [(f.stream, code_of(f.data)) for f in s.take()] == [(5, 14)]
        s.ask(7, "Wait", C1)
        assert s.take() == []


def test_answers_from_the_cache_make_room_when_exitd_stays_silent() -> None:
    with session() as s:
        s.up()
        s.ask(1, "State", C1)
        s.hear()
        s.answer(1, PID, CACHEABLE)
        for n in range(1, 4097):
            s.ask(2 * n + 1, "State", C1)
            s.hear()
        s.passes(1000)
        assert len(s.take()) == 4097
        s.ask(9001, "State", C1)
        s.passes(1000)
        assert types(s.take()) == [(RESPONSE, 9001)]


def test_an_oversize_frame_is_refused_with_8_and_the_next_one_is_served() -> None:
    with session() as s:
        s.up()
        s.from_containerd(struct.pack(">IIBB", DATA_MAX + 1, 1, REQUEST, 0) + bytes(DATA_MAX + 1), 1 << 20)
        s.ask(3, "State", C1)
        assert types(s.hear()) == [(HELLO, 0), (REQUEST, 3)]
        (refused,) = s.take()
        assert (refused.stream, code_of(refused.data)) == (1, 8)
        assert b"message length 4194305 exceed maximum message size of 4194304" in refused.data


def test_a_head_that_announces_much_takes_no_memory_before_the_bytes_come() -> None:
    with session() as s:
        s.from_containerd(struct.pack(">IIBB", DATA_MAX, 1, REQUEST, 0) + bytes(5000))
        assert s.c.from_containerd.room == 8192


def test_the_largest_frame_goes_through_both_ways() -> None:
    request = call("Update", bytes(DATA_MAX - 64))
    request += bytes([0x32, 0]) * ((DATA_MAX - len(request)) // 2)
    reply = success(bytes(DATA_MAX - 5))
    assert len(reply) == DATA_MAX
    with session() as s:
        s.up()
        s.from_containerd(encode(Frame(1, REQUEST, 0, request)), 1 << 16)
        assert s.hear_all()[1].data == request
        s.answer(1, reply)
        assert s.take() == [Frame(1, RESPONSE, 0, reply)]


def test_an_oversize_reply_of_exitd_is_an_error_of_that_call_alone() -> None:
    with session() as s:
        s.up()
        s.ask(1, "Stats", C1)
        s.ask(3, "State", C1)
        s.hear()
        s.from_exitd(struct.pack(">IIBB", DATA_MAX + 9, 1, RESPONSE, 0) + bytes(DATA_MAX + 9))
        s.answer(3, PID)
        assert [(f.stream, code_of(f.data)) for f in s.take()] == [(1, 8), (3, 0)]


@pytest.mark.parametrize("stream", [0, 2, 1])
def test_an_even_stream_or_one_in_use_is_refused_with_3(stream: int) -> None:
    with session() as s:
        s.up()
        s.ask(1, "Wait", C1)
        s.ask(stream, "State", C1)
        assert [(f.stream, code_of(f.data)) for f in s.take()] == [(stream, 3)]
        assert types(s.hear()) == [(HELLO, 0), (REQUEST, 1)]


@pytest.mark.parametrize("type_", [0, 2, 3, 4, HELLO, AGAIN, DONE, BYE, SOON, 255])
def test_no_frame_of_another_type_gets_through(type_: int) -> None:
    with session() as s:
        s.up()
        s.from_containerd(encode(Frame(1, type_, 0, b"x" * 100)))
        s.ask(3, "Wait", C1)
        assert types(s.hear()) == [(HELLO, 0), (REQUEST, 3)]
        s.from_exitd(encode(Frame(3, 3, 0, b"data")) + encode(Frame(3, HELLO, 0, b"?")))
        s.answer(99, PID)
        assert s.take() == []


def test_a_connection_whose_replies_are_not_read_is_given_up_at_8_mib() -> None:
    with session() as s:
        s.up()
        for stream in (1, 3, 5):
            s.ask(stream, "Stats", C1)
            s.hear()
            s.answer(stream, success(bytes(4_000_000)))
            assert bool(s.c.is_broken) == (stream == 5)


class Relayed(RuleBasedStateMachine):
    """An exitd that comes and goes, a containerd that reads as it likes; the oracle counts the answers."""

    METHODS = ("Create", "Wait", "State", "Connect", "Delete")

    @initialize()
    def begin(self) -> None:
        self.manager = session()
        self.s: Session = self.manager.__enter__()
        self.asked: dict[int, str] = {}
        self.unanswered: dict[int, bytes] = {}  # by exitd, over the present connection
        self.up = False

    @rule(method=st.sampled_from(METHODS), task=st.sampled_from([C1, C2]))
    def asks(self, method: str, task: bytes) -> None:
        stream = 2 * len(self.asked) + 1
        self.asked[stream] = method
        self.s.ask(stream, method, task)

    @rule()
    @precondition(lambda self: not self.up)
    def comes(self) -> None:
        self.s.up()
        self.up, self.unanswered = True, {}

    @rule()
    @precondition(lambda self: self.up)
    def goes(self) -> None:
        self.s.down()
        self.up = False

    @rule(most=st.integers(1, 200))
    @precondition(lambda self: self.up)
    def hears(self, most: int) -> None:
        for frame in self.s.hear(most):
            if frame.type == REQUEST:
                assert frame.stream not in self.unanswered
                self.unanswered[frame.stream] = frame.data
        requests = [frame.stream for frame in self.s.told if frame.type == REQUEST]
        assert requests == sorted(requests)

    @rule(data=st.data(), flags=st.sampled_from([0, KEEP, CACHEABLE, KEEP | CACHEABLE]))
    @precondition(lambda self: self.up and self.unanswered)
    def answers(self, data: st.DataObject, flags: int) -> None:
        stream = data.draw(st.sampled_from(sorted(self.unanswered)))
        del self.unanswered[stream]
        self.s.answer(stream, data.draw(st.sampled_from([PID, failure(5)])), flags)

    @rule(ms=st.sampled_from([10, 600, 2000]))
    def time_passes(self, ms: int) -> None:
        self.s.passes(ms)

    @rule(most=st.integers(1, 100))
    def reads(self, most: int) -> None:
        self.s.take(most)

    @invariant()
    def each_is_answered_at_most_once_and_none_that_was_not_asked(self) -> None:
        if hasattr(self, "s"):
            assert set(self.s.codes()) <= set(self.asked)
            assert not self.s.c.is_broken

    def teardown(self) -> None:
        if not hasattr(self, "s"):
            return
        if not self.up:
            self.comes()
        self.s.hear_all()
        for frame in self.s.told:
            if frame.type == REQUEST:
                self.s.answer(frame.stream, PID)
        self.s.take()
        assert set(self.s.codes()) == set(self.asked)
        assert self.s.c.pending.count == 0
        self.manager.__exit__(None, None, None)


TestRelayed = Relayed.TestCase
TestRelayed.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.lists(st.binary(max_size=80), max_size=12), st.lists(st.binary(max_size=80), max_size=12))
@settings(deadline=None)
def test_any_bytes_of_both_are_taken(ours: list[bytes], theirs: list[bytes]) -> None:
    with session() as s:
        s.up()
        for mine, other in zip(ours, theirs, strict=False):
            s.from_containerd(mine)
            s.from_exitd(other)
            s.passes(300)
            s.hear()
            s.take()
