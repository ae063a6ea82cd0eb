"""What a comparison has found out about truth: who was right about how containers ended, who invented what. Pure."""

from collections import Counter

from shim.frozen import frozen
from supervisor.compare.facts import CompareReport, Fault
from supervisor.compare.summary import VERDICTS, fates, keys, names
from supervisor.compare.words import several

_ACTS = {"kill": "killed", "stop": "stopped"}
MOST_WORDS = 3  # different inventions of one way; all are in the tables


@frozen
class TruthFound:
    """What one way said of `tried` exits, while one who should see them was killed, stopped or away. `invented`: what
    it reported in place of the truth, in words."""

    way: str
    tried: int
    counts: dict[str, int]  # by verdict
    invented: tuple[str, ...]

    @property
    def is_true(self) -> bool:
        """Every exit was right, or honestly unknown."""
        return not self.counts["wrong"] and not self.counts["lost"]


def findings(report: CompareReport) -> tuple[TruthFound, ...]:
    """Return what each way said, those that said the truth first; without those of whom nothing was asked."""
    found = [_found(report, way) for way in keys(report)]
    return tuple(sorted((each for each in found if each.tried), key=_untruths))


def headline(report: CompareReport) -> str:
    """Return the finding in a sentence or two."""
    named, found = names(report), findings(report)
    if not found:
        return "No exit was tried while one who should see it was killed, stopped or away."
    true = [named[each.way] for each in found if each.is_true]
    said = [f"Every exit was reported right, or honestly unknown, by {_listed(true)}."] if true else []
    said += [
        f"{named[each.way]} {_listed(words)}, of {several(each.tried, 'exit')}."
        for each in found
        if (words := _ill(each))
    ]
    return " ".join(said)


def _found(report: CompareReport, way: str) -> TruthFound:
    faults = [fault for fault in report.faults if fault.way == way]
    restarts = [restart for restart in report.restarts if restart.way == way]
    counts = Counter(fault.verdict for fault in faults)
    told = fates(restarts)
    whole = {verdict: counts[verdict] + told[verdict] for verdict in VERDICTS}
    return TruthFound(way, len(faults) + sum(each.ended for each in restarts), whole, _inventions(faults))


def _inventions(faults: list[Fault]) -> tuple[str, ...]:
    found = Counter(
        f"{fault.told or 'nothing'} for {fault.truth} ({fault.victim} {_ACTS.get(fault.act, fault.act)})"
        for fault in faults
        if fault.verdict == "wrong"
    )
    return tuple(f"{words}{f', {count} times' if count > 1 else ''}" for words, count in found.items())


def _untruths(found: TruthFound) -> tuple[int, int]:
    return found.counts["wrong"], found.counts["lost"]


def _ill(found: TruthFound) -> list[str]:
    wrong, lost = found.counts["wrong"], found.counts["lost"]
    return [*([f"invented {wrong:,}"] if wrong else []), *([f"lost {lost:,}"] if lost else [])]


def _listed(words: list[str]) -> str:
    """Return `a, b and c`."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
