"""Both ways to write a block, on the file systems that this machine has."""

import errno
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shim import native
from supervisor.store import blockwriter
from supervisor.store.blockwriter import BlockWriter, ByKernel, ByThread
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.narrow import Narrow

PAGE, PAGES = 4096, 16
LIMIT_SECONDS = 30.0


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "ring").write_bytes(bytes(PAGE * PAGES))
    return str(tmp_path / "ring")


@pytest.fixture(params=[True, False], ids=["by the kernel", "by a thread"])
def writer(path: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockWriter]:
    monkeypatch.setattr(blockwriter, "is_written_by_kernel", lambda path: request.param)
    with closing(BlockWriter(path, 4 * PAGE)) as made:
        yield made


def write(writer: BlockWriter, data: bytes, offset: int) -> None:
    writer.begin(data, offset)
    assert writer.has_ended(LIMIT_SECONDS)
    writer.finish()


def test_what_is_written_is_there_and_nothing_else(writer: BlockWriter, path: str) -> None:
    wanted = bytearray(Path(path).read_bytes())
    for number, (page, pages) in enumerate(((0, 1), (3, 4), (PAGES - 1, 1), (0, 2)), start=1):
        data = bytes([number]) * (pages * PAGE)
        write(writer, data, page * PAGE)
        wanted[page * PAGE : (page + pages) * PAGE] = data
        assert Path(path).read_bytes() == wanted


def test_its_end_is_shown_until_it_is_taken_and_one_write_is_under_way(writer: BlockWriter) -> None:
    assert not writer.has_ended(0)
    writer.begin(bytes(PAGE), 0)
    with pytest.raises(AssertionError, match="one write at a time"):
        writer.begin(bytes(PAGE), 0)
    assert writer.has_ended(LIMIT_SECONDS) and writer.has_ended(0)
    writer.finish()
    assert not writer.has_ended(0)


def test_a_write_that_is_cut_short_is_an_error(writer: BlockWriter, path: str) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((PAGES + 1) * PAGE, limits[1]))
    try:
        with pytest.raises(OSError, match="4096 of 8192 bytes"):
            write(writer, bytes(2 * PAGE), PAGES * PAGE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    write(writer, b"x" * PAGE, 0)
    assert Path(path).read_bytes()[:PAGE] == b"x" * PAGE


@pytest.mark.parametrize("kind", [ByKernel, ByThread])
def test_an_error_of_the_disk_is_raised_when_the_end_is_taken(
    kind: type, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blockwriter, "is_written_by_kernel", lambda path: kind is ByKernel)
    with closing(BlockWriter(path, PAGE)) as writer:
        disk = writer._disk
        assert isinstance(disk, kind)
        os.dup2(read_only := os.open(path, os.O_RDONLY), disk._fd)  # type: ignore[attr-defined]
        os.close(read_only)
        with pytest.raises(OSError, match="Bad file descriptor"):
            write(writer, bytes(PAGE), 0)


def test_one_that_is_closed_leaves_no_descriptor_and_no_thread(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, threads = held_now(), threading.active_count()
    for is_kernels in (True, False):
        monkeypatch.setattr(blockwriter, "is_written_by_kernel", lambda path, by=is_kernels: by)
        with closing(BlockWriter(path, PAGE)) as writer:
            write(writer, bytes(PAGE), 0)
            writer.close()
    assert not opened_since(before)
    for thread in threading.enumerate():
        if thread.name.startswith("exitd-store-ring"):
            thread.join(LIMIT_SECONDS)
    assert threading.active_count() <= threads


@pytest.mark.parametrize("is_kernels", [True, False])
def test_a_file_that_cannot_be_opened_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kernels: bool
) -> None:
    before = held_now()
    monkeypatch.setattr(blockwriter, "is_written_by_kernel", lambda path: is_kernels)
    (tmp_path / "link").symlink_to(tmp_path)
    for name, number in (("nothing", errno.ENOENT), ("link", errno.ELOOP)):
        with pytest.raises(OSError) as caught:
            BlockWriter(str(tmp_path / name), PAGE)
        assert caught.value.errno == number
    assert not opened_since(before)


def test_where_the_kernel_has_no_room_for_such_a_write_a_thread_does_it(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fs.aio-max-nr are in use."""
    before = held_now()
    monkeypatch.setattr(blockwriter, "is_written_by_kernel", lambda path: True)
    Narrow(monkeypatch, native, "Write", errno.EAGAIN)
    with closing(BlockWriter(path, PAGE)) as writer:
        assert isinstance(writer._disk, ByThread)
        write(writer, b"x" * PAGE, 0)
    assert not opened_since(before)


@pytest.mark.parametrize(
    ("kind", "by_kernel"), [(blockwriter.EXT4, True), (blockwriter.XFS, True), (0x01021994, False), (0x65735546, False)]
)
def test_only_on_file_systems_that_wait_for_nothing_the_kernel_does_it(
    path: str, monkeypatch: pytest.MonkeyPatch, kind: int, by_kernel: bool
) -> None:
    """tmpfs and FUSE are of the others."""
    monkeypatch.setattr(native, "file_system", lambda fd: kind)
    assert blockwriter.is_written_by_kernel(path) is by_kernel
