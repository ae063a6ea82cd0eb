"""Ranges of ids: no two overlap, and what lies outside belongs to nobody."""

from hypothesis import given
from hypothesis import strategies as st

from supervisor.model.idranges import COUNT, MOST_ID, NOBODY, IdRange, choose

POOL = IdRange(1 << 20, 3 * COUNT)


def test_the_first_free_range_is_chosen_until_there_is_none() -> None:
    taken: list[IdRange] = []
    while (found := choose(POOL, taken)) is not None:
        taken.append(found)
    assert [each.first for each in taken] == [POOL.first + at * COUNT for at in range(3)]
    assert choose(POOL, taken[::2]) == taken[1]
    assert choose(IdRange(MOST_ID - COUNT + 1, COUNT), ()) is None  # its last id would be none


@given(st.lists(st.builds(IdRange, st.integers(POOL.first - COUNT, POOL.first + 3 * COUNT), st.integers(1, COUNT))))
def test_what_is_chosen_overlaps_nothing_and_lies_in_the_pool(taken: list[IdRange]) -> None:
    found = choose(POOL, taken)
    if found is not None:
        assert not any(map(found.overlaps, taken))
        assert POOL.first <= found.first and found.first + found.count <= POOL.first + POOL.count


def test_an_id_goes_in_and_out_and_what_is_in_no_range_is_nobodys() -> None:
    ids = IdRange(1 << 20)
    for inside in (0, 1000, COUNT - 1):
        assert ids.inside(ids.outside(inside)) == inside
    assert ids.inside(ids.first - 1) == ids.inside(ids.first + COUNT) == ids.inside(0) == NOBODY
    assert ids.outside(COUNT) == ids.outside(-1) == ids.first + NOBODY
