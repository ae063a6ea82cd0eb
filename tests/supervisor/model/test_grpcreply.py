"""As much of gRPC as a probe needs: every byte of an answer may come by itself, and none of them can be trusted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model.grpcreply import MOST_FRAME_BYTES, GrpcAnswer, GrpcReader, check_call
from supervisor.model.values import GrpcTarget

SETTINGS = bytes(3) + b"\4\0" + bytes(4)
CODED_NAME = bytes.fromhex("9acac8b21234da8f")


def frame(kind: int, flags: int, content: bytes, stream: int = 1) -> bytes:
    return len(content).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + content


def message(body: bytes, flags: int = 0) -> bytes:
    return frame(0, flags, b"\0" + len(body).to_bytes(4) + body)


def status(value: bytes, name: bytes = b"\x0bgrpc-status") -> bytes:
    """The trailers: a size of the table, an indexed field, one with an indexed name, and then the status."""
    return frame(1, 5, b"\x20\x88\x0f\x10\x01a\x40" + name + bytes((len(value),)) + value)


OK = frame(1, 4, b"\x88")
GOOD = SETTINGS + OK + message(b"\x08\1") + status(b"0")


def fed(data: bytes, size: int = 1 << 20) -> GrpcAnswer | None:
    reader = GrpcReader()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return next((found for piece in pieces if (found := reader.feed(piece)) is not None), None) or reader.feed(b"")


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_an_answer_is_the_same_however_it_is_cut(size: int) -> None:
    assert fed(GOOD, size) == GrpcAnswer(True, "SERVING")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (SETTINGS + OK + message(b"\x08\2") + status(b"0"), "NOT_SERVING"),
        (SETTINGS + OK + message(b"") + status(b"0"), "UNKNOWN"),
        (SETTINGS + OK + message(b"\x08\x7f", 1), "status 127"),
        (SETTINGS + status(b"5"), "the call failed: NOT_FOUND"),
        (SETTINGS + status(b"12", b"\x88" + CODED_NAME), "the call failed: UNIMPLEMENTED"),
        (SETTINGS + OK + message(b"\x08\1") + status(b"14"), "the call failed: UNAVAILABLE"),
        (SETTINGS + status(b"0"), "the call has no answer"),
        (SETTINGS + frame(0, 1, b"\1" + bytes(4)), "compressed"),
        (SETTINGS + frame(3, 0, b"\0\0\0\7"), "broke the call off, error 7"),
        (SETTINGS + frame(7, 0, bytes(4) + b"\0\0\0\2", 0), "takes no call, error 2"),
        (SETTINGS + frame(7, 0, b"", 0), "unpack"),
        (SETTINGS + frame(0, 9, b"\x09abc"), "padding"),
        (SETTINGS + frame(1, 5, b"\x00\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), "does not end"),
        (SETTINGS + frame(1, 5, b"\x00\x05ab"), "break off"),
        (frame(6, 0, bytes(8), 0), "no HTTP/2"),
        (SETTINGS + (MOST_FRAME_BYTES + 1).to_bytes(3) + bytes(6), "no HTTP/2"),
        (GOOD[:-1], "closed before"),
    ],
)
def test_everything_else_is_bad_with_a_reason(data: bytes, why: str) -> None:
    found = fed(data)
    assert found is not None and (found.good, why in found.words) == (False, True), found


def test_headers_in_pieces_padding_and_what_is_to_be_answered() -> None:
    reader = GrpcReader()
    block = b"\x40\x0bgrpc-status\x010"
    assert reader.feed(SETTINGS + frame(6, 0, b"12345678", 0) + OK + frame(0, 8, b"\2\0\0\0\0\2\x08\1zz")) is None
    assert reader.to_send == bytes(3) + b"\4\1" + bytes(4) + frame(6, 1, b"12345678", 0)
    assert reader.feed(frame(1, 1, block[:3]) + frame(9, 4, block[3:])) == GrpcAnswer(True, "SERVING")


@given(st.binary(max_size=200), st.integers(1, 50))
def test_nothing_that_comes_is_more_than_an_answer(data: bytes, size: int) -> None:
    found = fed(SETTINGS + data, size)
    assert found is not None


def test_the_call_names_its_service_whatever_its_length() -> None:
    assert check_call(GrpcTarget(5), "::1").endswith(bytes(2) + b"\5\0\1\0\0\0\1" + bytes(5))
    assert b"[::1]:5" in check_call(GrpcTarget(5), "::1")
    assert check_call(GrpcTarget(5, "s" * 200), "127.0.0.1").endswith(b"\x0a\xc8\x01" + b"s" * 200)
