"""What a tree takes of the disk, held against du(1)."""

import pathlib
import subprocess

import pytest

from supervisor.system import diskuse
from supervisor.system.diskuse import LookBudget, Usage, budget
from tests.supervisor.descriptors import held_now, opened_since


def du(path: pathlib.Path) -> int:
    words = ["du", "-s", "-x", "--block-size=1", str(path)]
    return int(subprocess.run(words, capture_output=True, check=True).stdout.split()[0])


def fill(top: pathlib.Path) -> None:
    for place in (top, top / "a", top / "a" / "b"):
        place.mkdir(exist_ok=True)
        (place / "file").write_bytes(bytes(100_000))
    (top / "again").hardlink_to(top / "file")
    (top / "a" / "link").symlink_to("/usr")
    with (top / "sparse").open("wb") as file:
        file.truncate(1 << 30)


def test_it_is_what_du_counts(tmp_path: pathlib.Path) -> None:
    fill(tmp_path)
    assert diskuse.of_tree(str(tmp_path), budget()) == Usage(du(tmp_path))


def test_what_is_not_there_takes_nothing(tmp_path: pathlib.Path) -> None:
    assert diskuse.of_tree(str(tmp_path / "none"), budget()) == Usage()
    (tmp_path / "file").write_bytes(bytes(4096))
    assert diskuse.of_files([str(tmp_path / "none"), str(tmp_path / "file")]) == Usage(du(tmp_path / "file"))


def test_a_link_in_the_place_of_the_top_is_not_followed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "link").symlink_to("/usr")
    assert diskuse.of_tree(str(tmp_path / "link"), budget()) == Usage(complete=False)


@pytest.mark.parametrize("left", [LookBudget(2, 1e18), LookBudget(2 * diskuse.TURN_ENTRIES, 5.0, lambda: 5.0)])
def test_with_too_many_entries_or_too_late_it_says_so(tmp_path: pathlib.Path, left: LookBudget) -> None:
    for number in range(diskuse.TURN_ENTRIES + 10):
        (tmp_path / str(number)).touch()
    assert not diskuse.of_tree(str(tmp_path), left).complete


def test_what_is_too_deep_is_not_counted_and_leaves_no_descriptor_open(tmp_path: pathlib.Path) -> None:
    path = tmp_path
    for _ in range(diskuse.MOST_DEPTH + 5):
        path = path / "d"
        path.mkdir()
    before = held_now()
    found = diskuse.of_tree(str(tmp_path), budget())
    assert not found.complete and 0 < found.size_bytes < du(tmp_path)
    assert not opened_since(before)
