"""The three kinds of plots, drawn by matplotlib and written as SVG. No other module imports matplotlib."""

import io
import math
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, TypeVar

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.ticker import LogLocator, MaxNLocator

from shim.frozen import field, frozen
from supervisor.compare.looks import GREEN, INK, PURPLE, VERMILION, YELLOW, WayLook
from supervisor.compare.summary import Band, band
from supervisor.compare.words import Unit, clean, number, short

# In pixels. Two drawings fit on a page of 1,024; above the axes are title and note, below them their words.
WIDTH, BETWEEN, LINES_HEIGHT, TOP, BELOW = 480, 36, 292, 52, 28
LEFT, RIGHT, ROW = 214, 384, 24  # of the axes of rows, and how high a row is
GAP = 0.33  # between two ways, in rows
WIDE = 30  # the largest over the smallest: more than that is not seen on a linear axis
LEAST = 1e-9  # of any unit; what is less is nothing
MOST_POINTS, MOST_MARKERS, MOST_DOTS = 120, 8, 50  # of a line, of a line, of a row; more is not seen
DARK = "#111111"  # text that stands out on each of the four
SIGNS = {
    "right": ("\N{CHECK MARK}", GREEN),
    "unknown": ("?", YELLOW),
    "wrong": ("\N{MULTIPLICATION X}", VERMILION),
    "lost": ("\N{EMPTY SET}", PURPLE),
}
_SCATTER = (0, 4, -3, 2, -5, 5, -1, 3, -4, 1, -2)  # pixels
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "path.simplify": False,
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    "legend.frameon": False,
    "savefig.facecolor": "none",
    "grid.alpha": 0.16,
    "grid.linewidth": 1,
    "axes.axisbelow": True,
    **dict.fromkeys(("text.color", "axes.labelcolor", "grid.color", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("xtick.major.size", "xtick.minor.size", "ytick.major.size", "ytick.minor.size"), 0),
    **dict.fromkeys(("xtick.major.pad", "ytick.major.pad"), 8),
    **dict.fromkeys(("axes.spines.left", "axes.spines.right", "axes.spines.top", "axes.spines.bottom"), False),
}
_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
ET.register_namespace("", _SVG)
Which = Literal["x", "y"]
_Some = TypeVar("_Some")


@frozen
class Drawing:
    """`text`: what it shows, for those who don't see it. `draw` puts it on a figure of some height, in pixels."""

    title: str
    text: str
    height: float
    draw: Callable[[FigureBase, float], None]


@frozen
class PlotLine:
    name: str
    look: WayLook
    points: tuple[tuple[float, Band], ...]  # at least one; in the order of their first figure


@frozen
class Row:
    name: str
    part: str  # idle, busy, 100 live ...
    look: WayLook
    values: tuple[float, ...] = ()  # samples
    counts: Mapping[str, int] = field(default_factory=dict)  # how many exits, by verdict


def lines(
    title: str, note: str, along: str, text: str, unit: Unit, found: Sequence[PlotLine], *, even: bool = False
) -> Drawing:
    """Draw lines with their bands. `even`: every figure of the bottom axis counts alike, and of the lines it matters
    how they end; else each of its figures was chosen, and is a tick."""

    def draw(on: FigureBase, height: float) -> None:
        axes = _axes(on, height, (62, TOP, WIDTH - 164, height - 42))
        values = [value for line in found for _, b in line.points for value in _drawn(b)]
        low = _scale(axes, "y", values, unit, [_end(line) for line in found] if even else values)
        axes.grid(axis="y")
        chosen = sorted({x for line in found for x, _ in line.points})
        if even:
            _scale(axes, "x", chosen, number, ())
        else:
            _steps(axes, chosen)
        axes.set_xlabel(along, size=12)
        for line in sorted(found, key=_end, reverse=True):  # the names stand in the order of the lines' ends
            _line(axes, line, low)
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), handlelength=1.2)
        counts = [b.n for line in found for _, b in line.points if b.is_wide]
        _heading(on, height, title, _note(note, log=low is not None, counts=counts))

    return Drawing(title, text, LINES_HEIGHT, draw)


def _end(line: PlotLine) -> float:
    return line.points[-1][1].median


def _line(axes: Axes, line: PlotLine, low: float | None) -> None:
    points = thinned(line.points, MOST_POINTS)
    x = [at for at, _ in points]
    bands = ((_held(b.p5, low), _held(b.median, low), _held(b.p95, low)) for _, b in points)
    p5, median, p95 = zip(*bands, strict=True)
    wide = [b.is_wide for _, b in points]
    axes.fill_between(x, p5, p95, where=wide, color=line.look.colour, alpha=0.18, linewidth=0)
    shown = thinned(range(len(x)), MOST_MARKERS)
    axes.plot(x, median, **_marked(line.look), markevery=shown, label=short(clean(line.name), 20))


def strips(title: str, note: str, text: str, unit: Unit, found: Sequence[Row]) -> Drawing:
    """Draw every sample as a dot, the band from p5 to p95 behind them, the median as a stroke and as a figure
    beside."""
    summed = [(row, each) for row in found if (each := band(row.values))]
    rows = [row for row, _ in summed]

    def draw(on: FigureBase, height: float) -> None:
        axes = _axes(on, height, (LEFT, TOP, RIGHT, TOP + _height(rows)))
        low = _scale(axes, "x", [value for row in rows for value in row.values], unit)
        axes.grid(axis="x")
        for (row, each), y in zip(summed, _rows(axes, rows), strict=True):
            p5, median, p95 = (_held(value, low) for value in (each.p5, each.median, each.p95))
            if each.is_wide:
                axes.barh(y, p95 - p5, 0.75, p5, color=row.look.colour, alpha=0.22)
            dots = [_held(value, low) for value in thinned(sorted(row.values), MOST_DOTS)]
            scattered = [y + _SCATTER[at % len(_SCATTER)] / ROW for at in range(len(dots))]
            axes.plot(dots, scattered, ".", color=row.look.colour, alpha=0.75, markersize=5, mew=0, clip_on=False)
            axes.plot([median, median], [y - 0.42, y + 0.42], color=INK, linewidth=2.4, clip_on=False)
            _beside(axes, WIDTH - 36, y, unit(each.median), ha="right", weight="bold")
            _beside(axes, WIDTH, y, number(each.n), ha="right")
        said = _note(note, log=low is not None, counts=[each.n for _, each in summed if each.is_wide])
        _heading(on, height, title, said)
        on.text(1 - 36 / WIDTH, 1 - 35 / height, "median", size=12, ha="right")
        on.text(1, 1 - 35 / height, "n", size=12, ha="right")

    return Drawing(title, text, TOP + _height(rows) + BELOW, draw)


def shares(title: str, note: str, text: str, found: Sequence[Row]) -> Drawing:
    """Draw what became of exits, as shares of a bar: each share has its colour, its sign and its count."""

    def draw(on: FigureBase, height: float) -> None:
        axes = _axes(on, height, (LEFT, TOP + BELOW, RIGHT, TOP + BELOW + _height(found)))
        axes.set(xlim=(0, 1), xticks=[])
        keys = [axes.barh(0, 0, color=colour, label=f"{sign} {verdict}") for verdict, (sign, colour) in SIGNS.items()]
        axes.legend(handles=keys, ncols=len(keys), loc="lower center", bbox_to_anchor=(0.2, 1), handlelength=1.2)
        for row, y in zip(found, _rows(axes, found), strict=True):
            _shared(axes, row.counts, y)
        _heading(on, height, title, note)

    return Drawing(title, text, TOP + BELOW + _height(found), draw)


def _shared(axes: Axes, counts: Mapping[str, int], y: float) -> None:
    """What is not right is counted at the end, however thin its part."""
    whole = sum(counts.values())
    if not whole:
        _beside(axes, LEFT, y, "no exit meanwhile")
        return
    left = 0.0
    for verdict, (_, colour) in SIGNS.items():
        share = counts[verdict] / whole
        axes.barh(y, share, 0.8, left, color=colour)
        left += share
    said = {verdict: f"{sign} {number(counts[verdict])}" for verdict, (sign, _) in SIGNS.items()}
    if counts["right"] / whole * (RIGHT - LEFT) >= 9 * len(said["right"]):
        _beside(axes, LEFT + 8, y, said["right"], color=DARK, weight="bold")
    _beside(axes, RIGHT + 6, y, "  ".join(said[key] for key in SIGNS if key != "right" and counts[key]))


def svg(key: str, drawings: Sequence[Drawing], *, alone: bool = False) -> str:
    """Return the drawings, one at least, side by side; ids begin with `key`. `alone`: a file of its own, on a light
    ground."""
    height, count = max(each.height for each in drawings), len(drawings)
    with matplotlib.rc_context(_STYLE):
        figure = _figure(count * WIDTH + (count - 1) * BETWEEN, height)
        found = figure.subfigures(1, count, squeeze=False, wspace=BETWEEN / WIDTH)
        for each, part in zip(drawings, found[0], strict=True):
            part.set_facecolor("none")
            each.draw(part, height)
        root = _written(figure, key, alone)
    words_by_tag = {
        "desc": " ".join(each.text for each in drawings),
        "title": "; ".join(each.title for each in drawings),
    }
    for name, words in words_by_tag.items():
        child = ET.Element(f"{{{_SVG}}}{name}", id=f"{key}-{name}")
        child.text = clean(words)
        root.insert(0, child)
    root.attrib.update({"class": "plot", "role": "img", "aria-labelledby": f"{key}-title {key}-desc"})
    return ET.tostring(root, encoding="unicode")


def mark(key: str, look: WayLook) -> str:
    """Return the marker of a way by itself."""
    with matplotlib.rc_context(_STYLE):
        figure = _figure(16, 16)
        axes = figure.add_axes((0, 0, 1, 1), facecolor="none", xticks=[], yticks=[])
        axes.plot([0], [0], **{**_marked(look), "markersize": 11})
        root = _written(figure, key, alone=False)
    root.attrib.update({"class": "mark", "aria-hidden": "true"})
    return ET.tostring(root, encoding="unicode")


def _figure(width: float, height: float) -> Figure:
    """Its points, of which 72 are an inch, are the drawing's pixels."""
    return Figure(figsize=(width / 72, height / 72), dpi=72)


def _written(figure: Figure, key: str, alone: bool) -> ET.Element:
    """Many of these may stand on one page, in its colours; nothing in them depends on the time."""
    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": key}):
        around: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.3, "facecolor": "white"} if alone else {}
        figure.savefig(file, format="svg", metadata={"Date": None}, **around)
    root = ET.fromstring(file.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
        for name, value in dict(parent.attrib).items():
            del parent.attrib[name]
            parent.set(name.removeprefix(f"{{{_XLINK}}}"), _owned(name, value, key, alone))
    root.set("stroke-linejoin", "round")  # which the style sheet, that was removed, said of the whole page
    for side in ("width", "height"):
        size = root.attrib.pop(side).removesuffix("pt")
        if alone:  # else as large as its place allows
            root.set(side, size)
    return root


def _owned(name: str, value: str, key: str, alone: bool) -> str:
    if name == "id":
        return f"{key}-{value}"
    if name.endswith("href"):
        return f"#{key}-{value.removeprefix('#')}"
    value = value.replace("url(#", f"url(#{key}-")
    return value if alone else value.replace(INK, "currentColor")


def _axes(on: FigureBase, height: float, box: tuple[float, float, float, float]) -> Axes:
    """From left and top to right and bottom, in pixels."""
    left, top, right, bottom = box
    place = (left / WIDTH, 1 - bottom / height, (right - left) / WIDTH, (bottom - top) / height)
    return on.add_axes(place, facecolor="none")


def _heading(on: FigureBase, height: float, title: str, note: str) -> None:
    on.text(0, 1 - 16 / height, clean(title), size=14, weight="bold")
    on.text(0, 1 - 35 / height, note, size=12)


def nothing() -> Drawing:
    title = "Nothing was measured"
    return Drawing(title, "", TOP, lambda on, height: _heading(on, height, title, ""))


def _note(words: str, *, log: bool, counts: Sequence[int]) -> str:
    """`counts`: of how many samples the bands are."""
    least, most = (min(counts), max(counts)) if counts else (0, 0)
    of = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return f"{words}{', logarithmic' if log else ''}{f'; band: p5 to p95, n = {of}' if counts else ''}"


def _drawn(found: Band) -> tuple[float, ...]:
    return (found.p5, found.median, found.p95) if found.is_wide else (found.median,)


def _marked(look: WayLook) -> dict[str, Any]:
    """With a thin edge in the colour of text, since not every colour stands out on white."""
    edge = {"markeredgecolor": INK, "markeredgewidth": 0.6, "clip_on": False}
    return {"color": look.colour, "linewidth": 2, "marker": look.marker, "markersize": 8, **edge}


def _height(rows: Sequence[Row]) -> float:
    return ROW * (len(rows) + GAP * sum(before.name != row.name for before, row in pairwise(rows))) or ROW


def _rows(axes: Axes, found: Sequence[Row]) -> list[float]:
    """The middles of the rows, with the parts at the left; the name with its marker once for all rows of it."""
    places: list[float] = []
    for at, row in enumerate(found):
        first = at == 0 or found[at - 1].name != row.name
        places.append(places[-1] + 1 + GAP * first if places else 0.5)
        if first:
            name, x = short(clean(row.name), 20), (6 - LEFT) / (RIGHT - LEFT)
            axes.plot([x], [places[-1]], **_marked(row.look), label=name, transform=axes.get_yaxis_transform())
            _beside(axes, 16, places[-1], name)
    axes.set_ylim(_height(found) / ROW, 0)
    axes.set_yticks(places, [short(clean(row.part), 9) for row in found])
    return places


def _beside(axes: Axes, x: float, y: float, words: str, **how: Any) -> None:
    """Words in a row, at a pixel of the drawing."""
    at = (x - LEFT) / (RIGHT - LEFT)
    axes.text(at, y, words, va="center_baseline", transform=axes.get_yaxis_transform(), **how)


def _scale(
    axes: Axes, which: Which, values: Sequence[float], unit: Unit, range_of: Sequence[float] | None = None
) -> float | None:
    """Linear from zero, or logarithmic from what is returned, where the range needs it. `range_of`: what decides."""
    found = values or (0.0, 1.0)
    positive = [value for value in found if value > LEAST]
    decides = [value for value in (found if range_of is None else range_of) if value > LEAST]
    if not positive or not decides or max(decides) / min(decides) < WIDE:
        low, high = min(0.0, *found), max(0.0, *found)
        locator = MaxNLocator(5 if which == "y" else 3, steps=[1, 2, 5, 10])
        ticks = [float(tick) for tick in locator.tick_values(low, high if high - low >= LEAST else low + 1)]
        _ticked(axes, which, "linear", (min(low, ticks[0]), max(high, ticks[-1])), {tick: unit(tick) for tick in ticks})
        return None
    low, high = _below(min(positive)), max(*positive, 1 / _below(1 / max(positive)))  # which may round down
    words = {tick: unit(tick) for tick in _decades(which, low, high)}
    if min(found) <= LEAST:
        words = {low: f"\N{LESS-THAN OR EQUAL TO} {unit(low)}"} | {
            at: said for at, said in words.items() if at > 1.5 * low
        }
    _ticked(axes, which, "log", (low, high), words)
    return low


def _ticked(axes: Axes, which: Which, kind: str, ends: tuple[float, float], words: Mapping[float, str]) -> None:
    said = {"scale": kind, "lim": ends, "ticks": list(words), "ticklabels": list(words.values())}
    axes.set(**{f"{which}{name}": value for name, value in said.items()})
    axes.minorticks_off()


def _decades(which: Which, low: float, high: float) -> list[float]:
    """Ticks between them: 1, 2, 5, 10 ..., or 1, 3, 10 ... where words stand beside each other, or fewer."""
    fine, most = ((1.0, 2.0, 5.0), 1000) if which == "y" else ((1.0, 3.0), 100)
    locator = LogLocator(subs=fine if high / low <= most else (1.0,), numticks=7)
    return [float(tick) for tick in locator.tick_values(low, high) if low * 0.999 <= tick <= high * 1.001]


def _below(value: float) -> float:
    """The next of 1, 2, 5, 10 ..."""
    size = 10.0 ** math.floor(math.log10(value))
    return max((size * each for each in (1, 2, 5) if size * each <= value), default=size)


def _held(value: float, low: float | None) -> float:
    """What is below a logarithmic axis is drawn at its end."""
    return value if low is None else max(value, low)


def _steps(axes: Axes, found: Sequence[float]) -> None:
    """The bottom axis for figures that were chosen, like 1, 2, 4, 8: each is a tick, if they are not too many."""
    axes.set_xscale("log" if found[0] > 0 and found[-1] / found[0] >= 4 else "linear")
    ticks = thinned(found, 8)
    axes.set_xticks(ticks, [number(tick) for tick in ticks])
    axes.minorticks_off()


def thinned(values: Sequence[_Some], most: int) -> list[_Some]:
    """Return at most so many of them, evenly, first and last always."""
    if len(values) <= most:
        return list(values)
    return [values[round(at * (len(values) - 1) / (most - 1))] for at in range(most)]
