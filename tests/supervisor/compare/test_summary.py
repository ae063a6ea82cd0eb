"""Medians, bands and counts are right, and figures that are none are refused."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.compare.facts import BadReport, CompareReport, Fault, Latency, Memory, Restart, Storm, Way
from supervisor.compare.summary import Band, band, cell, checked, columns, curve, fates, keys, names

FIGURES = st.lists(st.floats(-1e15, 1e15), min_size=1, max_size=30)


@given(FIGURES)
def test_the_median_is_the_median_and_lies_within_the_band(values: list[float]) -> None:
    found = band(values)
    assert found is not None
    rounding = 1e-15 * max(map(abs, values))  # of values that nearly cancel each other out
    assert found.median == pytest.approx(statistics.median(values), rel=1e-9, abs=1e-9 + rounding)
    assert min(values) <= found.p5 <= found.p95 <= max(values)


def test_of_a_single_sample_the_band_is_the_sample_and_of_none_there_is_none() -> None:
    assert band([3.5]) == Band(1, 3.5, 3.5, 3.5)
    assert band([]) is None


def test_a_hundred_and_one_samples_have_the_band_one_expects() -> None:
    assert band(range(101)) == Band(101, 5, 50, 95)


@pytest.mark.parametrize("figure", [math.nan, math.inf, -math.inf, 1e16])
def test_a_figure_that_is_none_is_refused_wherever_it_stands(figure: float) -> None:
    for report in (
        CompareReport((), (), memory=(Memory("a", 1, 1, (1.0, figure), (), 0, None),)),
        CompareReport((), (), memory=(Memory("a", 1, 1, (), (), 0, figure),)),
        CompareReport((), (), latencies=(Latency("a", "exit", "idle", (figure,)),)),
        CompareReport((), (), storms=(Storm("a", 1, ((1.0,), (figure,))),)),
        CompareReport((), (), restarts=(Restart("a", 1, (figure,), 0, 0, 0, 0, 0),)),
    ):
        with pytest.raises(BadReport, match="no figure"):
            checked(report)


def test_a_way_that_only_a_row_names_is_a_way_called_by_its_key() -> None:
    report = CompareReport(
        (), (Way("a", "Ah", ""), Way("b", "", "")), latencies=(Latency("c", "exit", "idle", (1.0,)),)
    )
    assert keys(report) == ("a", "b", "c")
    assert names(report) == {"a": "Ah", "b": "b", "c": "c"}


def test_a_storm_is_summed_notice_by_notice_and_a_notice_that_never_came_is_missing() -> None:
    found = curve([Storm("a", 3, ((3.0, 1.0, 2.0), (5.0, 3.0))), Storm("a", 3, ((),))])
    assert found is not None
    assert (found.way, found.rounds) == ("a", 2)
    assert [(point.n, point.median) for point in found.points] == [(2, 2.0), (2, 3.5), (1, 3.0)]
    assert curve([Storm("a", 3, ())]) is None


def test_fates_of_all_rounds_are_added() -> None:
    rows = [Restart("a", 10, (), 4, 1, 1, 1, 1), Restart("a", 10, (), 2, 2, 0, 0, 0)]
    assert fates(rows) == {"right": 3, "unknown": 1, "wrong": 1, "lost": 1}


def test_the_worst_verdict_comes_last_and_an_unheard_of_one_after_it() -> None:
    faults = [Fault("a", "shim", "kill", "43", "?", verdict) for verdict in ("odd", "lost", "right")]
    assert list(cell(faults)) == ["right", "lost", "odd"]
    assert columns([*faults, Fault("a", "daemon", "stop", "43", "43", "right")]) == (
        ("shim", "kill"),
        ("daemon", "stop"),
    )
