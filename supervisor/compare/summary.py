"""What is drawn and said of a report: medians with their bands, by way. Pure."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from shim.frozen import frozen
from supervisor.compare.facts import BadReport, CompareReport, Fault, Restart, Storm

MOST = 1e15  # no figure of a comparison is near it
VERDICTS = ("right", "unknown", "wrong", "lost")
LEAST_OF_BAND = 5  # samples; of fewer, p5 and p95 would be the least and the most
IDLE, UNLOADED = "idle", "unloaded"
IDLE_SHARE = 0.9  # of all processors, in every look: the machine was idle


@frozen
class Band:
    """The median of `n` samples, and what one in twenty is below or above."""

    n: int
    p5: float
    median: float
    p95: float

    @property
    def is_wide(self) -> bool:
        """Return whether p5 and p95 say anything."""
        return self.n >= LEAST_OF_BAND


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value at this share of sorted samples, on a straight line between two of them."""
    place = share * (len(ordered) - 1)
    lower = math.floor(place)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (ordered[upper] - ordered[lower]) * (place - lower)


def band(values: Iterable[float]) -> Band | None:
    """Return the band of the samples; None without any."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Band(len(ordered), *(quantile(ordered, share) for share in (0.05, 0.5, 0.95)))


def checked(report: CompareReport) -> CompareReport:
    """Return the report. Raises BadReport when a figure in it is none."""
    for field in dataclasses.fields(report):
        for row in getattr(report, field.name):
            _check(field.name, row)
    return report


def is_idle(report: CompareReport) -> bool:
    """Return whether the machine was seen to be idle between the measurements."""
    return bool(report.rest) and min(report.rest) >= IDLE_SHARE


def honest(report: CompareReport) -> CompareReport:
    """Return the report as it may be shown: what was not measured on an idle machine is not called so."""
    if is_idle(report):
        return report
    latencies = (replace(row, load=UNLOADED) if row.load == IDLE else row for row in report.latencies)
    return replace(report, latencies=tuple(latencies))


def warning(report: CompareReport) -> str:
    """Return the line about a machine that was not idle; empty if it was, or nothing was timed as if it had been."""
    if is_idle(report) or not any(row.load in (IDLE, UNLOADED) for row in report.latencies):
        return ""
    if not report.rest:
        return "Warning: whether the machine was idle was not measured."
    used = round(100 * (1 - min(report.rest)))
    return f"Warning: not idle: others used up to {used} % of all processors meanwhile."


def _check(where: str, value: Any) -> None:
    if isinstance(value, tuple):
        for each in value:
            _check(where, each)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            _check(f"{where}: {field.name}", getattr(value, field.name))
    elif isinstance(value, int | float) and not abs(value) <= MOST:
        raise BadReport(f"{where}: {value} is no figure that can be shown")


def keys(report: CompareReport) -> tuple[str, ...]:
    """Return the ways, in the report's order; those that only a row names come last."""
    measured = (report.memory, report.latencies, report.storms, report.restarts, report.faults)
    named = (row.way for rows in measured for row in rows)
    return tuple(dict.fromkeys((*(way.key for way in report.ways), *named)))


def names(report: CompareReport) -> dict[str, str]:
    """Return what a person reads of each way; the key where the report says nothing else."""
    said = {way.key: way.name for way in report.ways if way.name}
    return {key: said.get(key, key) for key in keys(report)}


@frozen
class Curve:
    """A storm of one way: when the first, second ... notice came, each over all rounds."""

    way: str
    rounds: int
    points: tuple[Band, ...]


def curve(storms: Iterable[Storm]) -> Curve | None:
    """Return the curve of storms of one way and size; None without any notices. Notices that never came in a round are
    missing in it."""
    found = list(storms)
    rounds = [sorted(each) for storm in found for each in storm.rounds_ms if each]
    if not rounds:
        return None
    longest = max(map(len, rounds))
    points = (band(each[at] for each in rounds if at < len(each)) for at in range(longest))
    return Curve(found[0].way, len(rounds), tuple(point for point in points if point))


def fates(restarts: Iterable[Restart]) -> dict[str, int]:
    """Return how many exits got which verdict, all rounds together."""
    found = list(restarts)
    return {verdict: sum(int(getattr(each, verdict)) for each in found) for verdict in VERDICTS}


def columns(faults: Iterable[Fault]) -> tuple[tuple[str, str], ...]:
    """Return who is killed or stopped, in the order of the report."""
    return tuple(dict.fromkeys((fault.victim, fault.act) for fault in faults))


def cell(faults: Iterable[Fault]) -> dict[str, list[Fault]]:
    """Return the faults by verdict, the worst last; a verdict that is none of ours comes after all."""
    found = list(faults)
    order = [*VERDICTS, *(fault.verdict for fault in found)]
    sorted_ = {verdict: [fault for fault in found if fault.verdict == verdict] for verdict in dict.fromkeys(order)}
    return {verdict: those for verdict, those in sorted_.items() if those}
