"""The page: well formed, whole without anything outside it, and nothing in a report becomes markup."""

import functools
import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from supervisor.compare.facts import BadReport, CompareReport, Fault, Latency, Memory, Restart, Storm, Way, decode
from supervisor.compare.html.page import page
from supervisor.compare.html.parts import parts
from tests.supervisor.compare.any_report import reports
from tests.supervisor.compare.made_up import FIFO, WAYS, made_up

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = st.text(st.characters(), max_size=20) | st.sampled_from(
    [
        "</script><script>alert(1)</script>",
        "]]>",
        "<img src=x onerror=alert(1)>",
        '" onload="x',
        "&lt;",
        "<!--",
        "\0",
        "\ud800",
    ]
)
ANY = reports(HOSTILE, st.floats(-1e15, 1e15) | st.floats(0, 1e3))
WHOLE = made_up(storm=200, rounds=3)
ELEMENTS = """html head meta title style body section h1 h2 h3 p dl div dt dd table caption thead tbody tr th td b span
ul ol li code figure figcaption details summary script"""
DRAWN = "svg title desc text path rect g defs use clipPath"
KNOWN = {*ELEMENTS.split(), *(f"{SVG}{name}" for name in DRAWN.split())}


@functools.cache
def whole_text() -> str:
    return page(WHOLE)


@functools.cache
def whole() -> ET.Element:
    return parsed(whole_text())


def tree(report: CompareReport) -> ET.Element:
    return parsed(page(report))


def parsed(text: str) -> ET.Element:
    """By a parser that forgives nothing."""
    assert text.startswith("<!DOCTYPE html>\n")
    return ET.fromstring(text)


def words(element: ET.Element) -> str:
    return " ".join(element.itertext())


def plots(root: ET.Element) -> list[ET.Element]:
    return [each for each in root.iter() if "plot" in each.get("class", "").split()]


def data(root: ET.Element) -> str:
    found = root.find(".//script[@id='report']")
    assert found is not None and found.text is not None
    return found.text


def test_a_whole_report_is_drawn_and_its_data_are_in_it() -> None:
    root = whole()
    assert len(plots(root)) == 13
    assert decode(data(root)) == WHOLE
    for name, value in WHOLE.conditions:
        assert name in words(root) and value in words(root)


def test_every_drawing_has_a_title_and_says_what_it_shows() -> None:
    for drawing in plots(whole()):
        if drawing.tag == f"{SVG}svg":
            first, second = drawing[0], drawing[1]
            assert (first.tag, second.tag) == (f"{SVG}title", f"{SVG}desc")
            assert drawing.get("aria-labelledby") == f"{first.get('id')} {second.get('id')}"
            assert len(second.text or "") > 30


def test_no_two_elements_have_the_same_id() -> None:
    found = [each.get("id") for each in whole().iter() if each.get("id")]
    assert len(found) == len(set(found))


def test_there_are_the_figures_of_each_plot_to_unfold() -> None:
    assert len(list(whole().iter("details"))) == 12  # one for both plots of restarts


@pytest.mark.filterwarnings("ignore:Glyph", "ignore:No artists")  # letters of no font; names that no legend shows
@settings(max_examples=15, deadline=None)
@given(ANY)
def test_nothing_in_a_report_becomes_markup_and_its_data_stay_whole(report: CompareReport) -> None:
    root = tree(report)
    assert {each.tag for each in root.iter()} <= KNOWN
    said = {(name, value) for each in root.iter() for name, value in each.attrib.items()}
    assert not [name for name, _ in said if name.startswith("on") or name == "src"]
    assert not [value for name, value in said if "href" in name and not value.startswith("#")]
    assert decode(data(root)) == report


def test_the_page_asks_for_nothing_and_may_not() -> None:
    text = whole_text()
    for sign in ("src=", "@import", "https://"):
        assert sign not in text
    assert text.count("href=") == text.count('href="#') and text.count("url(") == text.count("url(#")
    assert text.count("http://") == text.count('xmlns="http://www.w3.org/2000/svg"')
    assert "default-src 'none'; style-src 'unsafe-inline'" in words_of_policy(whole())
    assert text.count("<script") == 1  # the data


def words_of_policy(root: ET.Element) -> list[str | None]:
    return [each.get("content") for each in root.iter("meta") if each.get("http-equiv") == "Content-Security-Policy"]


def test_a_way_has_the_same_colour_and_marker_in_every_plot_and_another_than_the_rest() -> None:
    found: dict[str, set[tuple[object, object]]] = {}
    for drawing in (drawing for part in parts(WHOLE) for drawing in part.drawings.values()):
        figure = Figure()
        drawing.draw(figure, drawing.height)
        for each in figure.axes[0].lines:
            if not str(each.get_label()).startswith("_"):
                found.setdefault(str(each.get_label()), set()).add((each.get_color(), each.get_marker()))
    assert set(found) == {way.name for way in WAYS if not way.why_not}
    assert {len(looks) for looks in found.values()} == {1}
    assert len({look for looks in found.values() for look in looks}) == len(found)


def test_who_takes_no_part_is_told_with_the_reason() -> None:
    assert "conmon alone: conmon is not on this machine's PATH" in words(whole())


def test_an_empty_report_is_a_page_that_says_so() -> None:
    root = tree(CompareReport((), ()))
    assert plots(root) == []
    for words_ in ("No way took part.", "No memory was measured.", "No storm was measured.", "No fault was tried."):
        assert words_ in words(root)


def test_one_way_alone_is_drawn() -> None:
    only = replace(
        WHOLE,
        ways=WHOLE.ways[:1],
        **{
            part: tuple(row for row in getattr(WHOLE, part) if row.way == "exitd-runc")
            for part in ("memory", "latencies", "storms", "restarts", "faults")
        },
    )
    assert len(plots(tree(only))) == 13
    assert "against" not in words(tree(only)).split("Processes and memory per pod")[1].split("Somebody is")[0]


def test_without_kernel_figures_there_is_no_such_plot_but_the_reason() -> None:
    root = tree(replace(WHOLE, memory=tuple(replace(row, kernel_kb=None) for row in WHOLE.memory)))
    assert len(plots(root)) == 11
    assert "No cgroup tells the kernel memory of: exitd + runc, exitd + crun" in words(root)


ONE = Way("exitd-runc", "one", FIFO)


@pytest.mark.parametrize("samples", [(1.0,), (0.0,), (0.0, 0.0), (1e-9, 1e14), (0.0, 1e-6, 1e9), (-3.0, 5.0)], ids=str)
def test_single_samples_zeros_and_huge_ranges_are_drawn(samples: tuple[float, ...]) -> None:
    report = CompareReport(
        (),
        (ONE,),
        (Memory("exitd-runc", 1, 2, samples, samples, 0.0, samples[0]),),
        (Latency("exitd-runc", "exit", "idle", samples),),
        (Storm("exitd-runc", 2, (samples,)),),
        (Restart("exitd-runc", 1, samples, 0, 0, 0, 0, 0),),
        (Fault("exitd-runc", "shim", "kill", "exit 1", "", "right"),),
    )
    root = tree(report)
    assert len(plots(root)) == 11
    assert "nan" not in words(root) and "no exit meanwhile" in words(root)


@pytest.mark.parametrize("figure", [math.nan, math.inf])
def test_a_figure_that_is_none_is_refused(figure: float) -> None:
    with pytest.raises(BadReport):
        page(CompareReport((), (), latencies=(Latency("a", "exit", "idle", (figure,)),)))


def test_notices_that_never_came_are_reported() -> None:
    report = CompareReport((), (ONE,), storms=(Storm("exitd-runc", 3, ((1.0, 2.0),)),))
    assert "Fewer than 3 notices came with one (2)." in words(tree(report))


def test_a_verdict_stands_in_the_grid_as_sign_word_and_colour() -> None:
    root = tree(
        CompareReport((), (ONE,), faults=(Fault("exitd-runc", "shim", "kill", "exit 43", "exit 137", "wrong"),))
    )
    cells = [each for each in root.iter("td") if each.get("class") == "wrong"]
    assert [words(each).split() for each in cells] == [["\N{MULTIPLICATION X}", "wrong", "reported", "exit", "137"]]
    assert cells[0][0].get("title") == "the truth: exit 43"


def test_the_drawings_of_a_big_report_are_no_bigger_than_those_of_a_small_one() -> None:
    big = page(made_up(rounds=8))
    assert len(big.encode()) < 1_250_000  # of which half a million are the data

    def drawn(text: str) -> int:
        return len(text.partition("<script")[0])

    assert drawn(big) < 1.1 * drawn(page(made_up(rounds=5)))


def test_the_finding_comes_first_then_speed_then_memory() -> None:
    sections = [each.get("id") for each in whole().iter("section")]
    assert sections == [
        *("finding", "faults", "restart", "latency", "storms", "memory", "conditions", "ways", "designs"),
    ]
    assert words(next(whole().iter("h1"))) == "How containers end: who reports it truly, and at what cost"
    finding = words(next(each for each in whole().iter("section") if each.get("id") == "finding"))
    assert "Every exit was reported right, or honestly unknown, by exitd + runc" in finding
    assert "exit 137 for exit 43 (shim killed)" in finding


def test_a_page_of_a_busy_machine_begins_with_a_warning_and_calls_nothing_idle() -> None:
    root = tree(replace(WHOLE, rest=(0.4,)))
    (warned,) = (each for each in root.iter("p") if each.get("class") == "warning")
    assert "others used up to 60 % of all processors" in words(warned)
    body = words(next(root.iter("body"))).replace(words(warned), "").partition('"version"')[0]
    assert "idle machine" not in body and "unloaded" in body
    assert not [each for each in whole().iter("p") if each.get("class") == "warning"]


def test_it_prints_on_a4() -> None:
    assert "@page { size: A4; margin: 14mm }" in whole_text()
