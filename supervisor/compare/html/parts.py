"""What is shown of a report: for each thing measured its plots, a sentence on each, and its figures as tables."""

from collections.abc import Callable, Iterable, Mapping

from shim.frozen import frozen
from supervisor.compare.facts import CompareReport, Memory, Restart
from supervisor.compare.html.plots import Drawing, PlotLine, Row, lines, shares, strips
from supervisor.compare.html.text import against, listed, pair, samples, sentence, turn
from supervisor.compare.looks import looks
from supervisor.compare.summary import VERDICTS, Band, band, curve, fates, keys, names
from supervisor.compare.words import Unit, kilobytes, milliseconds, number, several

BANDED = ("n", "p5", "median", "p95")
_TITLES = {"start": "Asked to start until it runs", "exit": "Init killed until the waiting client knows"}
_LOADS = {
    "idle": "on an idle machine",
    "unloaded": "without any load of the comparison's own",
    "busy": "with every processor busy",
}
_ALONG = "members of the pod, beside its pause container"


@frozen
class Table:
    """Its first `words` columns are words, the others figures."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1


@frozen
class Part:
    """`drawings`: by their ids. `remark`: a sentence after them, or instead of them."""

    key: str
    title: str
    drawings: Mapping[str, Drawing]
    tables: tuple[Table, ...]
    remark: str = ""


@frozen
class Panel:
    """One plot of memory: what it shows of a row, and how its sentence begins."""

    title: str
    note: str
    subject: str
    unit: Unit
    values: Callable[[Memory], Iterable[float]]


def _grown(row: Memory) -> tuple[float, ...]:
    return tuple(value + row.daemon_kb for value in row.private_kb)


def _kernel(row: Memory) -> tuple[float, ...]:
    return () if row.kernel_kb is None else (row.kernel_kb,)


def _all(row: Memory) -> tuple[float, ...]:
    """Only where all parts of it are known."""
    return tuple(value + kernel_kb for value in _grown(row) for kernel_kb in _kernel(row))


PANELS = {
    "processes": Panel(
        "Processes beside the containers' own", "per pod", "processes", number, lambda row: (row.processes,)
    ),
    "private": Panel(
        "Private memory of the monitors", "per pod", "private memory", kilobytes, lambda row: row.private_kb
    ),
    "pss": Panel(
        "PSS of the monitors", "per pod, shared pages by their share", "PSS", kilobytes, lambda row: row.pss_kb
    ),
    "daemon": Panel(
        "Private memory, the daemons' growth included",
        "per pod, with what daemons have grown by",
        "private memory with the daemons' growth",
        kilobytes,
        _grown,
    ),
    "kernel": Panel("Kernel memory of the monitors", "per pod, by their cgroup", "kernel memory", kilobytes, _kernel),
    "all": Panel("All together", "per pod: private, daemons' growth, kernel", "all together", kilobytes, _all),
}


def parts(report: CompareReport) -> tuple[Part, ...]:
    """What was told first, then speed, then memory."""
    return restarts(report), latency(report), storms(report), memory(report)


def main(report: CompareReport) -> tuple[Drawing, ...]:
    """Return the plots of the picture: memory as a pod grows, and how soon an exit is known, as far as they were
    measured."""
    found = (memory(report).drawings.get("memory-daemon"), _latency(report, "exit"))
    return tuple(each for each in found if each)


def memory(report: CompareReport) -> Part:
    """What stays with a pod while it runs, as its members grow in number."""
    shown = {key: found for key, panel in PANELS.items() if (found := _by_members(report, panel))}
    missing = dict.fromkeys(names(report)[row.way] for row in report.memory if row.kernel_kb is None)
    remark = f"No cgroup tells the kernel memory of: {', '.join(missing)}." if missing else ""
    return Part(
        "memory",
        "Processes and memory per pod",
        {f"memory-{key}": _grows(report, PANELS[key], found) for key, found in shown.items()},
        tuple(_members(report, PANELS[key], found) for key, found in shown.items()),
        remark if report.memory else "No memory was measured.",
    )


def _by_members(report: CompareReport, panel: Panel) -> dict[str, dict[int, Band]]:
    """By way and number of members; nothing where there is no sample."""
    found: dict[str, dict[int, list[float]]] = {}
    for row in sorted(report.memory, key=lambda row: (keys(report).index(row.way), row.members)):
        if values := tuple(panel.values(row)):
            found.setdefault(row.way, {}).setdefault(row.members, []).extend(values)
    return {way: {at: each for at in rows if (each := band(rows[at]))} for way, rows in found.items()}


def _grows(report: CompareReport, panel: Panel, found: dict[str, dict[int, Band]]) -> Drawing:
    most = max(members for rows in found.values() for members in rows)
    at_most = {way: rows[most].median for way, rows in found.items() if most in rows}
    phrases = [against(report, at_most, panel.unit)]
    if two := pair(report, at_most):
        first, second = ({members: each.median for members, each in found[way].items()} for way in two)
        phrases += [said] if (said := turn(first, second)) else []
    count = samples((each.n for rows in found.values() for each in rows.values()), "a point")
    said = sentence(f"{panel.subject}, at {several(most, 'member')}: {'; '.join(phrases)} ({count})")
    drawn = [PlotLine(names(report)[way], looks(keys(report))[way], tuple(rows.items())) for way, rows in found.items()]
    return lines(panel.title, panel.note, _ALONG, said, panel.unit, drawn)


def _members(report: CompareReport, panel: Panel, found: dict[str, dict[int, Band]]) -> Table:
    rows = (
        (names(report)[way], f"{members:,}", *_banded(each, panel.unit))
        for way, bands in found.items()
        for members, each in bands.items()
    )
    return Table(panel.title, ("way", "members", *BANDED), tuple(rows))


def latency(report: CompareReport) -> Part:
    """How long starts and exits take, idle and under load. Starts before exits, and before what else there is."""
    whats = dict.fromkeys(sorted((row.what for row in report.latencies), key=lambda what: what != "start"))
    found = {what: drawing for what in whats if (drawing := _latency(report, what))}
    return Part(
        "latency",
        "Start and exit",
        {f"latency-{at}": drawing for at, drawing in enumerate(found.values())},
        tuple(_loaded(report, what) for what in found),
        "" if found else "No start and no exit was timed.",
    )


def _timed(report: CompareReport, what: str) -> dict[tuple[str, str], tuple[float, ...]]:
    """By way and load, idle before busy."""
    found: dict[tuple[str, str], tuple[float, ...]] = {}
    loads = sorted(dict.fromkeys(row.load for row in report.latencies), key=lambda load: load != "idle")
    for row in sorted(report.latencies, key=lambda row: (keys(report).index(row.way), loads.index(row.load))):
        if row.what == what and row.ms:
            found[row.way, row.load] = (*found.get((row.way, row.load), ()), *row.ms)
    return found


def _latency(report: CompareReport, what: str) -> Drawing | None:
    """None when nothing of the kind was measured."""
    found = _timed(report, what)
    phrases = []
    for load in sorted(dict.fromkeys(load for _, load in found), key=lambda load: load != "idle"):
        medians = {way: each.median for (way, at), ms in found.items() if at == load and (each := band(ms))}
        phrases.append(sentence(f"{_LOADS.get(load, load)} the median is {against(report, medians, milliseconds)}"))
    phrases.append(sentence(samples(map(len, found.values()), "a row")))
    rows = [Row(names(report)[way], load, looks(keys(report))[way], ms) for (way, load), ms in found.items()]
    return strips(_TITLES.get(what, what), "time", " ".join(phrases), milliseconds, rows) if rows else None


def _loaded(report: CompareReport, what: str) -> Table:
    rows = (
        (names(report)[way], load, *_banded(band(ms), milliseconds)) for (way, load), ms in _timed(report, what).items()
    )
    return Table(_TITLES.get(what, what), ("way", "load", *BANDED), tuple(rows), words=2)


def storms(report: CompareReport) -> Part:
    """Many inits killed at once: how long until the first, the second ... the last exit is known."""
    counts = sorted({storm.count for storm in report.storms})
    found = {count: curves for count in counts if (curves := _curves(report, count))}
    return Part(
        "storms",
        "Exit storms",
        {f"storm-{at}": _storm(report, *each) for at, each in enumerate(found.items())},
        tuple(_notices(report, *each) for each in found.items()),
        "" if found else "No storm was measured.",
    )


def _curves(report: CompareReport, count: int) -> dict[str, tuple[Band, ...]]:
    """Of storms of that size, by way."""
    mine = {way: [each for each in report.storms if (each.way, each.count) == (way, count)] for way in keys(report)}
    return {way: found.points for way, each in mine.items() if (found := curve(each))}


def _storm(report: CompareReport, count: int, curves: dict[str, tuple[Band, ...]]) -> Drawing:
    named = names(report)
    last = {way: points[-1].median for way, points in curves.items() if len(points) >= count}
    short = [f"{named[way]} ({len(points):,})" for way, points in curves.items() if way not in last]
    phrases = [f"the last of {count:,} exits is known after {against(report, last, milliseconds)}"] if last else []
    phrases += [f"fewer than {count:,} notices came with {listed(short)}"] if short else []
    rounds = samples((points[0].n for points in curves.values()), "a line").replace("sample", "round")
    said = " ".join(map(sentence, (*phrases, f"Medians of {rounds}")))
    drawn = [PlotLine(named[way], looks(keys(report))[way], tuple(enumerate(curves[way], 1))) for way in curves]
    title, along = f"{count:,} exits at once", "exits known to the client"
    return lines(title, "time since the kill", along, said, milliseconds, drawn, even=True)


def _notices(report: CompareReport, count: int, curves: dict[str, tuple[Band, ...]]) -> Table:
    """First, middle and last notice; every single one is in the data."""
    rows = (
        (names(report)[way], f"{at:,}", *_banded(points[at - 1], milliseconds))
        for way, points in curves.items()
        for at in sorted({1, (len(points) + 1) // 2, len(points)})
    )
    return Table(f"{count:,} exits at once", ("way", "notice", *BANDED), tuple(rows))


def restarts(report: CompareReport) -> Part:
    """The daemon killed among live containers: until every wait works again, and what became of exits meanwhile."""
    groups: dict[tuple[str, int], list[Restart]] = {}
    for row in sorted(report.restarts, key=lambda row: (keys(report).index(row.way), row.live)):
        groups.setdefault((row.way, row.live), []).append(row)
    title = "The daemon is killed and comes back"
    if not groups:
        return Part("restart", title, {}, (), "No restart was measured.")
    named, seen = names(report), looks(keys(report))
    rows = [
        Row(named[way], f"{live:,} live", seen[way], _ms(found), fates(found)) for (way, live), found in groups.items()
    ]
    note, phrases = "what it says of them afterwards, all rounds", _away(named, groups)
    drawings = {
        "restart-ms": strips("Until every wait is rebuilt", "time", _rebuilt(report, groups), milliseconds, rows),
        "restart-told": shares("Exits while the daemon is away", note, phrases, rows),
    }
    return Part("restart", title, drawings, (_ended(named, groups),))


def _ms(rows: Iterable[Restart]) -> tuple[float, ...]:
    return tuple(value for row in rows for value in row.ms)


def _rebuilt(report: CompareReport, groups: dict[tuple[str, int], list[Restart]]) -> str:
    most = max(live for _, live in groups)
    medians = {way: each.median for (way, live), rows in groups.items() if live == most and (each := band(_ms(rows)))}
    said = sentence(f"with {most:,} live every wait works again after {against(report, medians, milliseconds)}")
    return f"{said} Timed from the daemon's start; {samples((len(_ms(rows)) for rows in groups.values()), 'a row')}."


def _away(named: dict[str, str], groups: dict[tuple[str, int], list[Restart]]) -> str:
    whole = fates(row for rows in groups.values() for row in rows)
    ended = sum(row.ended for rows in groups.values() for row in rows)
    bad = dict.fromkeys((way for way, _ in groups), 0)
    for (way, _), rows in groups.items():
        bad[way] += sum(row.wrong + row.lost for row in rows)
    ill = [f"{named[way]} ({count:,})" for way, count in bad.items() if count]
    where = f" Wrong or lost with {', '.join(ill)}." if ill else " None is wrong or lost."
    parts = ", ".join(f"{whole[verdict]:,} {verdict}" for verdict in VERDICTS)
    return f"Of {several(ended, 'exit')} while the daemon was away: {parts}.{where if ended else ''}"


def _ended(named: dict[str, str], groups: dict[tuple[str, int], list[Restart]]) -> Table:
    rows = (
        (
            *(named[way], f"{live:,}", *_banded(band(_ms(found)), milliseconds)),
            *(f"{sum(row.ended for row in found):,}", *(f"{count:,}" for count in fates(found).values())),
        )
        for (way, live), found in groups.items()
    )
    return Table("restarts", ("way", "live", *BANDED, "ended", *VERDICTS), tuple(rows))


def _banded(found: Band | None, unit: Unit) -> tuple[str, ...]:
    """Of a few samples the median alone: a band would be made of the least and the most."""
    if found is None:
        return "0", "", "", ""
    p5, p95 = (unit(found.p5), unit(found.p95)) if found.is_wide else ("", "")
    return f"{found.n:,}", p5, unit(found.median), p95
