"""What is opened although others may have made it: never anything that could wait."""

import errno
import os
import pathlib

import pytest

from supervisor.system import regular
from supervisor.system.regular import NotRegular
from tests.supervisor.descriptors import held_now, opened_since


@pytest.fixture(autouse=True)
def nothing_stays_open() -> object:
    before = held_now()
    yield
    assert not opened_since(before)


def test_a_file_on_a_disk_is_read_up_to_the_limit(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to("file")
    assert regular.read(str(tmp_path / "file"), most_bytes=4) == b"0123"
    assert regular.read(str(tmp_path / "link"), most_bytes=100) == b"0123456789"


def test_a_link_is_not_followed_where_none_will_do(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(NotRegular):
        regular.read(str(tmp_path / "link"), most_bytes=1, follow=False)


def test_a_fifo_a_directory_and_a_device_are_refused_without_waiting(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, pathlib.Path("/dev/zero")):
        with pytest.raises(NotRegular, match="not a regular file"):
            regular.read(str(path), most_bytes=1)


@pytest.mark.parametrize("path", ["/proc/kmsg", "/proc/self/status", "/sys/kernel/uevent_seqnum"])
def test_what_the_kernel_makes_up_is_refused(path: str) -> None:
    with pytest.raises(NotRegular, match="not on a disk"):
        regular.read(path, most_bytes=1)


def test_what_is_not_there_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        regular.read(str(tmp_path / "none"), most_bytes=1)
    assert caught.value.errno == errno.ENOENT
