"""A fake shim as a program in a directory of PATH: io.containerd.fake.v2."""

import os
import pathlib
import sys
import sysconfig
from dataclasses import dataclass, replace

from tests.fakeshim import modes
from tests.fakeshim.modes import Modes

RUNTIME = "io.containerd.fake.v2"
NAME = "containerd-shim-fake-v2"
ROOT = pathlib.Path(__file__).parents[2]
# What it answers to -v costs no Python.
SHELL = """#!/bin/sh
[ "$1" = -v ] && {{ . "$0.version"; exit; }}
exec {python} -S "$0.py" "$@"
"""
PROGRAM = """import sys
sys.path[:0] = {paths}
from tests.fakeshim.program import main
main()
"""


@dataclass(frozen=True)
class FakeShim:
    """`does` says in what it is odd from now on; all else is as it should be."""

    directory: pathlib.Path

    @property
    def program(self) -> str:
        return str(self.directory / NAME)

    def does(self, **odd: object) -> "FakeShim":
        good = Modes(sockets=str(self.directory))
        modes.write(self.program, replace(good, **odd))  # type: ignore[arg-type]
        return self


def make(directory: pathlib.Path, name: str = NAME) -> FakeShim:
    """In a directory with a short path: its sockets are there too."""
    path = directory / name
    paths = [str(ROOT), sysconfig.get_path("platlib")]
    pathlib.Path(f"{path}.py").write_text(PROGRAM.format(paths=paths))
    path.write_text(SHELL.format(python=sys.executable))
    os.chmod(path, 0o755)
    return FakeShim(directory).does()
