"""CRI framing: every byte of a container's output comes back out of its log."""

import datetime

from hypothesis import example, given
from hypothesis import strategies as st

from shim._native import ffi, lib

STAMP = "2026-01-02T03:04:05.000000006Z"
HEAD = len(STAMP) + len(" stdout F ") + 1
BYTES = st.binary(max_size=300) | st.lists(st.sampled_from([b"\n", b"x", b"long line ", b"\0", b"\xff"])).map(b"".join)


def frame(data: bytes, room: int) -> tuple[bytes, int]:
    """Framed bytes and how much of `data` they hold; checks that nothing is written beyond `room`."""
    out, eaten = ffi.new("char[]", b"\xee" * (room + 8)), ffi.new("size_t *")
    used = lib.crilog_frame(out, room, ffi.from_buffer(data), len(data), eaten, STAMP.encode(), b"stdout")
    assert used <= room and bytes(ffi.buffer(out, room + 8))[room:] == b"\xee" * 8
    return bytes(ffi.buffer(out, used)), int(eaten[0])


def frame_all(data: bytes, room: int) -> bytes:
    log = b""
    while data:
        framed, eaten = frame(data, room)
        assert eaten > 0
        log, data = log + framed, data[eaten:]
    return log


def joined(log: bytes) -> bytes:
    """The container's output, as a reader of CRI logs puts it together."""
    assert not log or log.endswith(b"\n")
    out = b""
    for line in log[:-1].split(b"\n") if log else []:
        stamp, stream, tag, text = line.split(b" ", 3)
        assert (stamp, stream) == (STAMP.encode(), b"stdout") and tag in (b"F", b"P")
        out += text + (b"\n" if tag == b"F" else b"")
    return out


@given(BYTES, st.integers(1, 100))
@example(b"\n", 1)
@example(b"no end", 1)
def test_any_output_in_any_room_comes_back_byte_for_byte(data: bytes, spare: int) -> None:
    assert joined(frame_all(data, HEAD + spare)) == data


@given(st.lists(BYTES, max_size=6), st.integers(1, 100))
def test_however_the_output_is_cut_into_reads_it_comes_back(chunks: list[bytes], spare: int) -> None:
    assert joined(b"".join(frame_all(chunk, HEAD + spare) for chunk in chunks)) == b"".join(chunks)


@given(BYTES)
def test_with_room_enough_there_is_one_line_for_each_of_the_containers(data: bytes) -> None:
    log, eaten = frame(data, HEAD * (len(data) + 1) + len(data) + 1)
    assert eaten == len(data)
    assert log.count(b" stdout F ") >= data.count(b"\n")
    assert log.count(b"\n") == data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))


@given(BYTES, st.integers(0, HEAD))
def test_room_for_no_line_at_all_writes_and_eats_nothing(data: bytes, room: int) -> None:
    assert frame(data, room) == (b"", 0)


@given(st.datetimes(datetime.datetime(1970, 1, 1), datetime.datetime(2262, 4, 11)), st.integers(0, 999))
@example(datetime.datetime(2000, 2, 29, 23, 59, 59, 999999), 999)
@example(datetime.datetime(1970, 1, 1), 0)
@example(datetime.datetime(2100, 2, 28, 23, 59, 59), 1)
def test_the_stamp_is_the_calendars(when: datetime.datetime, nanos: int) -> None:
    """Up to 2262, where nanoseconds leave 64 bits."""
    delta = when - datetime.datetime(1970, 1, 1)
    total = (delta.days * 86400 + delta.seconds) * 10**9 + delta.microseconds * 1000 + nanos
    out = ffi.new("char[]", 32)
    length = lib.crilog_stamp(out, total)
    assert ffi.string(out).decode() == f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond:06d}{nanos:03d}Z"
    assert length == len(STAMP)


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_time_makes_a_stamp_of_the_same_length(realtime_ns: int) -> None:
    assert lib.crilog_stamp(ffi.new("char[]", 32), realtime_ns) == len(STAMP)
