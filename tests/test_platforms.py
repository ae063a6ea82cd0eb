"""docs/platforms.md as a value: what is written is read again, and a run's rows take the place of their own kind."""

import ast
import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.vm import collected, image, suite
from tests.vm.platforms import HEAD, Platform, Row, page, read, with_run

MEMORY = Row("`check_memory.py`", 18, (), 0, 12.5, "abcd1234")
FAILED = Row("system tests, exec: systemd, crun", 15, ("test_a[x-1]", "test_b"), 2, 3.0, "abcd1234+")


def test_what_is_written_is_read_again() -> None:
    platforms = {"trixie": Platform("Linux 6.12, systemd 257", {row.what: row for row in (MEMORY, FAILED)})}
    assert read(page(platforms)) == platforms
    assert "| 2: test_a[x-1], test_b |" in page(platforms)


def test_a_run_replaces_its_own_rows_and_no_other_ones() -> None:
    first = with_run("", "trixie", "Linux 6.12", [MEMORY, FAILED])
    assert first.startswith(HEAD)
    second = with_run(first, "bookworm", "Linux 6.1", [MEMORY])
    better = Row(FAILED.what, 17, (), 2, 2.0, "ef012345")
    third = read(with_run(second, "trixie", "Linux 6.12.1", [better]))
    assert third["bookworm"].rows == {MEMORY.what: MEMORY}
    assert third["trixie"] == Platform("Linux 6.12.1", {MEMORY.what: MEMORY, FAILED.what: better})


def test_rows_of_what_no_run_asks_any_more_are_gone_and_a_page_without_seeds_is_read() -> None:
    file = suite.chosen(1, 1)[0]
    rows = [Row(f"system tests, `{name}`", 1, (), 0, 1.0, "abcd1234", "7") for name in (file, "test_of_containerd.py")]
    before = page({"trixie": Platform("Linux", {row.what: row for row in (*rows, MEMORY)})})
    old = "\n".join(
        line.removesuffix(" | - |") + " |" if line.endswith(" | - |") else line for line in before.splitlines()
    )
    found = read(with_run(old, "bookworm", "Linux 6.1", [], collected.is_asked))
    assert found["trixie"].rows == {row.what: row for row in (rows[0], MEMORY)}
    assert not collected.is_asked("`check_cuts.py`") and collected.is_asked("`check_cuts.py`, cuts")


def imports(path: pathlib.Path) -> set[str]:
    """The modules that a file names, with what it takes of them."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_no_file_is_chosen_that_needs_what_the_machine_has_not() -> None:
    """containerd, its shim, and programs that Debian has in other packages."""
    absent = ("tests.system.containerd", "tests.system.foreign_shims")
    for name in suite.fitting():
        path = suite.SYSTEM / name
        assert not [each for each in imports(path) if each.startswith(absent)], name
        assert not re.search(r'"(skopeo|umoci|java|zsh|fish)"', path.read_text()), name
    for files, which in suite.GROUPS.values():
        texts = [(suite.SYSTEM / file).read_text() for file in files]
        assert not any('"io.containerd.runc' in text for text in texts) or which.endswith(" and not containerd")


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_a_seed_gives_each_group_both_drivers_and_both_runtimes_and_the_next_one_the_other_pairs(seed: int) -> None:
    ran = [{(d, *pair) for d in suite.DRIVERS for pair in suite.pairs(d, each, False)} for each in (seed, seed + 1)]
    everything = {(d, *pair) for d in suite.DRIVERS for pair in suite.pairs(d, seed, True)}
    assert ran[0] | ran[1] == everything and not ran[0] & ran[1]
    for group in suite.GROUPS:
        drivers, runtimes, _ = zip(*(each for each in ran[0] if each[2] == group), strict=True)
        assert (set(drivers), set(runtimes)) == (set(suite.DRIVERS), set(suite.RUNTIMES))
    assert len(everything) == 2 * len(suite.RUNTIMES) * len(suite.GROUPS) + len(suite.RUNTIMES) * len(suite.BY_HAND)


def test_a_page_of_somebody_elses_has_no_platforms() -> None:
    assert read("# Something\n\n| a | b |\n") == {}
    assert read("## trixie\n\n| a | x |\n") == {"trixie": Platform("| a | x |")}


def test_a_run_is_of_its_commit_whatever_pages_it_writes_and_of_no_commit_with_anything_else_changed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image, "TREE", tmp_path)
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@localhost")
    for words in (("init", "--quiet"), ("commit", "--quiet", "--allow-empty", "--message", "one")):
        subprocess.run([*git, *words], check=True, timeout=collected.LIMIT_SECONDS)
    commit = collected.commit_of_tree()
    (tmp_path / "docs").mkdir()
    for name in ("docs/platforms.md", "docs/play-beside-podman.md"):
        (tmp_path / name).write_text("written by a run\n")
    assert (collected.commit_of_tree(), len(commit)) == (commit, 8)
    (tmp_path / "docs/vm.md").write_text("written by hand\n")
    assert collected.commit_of_tree() == f"{commit}+"


HOOKS = """
import pytest
from tests.vm.conftest import COLLECTED, pytest_collection_modifyitems, pytest_configure, pytest_runtest_makereport

@pytest.fixture
def machine_with_tests():
    COLLECTED.facts = "Linux 6.12"

@pytest.fixture
def machine():
    return None
"""
HERE = """
import pytest

@pytest.mark.parametrize("number", range(4))
def check_here(machine, record_property, number):
    assert number != 2
"""
THERE = """
import os, pytest

@pytest.mark.parametrize("number", range(3))
def check_there(machine_with_tests, record_property, number):
    record_property("what", "there")
    record_property("passed", 10 * int(os.environ.setdefault("FIRST", str(number)) == "0"))
"""


@pytest.mark.timeout(300)
def test_two_machines_at_once_write_one_page(tmp_path: pathlib.Path) -> None:
    """All checks of a file are in one process, with one machine."""
    for name, text in (("conftest.py", HOOKS), ("check_a.py", THERE), ("check_b.py", HERE)):
        (tmp_path / name).write_text(text)
    at_once = ["--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    words = ("-m", "tests.vm", "-p", "no:cacheprovider", *at_once, f"{tmp_path}")
    environment = os.environ | {"EXITD_VM_PAGE": f"{tmp_path}/page.md", "EXITD_VM_SUITE": "trixie"}
    done = subprocess.run(
        [sys.executable, *words, "--rootdir", f"{tmp_path}"],
        cwd=image.TREE,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 1, (done.stdout, done.stderr)
    trixie = read((tmp_path / "page.md").read_text())["trixie"]
    assert trixie.facts == "Linux 6.12"
    found = {row.what: (row.passed, row.failed) for row in trixie.rows.values()}
    assert found == {"`check_b.py`": (3, ("check_here[2]",)), "there": (30, ())}
