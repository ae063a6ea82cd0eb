"""json-file framing: every character of a container's output comes back out of its log."""

import codecs
import json

from hypothesis import example, given
from hypothesis import strategies as st

from shim._native import ffi, lib

STAMP = "2026-01-02T03:04:05.000000006Z"
# A line with one escape in it.
LEAST = len('{"log":"') + 6 + len(f'","stream":"stdout","time":"{STAMP}"}}\n')
PIECES = [b"\n", b"x", b"long line ", b"\0", b"\xff", b'"', b"\\", b"\x1b", b"\x7f", b"\r\t"]
CHARACTERS = ["ä", "€", "😀", "\u2028", "\ud7ff", "\U0010ffff"]
BROKEN = [b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xf0\x9f\x98", b"\xc3"]
BYTES = st.binary(max_size=200) | st.lists(
    st.sampled_from([*PIECES, *BROKEN, *(each.encode() for each in CHARACTERS)])
).map(b"".join)


def one_for_each(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error("one-for-each", one_for_each)


def frame(data: bytes, room: int) -> tuple[bytes, int]:
    """Framed bytes and how much of `data` they hold; checks that nothing is written beyond `room`."""
    out, eaten = ffi.new("char[]", b"\xee" * (room + 8)), ffi.new("size_t *")
    used = lib.jsonlog_frame(out, room, ffi.from_buffer(data), len(data), eaten, STAMP.encode(), b"stdout")
    assert used <= room and bytes(ffi.buffer(out, room + 8))[room:] == b"\xee" * 8
    return bytes(ffi.buffer(out, used)), int(eaten[0])


def frame_all(data: bytes, room: int) -> tuple[bytes, bytes]:
    """The log, and the begin of a character that is left."""
    log = b""
    while data:
        framed, eaten = frame(data, room)
        if not eaten:
            break
        log, data = log + framed, data[eaten:]
    assert len(data) < 4
    return log, data


def joined(log: bytes) -> str:
    assert not log or log.endswith(b"\n")
    entries = [json.loads(line) for line in log.splitlines()]
    assert all(entry.keys() == {"log", "stream", "time"} for entry in entries)
    assert all((entry["stream"], entry["time"]) == ("stdout", STAMP) for entry in entries)
    assert all("\n" not in entry["log"][:-1] for entry in entries)
    return "".join(entry["log"] for entry in entries)


@given(BYTES, st.integers(0, 100))
@example(b"\n", 0)
@example(b"\xe2\x82", 0)
def test_any_output_in_any_room_comes_back_character_for_character(data: bytes, spare: int) -> None:
    log, left = frame_all(data, LEAST + spare)
    assert joined(log) == data[: len(data) - len(left)].decode(errors="one-for-each")


@given(st.lists(BYTES, max_size=6), st.integers(0, 100))
def test_a_character_that_is_cut_between_two_reads_is_whole_in_the_log(chunks: list[bytes], spare: int) -> None:
    log, left = b"", b""
    for chunk in chunks:
        framed, left = frame_all(left + chunk, LEAST + spare)
        log += framed
    whole = b"".join(chunks)
    assert joined(log) == whole[: len(whole) - len(left)].decode(errors="one-for-each")
    # What is left may yet become a character; of another byte it never does.
    assert frame_all(left + b"\xff", LEAST + spare)[1] == b""


@given(BYTES)
def test_with_room_enough_there_is_one_line_for_each_of_the_containers(data: bytes) -> None:
    log, eaten = frame(data, LEAST * (len(data) + 1) + 6 * len(data))
    whole = data[:eaten]
    assert log.count(b"\n") == whole.count(b"\n") + (bool(whole) and not whole.endswith(b"\n"))


@given(BYTES, st.integers(0, LEAST - 1))
def test_room_for_no_line_at_all_writes_and_eats_nothing(data: bytes, room: int) -> None:
    assert frame(data, room) == (b"", 0)
