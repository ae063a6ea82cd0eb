"""The picture: one SVG file that stands by itself."""

import math
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.compare.facts import BadReport, CompareReport, Latency
from supervisor.compare.html.page import picture
from tests.supervisor.compare.any_report import reports
from tests.supervisor.compare.made_up import made_up


def test_it_shows_memory_and_exits_on_a_light_ground() -> None:
    text = picture(made_up())
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    for title in ("Private memory, the daemons' growth included", "Init killed until the waiting client knows"):
        assert f">{title}</text>" in text
    assert "fill: #ffffff" in text and "currentColor" not in text
    assert root.get("viewBox", "").split()[2:] == [root.get("width"), root.get("height")]
    assert 1000 < float(root.get("width", "")) < 1100
    assert text.count("http") == 1  # the name space
    assert text == picture(made_up())


def test_what_was_not_measured_is_left_out() -> None:
    exits = CompareReport((), (), latencies=(Latency("a", "exit", "idle", (1.0,)),))
    assert "Private memory" not in picture(exits)
    assert "Nothing was measured" in picture(CompareReport((), ()))


@pytest.mark.filterwarnings("ignore:Glyph", "ignore:No artists")  # letters of no font; names that no legend shows
@settings(max_examples=15, deadline=None)
@given(reports(st.text(st.characters(), max_size=20), st.floats(-1e15, 1e15)))
def test_any_report_is_well_formed(report: CompareReport) -> None:
    ET.fromstring(picture(report))


def test_a_figure_that_is_none_is_refused() -> None:
    with pytest.raises(BadReport):
        picture(CompareReport((), (), latencies=(Latency("a", "exit", "idle", (math.nan,)),)))
