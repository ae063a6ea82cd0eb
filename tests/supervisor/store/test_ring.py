"""Ends in the ring: what was written as a whole is found, nothing else, and no page is written while it is needed."""

from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model.errors import CannotStart
from supervisor.store.ring import BLOCK_PAGES, HEAD, PAGE_BYTES, PAGES, Block, Ring, RingFull, blocks, encode

OWN, OTHER = b"o" * 16, b"x" * 16


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "exitd.ring"


@given(payload=st.binary(max_size=BLOCK_PAGES * PAGE_BYTES - HEAD.size), number=st.integers(1, 2**63))
def test_a_block_is_read_as_it_was_written(payload: bytes, number: int) -> None:
    data = encode(OWN, number, payload)
    assert len(data) % PAGE_BYTES == 0
    assert blocks(bytes(PAGE_BYTES) + data, OWN) == [Block(number, payload)]
    assert blocks(data, OTHER) == []


def test_a_block_that_is_too_long_for_the_ring_is_refused() -> None:
    with pytest.raises(RingFull):
        encode(OWN, 1, bytes(BLOCK_PAGES * PAGE_BYTES))


@given(at=st.integers(0, 3 * PAGE_BYTES - 1), value=st.integers(0, 255), size=st.integers(0, 2 * PAGE_BYTES))
def test_a_torn_or_damaged_block_is_none(at: int, value: int, size: int) -> None:
    data = bytearray(encode(OWN, 7, bytes(size)).ljust(3 * PAGE_BYTES, b"\0"))
    before, data[at] = data[at], value
    if at < HEAD.size + size and before != value and at not in (4, 5):  # 4 and 5: the version
        assert blocks(bytes(data), OWN) == []
    torn = bytes(data[:PAGE_BYTES]) + b"\xaa" * PAGE_BYTES + bytes(data[2 * PAGE_BYTES :])
    if size > PAGE_BYTES:
        assert blocks(torn, OWN) == []


@pytest.mark.parametrize("byte", [4, 5])
def test_a_newer_exitds_block_is_not_passed_over(byte: int) -> None:
    data = bytearray(encode(OWN, 1, b"end"))
    data[byte] += 1
    with pytest.raises(CannotStart, match="newer"):
        blocks(bytes(data), OTHER)


def write(own: Ring, number: int, payload: bytes) -> None:
    """One block; it is on the disk when this returns."""
    own.begin(own.place(number, payload))
    assert own.has_ended(30)
    own.finish()


STEPS = st.lists(st.tuples(st.booleans(), st.integers(1, BLOCK_PAGES)), max_size=120)


@given(steps=STEPS)
def test_what_is_not_freed_is_there_whatever_else_is_written(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bool, int]]
) -> None:
    """Each step writes a block of so many pages, or frees the oldest half of what there is."""
    kept: dict[int, bytes] = {}
    with closing(Ring(tmp_path_factory.mktemp("ring") / "r", OWN)) as own:
        for number, (writes, pages) in enumerate(steps, start=1):
            payload = bytes([number]) * (pages * PAGE_BYTES - HEAD.size)
            if writes:
                try:
                    write(own, number, payload)
                    kept[number] = payload
                except RingFull:
                    assert sum(-(-(len(each) + HEAD.size) // PAGE_BYTES) for each in kept.values()) > PAGES // 2
            elif kept:
                upto = sorted(kept)[len(kept) // 2]
                own.free(upto)
                kept = {number: each for number, each in kept.items() if number > upto}
            found = {block.number: block.payload for block in blocks(own.read(), OWN)}
            assert {number: found.get(number) for number in kept} == kept


def test_a_full_ring_takes_a_block_again_once_the_oldest_is_freed(path: Path) -> None:
    with closing(Ring(path, OWN)) as own:
        for number in range(PAGES):
            write(own, number, b"end")
        with pytest.raises(RingFull):
            write(own, PAGES, b"end")
        assert own.is_half_full
        own.free(0)
        write(own, PAGES, b"end")
        assert sorted(block.number for block in blocks(own.read(), OWN)) == list(range(1, PAGES + 1))
        own.free(PAGES)
        assert not own.is_half_full


def test_the_file_has_all_of_its_pages_from_the_beginning_and_is_its_owners(path: Path) -> None:
    path.write_bytes(bytes(5000))  # an exitd that was killed while it made the file
    with closing(Ring(path, OWN)):
        assert path.stat().st_size == PAGES * PAGE_BYTES <= path.stat().st_blocks * 512
    path.unlink()
    with closing(Ring(path, OWN)):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_link_in_its_place_is_not_followed(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere")
    with pytest.raises(OSError):
        Ring(path, OWN)
    assert not (path.parent / "elsewhere").exists()
