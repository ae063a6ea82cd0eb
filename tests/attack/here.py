"""This machine and this tree, as a page about a run names them."""

import datetime
import os
import pathlib
import shutil
import subprocess

from tests.attack.report import Machine

ROOT = pathlib.Path(__file__).resolve().parents[2]


def here(runtime: str = "runc") -> Machine:
    return Machine(
        commit=_said("git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"),
        is_dirty=bool(_said("git", "-C", str(ROOT), "status", "--porcelain")),
        date=datetime.date.today().isoformat(),
        kernel=os.uname().release.partition("-")[0],  # without what its builders have added
        processors=os.cpu_count() or 0,
        runtime=_said(runtime, "--version"),
    )


def _said(*words: str) -> str:
    """The first line; empty where there is no such program."""
    if shutil.which(words[0]) is None:
        return ""
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    return next(iter(done.stdout.splitlines()), "")
