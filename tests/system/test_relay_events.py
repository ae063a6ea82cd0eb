"""The relay as a program brings exitd's events to containerd, each once, while either of them is killed."""

import pathlib
import socket
import struct
from collections.abc import Iterator

import pytest

from tests.shim.relaywords import (
    DATA_MAX,
    EVENT,
    LEAVE,
    REQUEST,
    RESPONSE,
    TOLD,
    Frame,
    code_of,
    of_task,
    success,
)  # fmt: skip
from tests.system.processes import open_files, private_kb
from tests.system.relay import Chain, Peer, chain, relays_in
from tests.system.waits import until

OK, UNAVAILABLE = 0, 14


@pytest.fixture
def c(tmp_path: pathlib.Path) -> Iterator[Chain]:
    with relays_in(tmp_path) as relays:
        yield chain(relays)


class Taker:
    """Where containerd takes events."""

    def __init__(self, c: Chain) -> None:
        self.path = pathlib.Path(c.relays.containerd + ".ttrpc")
        self.path.unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.settimeout(20)
        self.listener.bind(str(self.path))
        self.listener.listen(8)
        self.peers: list[Peer] = []

    def accept(self) -> Peer:
        self.peers.append(Peer(self.listener.accept()[0]))
        return self.peers[-1]

    def close(self) -> None:
        self.listener.close()
        for peer in self.peers:
            peer.close()


@pytest.fixture
def taker(c: Chain) -> Iterator[Taker]:
    made = Taker(c)
    yield made
    made.close()


def hand(c: Chain, number: int, request: bytes = b"event") -> None:
    c.up.send(Frame(0, EVENT, 0, struct.pack(">Q", number) + request))


def told(c: Chain) -> tuple[int, int]:
    frame = c.up.next()
    assert frame is not None and (frame.type, frame.stream, frame.flags) == (TOLD, 0, 0), frame
    return struct.unpack_from(">Q", frame.data)[0], code_of(frame.data[8:])


def restart(c: Chain) -> None:
    """The next exitd, which has been asked again what was not answered."""
    c.exitd.end()
    c.exitd.again()
    c.up, _ = c.exitd.greeted()
    assert len(c.up.frames(2)) == 2


def test_events_go_over_one_connection_one_after_the_other(c: Chain, taker: Taker) -> None:
    for number in (5, 9, 1 << 40):
        hand(c, number, b"event %d" % number)
        peer = taker.peers[0] if taker.peers else taker.accept()
        frame = peer.next()
        assert frame is not None and (frame.type, frame.flags, frame.data) == (REQUEST, 0, b"event %d" % number)
        peer.send(Frame(frame.stream, RESPONSE, 0, success()))
        assert told(c) == (number, OK)
    c.ask(3, "State", of_task("c1"), success(b"still"))


def test_exitd_killed_before_the_answer_is_told_of_it_afterwards_and_containerd_has_the_event_once(
    c: Chain, taker: Taker
) -> None:
    hand(c, 5)
    peer = taker.accept()
    assert peer.next() == Frame(1, REQUEST, 0, b"event")
    restart(c)
    hand(c, 5)
    assert c.up.silent()
    peer.send(Frame(1, RESPONSE, 0, success()))
    assert told(c) == (5, OK)
    for _ in range(3):
        restart(c)
        hand(c, 5)
        assert told(c) == (5, OK)
    assert peer.silent()
    hand(c, 6)
    assert peer.next() == Frame(3, REQUEST, 0, b"event")


def test_an_answer_that_comes_while_exitd_is_away_is_kept(c: Chain, taker: Taker) -> None:
    hand(c, 5)
    peer = taker.accept()
    peer.next()
    c.exitd.end()
    peer.send(Frame(1, RESPONSE, 0, success()))
    c.exitd.again()
    c.up, _ = c.exitd.greeted()
    c.up.frames(2)
    hand(c, 5)
    assert told(c) == (5, OK)
    assert peer.silent()


def test_an_event_whose_exitd_was_killed_as_soon_as_it_was_written_goes_its_way(c: Chain, taker: Taker) -> None:
    hand(c, 5)
    c.exitd.end()
    peer = taker.accept()
    assert peer.next() == Frame(1, REQUEST, 0, b"event")


def test_a_containerd_that_is_away_is_14_at_once_and_is_asked_when_the_event_comes_again(c: Chain) -> None:
    hand(c, 5)
    assert told(c) == (5, UNAVAILABLE)
    taker = Taker(c)
    hand(c, 5)
    peer = taker.accept()
    peer.next()
    peer.close()
    assert told(c) == (5, UNAVAILABLE)
    hand(c, 5)
    peer = taker.accept()
    frame = peer.next()
    assert frame is not None and frame.data == b"event"
    peer.send(Frame(frame.stream, RESPONSE, 0, success()))
    assert told(c) == (5, OK)
    taker.close()


def test_a_relay_that_is_to_leave_brings_what_it_has_first(c: Chain, taker: Taker) -> None:
    hand(c, 5)
    peer = taker.accept()
    peer.next()
    c.ask(3, "Shutdown", b"", success(), LEAVE)
    assert peer.silent() and c.relays.living() == [c.pid]
    peer.send(Frame(1, RESPONSE, 0, success()))
    assert told(c) == (5, OK)
    c.relays.gone(c.pid)


def test_events_leave_no_memory_and_one_descriptor_behind(c: Chain, taker: Taker) -> None:
    fds = len(open_files(c.pid))
    sizes = []
    for number, size in enumerate((100, DATA_MAX - 8, 100, 1 << 20, 100), 1):
        hand(c, number, bytes(size))
        peer = taker.accept()
        frame = peer.next()
        assert frame is not None and frame.data == bytes(size)
        peer.send(Frame(frame.stream, RESPONSE, 0, success()))
        assert told(c) == (number, OK)
        sizes.append(private_kb(c.pid))
        assert len(open_files(c.pid)) == fds + 1
        peer.close()
        until(lambda: len(open_files(c.pid)) == fds, "the ended connection is closed")
    print(f"private memory after events: {sizes} kB")
    assert max(sizes) <= 100
