"""The daemon killed among live containers: until every wait works again, and what became of exits meanwhile."""

from supervisor.compare.facts import Report, Restart
from supervisor.compare.html import pieces
from supervisor.compare.html.axes import Drawing
from supervisor.compare.html.shares import Bar, shares
from supervisor.compare.html.strips import Row, strips
from supervisor.compare.html.tags import Markup
from supervisor.compare.html.text import against, samples, sentence
from supervisor.compare.summary import VERDICTS, band, fates
from supervisor.compare.words import milliseconds, several

Groups = dict[tuple[str, int], list[Restart]]  # by way and live containers


def section(report: Report, ways: pieces.Ways) -> Markup:
    title = "The daemon is killed and comes back"
    groups = _groups(report, ways)
    if not groups:
        return pieces.section("restart", title, pieces.soft("No restart was measured."))
    times, told = _times(report, ways, groups), _told(ways, groups)
    return pieces.section(
        "restart",
        title,
        pieces.pair(pieces.figure("restart-ms", times), pieces.figure("restart-told", told)),
        _table(ways, groups),
    )


def _groups(report: Report, ways: pieces.Ways) -> Groups:
    found: Groups = {}
    for row in sorted(report.restarts, key=lambda row: (list(ways.names).index(row.way), row.live)):
        found.setdefault((row.way, row.live), []).append(row)
    return found


def _ms(rows: list[Restart]) -> tuple[float, ...]:
    return tuple(value for row in rows for value in row.ms)


def _times(report: Report, ways: pieces.Ways, groups: Groups) -> Drawing:
    most = max(live for _, live in groups)
    medians = {
        way: summed.median for (way, live), rows in groups.items() if live == most and (summed := band(_ms(rows)))
    }
    said = sentence(f"with {most:,} live every wait works again after {against(report, medians, milliseconds)}")
    count = samples((len(_ms(rows)) for rows in groups.values()), "a row")
    drawn = [Row(ways.names[way], f"{live:,} live", ways.looks[way], _ms(rows)) for (way, live), rows in groups.items()]
    told = f"{said} Timed from the daemon's start; {count}."
    return strips("Until every wait is rebuilt", "time", told, milliseconds, drawn)


def _told(ways: pieces.Ways, groups: Groups) -> Drawing:
    whole = fates(row for rows in groups.values() for row in rows)
    ended = sum(row.ended for rows in groups.values() for row in rows)
    parts = ", ".join(f"{whole[verdict]:,} {verdict}" for verdict in VERDICTS)
    bad: dict[str, int] = {}
    for (way, _), rows in groups.items():
        bad[way] = bad.get(way, 0) + sum(fates(rows)[verdict] for verdict in ("wrong", "lost"))
    names = [f"{ways.names[way]} ({count:,})" for way, count in bad.items() if count]
    where = f" Wrong or lost with {', '.join(names)}." if names else " None is wrong or lost."
    said = f"Of {several(ended, 'exit')} while the daemon was away: {parts}.{where if ended else ''}"
    bars = [
        Bar(ways.names[way], f"{live:,} live", ways.looks[way], fates(rows)) for (way, live), rows in groups.items()
    ]
    return shares("Exits while the daemon is away", "what it says of them afterwards, all rounds", said, bars)


def _table(ways: pieces.Ways, groups: Groups) -> Markup:
    rows = []
    for (way, live), found in groups.items():
        summed, told = band(_ms(found)), fates(found)
        figures = pieces.banded(summed, milliseconds) if summed else ("0", "", "", "")
        ended = f"{sum(row.ended for row in found):,}"
        rows.append((ways.names[way], f"{live:,}", *figures, ended, *(f"{told[verdict]:,}" for verdict in VERDICTS)))
    return pieces.data("restarts", ("way", "live", *pieces.BANDED, "ended", *VERDICTS), rows)
