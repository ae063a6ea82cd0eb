"""What stays with a pod while it runs, as its members grow in number: processes and memory."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from supervisor.compare.facts import Memory, Report
from supervisor.compare.html import pieces
from supervisor.compare.html.axes import Drawing
from supervisor.compare.html.lines import HEIGHT, Line, Words, lines
from supervisor.compare.html.tags import Markup
from supervisor.compare.html.text import against, pair, samples, sentence, turn
from supervisor.compare.summary import Band, band
from supervisor.compare.words import Unit, kilobytes, number, several

Values = Callable[[Memory], Iterable[float]]


def _processes(row: Memory) -> tuple[float, ...]:
    return (row.processes,)


def _private(row: Memory) -> tuple[float, ...]:
    return row.private_kb


def _pss(row: Memory) -> tuple[float, ...]:
    return row.pss_kb


def _grown(row: Memory) -> tuple[float, ...]:
    return tuple(value + row.daemon_kb for value in row.private_kb)


def _kernel(row: Memory) -> tuple[float, ...]:
    return () if row.kernel_kb is None else (row.kernel_kb,)


def _all(row: Memory) -> tuple[float, ...]:
    """Only where all parts of it are known."""
    kernel_kb = row.kernel_kb
    return () if kernel_kb is None else tuple(value + kernel_kb for value in _grown(row))


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot: what it shows of a row, and how its sentence begins."""

    key: str
    title: str
    note: str
    subject: str
    values: Values
    unit: Unit


_WITH_DAEMONS = Panel(
    "daemon",
    "Private memory, the daemons' growth included",
    "per pod, with what daemons have grown by",
    "private memory with the daemons' growth",
    _grown,
    kilobytes,
)
_PANELS = (
    Panel("processes", "Processes beside the containers' own", "per pod", "processes", _processes, number),
    Panel("private", "Private memory of the monitors", "per pod", "private memory", _private, kilobytes),
    Panel("pss", "PSS of the monitors", "per pod, shared pages by their share", "PSS", _pss, kilobytes),
    _WITH_DAEMONS,
    Panel("kernel", "Kernel memory of the monitors", "per pod, by their cgroup", "kernel memory", _kernel, kilobytes),
    Panel("all", "All together", "per pod: private, daemons' growth, kernel", "all together", _all, kilobytes),
)


def section(report: Report, ways: pieces.Ways) -> Markup:
    title = "Processes and memory per pod"
    if not report.memory:
        return pieces.section("memory", title, pieces.soft("No memory was measured."))
    shown = [(panel, found) for panel in _PANELS if (found := _by_way(report, panel.values))]
    figures = (pieces.figure(f"memory-{panel.key}", _drawing(report, ways, panel, found)) for panel, found in shown)
    missing = [ways.names[row.way] for row in report.memory if row.kernel_kb is None]
    kernel = (
        [pieces.soft(f"No cgroup tells the kernel memory of: {', '.join(dict.fromkeys(missing))}.")] if missing else []
    )
    tables = (_table(ways, panel, found) for panel, found in shown)
    return pieces.section("memory", title, pieces.pair(*figures), *kernel, *tables)


def main(report: Report, ways: pieces.Ways, height: float) -> Drawing | None:
    """The one plot of this section for a picture."""
    found = _by_way(report, _WITH_DAEMONS.values)
    return _drawing(report, ways, _WITH_DAEMONS, found, height) if found else None


def _by_way(report: Report, values: Values) -> dict[str, dict[int, Band]]:
    """By way and number of members; nothing where there is no sample."""
    samples: dict[str, dict[int, list[float]]] = {}
    for row in report.memory:
        samples.setdefault(row.way, {}).setdefault(row.members, []).extend(values(row))
    bands = {
        way: {members: summed for members in sorted(rows) if (summed := band(rows[members]))}
        for way, rows in samples.items()
    }
    return {way: rows for way, rows in bands.items() if rows}


def _drawing(
    report: Report, ways: pieces.Ways, panel: Panel, found: dict[str, dict[int, Band]], height: float = HEIGHT
) -> Drawing:
    most = max(members for rows in found.values() for members in rows)
    at_most = {way: rows[most].median for way, rows in found.items() if most in rows}
    told = "; ".join(each for each in (against(report, at_most, panel.unit), _turn(report, found, at_most)) if each)
    count = samples((each.n for rows in found.values() for each in rows.values()), "a point")
    said = sentence(f"{panel.subject}, at {several(most, 'member')}: {told} ({count})")
    drawn = [Line(ways.names[way], ways.looks[way], tuple(found[way].items())) for way in ways.names if way in found]
    words = Words(panel.title, panel.note, "members of the pod, beside its pause container", said)
    return lines(words, panel.unit, drawn, height=height)


def _turn(report: Report, found: dict[str, dict[int, Band]], medians: dict[str, float]) -> str:
    """Of the two designs."""
    two = pair(report, medians)
    if two is None:
        return ""
    first, second = ({members: each.median for members, each in found[way].items()} for way in two)
    return turn(first, second)


def _table(ways: pieces.Ways, panel: Panel, found: dict[str, dict[int, Band]]) -> Markup:
    rows = (
        (ways.names[way], f"{members:,}", *pieces.banded(each, panel.unit))
        for way in ways.names
        for members, each in found.get(way, {}).items()
    )
    return pieces.data(panel.title, ("way", "members", *pieces.BANDED), rows)
