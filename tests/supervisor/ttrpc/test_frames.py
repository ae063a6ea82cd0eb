"""Frames, however their bytes arrive."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model.errors import Code
from supervisor.ttrpc.faults import CallFailed
from supervisor.ttrpc.frames import DATA, MAX_DATA, NO_DATA, REMOTE_CLOSED, REQUEST, Decoder, Frame, Oversize, encode
from tests.supervisor.ttrpc.rig import header

FRAMES = st.builds(Frame, st.integers(0, 2**32 - 1), st.integers(0, 255), st.integers(0, 255), st.binary(max_size=40))


def in_pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(places)]


def fed(pieces: list[bytes]) -> list[Frame | Oversize]:
    decoder = Decoder()
    return [item for piece in pieces for item in decoder.feed(piece)]


def test_a_frame_is_ten_bytes_of_header_and_its_data() -> None:
    golden = bytes.fromhex("00000002 00000103 03 05") + b"hi"
    frame = Frame(0x103, DATA, REMOTE_CLOSED | NO_DATA, b"hi")
    assert (encode(frame), Decoder().feed(golden)) == (golden, [frame])


def test_a_frame_without_data_is_complete_with_its_header() -> None:
    assert Decoder().feed(bytes.fromhex("00000000000000030200")) == [Frame(3, 2)]


@given(st.lists(FRAMES, max_size=5), st.lists(st.integers(0), max_size=8))
def test_frames_are_the_same_whole_in_pieces_and_byte_by_byte(sent: list[Frame], cuts: list[int]) -> None:
    data = b"".join(map(encode, sent))
    assert fed([data]) == fed(in_pieces(data, cuts)) == fed([data[i : i + 1] for i in range(len(data))]) == sent


@given(FRAMES, st.binary(min_size=1, max_size=9))
def test_trailing_bytes_wait_for_the_rest_of_their_frame(frame: Frame, trailing: bytes) -> None:
    decoder = Decoder()
    assert decoder.feed(encode(frame) + trailing) == [frame]
    rest = header(0, 1, REQUEST)[len(trailing) :]
    length = int.from_bytes((trailing + rest)[:4])
    found = decoder.feed(rest)
    assert found == [] if length else len(found) == 1


def test_four_mebibytes_are_taken_and_one_byte_more_is_not() -> None:
    whole = header(MAX_DATA, 1, REQUEST) + bytes(MAX_DATA)
    (frame,) = Decoder().feed(whole)
    assert isinstance(frame, Frame) and len(frame.data) == MAX_DATA and encode(frame) == whole
    assert Decoder().feed(header(MAX_DATA + 1, 1, REQUEST) + bytes(MAX_DATA)) == []
    with pytest.raises(CallFailed) as refused:
        encode(Frame(1, REQUEST, 0, bytes(MAX_DATA + 1)))
    assert refused.value.code == Code.RESOURCE_EXHAUSTED


def test_what_is_too_large_is_skipped_and_the_next_frame_is_found() -> None:
    decoder, length, piece = Decoder(), MAX_DATA + 5, bytes(100_000)
    decoder.feed(header(length, 7, DATA))
    whole, rest = divmod(length, len(piece))
    for _ in range(whole):
        assert decoder.feed(piece) == []
        assert len(decoder._kept) == 0
    after = Frame(9, REQUEST, 0, b"x")
    assert decoder.feed(piece[:rest] + encode(after)) == [Oversize(7, DATA, length), after]


def test_a_huge_length_costs_no_memory() -> None:
    decoder = Decoder()
    assert decoder.feed(header(2**32 - 1, 1, REQUEST) + b"x") == []
    assert len(decoder._kept) == 0


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_garbage_never_raises_and_no_more_than_one_frame_is_kept(pieces: list[bytes]) -> None:
    decoder = Decoder()
    for piece in pieces:
        decoder.feed(piece)
        assert len(decoder._kept) < 10 + MAX_DATA
