"""Directories are removed with whatever a container has left in them, and nothing beside them is touched."""

import os
import pathlib
import resource
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from supervisor.system import removal

needs_root = pytest.mark.root("flags and device nodes need root")
DEPTH = 3000  # its path is longer than PATH_MAX, and Python's own stack less deep


def deep(top: pathlib.Path) -> None:
    """A file at the bottom of a tree, made as a container can make it: step by step."""
    fd = os.open(top, removal.DIRECTORY)
    for _ in range(DEPTH):
        os.mkdir("d", dir_fd=fd)
        below_fd = os.open("d", removal.DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below_fd
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)


@contextmanager
def few_descriptors(more: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def top(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "top"
    path.mkdir()
    return path


def test_a_tree_of_any_depth_goes_with_a_few_descriptors(top: pathlib.Path) -> None:
    deep(top)
    (top / "beside").mkdir()
    deep(top / "beside")
    with few_descriptors(8):
        removal.remove_tree(str(top))
    assert not top.exists()
    removal.remove_tree(str(top))


def test_links_are_removed_and_not_followed(top: pathlib.Path, tmp_path: pathlib.Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    (top / "link").symlink_to(outside)
    (top / "a").mkdir()
    (top / "a" / "link").symlink_to("../../outside")
    (top / "a" / "hard").hardlink_to(outside / "file")
    removal.remove_tree(str(top))
    assert (outside / "file").read_text() == "kept" and not top.exists()


def test_names_and_modes_of_any_kind_are_no_obstacle(top: pathlib.Path) -> None:
    for name in (b"\xff\xfe", b"-rf", b"\n", b"x" * 255, b".gone-1"):
        path = os.path.join(os.fsencode(top), name)
        os.mkdir(path)
        os.mkfifo(os.path.join(path, name))
        os.chmod(path, 0o700 if os.geteuid() else 0)
    removal.remove_tree(str(top))
    assert not top.exists()


@needs_root
def test_files_and_directories_that_must_not_be_changed_go_too(top: pathlib.Path) -> None:
    (top / "a" / "b").mkdir(parents=True)
    for name in ("immutable", "append"):
        (top / "a" / "b" / name).write_text("x")
    os.mknod(top / "a" / "null", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    subprocess.run(["chattr", "+a", str(top / "a/b/append")], check=True)
    subprocess.run(["chattr", "+i", str(top / "a/b/immutable"), str(top / "a/b"), str(top / "a")], check=True)
    removal.remove_tree(str(top))
    assert not top.exists()


@needs_root
def test_another_file_system_below_is_left_alone(top: pathlib.Path) -> None:
    (top / "a" / "mounted").mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", str(top / "a" / "mounted")], check=True)
    try:
        (top / "a" / "mounted" / "file").write_text("kept")
        with pytest.raises(OSError):
            removal.remove_tree(str(top))
        assert next(top.rglob("file")).read_text() == "kept"
    finally:
        subprocess.run(["umount", *map(str, top.rglob("mounted"))], check=True)


def test_what_was_broken_off_is_gone_on_with(top: pathlib.Path) -> None:
    (top / ".gone-0123456789abcdef-1" / "d").mkdir(parents=True)
    (top / ".gone-0123456789abcdef-1" / "d" / "file").write_text("x")
    removal.remove_tree(str(top))
    assert not top.exists()
