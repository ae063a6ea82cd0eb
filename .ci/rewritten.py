"""Compiles the test files as pytest does, with their assertions rewritten, and keeps them where pytest looks for them.

Each process of a run reads all tests. Where Python may not write byte code, each would rewrite all of them anew, for
nine seconds of a processor; what is kept is read all the same. What is up to date is left alone.
"""

import os
import pathlib
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from _pytest.assertion import rewrite

TESTS = pathlib.Path(__file__).resolve().parent.parent / "tests"
NAMES = ("test_*.py", "conftest.py")  # what pytest rewrites by itself


class Loud:
    """pytest goes on without what it cannot write, and says so here."""

    def trace(self, words: str) -> None:
        print(f"rewritten: {words}", file=sys.stderr)


def kept(file: pathlib.Path) -> pathlib.Path:
    return rewrite.get_cache_dir(file) / (file.name[:-3] + rewrite.PYC_TAIL)


def rewritten(file: pathlib.Path) -> bool:
    """Whether it had to be done. A file that is no Python is left to the tests' own run, which says what is wrong."""
    if rewrite._read_pyc(file, kept(file)) is not None:
        return False
    state: Any = Loud()
    config: Any = None  # what pytest makes of an assertion depends on no option of ours
    try:
        key, code = rewrite._rewrite_test(file, config)
    except SyntaxError:
        return False
    kept(file).parent.mkdir(exist_ok=True)
    return rewrite._write_pyc(state, code, key, kept(file))


def main() -> int:
    files = sorted(file for name in NAMES for file in TESTS.rglob(name))
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        done = sum(processes.map(rewritten, files, chunksize=8))
    print(f"rewritten: {done} of {len(files)} test files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
