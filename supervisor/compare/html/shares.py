"""What became of exits, as shares of a bar: each share has its colour, its sign and its count."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from supervisor.compare.html import marks
from supervisor.compare.html.axes import TOP, WIDTH, Drawing, heading
from supervisor.compare.html.tags import Markup, join, tag
from supervisor.compare.looks import GREEN, PURPLE, VERMILION, YELLOW, Look
from supervisor.compare.words import number, short

LEFT, RIGHT, ROW = 214, WIDTH - 62, 28
DARK = "#111"  # text that stands out on each of the four
SIGNS = {
    "right": ("\N{CHECK MARK}", GREEN),
    "unknown": ("?", YELLOW),
    "wrong": ("\N{MULTIPLICATION X}", VERMILION),
    "lost": ("\N{EMPTY SET}", PURPLE),
}


@dataclass(frozen=True, slots=True)
class Bar:
    name: str
    part: str
    look: Look
    counts: Mapping[str, int]


def shares(title: str, note: str, told: str, found: Sequence[Bar]) -> Drawing:
    drawn = (_drawn(bar, TOP + 24 + ROW * n, n == 0 or found[n - 1].name != bar.name) for n, bar in enumerate(found))
    return Drawing(title, told, TOP + 28 + ROW * len(found), join(heading(title, note), _key(), *drawn))


def _key() -> Markup:
    """Which colour and sign says what."""
    parts = []
    x = 120
    for verdict, (sign, colour) in SIGNS.items():
        parts.append(tag("rect", x=x, y=TOP - 7, width=16, height=16, fill=colour))
        parts.append(_sign(x + 8, TOP + 5.5, sign))
        parts.append(marks.label((x + 21, TOP + 5.5), verdict))
        x += 92
    return join(*parts)


def _sign(x: float, y: float, words: str) -> Markup:
    return tag("text", words, x=x, y=y, text_anchor="middle", font_size="12", font_weight="600", fill=DARK)


def _drawn(bar: Bar, y: float, first: bool) -> Markup:
    """The name once for all bars of it. What is not right is counted at the end, however thin its part."""
    bad = {key: bar.counts[key] for key in SIGNS if key != "right" and bar.counts[key]}
    others = (f"{SIGNS[key][0]} {number(count)}" for key, count in bad.items())
    named = [marks.marker(bar.look, (6, y + 11)), marks.label((16, y + 15), short(bar.name, 20), size=11.5)]
    return join(
        *(named if first else ()),
        marks.label((LEFT - 10, y + 15), short(bar.part, 9), "end", 11.5),
        *_parts(bar, y),
        marks.label((RIGHT + 6, y + 15), "  ".join(others)),
    )


def _parts(bar: Bar, y: float) -> list[Markup]:
    whole = sum(bar.counts.values())
    if not whole:
        return [marks.label((LEFT, y + 15), "no exit meanwhile")]
    found = []
    x = float(LEFT)
    for verdict, (sign, colour) in SIGNS.items():
        width = (RIGHT - LEFT) * bar.counts[verdict] / whole
        tip = tag("title", f"{bar.name}, {bar.part}: {verdict} {number(bar.counts[verdict])} of {number(whole)}")
        found.append(tag("rect", tip, x=x, y=y, width=width, height=21, fill=colour))
        words = f"{sign} {number(bar.counts[verdict])}"
        if verdict == "right" and width >= 9 * len(words):
            found.append(_sign(x + width / 2, y + 15, words))
        x += width
    return found
