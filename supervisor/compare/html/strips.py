"""Every sample as a dot, the band from p5 to p95 behind them, the median as a stroke and as a figure beside."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from supervisor.compare.html import axes, marks, scales
from supervisor.compare.html.axes import TOP, WIDTH, Drawing
from supervisor.compare.html.tags import Markup, join, tag
from supervisor.compare.looks import Look
from supervisor.compare.summary import Band, band
from supervisor.compare.words import Unit, short

LEFT, RIGHT = 214, WIDTH - 66
ROW, GAP = 24, 8  # the height of a row; what is between two ways
MOST_DOTS = 160  # of a row; of more samples, so many quantiles
_SCATTER = (0, 4, -3, 2, -5, 5, -1, 3, -4, 1, -2)


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    part: str  # idle, busy, 100 live ...
    look: Look
    values: tuple[float, ...]


def strips(title: str, note: str, told: str, unit: Unit, found: Sequence[Row]) -> Drawing:
    rows = [(row, summed) for row in found if (summed := band(row.values))]
    places = _places([row for row, _ in rows])
    bottom = (places[-1] if places else TOP) + ROW / 2 + 4
    along = scales.scale((value for row, _ in rows for value in row.values), LEFT, RIGHT)
    drawn = (_drawn(row, summed, y, along, unit) for (row, summed), y in zip(rows, places, strict=True))
    named = (
        join(marks.marker(row.look, (6, y)), marks.label((16, y + 4), short(row.name, 20), size=11.5))
        for n, ((row, _), y) in enumerate(zip(rows, places, strict=True))
        if n == 0 or rows[n - 1][0].name != row.name
    )
    body = join(
        axes.heading(title, axes.note(note, log=along.log, banded=any(summed.n > 1 for _, summed in rows))),
        marks.label((WIDTH, 35), "median", "end"),
        axes.level(along, TOP - 6, bottom, unit),
        *drawn,
        *named,
    )
    return Drawing(title, told, bottom + 26, body)


def _places(rows: Sequence[Row]) -> list[float]:
    """The middle of each row, from the top."""
    found = [TOP + ROW / 2] if rows else []
    for before, row in pairwise(rows):
        found.append(found[-1] + ROW + (GAP if before.name != row.name else 0))
    return found


def _drawn(row: Row, summed: Band, y: float, along: scales.Scale, unit: Unit) -> Markup:
    left, right, middle = (along.at(value) for value in (summed.p5, summed.p95, summed.median))
    shown = scales.thinned(sorted(row.values), MOST_DOTS)
    scattered = [(along.at(value), y + _SCATTER[n % len(_SCATTER)]) for n, value in enumerate(shown)]
    tip = f"{row.name}, {row.part}: {unit(summed.median)} ({unit(summed.p5)} to {unit(summed.p95)}, n = {summed.n})"
    return tag(
        "g",
        tag("title", tip),
        tag("rect", x=left, y=y - 9, width=max(right - left, 1), height=18, fill=row.look.colour, fill_opacity="0.22"),
        marks.dots(row.look, scattered, 3.2),
        marks.rule((middle, y - 10), (middle, y + 10), "1", 2.4),
        marks.label((LEFT - 10, y + 4), short(row.part, 9), "end", 11.5),
        marks.label((WIDTH, y + 4), unit(summed.median), "end", weight="600"),
    )
