"""What a run of the machine's checks has found: a row for each file of checks, and for each group of system tests."""

import os
import pathlib
import re
import subprocess
from dataclasses import dataclass, field

import pytest

from tests.vm import image, platforms, suite

PAGE = "EXITD_VM_PAGE"  # the file that the run writes; none without it
WHAT, PASSED, FAILED, LEFT = "what", "passed", "failed", "left"  # properties that a check may record
SEED = "seed"  # likewise, of what was chosen
FACTS = "facts"  # with each report: what machine it was
CHOSEN = re.compile(r"system tests, `(.*)`")  # a file that a seed has chosen
COUNTED = ("`check_cuts.py`", "`check_attack.py`")  # whose rows say how many, and of what
LIMIT_SECONDS = 60.0


@dataclass
class Count:
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    left: int = 0
    seconds: float = 0.0
    seed: str = platforms.NO_SEED


def is_asked(what: str) -> bool:
    """Whether there may be such a row still."""
    chosen = CHOSEN.fullmatch(what)
    return what not in COUNTED and (chosen is None or chosen[1] in suite.fitting())


class Collected:
    """A plugin of pytest. `facts` are the machine's, in a line; empty until one has been booted."""

    def __init__(self) -> None:
        self.facts = ""
        self._counts: dict[str, Count] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        recorded = dict(report.user_properties)
        self.facts = str(recorded.get(FACTS) or self.facts)
        file = pathlib.PurePath(report.nodeid.partition("::")[0]).name
        count = self._counts.setdefault(str(recorded.get(WHAT) or f"`{file}`"), Count())
        count.seconds += report.duration
        count.seed = str(recorded.get(SEED, count.seed))
        if report.when == "call" and WHAT in recorded:
            count.passed += int(str(recorded.get(PASSED, 0)))
            count.left += int(str(recorded.get(LEFT, 0)))
            count.failed += filter(None, str(recorded.get(FAILED, "")).split())
        elif report.when == "call" or report.failed:
            count.passed += report.passed
            count.left += report.skipped
            count.failed += [report.nodeid.partition("::")[2]] if report.failed else []

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Its own process writes, and none of pytest-xdist's, which have a part of the checks each."""
        target = os.environ.get(PAGE)
        if target and self.facts and not hasattr(session.config, "workeroutput"):
            path, commit = pathlib.Path(target), commit_of_tree()
            rows = [
                platforms.Row(what, one.passed, tuple(one.failed), one.left, one.seconds / 60, commit, one.seed)
                for what, one in self._counts.items()
                if one.passed or one.failed or one.left
            ]
            before = path.read_text() if path.exists() else ""
            path.write_text(platforms.with_run(before, image.SUITE, self.facts, rows, is_asked))


def commit_of_tree() -> str:
    """With a + where something differs from it that no run writes."""
    changed = _git("status", "--porcelain", "--", ".", *(f":!{page}" for page in image.WRITTEN))
    return _git("rev-parse", "--short=8", "HEAD") + ("+" if changed else "")


def _git(*words: str) -> str:
    command = ("git", "-C", str(image.TREE), *words)
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_SECONDS).stdout.strip()
