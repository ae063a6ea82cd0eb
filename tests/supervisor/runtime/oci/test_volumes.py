"""Volumes on the disk."""

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.engine.volumefill import VolumeFill
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
    assert found.made_ns == os.stat(tmp_path / "v/data/made").st_mtime_ns and not found.anonymous
    os.unlink(tmp_path / "v/data/made")  # as an earlier exitd made it
    assert volumes.listing(root)[0].made_ns == os.stat(tmp_path / "v/data").st_mtime_ns
    volumes.make(root, "mine", anonymous=True)
    assert volumes.listing(root)[1].anonymous


def test_what_is_no_directory_is_no_volume_and_hides_none(tmp_path: Path) -> None:
    volumes.make(str(tmp_path), "data")
    (tmp_path / "v/note").write_text("left here")
    (tmp_path / "v/link").symlink_to("data")
    (tmp_path / "v/.gone-note").touch()
    assert [each.name for each in volumes.listing(str(tmp_path))] == ["data"]
    assert volumes.hidden(str(tmp_path)) == []


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


@pytest.fixture
def image(tmp_path: Path) -> Path:
    image = tmp_path / "image"
    (image / "srv/deep").mkdir(parents=True)
    (image / "srv/deep/file").write_text("of the image")
    os.setxattr(image / "srv/deep/file", "user.a", b"1")
    (image / "srv").chmod(0o1777)
    os.chown(image / "srv/deep/file", 12, 34)
    (image / "link").symlink_to("/../../srv")
    (image / "file").touch()
    return image


@pytest.fixture
def fill() -> Iterator[VolumeFill]:
    made = VolumeFill()
    yield made
    made.close()


def never(source_fd: int, into_fd: int) -> None:
    raise AssertionError("it is not new")


@pytest.mark.parametrize("place", ["/srv", "/link"])
def test_a_new_one_gets_what_it_hides_once(tmp_path: Path, image: Path, fill: VolumeFill, place: str) -> None:
    root = str(tmp_path)
    volumes.make(root, "data")
    volumes.use_first(root, "data", str(image), place, fill)
    made = tmp_path / "v/data/data/deep/file"
    assert (made.read_text(), made.stat().st_uid, made.stat().st_gid) == ("of the image", 12, 34)
    assert os.getxattr(made, "user.a") == b"1" and modes(tmp_path)[-1] == "1777"
    made.unlink()
    volumes.use_first(root, "data", str(image), place, never)
    assert not made.exists() and sorted(os.listdir(tmp_path / "v/data")) == ["data", "lock", "made"]


@pytest.mark.parametrize("place", ["/none", "/file"])
def test_one_that_hides_no_directory_stays_roots(tmp_path: Path, image: Path, place: str) -> None:
    volumes.make(str(tmp_path), "data")
    volumes.use_first(str(tmp_path), "data", str(image), place, never)
    assert modes(tmp_path)[-1] == "755" and os.listdir(tmp_path / "v/data/data") == []


def test_one_that_was_filled_by_hand_gets_nothing(tmp_path: Path, image: Path) -> None:
    volumes.make(str(tmp_path), "data")
    (tmp_path / "v/data/data/mine").touch()
    for _ in range(2):
        volumes.use_first(str(tmp_path), "data", str(image), "/srv", never)
        (tmp_path / "v/data/data/mine").unlink(missing_ok=True)


def test_one_of_an_earlier_exitd_gets_owner_and_mode_alone(tmp_path: Path, image: Path) -> None:
    (tmp_path / "v/data/data").mkdir(parents=True)
    (tmp_path / "v/data/data").chmod(0o755)
    volumes.use_first(str(tmp_path), "data", str(image), "/srv", never)
    assert modes(tmp_path)[-1] == "1777" and os.listdir(tmp_path / "v/data/data") == []


FIRST, SECOND, PLAIN = 1 << 20, 2 << 20, -1


@pytest.mark.parametrize("other", [SECOND, PLAIN])
def test_one_that_a_container_with_users_of_its_own_has_is_not_taken_from_it(
    tmp_path: Path, image: Path, other: int
) -> None:
    root, made = str(tmp_path), tmp_path / "v/data/data"
    volumes.make(root, "data")
    volumes.use_first(root, "data", "", "/srv", None, FIRST)
    for _ in range(2):
        volumes.use_first(root, "data", str(image), "/srv", never, other)
        assert (made.stat().st_uid, made.stat().st_gid) == (FIRST, FIRST)


@pytest.mark.parametrize("owner", [FIRST, PLAIN])
def test_one_that_brought_nothing_is_filled_by_the_next_with_the_same_users(
    tmp_path: Path, image: Path, fill: VolumeFill, owner: int
) -> None:
    root = str(tmp_path)
    os.chown(image / "srv", max(owner, 0) + 1000, -1)
    volumes.make(root, "data")
    volumes.use_first(root, "data", str(image), "/srv", None, owner)
    volumes.use_first(root, "data", str(image), "/srv", fill, owner)
    assert (tmp_path / "v/data/data/deep/file").exists()


class Cut(Exception):
    pass


def test_one_that_was_cut_off_is_filled_anew_and_nothing_of_a_container_is_lost(
    tmp_path: Path, image: Path, fill: VolumeFill
) -> None:
    root = str(tmp_path)

    def half(source_fd: int, into_fd: int) -> None:
        os.close(os.open("half", os.O_WRONLY | os.O_CREAT, dir_fd=into_fd))
        raise Cut

    volumes.make(root, "data")
    with pytest.raises(Cut):
        volumes.use_first(root, "data", str(image), "/srv", half)
    shutil.rmtree(tmp_path / "v/data/data")  # and once more, in the middle of the second attempt
    volumes.make(root, "data")
    volumes.use_first(root, "data", str(image), "/srv", fill)
    assert os.listdir(tmp_path / "v/data/data") == ["deep"]
    volumes.use_first(root, "data", str(image), "/srv", never)


def test_a_container_that_brings_nothing_leaves_a_new_one_waiting_and_sees_no_half(
    tmp_path: Path, image: Path, fill: VolumeFill
) -> None:
    root = str(tmp_path)
    volumes.make(root, "data")
    volumes.use_first(root, "data", str(image), "/srv", None)
    assert modes(tmp_path)[-1] == "1777" and os.listdir(tmp_path / "v/data/data") == []
    os.rename(tmp_path / "v/data/new", tmp_path / "v/data/filling")
    (tmp_path / "v/data/data/half").touch()
    volumes.use_first(root, "data", "", "/srv", None)
    assert os.listdir(tmp_path / "v/data/data") == []
    volumes.use_first(root, "data", str(image), "/srv", fill)
    assert os.listdir(tmp_path / "v/data/data") == ["deep"]


def test_two_first_containers_fill_it_once(tmp_path: Path, image: Path, fill: VolumeFill) -> None:
    root, count = str(tmp_path), []

    def counted(source_fd: int, into_fd: int) -> None:
        count.append(1)
        fill(source_fd, into_fd)

    def use() -> None:
        volumes.make(root, "data")
        volumes.use_first(root, "data", str(image), "/srv", counted)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert count == [1]


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
