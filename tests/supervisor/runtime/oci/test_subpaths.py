"""Paths in volumes: what a container may have put there leads nowhere else, and what is missing is made."""

import os
import pathlib
import stat
from collections.abc import Callable, Iterator

import pytest

from supervisor.runtime.oci import subpaths
from tests.supervisor.descriptors import held_now, opened_since


@pytest.fixture
def volume(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("another's")
    made = tmp_path / "volume"
    made.mkdir()
    made.chmod(0o775)
    before = held_now()
    yield made
    assert not opened_since(before)


def where(volume: pathlib.Path, path: str) -> str:
    fd = subpaths.open_or_make(str(volume), path)
    try:
        return os.readlink(f"/proc/self/fd/{fd}").removeprefix(str(volume))
    finally:
        os.close(fd)


def test_what_is_missing_is_made_with_the_mode_of_the_volume_and_what_is_there_stays(volume: pathlib.Path) -> None:
    (volume / "there").mkdir(mode=0o700)
    assert where(volume, "there/a/b") == "/there/a/b"
    modes = [stat.S_IMODE((volume / path).stat().st_mode) for path in ("there", "there/a", "there/a/b")]
    assert modes == [0o700, 0o775, 0o775]
    (volume / "file").write_text("x")
    assert where(volume, "file") == "/file"


def test_a_link_leads_to_what_is_in_the_volume_and_to_nothing_else(volume: pathlib.Path) -> None:
    (volume / "real").mkdir()
    (volume / "current").symlink_to("real")
    assert where(volume, "current/new") == "/real/new"
    for name, target in (("up", "../outside"), ("over", str(volume.parent / "outside")), ("root", "/etc")):
        (volume / name).symlink_to(target)
        for path in (name, f"{name}/file"):
            with pytest.raises(FileExistsError):
                where(volume, path)
    assert os.listdir(volume.parent / "outside") == ["file"]


def test_a_file_on_the_way_is_an_error_and_nothing_is_made(volume: pathlib.Path) -> None:
    (volume / "file").write_text("x")
    with pytest.raises(NotADirectoryError):
        where(volume, "file/a")
    assert os.listdir(volume) == ["file"]


def test_a_directory_that_another_has_put_there_keeps_its_mode(
    volume: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = os.mkdir

    def swapped(name: str, mode: int, *, dir_fd: int) -> None:
        make(name, mode, dir_fd=dir_fd)
        (volume / name).rename(volume / "mine")
        make(name, mode, dir_fd=dir_fd)
        (volume / name / "private").touch()

    monkeypatch.setattr(os, "mkdir", swapped)
    assert where(volume, "new") == "/new"
    assert stat.S_IMODE((volume / "new").stat().st_mode) == subpaths.UNFINISHED


def test_what_another_makes_at_the_same_moment_is_found(volume: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = os.mkdir

    def later(name: str, mode: int, *, dir_fd: int) -> None:
        make(name, mode, dir_fd=dir_fd)
        make(name, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", later)
    assert where(volume, "new/inner") == "/new/inner"


def test_a_directory_gets_its_mode_also_when_exitd_was_killed_before(
    volume: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("new", "new/inner"):
        with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
            killed.setattr(os, "open", _refusing(os.open))
            where(volume, path)
        assert where(volume, path) == f"/{path}"
        assert stat.S_IMODE((volume / path).stat().st_mode) == 0o775


def _refusing(opened: Callable[..., int]) -> Callable[..., int]:
    """Return what ends with the first opening of what was made."""

    def refusing(path: str, flags: int, *rest: int, **where: int) -> int:
        if flags == subpaths.OPEN_NEW:
            raise KeyboardInterrupt
        return opened(path, flags, *rest, **where)

    return refusing
