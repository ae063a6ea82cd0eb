"""Where the C programs of this installation are."""

import os
import pathlib
import shutil
import sys

IN_TREE = pathlib.Path(__file__).resolve().parent / "_bin"


def find(name: str, interpreter: str = sys.executable, in_tree: pathlib.Path = IN_TREE) -> pathlib.Path:
    """The absolute path of a C program (`exitd-shim`, `exitd-keeper`, `exitd-launch`, `exitd-pause`, `exitd-journald`,
    `containerd-shim-exitd-v2`).

    Looks beside the interpreter, where an installation puts it (the virtual environment's bin directory), then in the
    source tree's shim/_bin, then on PATH. The interpreter's path is not resolved: in an environment it is a link to a
    Python elsewhere. FileNotFoundError names the next step.
    """
    beside = [pathlib.Path(interpreter).absolute().parent] if interpreter else []
    for directory in (*beside, in_tree):
        if os.access(directory / name, os.X_OK):
            return directory / name
    if on_path := shutil.which(name):
        return pathlib.Path(on_path).absolute()
    raise FileNotFoundError(
        f"{name} is not installed: run `pip install .` in exitd's environment (in a clone: `make venv`)"
    )
