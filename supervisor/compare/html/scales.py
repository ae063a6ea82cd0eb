"""From figures to places: linear from zero, logarithmic where the range needs it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WIDE = 30  # the largest over the smallest: more than that is not seen on a linear axis
LEAST = 1e-9  # of any unit; what is less is nothing
MOST_TICKS = 6
MOST_FINE = 9  # of 1, 2, 5, 10 ...; else the decades alone


@dataclass(frozen=True, slots=True)
class Scale:
    """`low` is drawn at `start`, `high` at `end`; what is beyond, at the edge. `floor`: something is below `low`."""

    low: float
    high: float
    start: float
    end: float
    log: bool
    ticks: tuple[float, ...]
    floor: bool = False

    def at(self, value: float) -> float:
        held = min(max(value, self.low), self.high)
        share = (
            math.log(held / self.low) / math.log(self.high / self.low)
            if self.log
            else (held - self.low) / (self.high - self.low)
        )
        return self.start + (self.end - self.start) * share


def scale(values: Iterable[float], start: float, end: float, range_of: Iterable[float] | None = None) -> Scale:
    """For all these figures; without any, from 0 to 1. `range_of`: those that decide whether it is logarithmic."""
    found = list(values) or [0.0, 1.0]
    positive = [value for value in found if value > LEAST]
    if positive and _wide(found if range_of is None else range_of):
        return _log(positive, min(found) <= LEAST, start, end)
    return _linear(min(0.0, *found), max(0.0, *found), start, end)


def _wide(values: Iterable[float]) -> bool:
    positive = [value for value in values if value > LEAST]
    return bool(positive) and max(positive) / min(positive) >= WIDE


def steps(values: Iterable[float], start: float, end: float) -> Scale:
    """For figures that were chosen, like 1, 2, 4, 8: each of them is a tick, if there are not too many."""
    found = sorted(set(values)) or [0.0, 1.0]
    log = found[0] > 0 and found[-1] / found[0] >= 4
    if len(found) == 1:
        return Scale(found[0] - 1, found[0] + 1, start, end, False, tuple(found))
    return Scale(found[0], found[-1], start, end, log, tuple(thinned(found, 8)))


def thinned(values: Sequence[float], most: int) -> list[float]:
    """At most so many of them, evenly, first and last always."""
    if len(values) <= most:
        return list(values)
    return [values[round(at * (len(values) - 1) / (most - 1))] for at in range(most)]


def _linear(low: float, high: float, start: float, end: float) -> Scale:
    if high - low < LEAST:
        high = low + 1
    step = _nice((high - low) / (MOST_TICKS - 1))
    first, last = math.floor(low / step), math.ceil(high / step)
    return Scale(first * step, last * step, start, end, False, tuple(at * step for at in range(first, last + 1)))


def _nice(step: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50 ..."""
    size = 10.0 ** math.floor(math.log10(step))
    return next(size * each for each in (1, 2, 5, 10) if size * each >= step * 0.999)


def _log(positive: Sequence[float], floor: bool, start: float, end: float) -> Scale:
    """From one of 1, 2, 5, 10 ... to another."""
    low, high = _down(min(positive)), _up(max(positive))
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    sizes = [10.0**at for at in range(first, last + 1)]
    fine = [tick for size in sizes for tick in (size, 2 * size, 5 * size) if low <= tick * 1.001 <= high * 1.01]
    decades = [size for size in sizes if low <= size * 1.001 <= high * 1.01]
    ticks = fine if len(fine) <= MOST_FINE else thinned(decades, MOST_TICKS)
    return Scale(low, high, start, end, True, tuple(ticks), floor)


def _down(value: float) -> float:
    size = 10.0 ** math.floor(math.log10(value))
    return max((size * each for each in (1, 2, 5) if size * each <= value), default=size)


def _up(value: float) -> float:
    size = 10.0 ** math.floor(math.log10(value))
    return next((size * each for each in (1, 2, 5) if size * each >= value), size * 10)
