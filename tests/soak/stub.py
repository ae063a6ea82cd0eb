"""Compiles tests/soak/stub.c, an OCI runtime without containers: what is left of a life is exitd's own part."""

import contextlib
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator

NAME = "stub"
SOURCE = pathlib.Path(__file__).with_name("stub.c")
CC = ("cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")


@contextlib.contextmanager
def runtime(name: str) -> Iterator[str]:
    """The OCI runtime of this name; for NAME the path of the one that is compiled here, there for the block."""
    if name != NAME:
        yield name
        return
    with tempfile.TemporaryDirectory(prefix="exitd-soak-") as directory:
        program = f"{directory}/{NAME}"
        subprocess.run([*CC, "-o", program, str(SOURCE)], check=True, timeout=120)
        yield program
