"""How long starts and exits take, idle and under load: every sample."""

from supervisor.compare.facts import Report
from supervisor.compare.html import pieces
from supervisor.compare.html.axes import Drawing
from supervisor.compare.html.strips import Row, strips
from supervisor.compare.html.tags import Markup
from supervisor.compare.html.text import against, samples, sentence
from supervisor.compare.summary import Band, band
from supervisor.compare.words import milliseconds

_TITLES = {"start": "Asked to start until it runs", "exit": "Init killed until the waiting client knows"}
_LOADS = {"idle": "on an idle machine", "busy": "with every processor busy"}


def section(report: Report, ways: pieces.Ways) -> Markup:
    title = "Start and exit"
    drawings = [(what, found) for what in _whats(report) if (found := drawing(report, ways, what))]
    if not drawings:
        return pieces.section("latency", title, pieces.soft("No start and no exit was timed."))
    figures = (pieces.figure(f"latency-{at}", found) for at, (_, found) in enumerate(drawings))
    tables = (_table(report, ways, what) for what, _ in drawings)
    return pieces.section("latency", title, pieces.pair(*figures), *tables)


def drawing(report: Report, ways: pieces.Ways, what: str) -> Drawing | None:
    """None when nothing of the kind was measured."""
    found = _by_way(report, what)
    if not found:
        return None
    rows = [
        Row(ways.names[way], load, ways.looks[way], found[way, load])
        for way in ways.names
        for load in _loads(report)
        if (way, load) in found
    ]
    told = " ".join(_told(report, found, load) for load in _loads(report))
    count = samples(map(len, found.values()), "a row")
    said = f"{told} {sentence(count)}"
    return strips(_title(what), "time", said, milliseconds, rows)


def _told(report: Report, found: dict[tuple[str, str], tuple[float, ...]], load: str) -> str:
    medians = {way: summed.median for (way, at), values in found.items() if at == load and (summed := band(values))}
    if not medians:
        return ""
    return sentence(f"{_LOADS.get(load, load)} the median is {against(report, medians, milliseconds)}")


def _by_way(report: Report, what: str) -> dict[tuple[str, str], tuple[float, ...]]:
    found: dict[tuple[str, str], tuple[float, ...]] = {}
    for row in report.latencies:
        if row.what == what and row.ms:
            found[row.way, row.load] = (*found.get((row.way, row.load), ()), *row.ms)
    return found


def _whats(report: Report) -> tuple[str, ...]:
    """Starts before exits, and what else there is."""
    return tuple(dict.fromkeys(sorted((row.what for row in report.latencies), key=lambda what: what != "start")))


def _loads(report: Report) -> tuple[str, ...]:
    return tuple(dict.fromkeys(sorted((row.load for row in report.latencies), key=lambda load: load != "idle")))


def _title(what: str) -> str:
    return _TITLES.get(what, what)


def _table(report: Report, ways: pieces.Ways, what: str) -> Markup:
    found = _by_way(report, what)
    summed: dict[tuple[str, str], Band] = {key: each for key, values in found.items() if (each := band(values))}
    rows = (
        (ways.names[way], load, *pieces.banded(summed[way, load], milliseconds))
        for way in ways.names
        for load in _loads(report)
        if (way, load) in summed
    )
    return pieces.data(_title(what), ("way", "load", *pieces.BANDED), rows, words=2)
