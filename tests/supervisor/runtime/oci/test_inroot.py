"""Paths inside a root file system never lead out of it."""

import errno
import os
import pathlib

import pytest

from supervisor.runtime.oci.inroot import open_in_root, read_in_root
from tests.supervisor.descriptors import held_now, opened_since


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "outside").write_text("outside")
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/inside").write_text("inside")
    (root / "outside").write_text("inside too")
    return root


def read(root: pathlib.Path, path: str) -> bytes:
    return read_in_root(str(root), path, most_bytes=100)


def test_an_absolute_link_starts_at_the_root_again(root: pathlib.Path) -> None:
    (root / "etc/link").symlink_to("/etc/inside")
    assert read(root, "/etc/link") == b"inside"


@pytest.mark.parametrize("target", ["../../outside", "../../../../../../outside", "/../outside", "/outside"])
def test_no_link_leads_out(root: pathlib.Path, target: str) -> None:
    (root / "etc/link").symlink_to(target)
    assert read(root, "etc/link") == b"inside too"


def test_dots_stop_at_the_root(root: pathlib.Path) -> None:
    assert read(root, "../../etc/../etc/./inside") == b"inside"


def test_a_directory_behind_a_link_is_gone_through(root: pathlib.Path) -> None:
    (root / "usr").symlink_to("etc")
    assert read(root, "/usr/inside") == b"inside"


@pytest.mark.parametrize(("path", "number"), [("/nope", errno.ENOENT), ("/etc/inside/x", errno.ENOTDIR)])
def test_what_is_not_there_says_so(root: pathlib.Path, path: str, number: int) -> None:
    with pytest.raises(OSError) as caught:
        read(root, path)
    assert caught.value.errno == number


def test_links_in_a_circle_end(root: pathlib.Path) -> None:
    (root / "a").symlink_to("/b")
    (root / "b").symlink_to("a")
    with pytest.raises(OSError) as caught:
        read(root, "/a")
    assert caught.value.errno == errno.ELOOP


def test_a_fifo_does_not_hold_the_reader(root: pathlib.Path) -> None:
    os.mkfifo(root / "fifo")
    with pytest.raises(OSError):
        read(root, "/fifo")


def test_no_descriptor_is_left_open(root: pathlib.Path) -> None:
    (root / "etc/link").symlink_to("/etc/inside/x")
    before = held_now()
    os.close(open_in_root(str(root), "/etc/../etc/inside"))
    for path in ("/etc/link", "/nope", "/etc/inside/x"):
        with pytest.raises(OSError):
            open_in_root(str(root), path)
    assert not opened_since(before)


def test_a_file_that_the_kernel_makes_up_is_not_read() -> None:
    """A container's /etc/passwd may be a link to /proc/kmsg, where a read waits for ever."""
    with pytest.raises(OSError) as caught:
        read_in_root("/", "/proc/self/status", most_bytes=1)
    assert caught.value.errno == errno.EINVAL
