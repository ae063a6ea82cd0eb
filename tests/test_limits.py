"""tests/conftest.py: nothing of a test may hang for ever, not even what comes after its failure."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
LIMIT_SECONDS = 240.0
PLUGIN = "import tests.conftest\ntests.conftest.GRACE_SECONDS = {grace}\nfrom tests.conftest import *\n"
TESTS = """
import ctypes
import time
import pytest

@pytest.fixture
def slow():
    yield
    {teardown}

def test_one(slow):
    {test}

@pytest.mark.timeout(60)
def test_two():
    pass
"""
SLEEPS = "time.sleep(600)"
# A mutex that is locked already, waited for with Python's lock: no signal is heard, no other thread runs.
DEAF = "mutex = ctypes.create_string_buffer(64); [ctypes.PyDLL(None).pthread_mutex_lock(mutex) for _ in (1, 2)]"
# A test that passes has longer than a process may stand still. Of the others the limit is what is waited for.
TEST_SECONDS = {"pass": 5, "assert False": 2, SLEEPS: 2}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("teardown", [SLEEPS, DEAF], ids=["sleeps", "deaf"])
@pytest.mark.parametrize("test", ["pass", "assert False", SLEEPS], ids=["passes", "fails", "hangs"])
def test_a_teardown_that_hangs_ends_by_name(tmp_path: pathlib.Path, test: str, teardown: str) -> None:
    # What is deaf waits for all of its grace, which begins with a test that hangs before the limit of that test.
    grace = 60 if teardown == SLEEPS else 12 if test == SLEEPS else 3
    (tmp_path / "quick.py").write_text(PLUGIN.format(grace=grace))
    (tmp_path / "test_it.py").write_text(TESTS.format(test=test, teardown=teardown))
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "-p", "quick",
         "-p", "no:cacheprovider", "--numprocesses", "1", "--dist", "loadfile", "--timeout", f"{TEST_SECONDS[test]}",
         tmp_path],
        cwd=ROOT, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert f"{1 + (test == 'pass')} passed" in ended.stdout  # the other test is, always
    if teardown == DEAF:
        assert "crashed while running" in ended.stdout and "::test_one" in ended.stdout
        assert "in slow" in ended.stderr
    else:
        assert "ERROR" in ended.stdout and "at teardown of test_one" in ended.stdout
        assert "Timeout" in ended.stdout
