"""Many inits killed at once: how long until the first, the second ... the last exit is known."""

from supervisor.compare.facts import Report
from supervisor.compare.html import pieces
from supervisor.compare.html.axes import Drawing
from supervisor.compare.html.lines import Line, Words, lines
from supervisor.compare.html.tags import Markup
from supervisor.compare.html.text import against, listed, samples, sentence
from supervisor.compare.summary import Curve, curve
from supervisor.compare.words import milliseconds


def section(report: Report, ways: pieces.Ways) -> Markup:
    title = "Exit storms"
    found = {count: curves for count in _counts(report) if (curves := _by_way(report, count))}
    if not found:
        return pieces.section("storms", title, pieces.soft("No storm was measured."))
    figures = (pieces.figure(f"storm-{at}", _drawing(report, ways, *each)) for at, each in enumerate(found.items()))
    tables = (_table(ways, count, curves) for count, curves in found.items())
    return pieces.section("storms", title, pieces.pair(*figures), *tables)


def _counts(report: Report) -> list[int]:
    return sorted({storm.count for storm in report.storms})


def _by_way(report: Report, count: int) -> dict[str, Curve]:
    """Of storms of that size."""
    storms = [storm for storm in report.storms if storm.count == count]
    curves = (curve(storm for storm in storms if storm.way == way) for way in dict.fromkeys(s.way for s in storms))
    return {each.way: each for each in curves if each}


def _drawing(report: Report, ways: pieces.Ways, count: int, curves: dict[str, Curve]) -> Drawing:
    whole = {way: each for way, each in curves.items() if len(each.points) >= count}
    told = f"the last of {count:,} exits is known after {against(report, _last(whole), milliseconds)}" if whole else ""
    short = [f"{ways.names[way]} ({len(each.points):,})" for way, each in curves.items() if way not in whole]
    fewer = f"fewer than {count:,} notices came with {listed(short)}" if short else ""
    rounds = samples((each.rounds for each in curves.values()), "a line").replace("sample", "round")
    said = " ".join(sentence(each) for each in (told, fewer) if each)
    drawn = [
        Line(ways.names[way], ways.looks[way], tuple(enumerate(curves[way].points, 1)))
        for way in ways.names
        if way in curves
    ]
    words = Words(
        f"{count:,} exits at once",
        "time since the kill",
        "exits known to the client",
        f"{said} Medians of {rounds}.",
    )
    return lines(words, milliseconds, drawn, even=True)


def _last(curves: dict[str, Curve]) -> dict[str, float]:
    return {way: each.points[-1].median for way, each in curves.items()}


def _table(ways: pieces.Ways, count: int, curves: dict[str, Curve]) -> Markup:
    """First, middle and last notice; every single one is in the data."""
    rows = (
        (ways.names[way], f"{at:,}", *pieces.banded(curves[way].points[at - 1], milliseconds))
        for way in ways.names
        if way in curves
        for at in sorted({1, (len(curves[way].points) + 1) // 2, len(curves[way].points)})
    )
    return pieces.data(f"{count:,} exits at once", ("way", "notice", *pieces.BANDED), rows)
