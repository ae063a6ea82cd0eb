"""The fault matrix: who was killed or stopped just when a container ended, and what each way then said."""

from collections import Counter
from collections.abc import Sequence

from supervisor.compare.facts import Fault, Report
from supervisor.compare.html import pieces
from supervisor.compare.html.shares import SIGNS
from supervisor.compare.html.tags import Markup, tag
from supervisor.compare.summary import VERDICTS, cell, columns
from supervisor.compare.words import number

_ACTS = {"kill": "killed", "stop": "stopped"}
_MOST_TOLD = 3  # different words in a cell; all are in the table below


def section(report: Report, ways: pieces.Ways) -> Markup:
    title = "Somebody is killed or stopped when a container ends"
    if not report.faults:
        return pieces.section("faults", title, pieces.soft("No fault was tried."))
    taking = [way for way in ways.names if any(fault.way == way for fault in report.faults)]
    head = tag("tr", tag("th", "at the exit", scope="col"), *(_head(ways, way) for way in taking))
    rows = (_row(report, victim, act, taking) for victim, act in columns(report.faults))
    caption = tag(
        "caption", "What each way says of the exit, against the truth. A dash: not tried, or no such process."
    )
    grid = tag("table", caption, tag("thead", head), tag("tbody", *rows), class_="plot grid")
    return pieces.section(
        "faults", title, tag("p", _told(report, ways, taking)), tag("div", grid, class_="wide"), _table(report, ways)
    )


def _head(ways: pieces.Ways, way: str) -> Markup:
    return tag("th", ways.names[way], scope="col")


def _told(report: Report, ways: pieces.Ways, taking: Sequence[str]) -> str:
    counts = Counter(fault.verdict for fault in report.faults)
    said = ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in (*VERDICTS, *sorted(set(counts) - set(VERDICTS))))
    bad = {way: sum(f.way == way and f.verdict in ("wrong", "lost") for f in report.faults) for way in taking}
    all_of = {way: sum(fault.way == way for fault in report.faults) for way in taking}
    parts = ", ".join(f"{ways.names[way]} {bad[way]:,} of {all_of[way]:,}" for way in taking)
    return f"Of {len(report.faults):,} exits: {said}. Wrong or lost by way: {parts}."


def _row(report: Report, victim: str, act: str, taking: Sequence[str]) -> Markup:
    mine = [fault for fault in report.faults if (fault.victim, fault.act) == (victim, act)]
    head = tag("th", f"{victim} {_ACTS.get(act, act)}", scope="row")
    return tag("tr", head, *(_cell([fault for fault in mine if fault.way == way]) for way in taking))


def _cell(faults: Sequence[Fault]) -> Markup:
    if not faults:
        return tag("td", "\N{EN DASH}", class_="none")
    found = cell(faults)
    return tag("td", *(_verdict(verdict, those) for verdict, those in found.items()), class_=_known(list(found)[-1]))


def _known(verdict: str) -> str | None:
    return verdict if verdict in SIGNS else None


def _verdict(verdict: str, those: Sequence[Fault]) -> Markup:
    sign = SIGNS.get(verdict, ("!", ""))[0]
    count = f"{number(len(those))} " if len(those) > 1 else ""
    told = list(dict.fromkeys(f"{fault.told}" for fault in those))
    more = f" and {len(told) - _MOST_TOLD} more" if len(told) > _MOST_TOLD else ""
    said = f"told {', '.join(told[:_MOST_TOLD])}{more}" if any(told) else "told nothing"
    truths = ", ".join(dict.fromkeys(fault.truth for fault in those))
    head = tag("b", tag("span", sign, class_="sign", aria_hidden="true"), f"{count}{verdict}")
    return tag("div", head, said, class_=_known(verdict), title=f"the truth: {truths}")


def _table(report: Report, ways: pieces.Ways) -> Markup:
    order = list(ways.names)
    rows = (
        (
            ways.names[fault.way],
            f"{fault.victim} {_ACTS.get(fault.act, fault.act)}",
            fault.truth,
            fault.told,
            fault.verdict,
        )
        for fault in sorted(report.faults, key=lambda fault: order.index(fault.way))
    )
    return pieces.data("every fault", ("way", "fault", "truth", "told", "verdict"), rows, words=5)
