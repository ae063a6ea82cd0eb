"""What the relay reads and computes besides frames: groups, addresses, records, and the frames' own reader."""

import hashlib
import json
import posixpath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shim._native import ffi, lib
from shim.record import RECORD_BYTES, parse
from tests.shim.relaywords import Frame, encode, failure, fields, number, success, text

KEYS = ("io.containerd.runc.v2.group", "io.kubernetes.cri.sandbox-id")
NAMES = st.text(st.characters(codec="ascii", min_codepoint=0x21, exclude_characters='"\\'), min_size=1, max_size=40)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from([*KEYS, "annotations", '"', "\\", "}"]) | st.text(max_size=4), inner, max_size=4
        )
    ),
    max_leaves=12,
)


def group(document: bytes, room: int = lib.GROUP_MAX) -> bytes | int:
    out = ffi.new("char[]", b"\xee" * (room + 8))
    size = int(lib.group_find(ffi.from_buffer(document), len(document), out, room))
    assert bytes(ffi.buffer(out, room + 8))[room:] == b"\xee" * 8
    return bytes(ffi.buffer(out, size)) if size >= 0 else size


def digest(data: bytes) -> str:
    out = ffi.new("char[]", lib.HASH_SIZE)
    lib.sha256_hex(out, ffi.from_buffer(data), len(data))
    return bytes(ffi.string(out)).decode()


def cleaned(path: str) -> str:
    buffer = ffi.new("char[]", path.encode())
    size = int(lib.address_clean(buffer))
    return bytes(ffi.buffer(buffer, size)).decode()


# -- frames


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 255), st.binary(max_size=50)), max_size=6),
       st.integers(1, 70))  # fmt: skip
def test_frames_come_out_as_they_went_in_however_they_are_cut(items: list[tuple[int, int, bytes]], piece: int) -> None:
    frames = [Frame(stream, type_, 7, data) for stream, type_, data in items]
    written, found = b"".join(map(encode, frames)), []
    reader, whole = ffi.new("struct reader *"), ffi.new("int *")
    for at in range(0, len(written), piece):
        part = written[at : at + piece]
        while part:
            part = part[lib.reader_feed(reader, ffi.from_buffer(part), len(part), whole) :]
            if whole[0]:
                data = bytes(ffi.buffer(reader.data, reader.length)) if reader.length else b""
                found.append(Frame(reader.stream, reader.type, reader.flags, data))
                lib.reader_next(reader)
    assert found == frames
    lib.reader_next(reader)


@given(st.integers(0, 16), st.binary(max_size=60), st.text(max_size=40))
def test_a_response_is_read_with_and_without_a_status(code: int, payload: bytes, why: str) -> None:
    found = ffi.new("struct text *")
    for data, expected in (
        (success(payload), 0),
        (text(1, b"") + success(payload), 0),
        (text(1, text(2, why)) + success(payload), 0),
        (failure(code, why) + success(payload), code),
        (number(9, 4) + success(payload) + failure(code, why), code),
    ):
        buffer = ffi.from_buffer(data)
        assert lib.response_code(buffer, len(data), found) == expected
        assert bytes(ffi.buffer(found.at, found.size)) == payload


@given(st.binary(max_size=60))
def test_any_bytes_are_a_response_or_refused(data: bytes) -> None:
    found = ffi.new("struct text *")
    buffer = ffi.from_buffer(data)
    assert lib.response_code(buffer, len(data), found) >= -74
    assert found.size <= len(data)


@given(st.integers(1, 16), st.text(max_size=40), st.integers(0, 80))
def test_an_error_is_whole_or_not_written(code: int, why: str, room: int) -> None:
    why = why.replace("\0", "")
    out = ffi.new("char[]", b"\xee" * (room + 8))
    size = lib.response_error(out, room, code, why.encode())
    assert bytes(ffi.buffer(out, room + 8))[room:] == b"\xee" * 8
    whole = text(1, number(1, code) + text(2, why))
    assert bytes(ffi.buffer(out, size)) == whole if size >= 0 else len(whole) > room
    assert dict(fields(whole)).keys() == {1}


# -- groups


@given(JSON, st.dictionaries(st.sampled_from([*KEYS, "x"]), NAMES | JSON), st.sampled_from([None, 1]))
def test_the_group_is_that_of_the_annotations_of_the_document_and_of_nothing_else_in_it(
    other: object, annotations: dict[str, object], indent: int | None
) -> None:
    document = json.dumps({"a": other, "annotations": annotations, "z": other}, indent=indent).encode()
    values = (annotations.get(key) for key in KEYS)
    expected = next((json.dumps(value)[1:-1] for value in values if isinstance(value, str) and value), "")
    assert group(document) == (expected.encode() if len(expected) < lib.GROUP_MAX else -7)


@pytest.mark.parametrize(
    ("document", "found"),
    [
        (b'{"annotations":{"io.containerd.runc.v2.group":"a","io.kubernetes.cri.sandbox-id":"b"}}', b"a"),
        (b'{"annotations":{"io.kubernetes.cri.sandbox-id":"b","io.containerd.runc.v2.group":"a"}}', b"a"),
        (b'{"annotations":{"io.kubernetes.cri.sandbox-id":"b"}}', b"b"),
        (b'{"annotations":null}', b""),
        (b'{"annotations":{}}', b""),
        (b"{}", b""),
        (b' {"process":{"env":["\\"annotations\\":{\\"io.kubernetes.cri.sandbox-id\\":\\"no\\"}"]}}\n', b""),
        (b'{"linux":{"annotations":{"io.kubernetes.cri.sandbox-id":"no"}}}', b""),
        (b"", -74),
        (b"[]", -74),
        (b'{"annotations":', -74),
        (b'{"annotations":{"io.kubernetes.cri.sandbox-id":"b"', -74),
        (b'{"annotations":{"io.kubernetes.cri.sandbox-id":"b}}', -74),
        (b'{"a":"\\', -74),
        (b'{"a":' + b"[" * 1000, -74),
        (b'{"a" "b"}', -74),
        (b'{"a":1 "b":2}', -74),
    ],
)
def test_documents_whole_and_broken(document: bytes, found: bytes | int) -> None:
    assert group(document) == found


def test_a_group_that_is_too_long_is_not_cut() -> None:
    document = b'{"annotations":{"io.kubernetes.cri.sandbox-id":"' + b"x" * lib.GROUP_MAX + b'"}}'
    assert group(document) == -7


@given(st.binary(max_size=200))
def test_any_bytes_are_a_document_or_refused(document: bytes) -> None:
    found = group(document)
    assert isinstance(found, bytes) or found in (-74, -7)


# -- addresses


@given(st.binary(max_size=300))
@example(b"a" * 55)
@example(b"a" * 56)
@example(b"a" * 64)
@example(b"a" * 119)
def test_the_digest_is_sha256(data: bytes) -> None:
    assert digest(data) == hashlib.sha256(data).hexdigest()


def test_the_socket_is_the_one_that_containerds_own_shim_would_take() -> None:
    # As the contract's example has it: sha256 of the three, joined.
    path = cleaned("//x/c.sock/default/c1")
    assert (path, digest(path.encode())) == (
        "/x/c.sock/default/c1",
        hashlib.sha256(b"/x/c.sock/default/c1").hexdigest(),
    )


@given(st.lists(st.sampled_from(["a", "bc", ".", "..", "", "...", ".x", "x..", "run"]), max_size=10))
def test_paths_are_cleaned_as_every_library_does_it(parts: list[str]) -> None:
    path = "/" + "/".join(parts)
    assert cleaned(path) == "/" + posixpath.normpath(path).lstrip("/")


@pytest.mark.parametrize("path", ["", "a/b", "."])
def test_a_relative_path_is_refused(path: str) -> None:
    assert lib.address_clean(ffi.new("char[]", path.encode())) == -22


# -- records


def record(code: int, signal: int, pid: int, started: int, realtime_ns: int, began: int = 1) -> bytes:
    kept = [ffi.new("char[]", word) for word in (b"c1", b"", b"boot", b"shim")]
    facts = ffi.new("struct exit_facts *")
    facts.id, facts.exec, facts.boot_id, facts.witness = kept
    facts.pid, facts.started, facts.realtime_ns = pid, started, realtime_ns
    facts.signaled, facts.value, facts.began = int(signal > 0), signal or code, began
    out = ffi.new("char[]", RECORD_BYTES)
    assert lib.record_format(out, RECORD_BYTES, facts) > 0
    return bytes(ffi.buffer(out, RECORD_BYTES))


def evidence(data: bytes) -> tuple[int, int, int, int] | int:
    out = ffi.new("struct seen *")
    result = int(lib.evidence_read(out, ffi.from_buffer(data), len(data)))
    return result if result else (out.status, out.pid, out.started, out.realtime_ns)


@given(st.integers(0, 255), st.integers(0, 64), st.integers(2, 2**22), st.integers(0, 2**40), st.integers(1, 2**62))
def test_a_record_says_the_same_to_the_relay_as_to_the_daemon(
    code: int, signal: int, pid: int, started: int, realtime_ns: int
) -> None:
    data = record(code, signal, pid, started, realtime_ns)
    found = parse(data)
    assert found is not None and (found.code, found.signal) == ((None, signal) if signal else (code, None))
    assert evidence(data) == (128 + signal if signal else code, pid, started, realtime_ns)


@pytest.mark.parametrize(("began", "told"), [(1, 1), (0, 255), (-1, 1)])
def test_what_was_never_executed_has_no_number_for_containerd(began: int, told: int) -> None:
    assert evidence(record(1, 0, 4711, 99, 10**18, began)) == (told, 4711, 99, 10**18)


@given(st.integers(0, 600), st.integers(0, 255))
def test_one_damaged_byte_is_no_evidence(at: int, value: int) -> None:
    data = bytearray(record(43, 0, 4711, 99, 10**18))
    length = int(data[23:27])
    changed = data[at % length] != value
    data[at % length] = value
    if changed:
        assert isinstance(evidence(bytes(data)), int)


@given(st.integers(0, RECORD_BYTES - 1))
def test_half_a_record_is_no_evidence(size: int) -> None:
    data = record(43, 0, 4711, 99, 10**18)
    found = evidence(data[:size])
    assert isinstance(found, int) or size >= int(data[23:27])


@given(st.binary(max_size=200))
def test_what_is_empty_is_not_yet_and_anything_else_is_bad(data: bytes) -> None:
    assert evidence(data) == (-11 if data[:1] in (b"", b"\0") else -74)
