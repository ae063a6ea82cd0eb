"""Requests of HTTP/1 as bytes: the three that are answered, and everything else."""

from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.metrics import http
from supervisor.metrics.http import MOST_HEAD_BYTES, Rejected, Request, answer, parse

GET = b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost:9\r\nAccept: text/plain;q=0.5\r\n\r\n"


def test_a_request_is_read_whole_byte_by_byte_and_with_what_comes_behind_it() -> None:
    assert parse(GET) == Request("GET", "/metrics")
    assert all(parse(GET[:length]) is None for length in range(len(GET)))
    assert parse(GET + b"more\xff") == Request("GET", "/metrics")
    assert parse(b"HEAD / HTTP/1.0\r\n\r\n") == Request("HEAD", "/")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 505),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n folded: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: x\r\n\r\n", 400),
        (b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\n\r\n", 400),
        (b"G" * (MOST_HEAD_BYTES + 1), 431),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * MOST_HEAD_BYTES + b"\r\n\r\n", 431),
    ],
)
def test_anything_else_is_refused_by_its_status(data: bytes, status: int) -> None:
    assert parse(data) == Rejected(HTTPStatus(status))


@given(st.binary(max_size=300))
def test_whatever_the_bytes_are_there_is_an_answer_or_more_is_waited_for(data: bytes) -> None:
    assert isinstance(parse(data), Request | Rejected | None)
    assert isinstance(parse(data + b"\r\n\r\n"), Request | Rejected)


def test_an_answer_says_its_length_and_ends_the_connection() -> None:
    whole = answer(HTTPStatus.OK, b"body", "text/x")
    head, _, body = whole.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n") and body == b"body"
    assert b"\r\nContent-Length: 4\r\n" in head and b"\r\nConnection: close" in head
    assert answer(HTTPStatus.OK, b"body", "text/x", with_body=False) == head + b"\r\n\r\n"
    assert b"Allow: GET, HEAD" in http.refusal(HTTPStatus.METHOD_NOT_ALLOWED)
