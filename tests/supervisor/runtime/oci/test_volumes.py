"""Named volumes on the disk."""

import os
from pathlib import Path

import pytest

from supervisor.runtime.oci import volumes


def modes(path: Path) -> list[str]:
    return [f"{os.stat(each).st_mode & 0o7777:o}" for each in (path / "v", path / "v/data", path / "v/data/data")]


def test_a_volume_is_made_once_and_is_nobody_elses(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert volumes.listing(root) == ()
    for _ in range(2):
        volumes.make(root, "data")
    assert modes(tmp_path) == ["700", "700", "755"]
    (found,) = volumes.listing(root)
    assert (found.name, found.path) == ("data", f"{root}/v/data/data")
    assert found.made_ns == os.stat(tmp_path / "v/data").st_mtime_ns


def test_one_whose_making_was_cut_off_is_completed(tmp_path: Path) -> None:
    (tmp_path / "v/data").mkdir(parents=True)
    volumes.make(str(tmp_path), "data")
    assert volumes.is_unused(str(tmp_path), "data")


def test_one_that_holds_something_or_has_been_changed_is_used(tmp_path: Path) -> None:
    for name in ("full", "owned"):
        volumes.make(str(tmp_path), name)
    (tmp_path / "v/full/data/file").touch()
    (tmp_path / "v/owned/data").chmod(0o700)
    assert not any(volumes.is_unused(str(tmp_path), name) for name in ("full", "owned"))


@pytest.mark.parametrize(("place", "mode"), [("/srv", "1777"), ("/link", "1777"), ("/none", "755"), ("/file", "755")])
def test_a_new_one_has_the_mode_of_the_directory_that_it_hides(tmp_path: Path, place: str, mode: str) -> None:
    image = tmp_path / "image"
    (image / "srv").mkdir(parents=True)
    (image / "srv").chmod(0o1777)
    (image / "link").symlink_to("/../../srv")
    (image / "file").touch()
    volumes.make(str(tmp_path), "data")
    volumes.adopt(str(tmp_path), "data", str(image), place)
    assert modes(tmp_path)[-1] == mode


def test_what_was_taken_away_is_deleted_and_a_start_completes_it(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert volumes.take_away(root, "data") == ""
    volumes.make(root, "data")
    gone = volumes.take_away(root, "data")
    assert volumes.listing(root) == ()
    volumes.delete(gone)
    volumes.make(root, "data")
    (outside := tmp_path / "outside").mkdir()
    (Path(volumes.path_of(root, "data")) / "link").symlink_to(outside)
    (outside / "kept").touch()
    volumes.take_away(root, "data")  # and killed
    (left,) = volumes.hidden(root)
    volumes.delete(left)
    assert os.listdir(tmp_path / "v") == volumes.hidden(root) == []
    assert (outside / "kept").exists()
