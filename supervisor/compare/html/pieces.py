"""What sections are made of: a figure with its sentence, a table of its figures to unfold."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from supervisor.compare.facts import Report
from supervisor.compare.html.axes import Drawing, svg
from supervisor.compare.html.tags import Markup, tag
from supervisor.compare.looks import Look, looks
from supervisor.compare.summary import Band, keys, names
from supervisor.compare.words import Unit

BANDED = ("n", "p5", "median", "p95")


@dataclass(frozen=True, slots=True)
class Ways:
    """The ways in the report's order, with their names and their looks."""

    names: dict[str, str]
    looks: dict[str, Look]


def ways_of(report: Report) -> Ways:
    return Ways(names(report), looks(keys(report)))


def figure(key: str, drawing: Drawing) -> Markup:
    return tag("figure", tag("figcaption", tag("p", drawing.told)), svg(key, drawing))


def pair(*figures: str) -> Markup:
    return tag("div", *figures, class_="pair")


def section(key: str, title: str, *children: str) -> Markup:
    return tag("section", tag("h2", title), *children, id=key)


def banded(found: Band, unit: Unit) -> tuple[str, ...]:
    return (f"{found.n:,}", unit(found.p5), unit(found.median), unit(found.p95))


def data(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> Markup:
    """To unfold; the first `words` columns are words, the others figures."""
    body = [
        tag("tr", *(tag("td", cell, class_="n" if at >= words else None) for at, cell in enumerate(row)))
        for row in rows
    ]
    top = tag("thead", tag("tr", *(tag("th", each, scope="col") for each in head)))
    whole = tag("table", tag("caption", caption), top, tag("tbody", *body))
    return tag("details", tag("summary", "The figures: ", caption), tag("div", whole, class_="wide"))


def soft(words: str) -> Markup:
    return tag("p", words, class_="soft")
