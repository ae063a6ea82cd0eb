"""The report for a terminal: eighty columns, whatever the words in it."""

import math
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.compare.facts import BadReport, CompareReport, Latency, Memory, Way
from supervisor.compare.table import COLUMNS, table
from tests.supervisor.compare.any_report import reports
from tests.supervisor.compare.made_up import made_up

ANY = reports(st.text(st.characters(), max_size=90), st.floats(-1e15, 1e15))


def test_a_whole_report_has_a_block_for_each_thing_measured() -> None:
    text = table(made_up())
    for title in ("What stays with a pod", "Start and exit", "Exit storms", "The daemon is killed", "A process dies"):
        assert title in text
    assert "kernel: Linux 6.18.0" in text
    assert "not measured: conmon alone: conmon is not on this machine's PATH" in text
    assert max(map(len, text.splitlines())) <= COLUMNS
    assert "\N{HORIZONTAL ELLIPSIS}" not in text


@given(ANY)
def test_no_line_is_wider_than_eighty_columns_and_nothing_in_it_steers_the_terminal(report: CompareReport) -> None:
    lines = table(report).split("\n")
    assert max(map(len, lines)) <= COLUMNS
    assert not {unicodedata.category(each) for line in lines for each in line} & {"Cc", "Cf", "Cs"}


def test_of_an_empty_report_it_says_so() -> None:
    assert table(CompareReport((), ())) == "nothing was measured"


def test_what_is_not_known_is_a_dash() -> None:
    report = CompareReport((), (Way("a", "Ah", ""),), memory=(Memory("a", 1, 2, (), (), 3.0, None),))
    assert table(report).splitlines()[-1].split() == ["Ah", "1", "2", "-", "-", "3", "kB", "-", "0"]


def test_a_figure_that_is_none_is_refused() -> None:
    with pytest.raises(BadReport):
        table(CompareReport((), (), latencies=(Latency("a", "exit", "idle", (math.nan,)),)))
