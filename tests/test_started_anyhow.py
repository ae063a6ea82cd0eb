"""The suite is the same however it is started: under nohup, in a script's background, without byte code of its own."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests import conftest

ROOT = pathlib.Path(__file__).resolve().parents[1]
HEEDED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
INNER = """
import subprocess, sys


def test_signals_are_heeded_here_and_by_whom_this_starts():
    look = "import signal; print([n for n in {numbers} if signal.getsignal(n) == signal.SIG_IGN])"
    found = subprocess.run([sys.executable, "-c", look], stdout=subprocess.PIPE, text=True).stdout
    assert found == "[]\\n"
"""


def test_what_the_starter_ignores_is_heeded_in_the_tests(tmp_path: pathlib.Path) -> None:
    """Under nohup SIGHUP is ignored, in the background of a script SIGINT and SIGQUIT; children would inherit that."""
    numbers = [int(number) for number in HEEDED]
    (tests := tmp_path / "tests").mkdir()
    (tests / "test_inner.py").write_text(INNER.format(numbers=numbers))
    (tests / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    words = ("sh", "-c", f"trap '' {' '.join(map(str, numbers))}; exec \"$@\"", "sh")
    pytest_words = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tests, tests)
    ran = subprocess.run([*words, *pytest_words], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0 and "1 passed" in ran.stdout, ran.stdout


def test_the_files_that_are_begun_first_are_there_and_named_once() -> None:
    assert len(set(conftest.LONG)) == len(conftest.LONG)
    assert [name for name in conftest.LONG if not (conftest.SYSTEM_TESTS / name).is_file()] == []


def dry(target: str) -> str:
    """What make would do for it."""
    words = ("make", "--no-print-directory", "--dry-run", "--assume-old", "venv", "--assume-old", "deps", target)
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize("target", ["unit", "system", "check", "ci", "bench", "compare", "rig", "attack", "soak"])
def test_byte_code_is_made_before_hundreds_of_pythons_are_started(target: str) -> None:
    lines = [line for line in dry(target).splitlines() if not line.startswith(".ci/deps")]
    made = ("-m compileall ", "'make --no-print-directory bytecode'")  # `ci` has something beside it
    assert any(words in lines[0] for words in made), lines


def test_byte_code_is_made_where_python_may_not_write_it_by_itself(tmp_path: pathlib.Path) -> None:
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    places = ("supervisor", "shim", "protos", "tests", "bench")
    for place in places:
        (tmp_path / place).mkdir()
        (tmp_path / place / "one.py").touch()
    (tmp_path / "tests/test_one.py").touch()
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci/rewritten.py").write_text((ROOT / ".ci/rewritten.py").read_text())
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    words = ("make", "--assume-old", "venv", f"PY={sys.executable}", "bytecode")
    subprocess.run(words, cwd=tmp_path, env=environment, check=True, timeout=60)
    assert {path.parts[-3] for path in tmp_path.glob("*/__pycache__/one.*.pyc")} == set(places)
    assert [path.name for path in tmp_path.glob("tests/__pycache__/test_one.*-pytest-*.pyc")]
