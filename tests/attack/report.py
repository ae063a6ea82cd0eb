"""What an attack showed, as lines for a terminal, as JSON, and as docs/reliability.md. Pure."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, combinations
from typing import Any

from tests.attack import peers
from tests.attack.judge import Verdict
from tests.attack.run import Plan, Result

SHOWN = 10  # sentences of one kind, on the terminal
ROWS_BEGIN, ROWS_END = "<!-- rows: begin -->", "<!-- rows: end -->\n"
PEERS_BEGIN, PEERS_END = "<!-- peers: begin -->", "<!-- peers: end -->\n"


class Refused(ValueError):
    """These results, or this page, cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where it was, and of which tree."""

    commit: str
    is_dirty: bool  # something in the tree was not committed
    date: str
    kernel: str
    processors: int
    runtime: str


def document(machine: Machine, results: Sequence[Result]) -> dict[str, object]:
    return {"machine": asdict(machine), "attacks": [asdict(result) for result in results]}


def loaded(text: str) -> tuple[Machine, list[Result]]:
    """What `document` was written as. Raises Refused."""
    try:
        found = json.loads(text)
        return Machine(**found["machine"]), [_result(each) for each in found["attacks"]]
    except (ValueError, TypeError, KeyError) as error:
        raise Refused(f"not the results of an attack: {error!r}") from error


def _result(each: dict[str, Any]) -> Result:
    asked: dict[str, Any] = each["plan"]
    plan = Plan(**{**asked, "lives": tuple(asked["lives"]), "misfortunes": tuple(asked["misfortunes"])})
    verdict = {name: tuple(value) for name, value in each["verdict"].items()}
    return Result(**{**each, "plan": plan, "verdict": Verdict(**verdict), "fallen": tuple(each["fallen"])})


def merged(runs: Sequence[tuple[Machine, Sequence[Result]]]) -> tuple[Machine, list[Result]]:
    """All of them as one. Raises Refused: the page is about one committed tree, and about whole attacks."""
    machines, results = [machine for machine, _ in runs], list(chain.from_iterable(each for _, each in runs))
    if not results:
        raise Refused("there are no results")
    if len({machine.commit for machine in machines}) > 1:
        raise Refused(f"results of different commits: {', '.join(sorted({machine.commit for machine in machines}))}")
    if any(machine.is_dirty or not machine.commit for machine in machines):
        raise Refused(f"results of {machines[0].commit or 'no commit'} with changes that are not committed")
    if broken := [result.plan.seed for result in results if result.interrupted]:
        raise Refused(f"the attack of seed {broken[0]} was interrupted")
    if any(one == other for one, other in combinations(results, 2)):
        raise Refused("the same results are there twice")
    kernels, runtimes = ({getattr(each, name) for each in machines} for name in ("kernel", "runtime"))
    newest = max(machines, key=lambda machine: machine.date)
    return replace(newest, kernel=", ".join(sorted(kernels)), runtime=", ".join(sorted(runtimes))), results


def lines(result: Result) -> list[str]:
    wrongs = result.verdict.wrongs()
    found = [
        f"seed {result.plan.seed}: {sum(result.exits.values())} exits of {result.lives} lives in {result.seconds} s"
        + (", interrupted" if result.interrupted else ""),
        "   " + ", ".join(f"{name} {len(each)}" for name, each in wrongs.items()),
        f"   exits: {_counted(result.exits)}; {result.task_exits} events of containerd's",
        f"   killed: {_counted(result.deaths)}; misfortunes: {_counted(result.misfortunes)}",
    ]
    for name, each in wrongs.items():
        found += [f"   {name}: {sentence}" for sentence in each[:SHOWN]]
        found += [f"   {name}: {len(each) - SHOWN} more"] if len(each) > SHOWN else []
    return found + [f"   ended by itself: {sentence}" for sentence in result.fallen[:SHOWN]]


INTRODUCTION = """# Exits under attack

`make attack` lets many containers, execs, pods, terminals and containerd's tasks live at once while exitd, its
keeper, shims, relays, containerd and runtime commands are killed and stopped at random moments, forks fail, each of
them runs out of descriptors, flushes are slow, and the state or the root directory is full. Each program notes its
code just before it ends with it; a judge (`tests/attack/judge.py`) compares these notes with the ledger, the events,
the answers to waiting clients, and the ends that containerd publishes. An end may be unknown only where all who could
have seen it were killed.
"""
HEAD_OF_SEEDS = ("Seed", "runtime", "containerd", "at once", "exits", "lives", "misfortunes", "kills", "seconds")
SEEDS = """Attacks may have run beside each other. A seed gives the same plan of lives and misfortunes again (`python -m
tests.attack --seed N --exits N --crowd N`, with so many lives at once). The moments are the machine's own.
"""
HELD = """## What had broken, and what holds it

Each row broke under an attack, or in the hands of strangers, before it was mended.
"""


def page(machine: Machine, results: Sequence[Result], findings: Mapping[str, Mapping[str, Any]]) -> str:
    """docs/reliability.md, of real runs only. Raises Refused, as `merged` does."""
    machine, results = merged([(machine, results)])
    exits, killed, met = (_sum(each) for each in _columns(results))
    wrongs = _sum([{name: len(each) for name, each in result.verdict.wrongs().items()} for result in results])
    published = sum(each.task_exits for each in results)
    lived, seconds = sum(each.lives for each in results), sum(each.seconds for each in results)
    by_seed = [
        (
            *(each.plan.seed, each.plan.runtime, each.containerd or "-", each.plan.crowd, sum(each.exits.values())),
            *(each.lives, sum(each.misfortunes.values()), sum(each.deaths.values()), each.seconds),
        )
        for each in results
    ]
    parts = [
        INTRODUCTION,
        f"Written by `make attack` on {machine.date}: commit {machine.commit}, Linux {machine.kernel},\n"
        f"{machine.processors} processors, {machine.runtime}.\n",
        f"**{sum(exits.values())} exits** of {lived} lives, under {sum(met.values())} misfortunes and "
        f"{sum(killed.values())} kills, in {seconds / 3600:.1f} hours. containerd published {published} ends of tasks\n"
        "and of their execs.\n",
        _table(("What went wrong", "times"), [(WRONGS[name], wrongs[name]) for name in WRONGS]),
        _table(("Exit, and who saw it", "times"), exits.items()),
        _table(("Killed", "times"), killed.items()),
        _table(("Misfortune", "times"), met.items()),
        _table(HEAD_OF_SEEDS, by_seed),
        SEEDS,
        beside(),
        HELD,
        rows(findings),
    ]
    return "\n".join(parts)


def rows(findings: Mapping[str, Mapping[str, Any]]) -> str:
    """A line for each finding: what broke, and the tests that hold it now, or why none does."""
    found = [(name, says["what"], _held(says)) for name, says in findings.items()]
    return f"{ROWS_BEGIN}\n{_table(('Row', 'what broke', 'held by'), found)}{ROWS_END}"


def beside() -> str:
    """What others say of an end after the same deaths."""
    table = _table(peers.HEAD, [row.cells() for row in peers.ROWS])
    parts = peers.TITLE, peers.introduction(), table, f"{peers.FAIRNESS}{PEERS_END}"
    return f"{PEERS_BEGIN}\n{chr(10).join(parts)}"


def _held(says: Mapping[str, Any]) -> str:
    why = [f"open: {says['open']}"] if "open" in says else []
    return "<br>".join([*(f"`{test}`" for test in says.get("tests", ())), *why])


def rows_anew(text: str, findings: Mapping[str, Mapping[str, Any]]) -> str:
    """The page with today's findings and what is known of others; all else stays. Raises Refused."""
    with_peers = _between(text, PEERS_BEGIN, PEERS_END, beside(), "a section about others")
    return _between(with_peers, ROWS_BEGIN, ROWS_END, rows(findings), "a table of rows")


def _between(text: str, begin: str, end: str, part: str, what: str) -> str:
    """The text with `part` in the place of what is between the marks, with these. Raises Refused."""
    before, is_begun, rest = text.partition(begin)
    _, is_ended, after = rest.partition(end)
    if not is_begun or not is_ended:
        raise Refused(f"the page lacks {what}")
    return before + part + after


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
