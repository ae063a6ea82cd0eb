"""`python -m tests.mutants --seed N --count N`: puts mistakes into the product, one at a time, and names those
that no test notices.

Each is one place of one line, which the seed has chosen (mutation.py): a comparison flipped, a constant changed, `and`
for `or`, a branch negated, a statement dropped, None returned. The tests run in a copy of the tree, the nearest first
(nearest.py), until one fails. A test that fails without the mistake too has noticed nothing: its file is left out.

What survives is a hole in the tests, or a mutant that is equivalent: the program does the same with it. Which of the
two is the reader's to say. The same seed on the same tree replays; `--at PATH:LINE` tries every mutant of one line.
"""

import argparse
import compileall
import os
import pathlib
import py_compile
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.mutants.mutation import Mutant, mutants
from tests.mutants.nearest import Nearest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PRODUCT = ("supervisor", "shim")
NOT_COPIED = (".venv", "build", "dist", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis")
TEST_SECONDS = 60  # for one test: one that hangs has noticed
NO_TESTS = 5  # pytest's exit code


@dataclass(frozen=True, slots=True)
class Verdict:
    """`killer` is the test that failed; empty for a survivor. `ran_out` when not all of its tests were run."""

    mutant: Mutant
    killer: str
    files: int
    seconds: float
    ran_out: bool = False

    def __str__(self) -> str:
        if self.killer:
            return f"killed    {self.mutant}\n          by {self.killer} ({self.seconds:.0f} s)"
        ran = f"{self.files} test files, {self.seconds:.0f} s" + (", and the time was up" if self.ran_out else "")
        return f"SURVIVED  {self.mutant}\n          ({ran})"


@dataclass(frozen=True, slots=True)
class Copy:
    """The tree in a directory of its own, with everything that is built in it."""

    root: pathlib.Path

    @classmethod
    def make(cls, directory: pathlib.Path) -> "Copy":
        root = directory / "tree"
        shutil.copytree(ROOT, root, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
        # By content: a mutant may have its file's size, and be written in the same second.
        by_content = py_compile.PycInvalidationMode.CHECKED_HASH
        for tree in ("supervisor", "shim", "protos", "tests"):
            compileall.compile_dir(root / tree, quiet=2, invalidation_mode=by_content)
        return cls(root)

    def failing(self, tests: Sequence[str], seconds: float) -> str:
        """The first test that fails, empty when none does. Raises subprocess.TimeoutExpired."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.root),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        words = ("-x", "-v", "-rE", "--no-header", "--tb=no", "-p", "no:xdist", "-p", "no:cacheprovider")
        plain = ("-o", "console_output_style=classic")  # no percentage behind a test's outcome
        limit = ("--timeout", str(TEST_SECONDS), "-m", "not slow_build")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words, *plain, *limit, *tests],
            cwd=self.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds,
        )
        if done.returncode in (0, NO_TESTS):
            return ""
        return _failed(done.stdout) or f"pytest itself, which ended with {done.returncode}"

    def verdict(self, mutant: Mutant, tests: Sequence[str], seconds: float) -> Verdict:
        """Runs the tests on the copy with this mistake in it, and takes it back."""
        begin, left = time.monotonic(), list(tests)
        path = self.root / mutant.path
        source = path.read_text()
        broken = mutant.applied(source)

        def verdict(killer: str = "", ran_out: bool = False) -> Verdict:
            return Verdict(mutant, killer, len(left), time.monotonic() - begin, ran_out)

        while left:
            try:
                path.write_text(broken)
                killer = self.failing(left, max(1.0, seconds - (time.monotonic() - begin)))
            except subprocess.TimeoutExpired:
                return verdict(ran_out=True)
            finally:
                path.write_text(source)
            file = killer.partition("::")[0]
            if not killer or file not in left or not self.failing([killer], TEST_SECONDS):
                return verdict(killer)
            print(f"left out: {killer} fails without the mutant too", flush=True)
            left.remove(file)
        return verdict()


def _failed(said: str) -> str:
    """The name of the first test that failed, or of the file that could not be read, from what pytest -v has said. The
    summary names a test in front of its reason, with nothing between the two that could not be in the name as well."""
    for line in said.splitlines():
        for word in (" FAILED", " ERROR"):
            if line.endswith(word):
                return line.removesuffix(word)
    files = (line.split(" ")[1] for line in said.splitlines() if line.startswith("ERROR "))
    return next(files, "")


def places() -> list[Mutant]:
    """Every mutant of the product, in the files' order."""
    found = []
    for path in (path for tree in PRODUCT for path in sorted((ROOT / tree).rglob("*.py"))):
        found += mutants(str(path.relative_to(ROOT)), path.read_text())
    return found


def chosen(everything: Sequence[Mutant], seed: int, count: int) -> list[Mutant]:
    """The same for the same seed and the same tree, and with a larger count the same ones first."""
    order = random.Random(seed)
    taken = list[Mutant]()
    lines = set[tuple[str, int]]()  # one for each line
    while len(taken) < count and len(lines) < len({(mutant.path, mutant.line) for mutant in everything}):
        mutant = order.choice(everything)
        if (mutant.path, mutant.line) not in lines:
            lines.add((mutant.path, mutant.line))
            taken.append(mutant)
    return taken


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), metavar="N", help="which places")
    parser.add_argument("--count", type=int, default=30, metavar="N", help="how many")
    parser.add_argument("--under", default="", metavar="PATH", help="only files whose path begins so")
    parser.add_argument("--at", metavar="PATH:LINE", help="every mutant of one line, in the place of random ones")
    parser.add_argument("--seconds", type=float, default=300, metavar="N", help="for the tests of one mutant")
    parser.add_argument("--system", nargs="+", default=[], metavar="FILE", help="system tests for the survivors (root)")
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    everything = [mutant for mutant in places() if mutant.path.startswith(asked.under)]
    if asked.at:
        batch = [mutant for mutant in everything if f"{mutant.path}:{mutant.line}" == asked.at]
        print(f"{len(batch)} mutants of {asked.at}", flush=True)
    else:
        batch = chosen(everything, asked.seed, asked.count)
        print(f"seed {asked.seed}: {len(batch)} of {len(everything)} mutants", flush=True)
    survivors, near = list[Verdict](), Nearest(ROOT)
    with tempfile.TemporaryDirectory(prefix="exitd-mutants-") as directory:
        copy = Copy.make(pathlib.Path(directory))
        for mutant in batch:
            verdict = copy.verdict(mutant, near.tests(mutant.path), asked.seconds)
            print(verdict, flush=True)
            if not verdict.killer and asked.system:
                verdict = copy.verdict(mutant, asked.system, asked.seconds)
                print(verdict, flush=True)
            if not verdict.killer:
                survivors.append(verdict)
    print(f"{len(batch) - len(survivors)} killed, {len(survivors)} survived")
    for verdict in survivors:
        print(verdict)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
