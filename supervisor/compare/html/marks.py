"""What is drawn for figures: markers, lines, bands. Colours of ways are the same on a light and on a dark page."""

from collections.abc import Iterable, Sequence

from supervisor.compare.html.tags import Markup, short, tag
from supervisor.compare.looks import Look

Point = tuple[float, float]
# In a square from -1 to 1.
_SHAPES: dict[str, Sequence[Point]] = {
    "square": ((-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)),
    "diamond": ((0, -1.2), (1.1, 0), (0, 1.2), (-1.1, 0)),
    "up": ((0, -1.15), (1.1, 0.85), (-1.1, 0.85)),
    "down": ((0, 1.15), (1.1, -0.85), (-1.1, -0.85)),
    "plus": (
        *((-0.4, -1.2), (0.4, -1.2), (0.4, -0.4), (1.2, -0.4), (1.2, 0.4), (0.4, 0.4)),
        *((0.4, 1.2), (-0.4, 1.2), (-0.4, 0.4), (-1.2, 0.4), (-1.2, -0.4), (-0.4, -0.4)),
    ),
    "cross": (
        *((0, -0.55), (0.6, -1.15), (1.15, -0.6), (0.55, 0), (1.15, 0.6), (0.6, 1.15)),
        *((0, 0.55), (-0.6, 1.15), (-1.15, 0.6), (-0.55, 0), (-1.15, -0.6), (-0.6, -1.15)),
    ),
    "star": (
        *((0, -1.3), (0.35, -0.4), (1.25, -0.4), (0.5, 0.2), (0.8, 1.15)),
        *((0, 0.6), (-0.8, 1.15), (-0.5, 0.2), (-1.25, -0.4), (-0.35, -0.4)),
    ),
}


def outline(points: Iterable[Point], closed: bool = False) -> str:
    """A path's data."""
    return "M" + "L".join(f"{short(x)} {short(y)}" for x, y in points) + ("Z" if closed else "")


def marker(look: Look, at: Point, size: float = 4, title: str | None = None) -> Markup:
    """With a thin edge in the colour of text, since not every colour stands out on white."""
    x, y = at
    said = (tag("title", title),) if title else ()
    style = {"fill": look.colour, "stroke": "currentColor", "stroke_width": "0.6"}
    if look.marker == "circle":
        return tag("circle", *said, cx=x, cy=y, r=size, **style)
    shape = _SHAPES[look.marker]
    return tag("path", *said, d=outline(((x + dx * size, y + dy * size) for dx, dy in shape), True), **style)


def line(look: Look, points: Sequence[Point]) -> Markup:
    return tag("path", d=outline(points), fill="none", stroke=look.colour, stroke_width="2", stroke_linejoin="round")


def area(look: Look, upper: Sequence[Point], lower: Sequence[Point]) -> Markup:
    """The band between two lines."""
    return tag("path", d=outline((*upper, *reversed(lower)), True), fill=look.colour, fill_opacity="0.18")


def dots(look: Look, points: Iterable[Point], size: float) -> Markup:
    """Many small ones as one path: a dot is a line of no length with round ends."""
    data = "".join(f"M{short(x)} {short(y)}h0" for x, y in points)
    return tag(
        "path",
        d=data,
        stroke=look.colour,
        stroke_width=size,
        stroke_linecap="round",
        stroke_opacity="0.75",
        fill="none",
    )


def rule(start: Point, end: Point, opacity: str = "0.16", width: float = 1) -> Markup:
    (x1, y1), (x2, y2) = start, end
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke="currentColor", stroke_opacity=opacity, stroke_width=width)


def label(at: Point, words: str, anchor: str = "start", size: float = 12, weight: str | None = None) -> Markup:
    return tag(
        "text", words, x=at[0], y=at[1], text_anchor=anchor, font_size=size, font_weight=weight, fill="currentColor"
    )
