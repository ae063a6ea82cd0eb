"""The relay as a courier of exitd's events: containerd gets each once, however often exitd hands it over."""

import contextlib
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from shim._native import ffi, lib
from tests.shim.relaysession import Session, sessions
from tests.shim.relaywords import EVENT, REQUEST, RESPONSE, TOLD, Frame, code_of, decode, encode, failure, success

OK, REFUSED, UNAVAILABLE, FULL = 0, 2, 14, 8
CONNECT_MS, ANSWER_MS = 5000, 10_000


class Courier:
    """`link` is the connection to exitd; `restart` makes the next exitd's."""

    def __init__(self, c: Any, link: Session, other: Session) -> None:
        self.c = c
        self.link, self.other = link, other
        self.now_ms = 1000
        for each in (link, other):
            each.c.courier = c
            each.up()
            each.hear()

    def hand(self, number: int, request: bytes = b"event", link: Session | None = None) -> None:
        (link or self.link).from_exitd(encode(handed(number, request)))
        self.passes(0)

    def up(self) -> None:
        lib.courier_up(self.c)
        self.passes(0)

    def down(self) -> None:
        lib.courier_down(self.c)

    def wants(self) -> bool:
        return bool(lib.courier_wants(self.c))

    def sent(self) -> list[Frame]:
        """What containerd has got since."""
        buffer = self.c.to_containerd
        if (size := buffer.end - buffer.at) == 0:
            return []
        data = bytes(ffi.buffer(buffer.data + buffer.at, size))
        lib.buffer_take(ffi.addressof(self.c, "to_containerd"), size)
        frames, rest = decode(data)
        assert not rest
        return frames

    def answer(self, reply: bytes = success(), stream: int = 1, piece: int = 0) -> None:
        """To a request that it has read as a whole."""
        self.sent()
        assert not self.says(encode(Frame(stream, RESPONSE, 0, reply)), piece)

    def says(self, data: bytes, piece: int = 0) -> bool:
        """Whether the connection is to be closed by then."""
        parts = [data[at : at + (piece or len(data))] for at in range(0, len(data), piece or len(data))]
        return any([lib.courier_hear(self.c, ffi.from_buffer(part), len(part)) for part in parts])

    def told(self, link: Session | None = None) -> list[tuple[int, int]]:
        """Numbers and codes that exitd is told."""
        link = link or self.link
        lib.courier_report(self.c, link.c)
        frames = link.hear_all()
        assert all((frame.type, frame.stream, frame.flags) == (TOLD, 0, 0) for frame in frames), frames
        return [(struct.unpack_from(">Q", frame.data)[0], code_of(frame.data[8:])) for frame in frames]

    def passes(self, ms: int) -> bool:
        """Whether the connection is to be closed by then."""
        self.now_ms += ms
        return bool(lib.courier_look(self.c, self.now_ms))

    def restart(self) -> None:
        self.link.down()
        self.link.up()
        self.link.hear()


def handed(number: int, request: bytes = b"event") -> Frame:
    return Frame(0, EVENT, 0, struct.pack(">Q", number) + request)


@contextlib.contextmanager
def courier() -> Iterator[Courier]:
    with sessions(2) as (one, other):
        made = Courier(ffi.new("struct courier *"), one, other)
        yield made
        lib.courier_down(made.c)


@pytest.mark.parametrize("piece", [0, 1, 7])
def test_an_event_goes_to_containerd_and_its_answer_to_exitd(piece: int) -> None:
    with courier() as c:
        c.hand(7, b"one")
        assert c.wants()
        c.up()
        assert not c.wants()
        assert c.sent() == [Frame(1, REQUEST, 0, b"one")]
        assert c.told() == []
        c.answer(piece=piece)
        assert c.told() == [(7, OK)]
        assert c.told() == []
        c.hand(1 << 63, b"two")
        assert c.sent() == [Frame(3, REQUEST, 0, b"two")]
        c.answer(stream=3)
        assert c.told() == [(1 << 63, OK)]


def test_what_is_handed_over_again_after_its_answer_is_not_sent_again() -> None:
    with courier() as c:
        c.up()
        c.hand(7)
        c.sent()
        c.answer()
        for _ in range(2):
            c.restart()
            c.hand(7)
            assert (c.told(), c.sent()) == ([(7, OK)], [])
        c.hand(8)
        assert len(c.sent()) == 1


def test_what_is_handed_over_again_before_its_answer_is_not_sent_again_and_reported_once_it_has_come() -> None:
    with courier() as c:
        c.up()
        c.hand(7)
        assert len(c.sent()) == 1
        c.restart()
        c.hand(7)
        assert (c.told(), c.sent()) == ([], [])
        c.answer()
        assert c.told() == [(7, OK)]


def test_an_answer_that_comes_while_exitd_is_away_is_reported_when_the_event_is_handed_over_again() -> None:
    with courier() as c:
        c.up()
        c.hand(7)
        c.sent()
        c.link.down()
        c.answer()
        c.link.up()
        c.link.hear()
        assert c.told() == []
        c.hand(7)
        assert (c.told(), c.sent()) == ([(7, OK)], [])


def test_an_event_may_be_handed_over_again_on_another_connection_and_is_reported_there() -> None:
    with courier() as c:
        c.up()
        c.hand(7)
        c.sent()
        c.link.down()
        c.hand(7, link=c.other)
        c.answer()
        assert (c.told(c.other), c.sent()) == ([(7, OK)], [])


def test_half_of_an_event_of_an_exitd_that_was_killed_is_none() -> None:
    with courier() as c:
        c.up()
        c.link.from_exitd(encode(handed(7))[:-1])
        c.restart()
        assert (c.sent(), c.told()) == ([], [])
        c.hand(7)
        assert len(c.sent()) == 1


def test_a_refusal_is_reported_in_containerds_words_and_the_event_is_sent_again_when_it_is_handed_over_again() -> None:
    with courier() as c:
        c.up()
        for stream in (1, 3):
            c.hand(7)
            assert len(c.sent()) == 1
            c.answer(failure(REFUSED), stream)
            assert c.told() == [(7, REFUSED)]
        c.hand(7)
        c.answer(failure(REFUSED, "x" * 1000), 5)
        assert c.told() == [(7, REFUSED)]
        c.hand(7)
        c.answer(stream=7)
        assert c.told() == [(7, OK)]


def test_an_answer_to_half_a_request_is_none_and_the_next_request_does_not_follow_the_half_one() -> None:
    with courier() as c:
        c.up()
        c.hand(7, b"event")
        lib.buffer_take(ffi.addressof(c.c, "to_containerd"), 3)
        assert c.says(encode(Frame(1, RESPONSE, 0, success())))
        assert (c.sent(), c.told()) == ([], [(7, UNAVAILABLE)])
        c.down()
        c.hand(7, b"event")
        assert c.wants()
        c.up()
        assert c.sent() == [Frame(3, REQUEST, 0, b"event")]
        c.answer(stream=3)
        assert c.told() == [(7, OK)]


def test_while_containerd_is_away_an_event_is_reported_with_14_and_forgotten() -> None:
    with courier() as c:
        c.hand(7)
        c.down()
        assert c.told() == [(7, UNAVAILABLE)]
        assert not c.wants()
        c.hand(7)
        c.up()
        assert len(c.sent()) == 1
        c.down()
        assert c.told() == [(7, UNAVAILABLE)]
        c.hand(7)
        assert c.wants()
        c.up()
        assert [frame.data for frame in c.sent()] == [b"event"]


def test_a_containerd_that_does_not_answer_is_given_up_and_what_it_answers_late_is_passed_over() -> None:
    with courier() as c:
        c.hand(7)
        assert not c.passes(CONNECT_MS - 1)
        assert c.told() == []
        assert not c.passes(1)
        assert c.told() == [(7, UNAVAILABLE)]
        c.hand(8)
        c.up()
        assert not c.passes(ANSWER_MS - 1)
        assert c.passes(1)
        assert c.told() == [(8, UNAVAILABLE)]
        c.hand(8)
        c.answer(stream=3)
        assert c.told() == []


def test_of_two_events_at_a_time_the_second_is_refused() -> None:
    with courier() as c:
        c.up()
        c.hand(7)
        c.hand(8, link=c.other)
        assert c.told(c.other) == [(8, FULL)]
        c.answer()
        assert c.told() == [(7, OK)]
        c.hand(8, link=c.other)
        assert [frame.stream for frame in c.sent()] == [3]


def test_answers_to_nothing_and_events_without_a_number_are_passed_over() -> None:
    with courier() as c:
        c.up()
        c.says(bytes(range(200)) * 5 + bytes(5000))
        c.down()
        c.up()
        for data in (b"", b"\0" * 7, b"\0" * 8, b"\0" * 99):
            c.link.from_exitd(encode(Frame(0, EVENT, 0, data)))
        c.answer()
        assert (c.sent(), c.told()) == ([], [])
        c.hand(7)
        c.answer(stream=3)
        c.says(encode(Frame(1, REQUEST, 0, b"")))
        assert c.told() == []
        c.answer(b"\xff\xff")
        assert c.told() == [(7, UNAVAILABLE)]
