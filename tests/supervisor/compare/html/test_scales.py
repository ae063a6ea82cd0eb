"""Every figure has its place between the ends of an axis, and the ticks are round."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from supervisor.compare.html.axes import spread
from supervisor.compare.html.scales import MOST_FINE, MOST_TICKS, scale, steps, thinned

FIGURES = st.lists(st.floats(-1e15, 1e15) | st.floats(0, 1e3), max_size=8)


@given(FIGURES)
def test_every_figure_and_every_tick_is_drawn_between_the_ends(values: list[float]) -> None:
    found = scale(values, 250, 50)
    for value in (*values, *found.ticks):
        assert 50 <= found.at(value) <= 250
    assert 1 <= len(found.ticks) <= max(MOST_FINE, MOST_TICKS + 2)
    assert list(found.ticks) == sorted(found.ticks)


@given(st.lists(st.integers(0, 10_000), max_size=30))
def test_every_chosen_figure_is_drawn_in_order(values: list[int]) -> None:
    found = steps(values, 60, 300)
    places = [found.at(value) for value in sorted(values)]
    assert places == sorted(places)
    assert all(60 <= place <= 300 for place in places)


def test_a_narrow_range_begins_at_zero() -> None:
    found = scale([40, 90], 0, 100)
    assert (found.log, found.ticks) == (False, (0, 20, 40, 60, 80, 100))


def test_a_wide_range_is_logarithmic() -> None:
    found = scale([3, 300], 0, 100)
    assert (found.log, found.ticks) == (True, (2, 5, 10, 20, 50, 100, 200, 500))
    assert not found.floor


def test_zero_on_a_logarithmic_axis_is_drawn_at_its_end_and_told() -> None:
    found = scale([0, 1, 1000], 0, 100)
    assert (found.log, found.floor, found.at(0)) == (True, True, 0)


def test_a_range_of_many_decades_has_few_ticks() -> None:
    assert len(scale([1e-9, 1e14], 0, 100).ticks) == MOST_TICKS


def test_zeros_alone_have_an_axis() -> None:
    assert scale([0, 0], 0, 100).at(0) == 0


def test_only_so_many_are_left_with_the_ends_among_them() -> None:
    assert thinned(range(1000), 4) == [0, 333, 666, 999]
    assert thinned([1, 2], 4) == [1, 2]


@given(st.lists(st.floats(50, 250), min_size=1, max_size=12))
def test_labels_keep_their_distance_and_their_order(wanted: list[float]) -> None:
    placed = spread(wanted, 15, 50, 250)
    both = sorted(zip(wanted, placed, strict=True))
    assert all(after[1] - before[1] >= 14.999 for before, after in pairwise(both) if before[0] < after[0])
    assert min(placed) >= 50 and max(placed) <= max(250, 50 + 15 * (len(wanted) - 1))
