"""The report for a terminal: eighty columns at most, one block for each thing measured."""

from collections.abc import Iterable, Sequence

from supervisor.compare.facts import CompareReport
from supervisor.compare.finding import findings
from supervisor.compare.summary import VERDICTS, Band, band, checked, columns, curve, fates, honest, names, warning
from supervisor.compare.words import Unit, aligned, clean, kilobytes, milliseconds, number, short

COLUMNS = 80
WAY = 20  # of these, for the name of a way
_NONE = "-"


def table(report: CompareReport) -> str:
    """Return the report as text. What was not measured has no block. Raises BadReport when a figure is none."""
    report = honest(checked(report))
    named = {key: short(clean(name), WAY) for key, name in names(report).items()}
    blocks = (
        [_fit(warning(report))] if warning(report) else [],
        _truth(report, named),
        _faults(report, named),
        _restarts(report, named),
        _latency(report, named),
        _storms(report, named),
        _memory(report, named),
        [_fit(f"{clean(name)}: {clean(value)}") for name, value in report.conditions],
        [
            _fit(f"not measured: {clean(way.name or way.key)}: {clean(way.why_not)}")
            for way in report.ways
            if way.why_not
        ],
    )
    return "\n\n".join("\n".join(block) for block in blocks if block) or "nothing was measured"


def _fit(line: str) -> str:
    return short(line.rstrip(), COLUMNS)


def _block(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], words: int) -> list[str]:
    """None without rows. The first `words` columns are words, the others figures."""
    found = list(rows)
    return [_fit(title), *map(_fit, aligned([head, *found], words))] if found else []


def _span(found: Band | None, unit: Unit) -> tuple[str, str, str]:
    """Median, the band, how many."""
    if found is None:
        return _NONE, _NONE, "0"
    return unit(found.median), f"{unit(found.p5)} - {unit(found.p95)}" if found.is_wide else _NONE, f"{found.n:,}"


def _truth(report: CompareReport, named: dict[str, str]) -> list[str]:
    rows = (
        (named[each.way], f"{each.tried:,}", *(f"{each.counts[verdict]:,}" for verdict in VERDICTS))
        for each in findings(report)
    )
    return _block("Who was right about how containers ended", ("way", "exits", *VERDICTS), rows, 1)


def _memory(report: CompareReport, named: dict[str, str]) -> list[str]:
    rows = (
        (
            named[row.way],
            number(row.members),
            number(row.processes),
            *(kilobytes(found.median) if (found := band(values)) else _NONE for values in (row.private_kb, row.pss_kb)),
            kilobytes(row.daemon_kb),
            _NONE if row.kernel_kb is None else kilobytes(row.kernel_kb),
            number(len(row.private_kb)),
        )
        for row in report.memory
    )
    head = ("way", "members", "procs", "private", "PSS", "daemon", "kernel", "n")
    return _block("What stays with a pod (medians)", head, rows, 1)


def _latency(report: CompareReport, named: dict[str, str]) -> list[str]:
    rows = (
        (named[row.way], short(clean(row.what), 8), short(clean(row.load), 8), *_span(band(row.ms), milliseconds))
        for row in report.latencies
    )
    return _block("Start and exit", ("way", "what", "load", "median", "p5 - p95", "n"), rows, 3)


def _storms(report: CompareReport, named: dict[str, str]) -> list[str]:
    rows = []
    for key in dict.fromkeys((storm.way, storm.count) for storm in report.storms):
        found = curve(storm for storm in report.storms if (storm.way, storm.count) == key)
        points = found.points if found else ()
        first, last = (_span(points[at] if points else None, milliseconds) for at in (0, -1))
        rows.append(
            (
                named[key[0]],
                f"{key[1]:,}",
                f"{len(points):,}",
                first[0],
                *last[:2],
                number(found.rounds if found else 0),
            )
        )
    head = ("way", "at once", "known", "first", "last", "p5 - p95", "n")
    return _block("Exit storms", head, rows, 1)


def _restarts(report: CompareReport, named: dict[str, str]) -> list[str]:
    rows = []
    for key in dict.fromkeys((row.way, row.live) for row in report.restarts):
        found = [row for row in report.restarts if (row.way, row.live) == key]
        counts = fates(found)
        median, _, count = _span(band(value for row in found for value in row.ms), milliseconds)
        ended = f"{sum(row.ended for row in found):,}"
        rows.append(
            (named[key[0]], f"{key[1]:,}", median, count, ended, *(f"{counts[verdict]:,}" for verdict in VERDICTS))
        )
    return _block("The daemon is killed", ("way", "live", "waits", "n", "ended", *VERDICTS), rows, 1)


def _faults(report: CompareReport, named: dict[str, str]) -> list[str]:
    """One line for each fault, one count for each verdict: how many of each, way by way."""
    rows = []
    for victim, act in columns(report.faults):
        for way in named:
            mine = [fault for fault in report.faults if (fault.victim, fault.act, fault.way) == (victim, act, way)]
            if mine:
                reported = ", ".join(dict.fromkeys(clean(fault.told) for fault in mine))
                verdicts = ", ".join(dict.fromkeys(short(clean(fault.verdict), 9) for fault in mine))
                rows.append((short(clean(f"{victim} {act}"), 18), named[way], verdicts, reported))
    return _block("A process dies at the exit", ("fault", "way", "verdict", "reported"), rows, 4)
