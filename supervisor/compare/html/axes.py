"""The frame of a drawing: its title, its axes with their units, and the element around it all."""

from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.compare.html.marks import label, rule
from supervisor.compare.html.scales import Scale
from supervisor.compare.html.tags import NOTHING, Markup, join, tag
from supervisor.compare.words import Unit

WIDTH = 480  # of a drawing: two fit beside each other on a page of 1,024 pixels
TOP = 52  # below title and note
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


@dataclass(frozen=True, slots=True)
class Drawing:
    """`told`: what it shows, for those who don't see it."""

    title: str
    told: str
    height: float
    body: Markup


def svg(key: str, drawing: Drawing) -> Markup:
    """As large as its place allows."""
    return tag(
        "svg",
        tag("title", drawing.title, id=f"{key}-title"),
        tag("desc", drawing.told, id=f"{key}-desc"),
        drawing.body,
        class_="plot",
        viewBox=f"0 0 {WIDTH} {drawing.height:.0f}",
        role="img",
        aria_labelledby=f"{key}-title {key}-desc",
        font_family=FONT,
        xmlns="http://www.w3.org/2000/svg",
    )


def heading(title: str, note: str) -> Markup:
    """`note` is what the axis counts, and how."""
    return join(label((0, 16), title, size=14, weight="600"), label((0, 35), note, size=12))


def note(words: str, *, log: bool, banded: bool) -> str:
    return f"{words}{', logarithmic' if log else ''}{'; band: p5 to p95' if banded else ''}"


def upright(scale: Scale, left: float, right: float, unit: Unit) -> Markup:
    """The axis of figures at the left, with lines across the drawing."""
    words = ((tick, _word(scale, tick, unit)) for tick in scale.ticks)
    return join(
        *(
            join(
                rule((left, scale.at(tick)), (right, scale.at(tick))),
                label((left - 7, scale.at(tick) + 4), word, "end"),
            )
            for tick, word in words
        )
    )


def level(scale: Scale, top: float, bottom: float, unit: Unit, name: str = "") -> Markup:
    """The axis along the bottom, with lines up the drawing; a word that has no room is left out."""
    marks = [rule((scale.at(tick), top), (scale.at(tick), bottom)) for tick in scale.ticks]
    words = [(scale.at(tick), _word(scale, tick, unit)) for tick in scale.ticks]
    said = [label((x, bottom + 17), word, "middle") for x, word in _apart(words)]
    middle = (scale.start + scale.end) / 2
    return join(*marks, *said, label((middle, bottom + 35), name, "middle") if name else NOTHING)


def _word(scale: Scale, tick: float, unit: Unit) -> str:
    return f"\N{LESS-THAN OR EQUAL TO} {unit(tick)}" if scale.floor and tick == scale.ticks[0] else unit(tick)


def _apart(words: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Those with a one as their first digit go before the others."""
    kept: list[tuple[float, str]] = []
    for x, word in sorted(words, key=lambda each: not each[1].startswith("1")):
        if all(abs(x - other) >= 7 * (len(word) + len(said)) / 2 + 6 for other, said in kept):
            kept.append((x, word))
    return kept


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places for labels, as near to those wanted as the gap between them allows, in the same order."""
    order = sorted(range(len(wanted)), key=lambda at: wanted[at])
    placed = [0.0] * len(wanted)
    before = low - gap
    for at in order:
        before = placed[at] = max(wanted[at], before + gap)
    after = max(high, low + gap * (len(wanted) - 1)) + gap
    for at in reversed(order):
        after = placed[at] = min(placed[at], after - gap)
    return placed
