"""One request of HTTP/1, and its answer, as bytes. Pure. Source: RFC 9112; of it what GET and HEAD of three pages need.

Every answer ends its connection, so nothing behind the head of a request is ever read.
"""

import re
from http import HTTPStatus

from shim.frozen import frozen

MOST_HEAD_BYTES = 8192
_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) (\S{1,2048}) HTTP/(\d)\.(\d)")
_FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\0\r\n]*")
PLAIN = "text/plain; charset=utf-8"


@frozen
class Request:
    """What is asked for. `path` without a query."""

    method: str
    path: str


@frozen
class Rejected:
    """The request is none that is answered."""

    status: HTTPStatus


def parse(data: bytes) -> Request | Rejected | None:
    """Return what the beginning of a connection asks for; None while its head is not complete."""
    head, end, _ = data.partition(b"\r\n\r\n")
    if len(head) > MOST_HEAD_BYTES or (not end and len(data) > MOST_HEAD_BYTES):
        return Rejected(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    if not end:
        return None
    first, *rest = head.split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None or not all(map(_FIELD.fullmatch, rest)):
        return Rejected(HTTPStatus.BAD_REQUEST)
    if line[3] != b"1":
        return Rejected(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    if line[1] not in (b"GET", b"HEAD"):
        return Rejected(HTTPStatus.METHOD_NOT_ALLOWED)
    path = line[2].partition(b"?")[0]
    return Request(line[1].decode("ascii"), path.decode("ascii", "replace"))


def answer(status: HTTPStatus, body: bytes, kind: str = PLAIN, *, with_body: bool = True) -> bytes:
    """Return a whole answer. Without the body for HEAD, whose length it says all the same."""
    fields = [f"HTTP/1.1 {status.value} {status.phrase}", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    fields += ["Cache-Control: no-store", "X-Content-Type-Options: nosniff", "Connection: close"]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        fields.append("Allow: GET, HEAD")
    return "\r\n".join((*fields, "", "")).encode("ascii") + (body if with_body else b"")


def refusal(status: HTTPStatus) -> bytes:
    return answer(status, f"{status.value} {status.phrase}\n".encode("ascii"))
