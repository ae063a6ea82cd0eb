"""What a soak showed, as lines for a terminal, as JSON, and as docs/soak.md. Pure."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

from shim.frozen import frozen
from tests.attack.report import Machine
from tests.soak.regression import Line, Verdict, fit
from tests.soak.run import Plan, Result, Sample

PER = 1000  # lives; slopes are shown so


@frozen
class Figure:
    """One column of the samples. `bound`: a growth per life that is not called one."""

    name: str
    label: str
    unit: str
    bound: float


# A leak of a whole descriptor, directory or process in a thousand lives is found. Memory: 100 MB in a million lives.
# Database: two rows for each end (ledger, event), until `retention` deletes as many as come.
FIGURES = (
    Figure("daemon_private_kb", "daemon: memory it has written", "kB", 0.1),
    Figure("daemon_pss_kb", "daemon: memory (PSS)", "kB", 0.1),
    Figure("daemon_fds", "daemon: descriptors", "", 0.001),
    Figure("daemon_threads", "daemon: threads", "", 0.001),
    Figure("keeper_private_kb", "keeper: memory it has written", "kB", 0.1),
    Figure("keeper_pss_kb", "keeper: memory (PSS)", "kB", 0.1),
    Figure("keeper_fds", "keeper: descriptors", "", 0.001),
    Figure("keeper_threads", "keeper: threads", "", 0.001),
    Figure("shims", "shims", "", 0.001),
    Figure("run_directories", "run directories", "", 0.001),
    Figure("bundles", "bundles", "", 0.001),
    Figure("cgroups", "cgroups", "", 0.001),
    Figure("mounts", "mounts", "", 0.001),
    Figure("zombies", "zombies", "", 0.001),
    Figure("database_kb", "database, with its log and the ring", "kB", 5.0),
)


@frozen
class Row:
    """A figure with what is said of it."""

    figure: Figure
    first: float
    last: float
    most: float
    line: Line
    verdict: Verdict


def judged(result: Result) -> list[Row]:
    """Return a row for each figure. Raises TooFew."""
    lives = [float(sample.lives) for sample in result.samples]
    found = []
    for figure in FIGURES:
        values = [float(getattr(sample, figure.name)) for sample in result.samples]
        line = fit(lives, values)
        found.append(Row(figure, values[0], values[-1], max(values), line, line.verdict(figure.bound)))
    return found


def document(machine: Machine, result: Result) -> dict[str, object]:
    rows = [
        {"figure": row.figure.name, **asdict(row.line), "bound": row.figure.bound, "verdict": row.verdict.value}
        for row in judged(result)
    ]
    return {"machine": asdict(machine), "soak": asdict(result), "figures": rows}


def loaded(text: str) -> tuple[Machine, Result]:
    """Return what `document` was written as. Raises ValueError, TypeError or KeyError for anything else."""
    found = json.loads(text)
    asked = found["soak"]
    samples = tuple(Sample(**each) for each in asked["samples"])
    return Machine(**found["machine"]), Result(**{**asked, "plan": Plan(**asked["plan"]), "samples": samples})


def later(result: Result, warm_up: int) -> Result:
    """Return the same soak without the samples of its first lives."""
    kept = tuple(sample for sample in result.samples if sample.lives >= warm_up)
    return replace(result, plan=replace(result.plan, warm_up=warm_up), samples=kept)


def lines(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        yield (
            f"{row.verdict.value:8}{row.figure.label}: {_number(row.first)} to {_number(row.last)} {row.figure.unit};"
            f" {_slope(row.line.slope)} ({_slope(row.line.low)} to {_slope(row.line.high)}) per {PER:,} lives"
        )


INTRODUCTION = """# A soak

`make soak` lets lives of containers go through one exitd, one after another and some at once: they end by themselves
and by SIGKILL, some have execs, some are in a pod. One container lives all the time. When no other does, it looks at
what could grow, and draws a line through what it saw: the slope for each thousand lives, and the interval that has the
true slope with 95 % confidence (ordinary least squares, `tests/soak/regression.py`).
"""
VERDICTS = """*flat*: the interval contains 0, or the slope is below the bound. That says that no growth was seen, and
not that there is none: what this run could have missed is the interval's upper end. The interval takes samples as
independent, which those of memory are not quite, so that it is too narrow there. The database grows by design, two rows
for each end, until `retention` ([configuration.md](configuration.md)) deletes as many as come; that is its bound.

Two things of the daemon are known to grow and then to stop: the newest 4,096 events, some 2.4 MB, which some 700 lives
fill, and SQLite's pages, 0.5 MB for each of two connections, which some 200 lives fill. The first sample should come
after both.

PSS is also changed by other programs of the machine that begin or end and share libraries with it. What a process has
written and shares with no other (Private_Dirty) is not.
"""
BY_HAND = """By hand: `python -m tests.soak --lives N --out FILE.json --page FILE.md`, or `--hours`; `--every` says
after how many lives a sample is taken, `--warm-up` after how many the first; `--runtime stub` has processes
without containers run (`tests/soak/stub.c`, compiled by `cc`), so that what is left of a life is exitd, its keeper and
its shims; `--runtime crun` has crun run them, whose lives take half as long. crun refuses a host with both versions of
cgroups: there, `unshare -m` and `umount /sys/fs/cgroup/unified` before it, whose place then gets a directory for each
life, which is counted.
"""


def page(machine: Machine, result: Result) -> str:
    """docs/soak.md. Raises TooFew."""
    rows = judged(result)
    rate = result.seconds / result.lives
    count, first = len(result.samples), result.samples[0].lives
    size = (
        f"**{result.lives:,} lives** with {result.ends:,} ends in {result.seconds / 60:.1f} minutes, {rate:.2f} s for"
        f" each life; every end was\nreported as it was. {count} samples, one after every {result.plan.every}"
        f" lives, the first after {first}. {_what_that_is(result.lives)}"
    )
    head = ("figure", "first", "last", "most", f"per {PER:,} lives", "95 % interval", "bound", "verdict")
    table = [head, ("---",) * len(head), *map(_cells, rows)]
    dirty = " with changes that were not committed" if machine.is_dirty else ""
    parts = [
        INTRODUCTION,
        f"Measured on {machine.date}: commit {machine.commit}{dirty}, Linux {machine.kernel.partition('-')[0]},"
        f" {machine.processors} processors,\n{machine.runtime}.\n",
        f"{size}\n",
        "".join(f"| {' | '.join(row)} |\n" for row in table),
        VERDICTS,
        BY_HAND,
    ]
    return "\n".join(parts)


SMALL = 10_000


def _what_that_is(lives: int) -> str:
    if lives >= SMALL:
        return ""
    return f"That is a small soak:\na node with a life in each minute has as many in {lives / 60:.0f} hours."


def _cells(row: Row) -> tuple[str, ...]:
    unit = f" {row.figure.unit}" if row.figure.unit else ""
    shown = [f"{_number(value)}{unit}" for value in (row.first, row.last, row.most)]
    slopes = f"{_slope(row.line.slope)}{unit}", f"{_slope(row.line.low)} to {_slope(row.line.high)}"
    return row.figure.label, *shown, *slopes, f"{row.figure.bound * PER:,g}{unit}", row.verdict.value


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _slope(value: float) -> str:
    """For PER lives."""
    return f"{value * PER:,.2f}".replace("-0.00", "0.00")
