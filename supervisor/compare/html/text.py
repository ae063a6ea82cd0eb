"""The sentences about the plots: what the figures say, and no more."""

from collections.abc import Iterable, Mapping
from itertools import pairwise

from supervisor.compare.facts import CompareReport
from supervisor.compare.summary import names
from supervisor.compare.words import Unit

PEERS = ("exitd-runc", "containerd-runc")
DESIGNS = ("shim per container", "shim per pod")  # the two that are compared; what a way's design begins with


def pair(report: CompareReport, found: Mapping[str, float]) -> tuple[str, str] | None:
    """Return the plain peers where both have a figure, else the first way of each design that has one."""
    if all(key in found for key in PEERS):
        return PEERS
    first = [
        next((way.key for way in report.ways if way.design.startswith(design) and way.key in found), None)
        for design in DESIGNS
    ]
    return (first[0], first[1]) if first[0] is not None and first[1] is not None else None


def against(report: CompareReport, found: Mapping[str, float], unit: Unit) -> str:
    """Return a sentence of the two designs' figures, and the least and the most of all ways."""
    named = names(report)
    if not found:
        return "nothing was measured"
    if len(found) == 1:
        ((key, value),) = found.items()
        return f"{unit(value)} ({named[key]})"
    two = pair(report, found)
    least, most = min(found, key=lambda key: found[key]), max(found, key=lambda key: found[key])
    ends = f"{unit(found[least])} ({named[least]}) to {unit(found[most])} ({named[most]})"
    if two is None:
        return f"from {ends}"
    said = " against ".join(f"{unit(found[key])} ({named[key]})" for key in two)
    return f"{said}; all {len(found)} ways: {ends}" if len(found) > 2 else said


def turn(first: Mapping[int, float], second: Mapping[int, float]) -> str:
    """Return between which numbers of members, of those that both have been measured with, the lower figure becomes the
    higher one; empty if it does not."""
    both = sorted(first.keys() & second.keys())
    for before, after in pairwise(both):
        if (first[before] - second[before]) * (first[after] - second[after]) < 0:
            return f"the lower becomes the higher between {before:,} and {after:,} members"
    return ""


def samples(counts: Iterable[int], each: str) -> str:
    """Return how many samples there were of each point or row."""
    found = list(counts)
    if not found:
        return "no samples"
    least, most = min(found), max(found)
    number = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return f"{number} {'sample' if most == 1 else 'samples'} {each}"


def listed(words: Iterable[str]) -> str:
    """Return `a, b and c`."""
    *most, last = list(words) or [""]
    return f"{', '.join(most)} and {last}" if most else last


def sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."
