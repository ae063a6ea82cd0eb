"""The report as one HTML file: it asks for nothing outside itself, runs no script, and holds its own data."""

import json

from supervisor.compare.facts import Report, Way, encode
from supervisor.compare.html import designs, faults, latency, memory, pieces, restarts, storms
from supervisor.compare.html.marks import marker
from supervisor.compare.html.style import STYLE
from supervisor.compare.html.tags import Markup, join, tag
from supervisor.compare.summary import checked

TITLE = "Exit monitoring: two designs, measured"
# The browser itself holds the page to it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(report: Report) -> str:
    """BadReport when a figure is none that can be drawn."""
    ways = pieces.ways_of(checked(report))
    sections = (part(report, ways) for part in (memory.section, latency.section, storms.section, restarts.section))
    body = tag(
        "body",
        tag("h1", TITLE),
        _conditions(report),
        _taking_part(report, ways),
        designs.section(),
        *sections,
        faults.section(report, ways),
        _data(report),
    )
    return f"<!DOCTYPE html>\n{tag('html', _head(), body, lang='en')}\n"


def _head() -> Markup:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("title", TITLE),
        tag("style", Markup(STYLE)),
    )


def _conditions(report: Report) -> Markup:
    if not report.conditions:
        return pieces.soft("The report says nothing of the conditions of its run.")
    said = (tag("div", tag("dt", name), tag("dd", value)) for name, value in report.conditions)
    return join(pieces.soft("One run of exitctl compare, under these conditions:"), tag("dl", *said))


def _taking_part(report: Report, ways: pieces.Ways) -> Markup:
    """Those that were measured with their marks, then those that were not, with the reason."""
    there = [way for way in report.ways if not way.why_not]
    rows = (tag("tr", tag("td", _mark(way, ways), way.name or way.key), tag("td", way.design)) for way in there)
    head = tag("thead", tag("tr", tag("th", "way to run a pod", scope="col"), tag("th", "design", scope="col")))
    table = tag("div", tag("table", head, tag("tbody", *rows)), class_="wide")
    absent = [tag("li", f"{way.name or way.key}: {way.why_not}") for way in report.ways if way.why_not]
    return tag(
        "section",
        tag("h2", "Who takes part"),
        table if there else pieces.soft("No way took part."),
        join(pieces.soft("Not measured:"), tag("ul", *absent)) if absent else "",
        id="ways",
    )


def _mark(way: Way, ways: pieces.Ways) -> Markup:
    drawn = marker(ways.looks[way.key], (8, 8), 5.5)
    return tag("svg", drawn, class_="mark", viewBox="0 0 16 16", aria_hidden="true", xmlns="http://www.w3.org/2000/svg")


def _data(report: Report) -> Markup:
    """Whole and compact. No sign of it could end the element it stands in."""
    text = json.dumps(json.loads(encode(report)), separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return join(
        pieces.soft("All samples are in this file, as JSON, in the element with the id report."),
        tag("script", Markup(text), type="application/json", id="report"),
    )
