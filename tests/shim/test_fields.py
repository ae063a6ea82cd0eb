"""The one grammar, in Python and in C: what one writes the other reads, and both refuse the same."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shim import fields
from shim._native import ffi, lib

KEYS = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
VALUES = st.binary(max_size=60).map(lambda b: b.replace(b"\0", b"").decode("utf-8", "surrogateescape"))
PAIRS = st.lists(st.tuples(KEYS, VALUES), max_size=8)


def c_check(data: bytes, kind: str) -> int:
    return int(lib.fields_check(ffi.from_buffer(data), len(data), kind.encode()))


def c_values(data: bytes, key: str) -> list[str]:
    out = ffi.new("char *[64]")
    count = lib.fields_list(ffi.from_buffer(data), len(data), key.encode(), out, 64)
    return [ffi.string(out[i]).decode("utf-8", "surrogateescape") for i in range(count)]


def c_number(data: bytes, key: str) -> int | None:
    out = ffi.new("uint64_t *")
    return None if lib.fields_number(ffi.from_buffer(data), len(data), key.encode(), out) else int(out[0])


def c_encode(kind: str, pairs: list[tuple[str, str]], version: int, size: int = 8192) -> bytes | None:
    writer, room = ffi.new("struct writer *"), ffi.new("char[]", size)
    lib.writer_open(writer, room, size, kind.encode(), version)
    for key, value in pairs:
        lib.writer_text(writer, key.encode(), value.encode("utf-8", "surrogateescape"))
    used = lib.writer_close(writer)
    return bytes(ffi.buffer(room, used)) if used >= 0 else None


def py_decode(data: bytes, kind: str) -> fields.Message | None:
    try:
        return fields.decode(data, kind)
    except fields.BadMessage:
        return None


@given(PAIRS, st.integers(1, 99999))
def test_both_writers_write_the_same_bytes_and_both_readers_read_them(
    pairs: list[tuple[str, str]], version: int
) -> None:
    data = fields.encode("exitd-plan", pairs, version)
    assert c_encode("exitd-plan", pairs, version) == data
    assert fields.decode(data, "exitd-plan") == fields.Message("exitd-plan", version, tuple(pairs))
    assert c_check(data, "exitd-plan") == version
    for key in {key for key, _ in pairs}:
        assert c_values(data, key) == [value for name, value in pairs if name == key]


@given(st.binary(max_size=200))
@example(b"exitd-ok 1\0end\0")
@example(b"exitd-ok 0\0end\0")
@example(b"exitd-ok 01\0end\0")
@example(b"exitd-ok 100000\0end\0")
@example("exitd-ok ²\0end\0".encode())
@example(b"exitd-ok 1\0=x\0end\0")
@example(b"exitd-ok 1\0\0end\0")
@example(b"exitd-ok 1\0k=v\0end\0end\0")
@example(b"exitd-ok " + b"9" * 5000 + b"\0end\0")
def test_whatever_the_bytes_both_readers_agree(data: bytes) -> None:
    message = py_decode(data, "exitd-ok")
    assert (c_check(data, "exitd-ok") > 0) == (message is not None)


@given(PAIRS, st.data())
def test_a_message_cut_short_is_no_message(pairs: list[tuple[str, str]], data: st.DataObject) -> None:
    whole = fields.encode("exitd-ok", pairs)
    part = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert (py_decode(part, "exitd-ok") is None) == (c_check(part, "exitd-ok") < 0)
    # A field may end in the letters of the end mark; everything else that is cut short is seen.
    assert c_check(part, "exitd-ok") < 0 or part.endswith(b"end\0")


@given(PAIRS, st.data())
def test_one_damaged_byte_never_makes_the_readers_disagree(pairs: list[tuple[str, str]], data: st.DataObject) -> None:
    damaged = bytearray(fields.encode("exitd-ok", pairs))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    message, version = py_decode(bytes(damaged), "exitd-ok"), c_check(bytes(damaged), "exitd-ok")
    assert (message.version if message else -1) == max(version, -1) or (message is None and version < 0)


@given(st.integers(0, 2**64 + 20) | st.sampled_from([2**64 - 1, 2**64, 10**20, 10**30]))
def test_numbers_are_read_up_to_64_bits_and_not_beyond(number: int) -> None:
    data = fields.encode("exitd-ok", [("n", number)])
    message = fields.decode(data)
    if number < 2**64:
        assert message.number("n") == c_number(data, "n") == number
    else:
        assert c_number(data, "n") is None
        with pytest.raises(fields.BadMessage):
            message.number("n")


@pytest.mark.parametrize("text", ["", "+5", "-1", " 5", "5 ", "0x10", "5\n", "²", "1_0", "9" * 5000])
def test_what_is_no_plain_number_is_refused_by_both(text: str) -> None:
    data = fields.encode("exitd-ok", [("n", text)])
    assert c_number(data, "n") is None
    with pytest.raises(fields.BadMessage):
        fields.decode(data).number("n")


def test_a_missing_key_is_told_from_a_wrong_one() -> None:
    data = fields.encode("exitd-ok", [])
    assert c_number(data, "n") is None
    assert fields.decode(data).get("n", "none") == "none"


def test_a_nul_in_a_value_is_refused_when_writing() -> None:
    with pytest.raises(ValueError, match="NUL"):
        fields.encode("exitd-ok", [("k", "a\0b")])


@given(PAIRS, st.integers(0, 80))
def test_a_writer_without_room_says_so_and_writes_nothing_beyond(pairs: list[tuple[str, str]], size: int) -> None:
    whole = fields.encode("exitd-ok", pairs)
    assert c_encode("exitd-ok", pairs, 1, size) == (whole if len(whole) <= size else None)
