"""The keeper's journal as the daemon reads it: whole, torn, damaged."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim import fields, journal, record
from tests.shim.test_record import PLAIN, written

SLOT = record.ENTRY_BYTES
HEADER = fields.encode(
    "exitd-journal", [("instance", "1f-9"), ("boot_id", "boot"), ("pid", 9), ("started", 77), ("slot_size", SLOT)]
).ljust(SLOT, b"\0")
FIRST, SECOND = (
    dataclasses.replace(PLAIN, id=name, witness="keeper", code=code) for name, code in (("a", 1), ("b", 43))
)


def slots(*blocks: bytes) -> bytes:
    return HEADER + b"".join(block.ljust(SLOT, b"\0") for block in blocks)


def test_entries_are_read_in_order_and_free_slots_passed_over() -> None:
    got = journal.read(slots(written(FIRST, SLOT), b"", written(SECOND, SLOT), b""))
    assert got == journal.Journal("1f-9", "boot", 9, 77, (FIRST, SECOND), 0)


def test_a_damaged_slot_costs_itself_alone_and_is_counted() -> None:
    got = journal.read(slots(b"\xff" * SLOT, written(FIRST, SLOT), b"{"))
    assert (got.entries, got.damaged) == ((FIRST,), 2)


@given(st.integers(0, SLOT))
def test_a_torn_slot_is_never_another_exit(cut: int) -> None:
    got = journal.read(slots(written(FIRST, SLOT)[:cut], written(SECOND, SLOT)))
    assert got.entries in ((FIRST, SECOND), (SECOND,))


def test_a_file_cut_within_a_slot_gives_what_is_whole() -> None:
    data = slots(written(FIRST, SLOT), written(SECOND, SLOT))
    assert journal.read(data[:-1]).entries == (FIRST,)


@pytest.mark.parametrize("data", [b"", bytes(SLOT), HEADER.replace(b"journal 1", b"journal 2"), HEADER[:40]])
def test_a_file_without_a_header_that_can_be_read_is_no_journal(data: bytes) -> None:
    with pytest.raises(journal.BadJournal):
        journal.read(data)


def test_absurd_slot_sizes_are_refused() -> None:
    with pytest.raises(journal.BadJournal):
        journal.read(HEADER.replace(b"slot_size=1024", b"slot_size=0000"))


@given(st.binary(max_size=3 * SLOT))
def test_any_bytes_behind_the_header_are_damage_at_worst(data: bytes) -> None:
    assert journal.read(HEADER + data).entries == ()
