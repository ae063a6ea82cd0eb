"""The main plots as one SVG file for a page elsewhere: memory as a pod grows, and how soon an exit is known."""

from supervisor.compare.facts import Report
from supervisor.compare.html import latency, memory, pieces
from supervisor.compare.html.axes import FONT, WIDTH
from supervisor.compare.html.lines import HEIGHT
from supervisor.compare.html.marks import label
from supervisor.compare.html.tags import Markup, tag
from supervisor.compare.summary import checked

EDGE, GAP = 20, 36
INK, PAPER = "#1b1d20", "#ffffff"  # whatever page it is shown on


def picture(report: Report) -> str:
    """What was not measured is left out. BadReport when a figure is none that can be drawn."""
    ways = pieces.ways_of(checked(report))
    exits = latency.drawing(report, ways, "exit")
    found = [each for each in (memory.main(report, ways, max(HEIGHT, exits.height if exits else 0)), exits) if each]
    width = 2 * EDGE + max(len(found), 1) * (WIDTH + GAP) - GAP
    height = 2 * EDGE + max((each.height for each in found), default=20)
    whole = tag(
        "svg",
        tag("title", "; ".join(each.title for each in found) or "Nothing was measured"),
        tag("desc", " ".join(each.told for each in found)),
        tag("rect", width=width, height=height, fill=PAPER),
        *(_placed(each.body, EDGE + at * (WIDTH + GAP)) for at, each in enumerate(found)),
        *([] if found else [label((EDGE, EDGE + 16), "Nothing was measured")]),
        viewBox=f"0 0 {width} {height:.0f}",
        width=width,
        height=height,
        role="img",
        font_family=FONT,
        color=INK,
        xmlns="http://www.w3.org/2000/svg",
    )
    return f"{whole}\n"


def _placed(body: Markup, x: float) -> Markup:
    return tag("g", body, transform=f"translate({x} {EDGE})")
