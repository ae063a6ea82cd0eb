"""What was measured: samples with their names, their summary, and how they are shown."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from supervisor.compare.words import aligned

EXITD = "exitd"
BUSY = "busy"
MEANT_LOADS = ("quiet", "load 25")  # what goals are meant for, where a figure does not say more


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing measured of one program. The unit belongs to `values`, `goal` too; `goal` is for the median."""

    row: str
    what: str
    who: str
    load: (
        str  # quiet | busy (on purpose) | load 25 (so many busy loops); `loaded`, alone or behind these: by others, too
    )
    unit: str
    values: tuple[float, ...]
    goal: float | None = None
    note: str = ""
    at_least: bool = False  # the goal is a lower bound
    busy_too: bool = False  # the goal is meant for busy cores as well

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def p99(self) -> float:
        """Nearest rank: with fewer than a hundred samples the largest."""
        ordered = sorted(self.values)
        return ordered[-(-99 * len(ordered) // 100) - 1]

    @property
    def met(self) -> bool | None:
        """None without a goal, or when one is missed under a load that it is not meant for."""
        if self.goal is None:
            return None
        reached = self.median >= self.goal if self.at_least else self.median <= self.goal
        meant = self.load in MEANT_LOADS or (self.busy_too and self.load == BUSY)
        return True if reached else False if meant else None


HEAD = ("row", "figure", "who", "load", "n", "median", "p99", "goal", "met", "note")


def table(figures: Iterable[Figure]) -> str:
    """Aligned columns for a terminal."""
    return "\n".join(aligned([HEAD, *map(_cells, figures)], len(HEAD)))


def markdown(figures: Iterable[Figure]) -> str:
    """The same as a table for a page."""
    rows: list[Sequence[str]] = [HEAD, ["---"] * len(HEAD), *(_cells(figure) for figure in figures)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def document(figures: Iterable[Figure]) -> list[dict[str, object]]:
    """For machines: every sample is there."""
    return [
        {
            "row": figure.row,
            "what": figure.what,
            "who": figure.who,
            "load": figure.load,
            "unit": figure.unit,
            "median": figure.median,
            "p99": figure.p99,
            "goal": figure.goal,
            "at_least": figure.at_least,
            "met": figure.met,
            "note": figure.note,
            "values": list(figure.values),
        }
        for figure in figures
    ]


def _cells(figure: Figure) -> tuple[str, ...]:
    goal = "-" if figure.goal is None else f"{'>=' if figure.at_least else '<='} {figure.goal:g} {figure.unit}"
    met = {None: "-", True: "yes", False: "NO"}[figure.met]
    numbers = (f"{_number(number)} {figure.unit}" for number in (figure.median, figure.p99))
    return (figure.row, figure.what, figure.who, figure.load, str(len(figure.values)), *numbers, goal, met, figure.note)


def _number(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.2f}"
