"""What containerd, the relay and exitd say to each other, by hand: frames and as much protobuf as they need."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

REQUEST, RESPONSE = 1, 2
HELLO, AGAIN, DONE, BYE, SOON, EVENT, TOLD, EXEC = range(0x80, 0x88)
KEEP, CACHEABLE, LEAVE = 0x80, 0x40, 0x20
HEAD_BYTES = 10
DATA_MAX = 4 * 1024 * 1024
TASK = "containerd.task.v2.Task"


class Frame(NamedTuple):
    """One ttrpc frame."""

    stream: int
    type: int
    flags: int
    data: bytes


def encode(frame: Frame) -> bytes:
    return struct.pack(">IIBB", len(frame.data), frame.stream, frame.type, frame.flags) + frame.data


def decode(data: bytes) -> tuple[list[Frame], bytes]:
    """The whole frames in `data`, and what is left behind them."""
    frames = []
    while len(data) >= HEAD_BYTES:
        length, stream, type_, flags = struct.unpack(">IIBB", data[:HEAD_BYTES])
        if len(data) < HEAD_BYTES + length:
            break
        frames.append(Frame(stream, type_, flags, data[HEAD_BYTES : HEAD_BYTES + length]))
        data = data[HEAD_BYTES + length :]
    return frames, data


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def text(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Each field of a message, in its order."""
    at = 0

    def read() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = read()
        if tag & 7 == 0:
            yield tag >> 3, read()
        else:
            size = read()
            yield tag >> 3, data[at : at + size]
            at += size


def call(method: str, payload: bytes = b"", service: str = TASK, nanoseconds: int = 0) -> bytes:
    """A Request's bytes."""
    limit = number(4, nanoseconds) if nanoseconds else b""
    return text(1, service) + text(2, method) + (text(3, payload) if payload else b"") + limit


def of_task(id: str, exec_id: str = "") -> bytes:
    """Of State, Wait, Delete, Connect, Pids: the request's own bytes."""
    return text(1, id) + (text(2, exec_id) if exec_id else b"")


def success(payload: bytes = b"") -> bytes:
    """A Response's bytes, as Go writes it."""
    return text(2, payload) if payload else b""


def failure(code: int, message: str = "no") -> bytes:
    return text(1, number(1, code) + text(2, message))


def code_of(reply: bytes) -> int:
    """The status of a Response; 0 is success."""
    status = dict(fields(reply)).get(1, b"")
    assert isinstance(status, bytes)
    code = dict(fields(status)).get(1, 0)
    assert isinstance(code, int)
    return code


C1, C2 = of_task("c1"), of_task("c2")
PID = success(number(1, 42))


def types(frames: list[Frame]) -> list[tuple[int, int]]:
    return [(frame.type, frame.stream) for frame in frames]
