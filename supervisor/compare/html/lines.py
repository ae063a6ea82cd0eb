"""Lines with their bands, one for each way, which is named where its line ends."""

from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.compare.html import axes, marks, scales
from supervisor.compare.html.axes import WIDTH, Drawing
from supervisor.compare.html.tags import Markup, join
from supervisor.compare.looks import Look
from supervisor.compare.summary import Band
from supervisor.compare.words import Unit, number, short

LEFT, RIGHT = 62, WIDTH - 164
HEIGHT, BELOW = 292, 42  # of which the bottom axis has the latter
MOST_POINTS = 120  # of a line; more is not seen
MOST_MARKERS = 8
NAME = 20  # characters of it, beside the drawing


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    look: Look
    points: tuple[tuple[float, Band], ...]  # in the order of their first figure


@dataclass(frozen=True, slots=True)
class Words:
    """`along` names the bottom axis; `told` says in a sentence what is seen."""

    title: str
    note: str
    along: str
    told: str


def lines(words: Words, unit: Unit, found: Sequence[Line], *, even: bool = False, height: float = HEIGHT) -> Drawing:
    """`even`: every figure of the bottom axis counts alike, and of the lines it matters how they end; else each of
    its figures was chosen, and is a tick."""
    bottom = height - BELOW
    values = [value for each in found for _, b in each.points for value in _seen(b)]
    ends = [each.points[-1][1].median for each in found if each.points]
    upright = scales.scale(values, bottom, axes.TOP, range_of=ends if even else values)
    chosen = [x for each in found for x, _ in each.points]
    along = scales.scale(chosen, LEFT, RIGHT, range_of=()) if even else scales.steps(chosen, LEFT + 12, RIGHT - 4)
    banded = any(b.n > 1 for each in found for _, b in each.points)
    said = axes.note(words.note, log=upright.log, banded=banded)
    body = join(
        axes.heading(words.title, said),
        axes.upright(upright, LEFT, RIGHT, unit),
        axes.level(along, bottom, bottom + 5, number, words.along),
        *(_drawn(each, along, upright, unit) for each in found),
        *_named(found, along, upright, bottom),
    )
    return Drawing(words.title, words.told, height, body)


def _seen(band: Band) -> tuple[float, float, float]:
    return band.p5, band.median, band.p95


def _drawn(each: Line, along: scales.Scale, upright: scales.Scale, unit: Unit) -> Markup:
    """The markers last, on top of line and band."""
    kept = scales.thinned(range(len(each.points)), MOST_POINTS)
    places = [(along.at(x), b) for x, b in (each.points[int(at)] for at in kept)]
    middle = [(x, upright.at(b.median)) for x, b in places]
    shown = (each.points[int(at)] for at in scales.thinned(range(len(each.points)), MOST_MARKERS))
    return join(
        marks.area(each.look, [(x, upright.at(b.p95)) for x, b in places], [(x, upright.at(b.p5)) for x, b in places]),
        marks.line(each.look, middle),
        *(
            marks.marker(each.look, (along.at(x), upright.at(b.median)), title=_tip(each.name, x, b, unit))
            for x, b in shown
        ),
    )


def _tip(name: str, x: float, band: Band, unit: Unit) -> str:
    return f"{name} at {number(x)}: {unit(band.median)} ({unit(band.p5)} to {unit(band.p95)}, n = {band.n})"


def _named(found: Sequence[Line], along: scales.Scale, upright: scales.Scale, bottom: float) -> list[Markup]:
    """The names at the right, with the marker of each, led to from its line's end."""
    ended = [each for each in found if each.points]
    wanted = [upright.at(each.points[-1][1].median) for each in ended]
    places = axes.spread(wanted, 15, axes.TOP, bottom)
    return [
        join(
            marks.rule((along.at(each.points[-1][0]) + 5, start), (RIGHT + 10, end), "0.3"),
            marks.marker(each.look, (RIGHT + 16, end)),
            marks.label((RIGHT + 25, end + 4), short(each.name, NAME), size=11.5),
        )
        for each, start, end in zip(ended, wanted, places, strict=True)
    ]
