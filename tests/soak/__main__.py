"""`python -m tests.soak --lives N --out FILE.json`: whether exitd grows with the lives of its containers.

Ends with 0 when everything is flat, and 1 when anything grows or shrinks.
"""

import argparse
import json
import os
import pathlib
import sys
from collections.abc import Sequence

from tests.attack.here import here
from tests.attack.report import Machine
from tests.soak import report, stub
from tests.soak.regression import LEAST, Verdict
from tests.soak.run import Plan, Result, Sample, soak

SAMPLES = 60  # unless --every says otherwise
EVERY = 50  # with --hours alone
WARM_UP = 1000  # the daemon's newest events, its pools of threads, caches, the allocator's arenas


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--lives", type=int, default=0, metavar="N", help="end after so many")
    parser.add_argument("--hours", type=float, default=0, metavar="H", help="end after so long")
    parser.add_argument("--every", type=int, default=0, metavar="N", help="lives between two samples")
    parser.add_argument("--warm-up", type=int, default=-1, metavar="N", help="lives before the first sample")
    parser.add_argument(
        "--runtime", default="runc", metavar="NAME", help="the OCI runtime of all lives; stub: one without containers"
    )
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE.json", help="everything, for machines")
    parser.add_argument("--page", type=pathlib.Path, metavar="FILE.md", help="everything, for people")
    parser.add_argument("--judge", type=pathlib.Path, metavar="FILE.json", help="no soak: an earlier one's --out anew")
    asked = parser.parse_args(words)
    if asked.judge:
        return asked
    if asked.lives <= 0 and asked.hours <= 0:
        parser.error("--lives or --hours says when it ends")
    if 0 < asked.lives < 2 * LEAST and asked.hours <= 0:
        parser.error(f"--lives: {2 * LEAST} at least, for {LEAST} samples")
    return asked


def planned(asked: argparse.Namespace) -> Plan:
    warm_up = asked.warm_up if asked.warm_up >= 0 else (min(WARM_UP, asked.lives // 2) if asked.lives else WARM_UP)
    every = asked.every or (max(1, (asked.lives - warm_up) // SAMPLES) if asked.lives else EVERY)
    return Plan(asked.lives, asked.hours, every, warm_up)


def main() -> int:
    asked = arguments()
    machine, result = _judged_anew(asked) if asked.judge else _soaked(asked)
    rows = report.judged(result)
    print(*report.lines(rows), sep="\n")
    if asked.out:
        asked.out.write_text(json.dumps(report.document(machine, result), indent=1) + "\n")
    if asked.page:
        asked.page.write_text(report.page(machine, result))
    return 0 if all(row.verdict is Verdict.FLAT for row in rows) else 1


def _judged_anew(asked: argparse.Namespace) -> tuple[Machine, Result]:
    machine, result = report.loaded(asked.judge.read_text())
    return machine, report.later(result, max(asked.warm_up, result.plan.warm_up))


def _soaked(asked: argparse.Namespace) -> tuple[Machine, Result]:
    if os.geteuid() != 0:
        sys.exit("containers need root: run it as root")
    with stub.runtime(asked.runtime) as runtime:
        machine = here(runtime)  # before files are written into the tree
        return machine, soak(planned(asked), _show, runtime)


def _show(sample: Sample) -> None:
    print(f"{sample.lives} lives in {sample.seconds:.0f} s: daemon {sample.daemon_pss_kb:,.0f} kB", flush=True)


if __name__ == "__main__":
    sys.exit(main())
