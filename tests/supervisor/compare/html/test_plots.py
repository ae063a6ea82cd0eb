"""Every figure is between the ends of its axis, axes begin at zero or say so, and a drawing is always the same file."""

import math
import xml.etree.ElementTree as ET
from typing import Any

import matplotlib
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from supervisor.compare.html.plots import Drawing, PlotLine, Row, lines, mark, strips, svg, thinned
from supervisor.compare.looks import WayLook
from supervisor.compare.summary import Band, band
from supervisor.compare.words import milliseconds, number

FIGURES = st.lists(st.floats(-1e15, 1e15) | st.floats(0, 1e3), min_size=1, max_size=8)
LOOK = WayLook("#0072B2", "o")


def drawn(drawing: Drawing) -> Axes:
    figure = Figure()
    drawing.draw(figure, drawing.height)
    return figure.axes[0]


def strip(*values: float) -> Drawing:
    return strips("title", "time", "told", milliseconds, [Row("a", "idle", LOOK, values)])


def line(points: dict[float, float]) -> Drawing:
    found = tuple((x, each) for x, y in points.items() if (each := band([y])))
    return lines("title", "time", "members", "told", number, [PlotLine("a", LOOK, found)])


def ticks(axes: Axes) -> list[str]:
    return [each.get_text() for each in axes.get_xticklabels()]


@settings(max_examples=40, deadline=None)
@example([1.0, 5e14])
@given(FIGURES)
def test_every_figure_is_drawn_between_the_ends(values: list[float]) -> None:
    axes = drawn(strip(*values))
    low, high = axes.get_xlim()
    dots: Any = next(each for each in axes.lines if each.get_marker() == ".")
    assert all(low <= x <= high for x in dots.get_xydata()[:, 0])
    assert 1 <= len(ticks(axes)) <= 8


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=30, unique=True))
def test_every_chosen_figure_is_drawn_and_few_are_ticks(values: list[int]) -> None:
    axes = drawn(line({value: 1.0 for value in sorted(values)}))
    low, high = axes.get_xlim()
    assert low <= min(values) <= max(values) <= high
    assert 1 <= len(ticks(axes)) <= 8


def test_a_narrow_range_begins_at_zero() -> None:
    axes = drawn(strip(40, 90))
    assert (axes.get_xscale(), axes.get_xlim(), ticks(axes)) == ("linear", (0, 100), ["0 ms", "50 ms", "100 ms"])


def test_a_wide_range_is_logarithmic_and_says_so() -> None:
    axes = drawn(strip(3, 300))
    assert (axes.get_xscale(), axes.get_xlim()) == ("log", (2, 500))
    assert ticks(axes) == ["10 ms", "100 ms"]
    assert "time, logarithmic" in {each.get_text() for each in axes.figure.texts}


def test_a_band_is_drawn_of_five_samples_and_more_and_n_stands_beside_each_row() -> None:
    few, enough = drawn(strip(40, 50, 60, 90)), drawn(strip(40, 50, 60, 70, 90))
    assert (len(few.patches), len(enough.patches)) == (0, 1)
    assert "time" in {each.get_text() for each in few.figure.texts}
    assert "time; band: p5 to p95, n = 5" in {each.get_text() for each in enough.figure.texts}
    assert {"4"} <= {each.get_text() for each in few.texts} and {"5"} <= {each.get_text() for each in enough.texts}


@pytest.mark.parametrize(("n", "shown"), [(4, False), (5, True)])
def test_a_line_has_its_band_from_five_samples_on(n: int, shown: bool) -> None:
    points = ((1.0, Band(n, 1, 2, 30)), (2.0, Band(n, 1, 3, 30)))
    axes = drawn(lines("title", "note", "along", "", milliseconds, [PlotLine("a", LOOK, points)]))
    (filled,) = axes.collections
    assert bool(filled.get_paths()) is shown
    assert any("n = 5" in each.get_text() for each in axes.figure.texts) is shown


def test_zero_on_a_logarithmic_axis_is_drawn_at_its_end_and_reported() -> None:
    axes = drawn(strip(0, 1, 1000))
    assert (axes.get_xscale(), axes.get_xlim(), ticks(axes)[0]) == ("log", (1, 1000), "\N{LESS-THAN OR EQUAL TO} 1 ms")


def test_zeros_alone_have_an_axis() -> None:
    assert drawn(strip(0, 0)).get_xlim() == (0, 1)


def test_the_names_of_lines_stand_in_the_order_of_their_ends() -> None:
    found = [
        PlotLine(name, LOOK, ((1.0, summed),)) for name, y in (("low", 1.0), ("high", 2.0)) if (summed := band([y]))
    ]
    axes = drawn(lines("title", "note", "members", "told", number, found))
    legend = axes.get_legend()
    assert legend is not None and [each.get_text() for each in legend.get_texts()] == ["high", "low"]


def test_only_so_many_are_left_with_the_ends_among_them() -> None:
    assert thinned(range(1000), 4) == [0, 333, 666, 999]
    assert thinned([1, 2], 4) == [1, 2]


def test_words_are_text_and_the_same_drawing_is_the_same_file() -> None:
    text = svg("a", [strip(1, 2)])
    assert text == svg("a", [strip(1, 2)])
    assert ">title</text>" in text and "20" not in (ET.fromstring(text).findtext(".//{*}date") or "")


@pytest.mark.parametrize("words", ["$x^2$", "$\\frac{", "</text><script>", "a\nb", "\ud800\0"])
def test_words_are_no_formulas_and_no_markup(words: str) -> None:
    text = svg("a", [strips(words, "time", words, milliseconds, [Row(words, words, LOOK, (1.0,))])])
    assert not [each for each in ET.fromstring(text).iter() if each.tag.endswith("script")]
    assert "$x^2$" in text or words != "$x^2$"


def test_the_mark_of_a_way_is_in_the_middle_of_its_place() -> None:
    (use,) = (each for each in ET.fromstring(mark("a", LOOK)).iter() if each.tag.endswith("use"))
    assert (use.get("x"), use.get("y")) == ("8", "8")


def test_ids_are_of_their_drawing_and_every_reference_has_its_target() -> None:
    for text in (svg("a", [strip(1, 2)]), svg("a", [line({1: 1, 2: 3})]), mark("a", LOOK)):
        root = ET.fromstring(text)
        ids = [each.get("id", "") for each in root.iter() if each.get("id")]
        assert len(ids) == len(set(ids)) and all(each.startswith("a-") for each in ids)
        found = {value.strip("url()#") for each in root.iter() for value in each.attrib.values() if value[:1] == "#"}
        clips = {each.get("clip-path", "").strip("url()#") for each in root.iter() if each.get("clip-path")}
        assert found | clips <= set(ids)


def test_drawing_leaves_the_settings_of_the_process_as_they_were() -> None:
    before = dict(matplotlib.rcParams)
    svg("a", [strip(1, math.pi)])
    assert dict(matplotlib.rcParams) == before
