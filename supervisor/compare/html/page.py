"""The report as one HTML file: it asks for nothing outside itself, runs no script, and holds its own data."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.resources import files
from string import Template

from supervisor.compare.facts import CompareReport, Fault, Way, encode
from supervisor.compare.finding import MOST_WORDS, findings, headline
from supervisor.compare.html.parts import Part, Table, main, parts
from supervisor.compare.html.plots import SIGNS, mark, nothing, svg
from supervisor.compare.html.tags import Markup, join, tag
from supervisor.compare.looks import looks
from supervisor.compare.summary import VERDICTS, cell, checked, columns, honest, keys, names, warning
from supervisor.compare.words import number

_ACTS = {"kill": "killed", "stop": "stopped"}


def page(report: CompareReport) -> str:
    """Return the report as a page. Raises BadReport when a figure is none that can be drawn."""
    checked(report)
    # Whole and compact. No sign of it could end the element it stands in.
    data = json.dumps(json.loads(encode(report)), separators=(",", ":"))
    for sign in "<>&":
        data = data.replace(sign, f"\\u{ord(sign):04x}")
    report = honest(report)
    return Template(files(__package__).joinpath("page.html").read_text()).substitute(
        beginning=join(_warning(report), _finding(report), _faults(report)),
        sections=join(*map(_measured, parts(report)), _conditions(report), _taking_part(report)),
        data=data,
    )


def picture(report: CompareReport) -> str:
    """Return the main plots as one SVG file for a page elsewhere; what was not measured is left out. Raises BadReport
    as `page`."""
    return f"{svg('comparison', main(honest(checked(report))) or (nothing(),), alone=True)}\n"


def _warning(report: CompareReport) -> Markup:
    words = warning(report)
    return tag("p", words, class_="warning") if words else Markup("")


def _finding(report: CompareReport) -> Markup:
    """Who was right and who made what up, before anything about speed."""
    named = names(report)
    rows = (
        tag(
            "tr",
            tag("th", named[each.way], scope="row"),
            *(tag("td", f"{count:,}", class_="n") for count in (each.tried, *each.counts.values())),
            tag("td", _invented(each.invented)),
        )
        for each in findings(report)
    )
    head = ("way", "exits", *_verdict_words(), "what it invented")
    said = "Containers that ended while one who should see it was killed, stopped or away; the truth is the kernel's."
    shown = _grid(head, rows, said) if findings(report) else ""
    return _section("finding", "Who was right", tag("p", headline(report)), shown)


def _verdict_words() -> tuple[str, ...]:
    """Return the verdicts in words for readers."""
    return tuple("invented" if verdict == "wrong" else verdict for verdict in VERDICTS)


def _invented(words: Sequence[str]) -> str:
    more = f" and {len(words) - MOST_WORDS} more" if len(words) > MOST_WORDS else ""
    return f"{'; '.join(words[:MOST_WORDS])}{more}" if words else "\N{EN DASH}"


def _conditions(report: CompareReport) -> Markup:
    if not report.conditions:
        return _section("conditions", "One run", _soft("The report says nothing of the conditions of its run."))
    said = (tag("div", tag("dt", name), tag("dd", value)) for name, value in report.conditions)
    return _section("conditions", "One run", _soft("Of exitctl compare, under these conditions:"), tag("dl", *said))


def _taking_part(report: CompareReport) -> Markup:
    """Those that were measured with their marks, then those that were not, with the reason."""
    there = [way for way in report.ways if not way.why_not]
    rows = (
        tag("tr", tag("td", _mark(report, way, at), way.name or way.key), tag("td", way.design))
        for at, way in enumerate(there)
    )
    absent = [tag("li", f"{way.name or way.key}: {way.why_not}") for way in report.ways if way.why_not]
    return _section(
        "ways",
        "Who takes part",
        _grid(("way to run a pod", "design"), rows) if there else _soft("No way took part."),
        join(_soft("Not measured:"), tag("ul", *absent)) if absent else "",
    )


def _mark(report: CompareReport, way: Way, at: int) -> Markup:
    return Markup(mark(f"way-{at}", looks(keys(report))[way.key]))


def _measured(part: Part) -> Markup:
    figures = (
        tag("figure", tag("figcaption", tag("p", drawing.text)), Markup(svg(key, [drawing])))
        for key, drawing in part.drawings.items()
    )
    return _section(
        part.key,
        part.title,
        tag("div", *figures, class_="pair") if part.drawings else "",
        _soft(part.remark) if part.remark else "",
        *map(_table, part.tables),
    )


def _table(table: Table) -> Markup:
    """To unfold."""
    rows = (
        tag("tr", *(tag("td", words, class_="n" if at >= table.words else None) for at, words in enumerate(row)))
        for row in table.rows
    )
    return tag("details", tag("summary", "The figures: ", table.caption), _grid(table.head, rows, table.caption))


def _faults(report: CompareReport) -> Markup:
    """Who was killed or stopped just when a container ended, and what each way then said."""
    title = "A process is killed or stopped when a container ends"
    if not report.faults:
        return _section("faults", title, _soft("No fault was tried."))
    by_way = {way: mine for way in keys(report) if (mine := [fault for fault in report.faults if fault.way == way])}
    named = names(report)
    rows = (
        tag("tr", tag("th", _what(*column), scope="row"), *(_cell(mine, *column) for mine in by_way.values()))
        for column in columns(report.faults)
    )
    said = "What each way says of the exit, against the truth. A dash: not tried, or no such process."
    head = ("at the exit", *(named[way] for way in by_way))
    every = tuple(
        (named[way], _what(fault.victim, fault.act), fault.truth, fault.told, fault.verdict)
        for way, mine in by_way.items()
        for fault in mine
    )
    return _section(
        "faults",
        title,
        tag("p", _counted(report, by_way)),
        _grid(head, rows, said, class_="plot grid"),
        _table(Table("every fault", ("way", "fault", "truth", "reported", "verdict"), every, words=5)),
    )


def _counted(report: CompareReport, by_way: dict[str, list[Fault]]) -> str:
    counts = Counter(fault.verdict for fault in report.faults)
    said = ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in (*VERDICTS, *sorted(set(counts) - set(VERDICTS))))
    bad = {way: sum(fault.verdict in ("wrong", "lost") for fault in mine) for way, mine in by_way.items()}
    ways = ", ".join(f"{names(report)[way]} {bad[way]:,} of {len(mine):,}" for way, mine in by_way.items())
    return f"Of {len(report.faults):,} exits: {said}. Wrong or lost by way: {ways}."


def _what(victim: str, act: str) -> str:
    return f"{victim} {_ACTS.get(act, act)}"


def _cell(mine: Sequence[Fault], victim: str, act: str) -> Markup:
    found = cell(fault for fault in mine if (fault.victim, fault.act) == (victim, act))
    if not found:
        return tag("td", "\N{EN DASH}", class_="none")
    return tag("td", *(_verdict(verdict, those) for verdict, those in found.items()), class_=_known([*found][-1]))


def _known(verdict: str) -> str | None:
    return verdict if verdict in SIGNS else None


def _verdict(verdict: str, those: Sequence[Fault]) -> Markup:
    sign = SIGNS.get(verdict, ("!", ""))[0]
    count = f"{number(len(those))} " if len(those) > 1 else ""
    reported = list(dict.fromkeys(fault.told for fault in those))
    more = f" and {len(reported) - MOST_WORDS} more" if len(reported) > MOST_WORDS else ""
    said = f"reported {', '.join(reported[:MOST_WORDS])}{more}" if any(reported) else "reported nothing"
    truths = ", ".join(dict.fromkeys(fault.truth for fault in those))
    head = tag("b", tag("span", sign, class_="sign", aria_hidden="true"), f"{count}{verdict}")
    return tag("div", head, said, class_=_known(verdict), title=f"the truth: {truths}")


def _section(key: str, title: str, *children: str) -> Markup:
    return tag("section", tag("h2", title), *children, id=key)


def _grid(head: Sequence[str], rows: Iterable[Markup], caption: str = "", class_: str | None = None) -> Markup:
    """A table that scrolls where it is too wide."""
    said = tag("caption", caption) if caption else ""
    top = tag("thead", tag("tr", *(tag("th", each, scope="col") for each in head)))
    return tag("div", tag("table", said, top, tag("tbody", *rows), class_=class_), class_="wide")


def _soft(words: str) -> Markup:
    return tag("p", words, class_="soft")
