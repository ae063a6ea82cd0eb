"""What an attack showed, as lines for a terminal, as JSON, and as docs/reliability.md. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from tests.attack.run import Result

SHOWN = 10  # sentences of one kind, on the terminal


@dataclass(frozen=True, slots=True)
class Machine:
    """Where it was, and of which tree."""

    commit: str
    date: str
    kernel: str
    processors: int
    runtime: str


def document(machine: Machine, results: Sequence[Result]) -> dict[str, object]:
    return {"machine": asdict(machine), "attacks": [asdict(result) for result in results]}


def lines(result: Result) -> list[str]:
    wrongs = result.verdict.wrongs()
    found = [
        f"seed {result.plan.seed}: {sum(result.exits.values())} exits of {result.lives} lives in {result.seconds} s"
        + (", interrupted" if result.interrupted else ""),
        "   " + ", ".join(f"{name} {len(each)}" for name, each in wrongs.items()),
        f"   exits: {_counted(result.exits)}",
        f"   killed: {_counted(result.deaths)}; misfortunes: {_counted(result.misfortunes)}",
    ]
    for name, each in wrongs.items():
        found += [f"   {name}: {sentence}" for sentence in each[:SHOWN]]
        found += [f"   {name}: {len(each) - SHOWN} more"] if len(each) > SHOWN else []
    return found + [f"   exitd ended by itself: {sentence}" for sentence in result.fallen[:SHOWN]]


INTRODUCTION = """# Exits under attack

`make attack` lets many containers, execs, pods and terminals live at once while exitd, its keeper, shims and runtime
commands are killed and stopped at random moments, forks and descriptors fail, and the state directory is full. Each
program notes its code just before it ends with it; a judge (`tests/attack/judge.py`) compares these notes with the
ledger, the events, and the answers to waiting clients.
"""
END = """A seed gives the same plan of lives and misfortunes again (`python -m tests.attack --seed N --exits N`). The
moments are the machine's own.
"""


def page(machine: Machine, results: Sequence[Result]) -> str:
    """docs/reliability.md, of real runs only."""
    exits, killed, met = (_sum(each) for each in _columns(results))
    wrongs = _sum([{name: len(each) for name, each in result.verdict.wrongs().items()} for result in results])
    lived, seconds = sum(each.lives for each in results), sum(each.seconds for each in results)
    by_seed = [(each.plan.seed, sum(each.exits.values()), each.lives, each.seconds) for each in results]
    parts = [
        INTRODUCTION,
        f"Written by `make attack` on {machine.date}: commit {machine.commit}, Linux {machine.kernel},\n"
        f"{machine.processors} processors, {machine.runtime}.\n",
        f"**{sum(exits.values())} exits** of {lived} lives, under {sum(met.values())} misfortunes and "
        f"{sum(killed.values())} kills, in {seconds:.0f} s.\n",
        _table(("What went wrong", "times"), [(WRONGS[name], wrongs[name]) for name in WRONGS]),
        _table(("Exit, and who saw it", "times"), exits.items()),
        _table(("Killed", "times"), killed.items()),
        _table(("Misfortune", "times"), met.items()),
        _table(("Seed", "exits", "lives", "seconds"), by_seed),
        END,
    ]
    return "\n".join(parts)


WRONGS = {
    "invented": "invented: reported otherwise than it was",
    "lost": "lost: it ended, and nothing was reported",
    "twice": "reported twice",
    "failed_but_ran": "an exec ran although the answer was that it failed",
    "leaked": "left behind: process, mount, cgroup, directory, journal entry",
    "stuck": "a step of a life that did not come to its end",
}


def _columns(results: Sequence[Result]) -> tuple[list[dict[str, int]], ...]:
    return [each.exits for each in results], [each.deaths for each in results], [each.misfortunes for each in results]


def _sum(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    written = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(str(cell) for cell in row)} |\n" for row in written)
