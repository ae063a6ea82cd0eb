"""docs/platforms.md as a value: what is written is read again, and a run's rows take the place of their own kind."""

import pathlib
import subprocess

import pytest

from tests.vm import collected, image
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
