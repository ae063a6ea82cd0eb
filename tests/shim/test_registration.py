"""What a shim says of its run to a keeper: written and read by the same C, and by Python's idea of the grammar."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim import fields
from shim._native import ffi, lib

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60)
PIDS = st.just(0) | st.integers(2, 2**31 - 1)
TICKS = st.integers(0, 2**64 - 1)


@dataclass(frozen=True)
class Registration:
    id: str = "box"
    exec_id: str = ""
    oom: str = ""
    run: int = 1
    pid: int = 4711
    started: int = 22
    shim_pid: int = 0
    shim_started: int = 0
    slots: tuple[int, ...] = ()


REGISTRATIONS = st.builds(
    Registration,
    id=TEXTS.filter(bool),
    exec_id=TEXTS,
    oom=TEXTS,
    run=st.integers(0, 2**64 - 1),
    pid=PIDS,
    started=TICKS,
    shim_pid=PIDS,
    shim_started=TICKS,
    slots=st.lists(st.integers(0, 9999), max_size=13).map(tuple),
)


def written(r: Registration, size: int = 8192) -> bytes | None:
    texts = [ffi.new("char[]", text.encode()) for text in (r.id, r.exec_id, r.oom)]
    c = ffi.new("struct registration *")
    c.id, c.exec, c.oom = texts
    c.run, c.pid, c.started, c.shim_pid, c.shim_started = r.run, r.pid, r.started, r.shim_pid, r.shim_started
    c.slot_count = len(r.slots)
    for i, slot in enumerate(r.slots):
        c.slots[i] = slot
    room = ffi.new("char[]", size)
    used = lib.registration_write(room, size, c)
    return bytes(ffi.buffer(room, used)) if used >= 0 else None


def read(data: bytes) -> Registration | None:
    c = ffi.new("struct registration *")
    buffer = ffi.from_buffer(data)
    if lib.registration_read(c, buffer, len(data)):
        return None
    id, exec_id, oom = (ffi.string(text).decode("utf-8", "surrogateescape") for text in (c.id, c.exec, c.oom))
    return Registration(
        id, exec_id, oom, c.run, c.pid, c.started, c.shim_pid, c.shim_started, tuple(c.slots[0 : c.slot_count])
    )


@given(REGISTRATIONS)
def test_what_a_shim_writes_a_keeper_reads(r: Registration) -> None:
    data = written(r)
    assert data is not None
    message = fields.decode(data, "exitd-register")
    assert (message.get("id"), message.get("exec"), message.number("run")) == (r.id, r.exec_id, r.run)
    started, shim_started = r.started if r.pid else 0, r.shim_started if r.shim_pid else 0
    assert read(data) == Registration(r.id, r.exec_id, r.oom, r.run, r.pid, started, r.shim_pid, shim_started, r.slots)


@given(REGISTRATIONS, st.integers(0, 8192))
def test_what_has_no_room_is_not_written_in_part(r: Registration, size: int) -> None:
    whole = written(r)
    assert whole is not None
    assert written(r, size) == (whole if len(whole) <= size else None)


@given(REGISTRATIONS, st.data())
def test_cut_anywhere_it_is_none(r: Registration, data: st.DataObject) -> None:
    whole = written(r)
    assert whole is not None
    assert read(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None


def encoded(*pairs: tuple[str, str | int]) -> bytes:
    return fields.encode("exitd-register", pairs)


BOX: tuple[tuple[str, str | int], ...] = (("id", "box"), ("run", 1), ("oom", ""))


@pytest.mark.parametrize(
    "pairs",
    [
        (("run", 1), ("oom", "")),
        (("id", ""), ("run", 1), ("oom", "")),
        (("id", "box"), ("oom", "")),
        (("id", "box"), ("run", "x"), ("oom", "")),
        (("id", "box"), ("run", 1)),
        (*BOX[:2], ("oom", "x" * 320)),
        (*BOX, ("pid", 1), ("started", 1)),
        (*BOX, ("pid", 2**31), ("started", 1)),
        (*BOX, ("pid", -2), ("started", 1)),
        (*BOX, ("pid", 4711)),
        (*BOX, ("pid", 4711), ("started", "")),
        (*BOX, ("shim", 4711)),
        (*BOX, ("shim", 0), ("shim_started", 1)),
        (*BOX, ("seat", "")),
        (*BOX, ("seat", "4x")),
        (*BOX, ("seat", -4)),
        (*BOX, ("seat", 99999)),
        (*BOX, *[("seat", 4)] * 14),
    ],
)
def test_what_is_not_whole_or_no_number_is_refused(pairs: tuple[tuple[str, str | int], ...]) -> None:
    assert read(encoded(*pairs)) is None


def test_what_an_older_shim_leaves_out_is_nothing() -> None:
    assert read(encoded(*BOX, ("pid", 4711), ("started", 22))) == Registration()
    assert read(encoded(*BOX, ("pid", 4711), ("started", 22), ("what", "is new"))) == Registration()


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    read(data)
