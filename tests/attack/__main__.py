"""`python -m tests.attack --seed N --exits N`: many lives under misfortunes, and what was reported wrongly.

`--merge A.json B.json --page FILE.md` writes one page of several runs, `--rows --page FILE.md` only its findings and
what is known of others.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import sys
import tomllib
from collections.abc import Sequence
from types import FrameType

from tests.attack import lives, misfortunes, report, smallpids
from tests.attack.here import ROOT, here
from tests.attack.report import Machine
from tests.attack.run import Plan, Result, attack


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--seed", type=int, nargs="+", default=[1], metavar="N", help="one attack for each")
    parser.add_argument("--exits", type=int, default=1000, metavar="N", help="planned for each attack")
    kinds = (*lives.KINDS, lives.TASK)
    there = kinds if shutil.which("containerd") else lives.KINDS
    parser.add_argument("--lives", nargs="+", choices=kinds, default=there, metavar="KIND")
    parser.add_argument(
        "--misfortunes", nargs="*", choices=misfortunes.KINDS, default=misfortunes.KINDS, metavar="KIND"
    )
    parser.add_argument("--crowd", type=int, default=12, metavar="N", help="lives at once")
    parser.add_argument("--at-once", type=int, default=3, metavar="N", help="victims of one misfortune, at most")
    parser.add_argument("--hits", type=float, default=0.5, metavar="X", help="misfortunes for each exit, at most")
    parser.add_argument("--small-pids", type=int, default=0, metavar="N", help="the highest pid; 500: they come again")
    parser.add_argument("--runtime", choices=("runc", "crun"), default="runc", help="of exitd's own containers")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--plan", action="store_true", help="print the plan and end")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE.json", help="everything, for machines")
    parser.add_argument("--page", type=pathlib.Path, metavar="FILE.md", help="everything, for people")
    parser.add_argument(
        "--merge", type=pathlib.Path, nargs="+", metavar="FILE.json", help="no attack: results of others"
    )
    parser.add_argument("--rows", action="store_true", help="no attack: the findings and others in --page anew")
    parser.add_argument(
        "--log", type=pathlib.Path, metavar="FILE", help="exitd's log of the last attack; FILE.containerd: containerd's"
    )
    asked = parser.parse_args(words)
    if (asked.rows or asked.merge) and not asked.page:
        parser.error("--rows and --merge need --page FILE.md")
    return asked


def main() -> int:
    asked = arguments()
    try:
        if asked.rows:
            asked.page.write_text(report.rows_anew(asked.page.read_text(), _findings()))
        elif asked.merge:
            _write(asked, *report.merged([report.loaded(path.read_text()) for path in asked.merge]))
        elif asked.small_pids and not asked.inside:
            return _elsewhere(asked.small_pids)
        else:
            return _attack(asked)
    except report.Refused as error:
        sys.exit(f"refused: {error}")
    return 0


def _attack(asked: argparse.Namespace) -> int:
    kinds = tuple(asked.lives), tuple(asked.misfortunes)
    others = asked.crowd, asked.at_once, asked.hits, asked.small_pids, asked.runtime
    plans = [Plan(seed, asked.exits, *kinds, *others) for seed in asked.seed]
    if asked.plan:
        for plan in plans:
            _show(plan)
        return 0
    if os.geteuid() != 0:
        sys.exit("containers need root: run it as root")
    machine, results = here(asked.runtime), list[Result]()
    if asked.page and machine.is_dirty:  # hours before the page would be
        raise report.Refused("the page is about one commit: commit your changes first")
    signal.signal(signal.SIGTERM, _interrupt)
    for plan in plans:
        print(f"seed {plan.seed}: {plan.exits} exits; {' '.join(plan.lives)}; {' '.join(plan.misfortunes)}", flush=True)
        results.append(attack(plan, asked.log))
        print("\n".join(report.lines(results[-1])), flush=True)
        if results[-1].interrupted:
            break
    good = all(result.verdict.good and not result.interrupted for result in results)
    _write(asked, machine, results)
    return 0 if good else 1


def _elsewhere(most: int) -> int:
    if not smallpids.works(os.uname().release):
        sys.exit("--small-pids needs Linux 6.14: an older one has one limit for the whole machine")
    signal.signal(signal.SIGTERM, _interrupt)
    return smallpids.run(most, [*sys.argv[1:], "--inside"])


def _write(asked: argparse.Namespace, machine: Machine, results: Sequence[Result]) -> None:
    """Raises report.Refused for a page that would not be true; the results for machines are written before."""
    if asked.out:
        asked.out.write_text(json.dumps(report.document(machine, results), indent=1) + "\n")
    if asked.page:
        asked.page.write_text(report.page(machine, results, _findings()))


def _findings() -> dict[str, dict[str, object]]:
    return tomllib.loads((ROOT / "tests" / "findings.toml").read_text())


def _show(plan: Plan) -> None:
    """As many misfortunes as lives: how many there will be depends on how long the lives take."""
    every, tasks = list(lives.planned(plan.seed, plan.exits, plan.lives)), lives.TASK in plan.lives
    trouble = misfortunes.planned(plan.seed, plan.misfortunes, plan.at_once, tasks=tasks)
    for life in every:
        print(life)
    for _, misfortune in zip(every, trouble, strict=False):
        print(misfortune)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
