"""`compare`: measures the same pods on every engine of this machine, in turns, and reports the results."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from supervisor.cli import parse
from supervisor.cli.app import OWN_FAILURE, complain
from supervisor.cli.spelling import Spelled
from supervisor.compare import facts, guard
from supervisor.compare.plan import QUICK, Plan
from supervisor.compare.table import table
from supervisor.compare.ways import WAYS

KEYS = tuple(way.key for way in WAYS)
AT_LEAST_ONE = parse.WholeNumber(1, 2**31 - 1)
TABLES_ALONE = "matplotlib is not installed, so there are tables alone; for the page: pip install 'exitd[compare]'"
Written = Callable[[facts.CompareReport], str]


@click.command(cls=Spelled)
@click.option("--pods", type=AT_LEAST_ONE, help=f"Number of pods at a time.  [default: {Plan().pods}]")
@click.option("--containers", type=AT_LEAST_ONE, help=f"Most members of a pod.  [default: {Plan().containers}]")
@click.option(
    "--rounds", type=AT_LEAST_ONE, help=f"Number of rounds; each way has one turn in each.  [default: {Plan().rounds}]"
)
@click.option("--quick", is_flag=True, help="Few samples of everything, in about a minute.")
@click.option("--way", "ways", multiple=True, type=click.Choice(KEYS), help="Measure only this way; may be repeated.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR|FILE.html",
              help="Write the page there; into a directory as report.html, with report.json beside it.")  # fmt: skip
@click.option("--json", "json_", type=click.Path(path_type=Path), metavar="FILE", help="Write all samples there.")
@click.option("--picture", type=click.Path(path_type=Path), metavar="FILE.svg", help="Write the main picture there.")
def compare(
    pods: int | None,
    containers: int | None,
    rounds: int | None,
    quick: bool,
    ways: tuple[str, ...],
    out: Path | None,
    json_: Path | None,
    picture: Path | None,
) -> int:
    """Run the same pods on every way this machine has, and compare what each costs and what it reports (root).

    Everything runs in directories and daemons of its own and is gone afterwards; running engines are left alone.
    Progress goes to stderr, the table to stdout.
    """
    base = QUICK if quick else Plan()
    wanted = replace(
        base,
        pods=pods or base.pods,
        containers=containers or base.containers,
        rounds=rounds or base.rounds,
        ways=ways,
    )
    drawn = drawings()
    if drawn is None:
        complain(TABLES_ALONE)  # now, since measuring takes minutes
    try:
        report, left = guard.measured(wanted)
    except guard.NotMeasured as error:
        complain(str(error))
        return OWN_FAILURE
    for one in left:
        complain(f"was left, and is gone now: {one}")
    write(report, out, json_, picture, drawn)
    print(table(report))
    return 0 if any(not way.why_not for way in report.ways) else OWN_FAILURE


def drawings() -> tuple[Written, Written] | None:
    """Return the functions that draw page and picture; None without matplotlib, which nothing else of exitd needs."""
    try:
        from supervisor.compare.html.page import page, picture
    except ImportError:
        return None
    return page, picture


def write(
    report: facts.CompareReport,
    out: Path | None,
    json_: Path | None,
    picture: Path | None,
    drawn: tuple[Written, Written] | None,
) -> None:
    """Write every result that was asked for, the data first."""
    is_page = out is not None and out.suffix == ".html"
    page_of, picture_of = drawn or (None, None)
    wanted = [
        (json_, facts.encode),
        (out / "report.json" if out is not None and not is_page else None, facts.encode),
        (out / "report.html" if out is not None and not is_page else out, page_of),
        (picture, picture_of),
    ]
    for path, made in wanted:
        if path is not None and made is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made(report))
            print(f"wrote {path}", file=sys.stderr)
