"""The status of an answer, in whatever pieces and with whatever around it; and what is sent to get it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model.httpreply import MOST_HEAD_BYTES, NoHttp, StatusFound, StatusReader, request
from supervisor.model.values import HttpTarget

GOOD = b"HTTP/1.1 204 No Content\r\nServer: x\r\n\r\n"
ANSWERS = (
    (GOOD, 204),
    (b"HTTP/1.0 200\r\n\r\nbody", 200),
    (b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\n\r\n", 302),
    (b"HTTP/1.1 100 Continue\r\nA: b\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 503 No\r\n\r\n", 503),
    (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", 101),
)


@pytest.mark.parametrize(("data", "code"), ANSWERS)
def test_a_status_is_found_whole_one_byte_at_a_time_and_with_more_behind_it(data: bytes, code: int) -> None:
    assert StatusReader().feed(data + b"\0" * 100) == StatusFound(code)
    reader, found = StatusReader(), None
    for at in range(len(data)):
        found = reader.feed(data[at : at + 1])
        if found is not None:
            break
    assert found == StatusFound(code)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "no HTTP/1.1"), (b"HTTP/2 200 OK\r\n", "no HTTP/1.1"),
        (b"HTTP/1.1 999 No\r\n", "no HTTP/1.1"), (b"HTTP/1.1 2000\r\n", "no HTTP/1.1"),
        (b"x" * MOST_HEAD_BYTES * 2, "no status in the first"),
        (b"HTTP/1.1 100 C\r\n" + b"A: b\r\n" * MOST_HEAD_BYTES, "no status in the first"),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_reported_in_bounded_bytes(data: bytes, why: str) -> None:
    reader = StatusReader()
    found = reader.feed(data)
    assert isinstance(found, NoHttp) and why in found.why
    assert len(reader.kept) <= MOST_HEAD_BYTES


def test_a_connection_that_is_closed_too_early_is_no_answer() -> None:
    reader = StatusReader()
    assert reader.feed(b"HTTP/1.1 20") is None
    assert isinstance(reader.feed(b""), NoHttp)


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_any_bytes_in_any_pieces_come_to_an_end_and_the_same_as_whole(pieces: list[bytes]) -> None:
    whole, parts = StatusReader(), StatusReader()
    at_once = whole.feed(b"".join(pieces)) if any(pieces) else None
    in_parts = next((found for piece in pieces if piece and (found := parts.feed(piece)) is not None), None)
    assert type(at_once) is type(in_parts)
    assert isinstance(whole.feed(b"") if at_once is None else at_once, StatusFound | NoHttp)


def test_good_is_200_to_399() -> None:
    assert [code for code in (101, 199, 200, 204, 301, 399, 400, 500) if StatusFound(code).is_good] == [
        *(200, 204, 301, 399)
    ]


def test_a_request_has_the_callers_headers_in_the_place_of_its_own() -> None:
    target = HttpTarget("", 8080, "/a?b=c", headers=(("host", "me"), ("X-A", "1"), ("Connection", "keep-alive")))
    assert request(target, "127.0.0.1") == (
        b"GET /a?b=c HTTP/1.1\r\nUser-Agent: exitd-probe\r\nAccept: */*\r\nhost: me\r\nX-A: 1\r\n"
        b"Connection: close\r\n\r\n"
    )
    assert b"\r\nHost: [::1]:80\r\n" in request(HttpTarget("", 80), "::1")
