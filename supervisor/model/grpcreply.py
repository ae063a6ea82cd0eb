"""As much of gRPC as a probe needs: one call of grpc.health.v1.Health/Check, and the status in the answer. Pure.

The connection has this one call alone. HTTP/2: RFC 9113. HPACK: RFC 7541, of which this reads the one header that
matters, and skips the rest: the first grpc-status of a connection is always spelled out, with its name.
Source: the gRPC health checking protocol; "gRPC over HTTP2" (PROTOCOL-HTTP2.md).
"""

import struct
from collections.abc import Iterator

from shim.frozen import field, frozen, mutable
from supervisor.model.values import GrpcTarget

MOST_BYTES = 64 << 10  # of everything that the server says
MOST_FRAME_BYTES = 16 << 10  # what a client that says nothing else accepts, RFC 9113, 4.2
MOST_MESSAGE_BYTES = 4 << 10  # of the answer, whose one field takes two bytes
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
ACK = END_STREAM = 1
END_HEADERS, PADDED, PRIORITY = 4, 8, 32
HEADER_TABLE_SIZE, ENABLE_PUSH = 1, 2  # of SETTINGS
STREAM = 1
# The name, as it is and in HPACK's Huffman code. Its value, a digit or two, gets no shorter by that code.
GRPC_STATUS = (b"grpc-status", bytes.fromhex("9acac8b21234da8f"))
CODES = {
    1: "CANCELLED",
    2: "UNKNOWN",
    3: "INVALID_ARGUMENT",
    4: "DEADLINE_EXCEEDED",
    5: "NOT_FOUND, it has no such service",
    7: "PERMISSION_DENIED",
    8: "RESOURCE_EXHAUSTED",
    12: "UNIMPLEMENTED, it has no health service",
    13: "INTERNAL",
    14: "UNAVAILABLE",
    16: "UNAUTHENTICATED",
}
SERVING = 1
STATUSES = {0: "UNKNOWN", SERVING: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}


def check_call(target: GrpcTarget, address: str) -> bytes:
    """Return the bytes to send."""
    host = f"[{address}]" if ":" in address else address
    headers = b"\x83\x86"  # :method POST, :scheme http
    headers += b"\x04" + _string(b"/grpc.health.v1.Health/Check")  # :path
    headers += b"\x01" + _string(f"{host}:{target.port}".encode())  # :authority
    for name, value in (("content-type", "application/grpc"), ("te", "trailers"), ("user-agent", "exitd-probe")):
        headers += b"\x00" + _string(name.encode()) + _string(value.encode())
    service = target.service.encode()
    message = b"\x0a" + _varint(len(service)) + service if service else b""
    settings = struct.pack("!HIHI", HEADER_TABLE_SIZE, 0, ENABLE_PUSH, 0)
    return (
        PREFACE
        + _frame(SETTINGS, 0, 0, settings)
        + _frame(HEADERS, END_HEADERS, STREAM, headers)
        + _frame(DATA, END_STREAM, STREAM, struct.pack("!BI", 0, len(message)) + message)
    )


@frozen
class GrpcAnswer:
    """What came of the call; `words` are for people."""

    good: bool
    words: str


class NotHttp2(ValueError):
    """What came is no HTTP/2, or no answer of gRPC."""


@mutable
class GrpcReader:
    """Takes the bytes of an answer, in any pieces, until the call has ended. `to_send` is what the server must get."""

    to_send: bytes = b""
    _left: bytes = b""
    _taken: int = 0
    _said: bool = False  # the server's SETTINGS, with which it begins
    _message: bytearray = field(default_factory=bytearray)
    _block: bytearray = field(default_factory=bytearray)  # of headers, until it is whole
    _ends_with_block: bool = False
    _code: int | None = None

    def feed(self, data: bytes) -> GrpcAnswer | None:
        """Return what is known now; None: more is needed. No data: the end."""
        self._taken += len(data)
        self._left += data
        try:
            while (found := self._next()) is not None:
                if (answer := self._take(*found)) is not None:
                    return answer
        except (NotHttp2, struct.error) as error:
            return GrpcAnswer(False, str(error))
        if not data:
            return GrpcAnswer(False, "the connection was closed before there was an answer")
        if self._taken > MOST_BYTES:
            return GrpcAnswer(False, f"no answer in the first {MOST_BYTES} bytes")
        return None

    def _next(self) -> tuple[int, int, int, bytes] | None:
        """Return type, flags, stream and content of the next frame; None: it is not whole."""
        if len(self._left) < 9:
            return None
        size = int.from_bytes(self._left[:3])
        kind, flags, stream = struct.unpack_from("!BBI", self._left, 3)
        if size > MOST_FRAME_BYTES or (not self._said and (kind != SETTINGS or flags & ACK)):
            raise NotHttp2(f"no HTTP/2: {self._left[:40]!r}")
        self._said = True
        if len(self._left) < 9 + size:
            return None
        content, self._left = self._left[9 : 9 + size], self._left[9 + size :]
        return kind, flags, stream & 0x7FFFFFFF, content

    def _take(self, kind: int, flags: int, stream: int, content: bytes) -> GrpcAnswer | None:
        match kind:
            case 4 if not flags & ACK:
                self.to_send += _frame(SETTINGS, ACK, 0, b"")
            case 6 if not flags & ACK:
                self.to_send += _frame(PING, ACK, 0, content[:8])
            case 7 if struct.unpack_from("!I", content)[0] & 0x7FFFFFFF < STREAM:
                return GrpcAnswer(False, f"the server takes no call, error {struct.unpack_from('!I', content, 4)[0]}")
            case 3 if stream == STREAM:
                return GrpcAnswer(False, f"the server broke the call off, error {struct.unpack_from('!I', content)[0]}")
            case 0 if stream == STREAM:
                self._message += _unpadded(content, flags)
                if len(self._message) > MOST_MESSAGE_BYTES + 5:
                    raise NotHttp2(f"the answer has more than {MOST_MESSAGE_BYTES} bytes")
                return self._answer() if flags & END_STREAM else None
            case 1 | 9 if stream == STREAM:
                return self._header(kind, flags, content)
        return None

    def _header(self, kind: int, flags: int, content: bytes) -> GrpcAnswer | None:
        if kind == HEADERS:
            content = _unpadded(content, flags)[5 if flags & PRIORITY else 0 :]
            self._block, self._ends_with_block = bytearray(), bool(flags & END_STREAM)
        self._block += content
        if not flags & END_HEADERS:
            return None
        for name, value in _literals(bytes(self._block)):
            if name in GRPC_STATUS:
                self._code = int(value) if value.isdigit() and len(value) < 3 else None
        return self._answer() if self._ends_with_block else None

    def _answer(self) -> GrpcAnswer:
        """A status of the call that cannot be read is no reason against what the answer says."""
        if self._code:
            return GrpcAnswer(False, f"the call failed: {CODES.get(self._code, f'code {self._code}')}")
        if len(self._message) < 5:
            return GrpcAnswer(False, "the call has no answer")
        is_packed, size = struct.unpack_from("!BI", self._message)
        if is_packed or size != len(self._message) - 5:
            return GrpcAnswer(False, "the answer is compressed, or more than one")
        status = _status_in(bytes(self._message[5:]))
        return GrpcAnswer(status == SERVING, STATUSES.get(status, f"status {status}"))


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return len(content).to_bytes(3) + struct.pack("!BBI", kind, flags, stream) + content


def _unpadded(content: bytes, flags: int) -> bytes:
    if not flags & PADDED:
        return content
    if not content or content[0] >= len(content):
        raise NotHttp2("no HTTP/2: its padding is more than the frame")
    return content[1 : len(content) - content[0]]


# -- HPACK


def _string(text: bytes) -> bytes:
    """All are shorter than 127 bytes."""
    return bytes((len(text),)) + text


def _literals(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield name and value of each field whose name is spelled out; a value in Huffman's code is empty."""
    at = 0
    while at < len(block):
        first = block[at]
        if first & 0xE0 == 0x20 or first & 0x80:  # another size of the table, or a field that is in it
            _, at = _number(block, at, 5 if first & 0xE0 == 0x20 else 7)
            continue
        index, at = _number(block, at, 6 if first & 0x40 else 4)
        name = b""
        if not index:
            name, _, at = _text(block, at)
        value, is_coded, at = _text(block, at)
        yield name, b"" if is_coded else value


def _number(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """RFC 7541, 5.1. Return it and where it ends."""
    most = (1 << bits) - 1
    if at >= len(block):
        raise NotHttp2("no HTTP/2: its headers break off")
    if (value := block[at] & most) < most:
        return value, at + 1
    return _more(block, at + 1, value)


def _more(data: bytes, at: int, value: int) -> tuple[int, int]:
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        value += (data[at] & 0x7F) << shift
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
    raise NotHttp2("no gRPC: a number that does not end")


def _text(block: bytes, at: int) -> tuple[bytes, bool, int]:
    """Return a string, whether it is in Huffman's code, and where it ends."""
    is_coded = at < len(block) and bool(block[at] & 0x80)
    size, at = _number(block, at, 7)
    if at + size > len(block):
        raise NotHttp2("no HTTP/2: its headers break off")
    return block[at : at + size], is_coded, at + size


# -- protobuf


def _varint(value: int) -> bytes:
    return bytes((value,)) if value < 0x80 else bytes((value & 0x7F | 0x80, value >> 7))


def _status_in(message: bytes) -> int:
    """Return field 1 of a HealthCheckResponse; what else is in there is skipped."""
    at = status = 0
    while at < len(message):
        tag, at = _more(message, at, 0)
        match tag & 7:
            case 0:
                value, at = _more(message, at, 0)
                status = value if tag >> 3 == 1 else status
            case 2:
                size, at = _more(message, at, 0)
                at += size
            case 1 | 5:
                at += 8 if tag & 7 == 1 else 4
            case _:
                raise NotHttp2("the answer is no health of gRPC")
    return status
