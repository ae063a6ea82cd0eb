"""`python -m tests.attack --seed N --exits N`: many lives of containers under misfortunes, and who was told wrongly."""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType

from tests.attack import lives, misfortunes, report
from tests.attack.report import Machine
from tests.attack.run import Plan, attack

ROOT = pathlib.Path(__file__).resolve().parents[2]


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--seed", type=int, nargs="+", default=[1], metavar="N", help="one attack for each")
    parser.add_argument("--exits", type=int, default=1000, metavar="N", help="planned for each attack")
    parser.add_argument("--lives", nargs="+", choices=lives.KINDS, default=lives.KINDS, metavar="KIND")
    parser.add_argument(
        "--misfortunes", nargs="*", choices=misfortunes.KINDS, default=misfortunes.KINDS, metavar="KIND"
    )
    parser.add_argument("--crowd", type=int, default=12, metavar="N", help="lives at once")
    parser.add_argument("--at-once", type=int, default=3, metavar="N", help="victims of one misfortune, at most")
    parser.add_argument("--hits", type=float, default=0.5, metavar="X", help="misfortunes for each exit, at most")
    parser.add_argument("--plan", action="store_true", help="print the plan and end")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE.json", help="everything, for machines")
    parser.add_argument("--page", type=pathlib.Path, metavar="FILE.md", help="everything, for people")
    parser.add_argument("--log", type=pathlib.Path, metavar="FILE", help="exitd's log of the last attack")
    return parser.parse_args(words)


def main() -> int:
    asked = arguments()
    kinds = tuple(asked.lives), tuple(asked.misfortunes)
    plans = [Plan(seed, asked.exits, *kinds, asked.crowd, asked.at_once, asked.hits) for seed in asked.seed]
    if asked.plan:
        for plan in plans:
            _show(plan)
        return 0
    if os.geteuid() != 0:
        sys.exit("containers need root: run it as root")
    signal.signal(signal.SIGTERM, _interrupt)
    results = []
    for plan in plans:
        print(f"seed {plan.seed}: {plan.exits} exits; {' '.join(plan.lives)}; {' '.join(plan.misfortunes)}", flush=True)
        results.append(attack(plan, asked.log))
        print("\n".join(report.lines(results[-1])), flush=True)
        if results[-1].interrupted:
            break
    machine = _machine()
    if asked.out:
        asked.out.write_text(json.dumps(report.document(machine, results), indent=1) + "\n")
    if asked.page and not results[-1].interrupted:
        asked.page.write_text(report.page(machine, results))
    return 0 if all(result.verdict.good and not result.interrupted for result in results) else 1


def _show(plan: Plan) -> None:
    """As many misfortunes as lives: how many there will be depends on how long the lives take."""
    every = list(lives.planned(plan.seed, plan.exits, plan.lives))
    for life in every:
        print(life)
    for _, misfortune in zip(every, misfortunes.planned(plan.seed, plan.misfortunes, plan.at_once), strict=False):
        print(misfortune)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _machine() -> Machine:
    return Machine(
        commit=_said("git", "-C", str(ROOT), "describe", "--always", "--dirty"),
        date=datetime.date.today().isoformat(),
        kernel=os.uname().release,
        processors=os.cpu_count() or 0,
        runtime=_said("runc", "--version"),
    )


def _said(*words: str) -> str:
    """The first line; empty where there is no such program."""
    if shutil.which(words[0]) is None:
        return ""
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    return next(iter(done.stdout.splitlines()), "")


if __name__ == "__main__":
    sys.exit(main())
