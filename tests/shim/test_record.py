"""The exit record: the C that writes it against the Python that reads it."""

import contextlib
import dataclasses
import json
import zlib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shim import record
from shim._native import ffi, lib

IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,126}", fullmatch=True)
NANOS = st.integers(0, 2**63 - 1)
PLAIN = record.Record("box", 3, "", "shim", 43, None, False, 4711, 99, 1, 2, "0c0d-boot", -1)


def ends(code: int | None, signal: int | None, core: bool) -> dict[str, Any]:
    return {"code": code, "signal": signal, "core": core}


ENDS = st.integers(0, 255).map(lambda code: ends(code, None, False)) | st.builds(
    lambda signal, core: ends(None, signal, core), st.integers(1, 64), st.booleans()
)
RECORDS = st.builds(
    lambda end, **rest: record.Record(**end, **rest),
    ENDS,
    id=IDS,
    run=st.integers(0, 2**63 - 1),
    exec_id=st.just("") | IDS,
    witness=st.sampled_from(["shim", "keeper"]),
    pid=st.integers(2, 2**31 - 1),
    started=st.integers(0, 2**64 - 1),
    realtime_ns=NANOS,
    boottime_ns=NANOS,
    boot_id=st.just("") | st.just("6f1c2b0e-6a0e-4b0c-9a55-1f5f0b5d8a10"),
    oom_kills=st.integers(-1, 2**63 - 1),
    user_us=NANOS,
    system_us=NANOS,
    max_rss_kb=NANOS,
    began=st.none() | st.booleans(),
)


def written(wanted: record.Record, size: int = record.RECORD_BYTES) -> bytes:
    """What the C core writes for these facts; b"" when it refuses."""
    texts = {
        name: ffi.new("char[]", value.encode())
        for name, value in (
            ("id", wanted.id),
            ("exec", wanted.exec_id),
            ("boot_id", wanted.boot_id),
            ("witness", wanted.witness),
        )
    }
    names = ("run", "pid", "started", "realtime_ns", "boottime_ns", "oom_kills", "user_us", "system_us", "max_rss_kb")
    value = wanted.signal if wanted.code is None else wanted.code
    facts = ffi.new(
        "struct exit_facts *",
        {
            **texts,
            **{name: getattr(wanted, name) for name in names},
            "signaled": wanted.code is None,
            "value": value,
            "core": wanted.core,
            "began": -1 if wanted.began is None else int(wanted.began),
        },
    )
    out = ffi.new("char[]", b"\xee" * (size + 8))
    length = lib.record_format(out, size, facts)
    assert bytes(ffi.buffer(out, size + 8))[size:] == b"\xee" * 8
    return bytes(ffi.buffer(out, size)) if length > 0 else b""


@given(RECORDS)
def test_what_the_core_writes_is_read_back_whole(wanted: record.Record) -> None:
    block = written(wanted)
    assert record.parse(block) == wanted
    assert json.loads(block)["version"] == 1


@given(RECORDS)
def test_the_longest_record_fits_a_journal_slot(wanted: record.Record) -> None:
    longest = dataclasses.replace(wanted, id=wanted.id.ljust(127, "x"), exec_id=wanted.exec_id.ljust(127, "y"))
    assert record.parse(written(longest, record.ENTRY_BYTES)) == longest


@pytest.mark.parametrize("code", range(256))
def test_every_code_comes_through(code: int) -> None:
    assert record.parse(written(dataclasses.replace(PLAIN, code=code))) == dataclasses.replace(PLAIN, code=code)


@pytest.mark.parametrize("signal", range(1, 65))
def test_every_signal_comes_through(signal: int) -> None:
    killed = dataclasses.replace(PLAIN, code=None, signal=signal, core=True)
    assert record.parse(written(killed)) == killed


def test_a_record_of_before_says_nothing_of_the_beginning() -> None:
    block = written(dataclasses.replace(PLAIN, began=False))
    length = int(block[23:27])
    body = block[record.HEAD_BYTES : length].replace(b'"began":false,', b"")
    head = b'{"version":1,"length":"%04d","crc":"%08x",' % (record.HEAD_BYTES + len(body), zlib.crc32(body))
    assert record.parse(head + body) == PLAIN


def test_a_block_nobody_has_written_is_not_yet_a_record() -> None:
    assert record.parse(bytes(record.RECORD_BYTES)) is None
    assert record.parse(b"") is None


def never_another_exit(data: bytes) -> None:
    try:
        assert record.parse(data) in (PLAIN, None)
    except record.BadRecord:
        return
    assert record.parse(data) == PLAIN or not data.strip(b"\0")


@given(st.lists(st.tuples(st.integers(0, 600), st.integers(0, 7)), min_size=1, max_size=4))
def test_flipped_bits_never_make_another_exit(flips: list[tuple[int, int]]) -> None:
    damaged = bytearray(written(PLAIN))
    for at, bit in flips:
        damaged[at] ^= 1 << bit
    never_another_exit(bytes(damaged))


def test_no_single_flipped_bit_is_accepted_as_another_exit() -> None:
    block = written(PLAIN, record.ENTRY_BYTES)
    for at in range(len(block)):
        for bit in range(8):
            never_another_exit(block[:at] + bytes([block[at] ^ 1 << bit]) + block[at + 1 :])


def test_no_truncation_is_accepted_as_another_exit() -> None:
    block = written(PLAIN)
    for size in range(600):
        never_another_exit(block[:size])
        never_another_exit(block[:size] + bytes(record.RECORD_BYTES - size))
        never_another_exit(bytes(size) + block[size:])


@given(st.binary(max_size=300))
@example(b'{"version":1,"length":"+060","crc":"00000000",' + b" " * 20)
@example(b'{"version":1,"length":"-060","crc":"-0000001",' + b" " * 20)
def test_any_bytes_are_a_record_or_a_bad_record(data: bytes) -> None:
    with contextlib.suppress(record.BadRecord):
        assert record.parse(data) is None


@pytest.mark.parametrize("id", ['a"b', "a\\b", "a\nb", "a\x7f", "ä"])
def test_an_id_that_json_would_have_to_escape_is_refused(id: str) -> None:
    assert written(dataclasses.replace(PLAIN, id=id)) == b""
    assert not lib.record_takes(id.encode())


@pytest.mark.parametrize("size", [0, 1, 46, 47, 48, 200, 10000])
def test_a_block_of_the_wrong_size_is_refused_and_left_alone(size: int) -> None:
    assert written(PLAIN, size) == b""


@given(st.binary(max_size=300))
def test_the_checksum_is_the_one_of_zlib(data: bytes) -> None:
    assert lib.record_crc(ffi.from_buffer(data), len(data)) == zlib.crc32(data)
