"""The thread that writes blocks, and callers that do not wait for it."""

import errno
import os
import resource
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shim import native
from supervisor.store.blockwriter import BlockWriter
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.narrow import Narrow

PAGE, PAGES = 4096, 16
LIMIT_SECONDS = 30.0


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "ring").write_bytes(bytes(PAGE * PAGES))
    return str(tmp_path / "ring")


@pytest.fixture
def writer(path: str) -> Iterator[BlockWriter]:
    with closing(BlockWriter(path, 4 * PAGE)) as made:
        yield made


def threads() -> set[str]:
    """By their ids: others than the writer's may end at any time."""
    return set(os.listdir("/proc/self/task"))


def write(writer: BlockWriter, data: bytes, offset: int) -> float:
    writer.begin(data, offset)
    assert writer.has_ended(LIMIT_SECONDS)
    return writer.finish()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(blocks=st.lists(st.tuples(st.integers(0, PAGES - 4), st.integers(1, 4 * PAGE)), max_size=20))
def test_what_is_written_is_there_and_nothing_else(
    writer: BlockWriter, path: str, blocks: list[tuple[int, int]]
) -> None:
    wanted = bytearray(Path(path).read_bytes())
    for number, (page, size) in enumerate(blocks, start=1):
        data = bytes([number]) * size
        assert write(writer, data, page * PAGE) > 0
        wanted[page * PAGE : page * PAGE + size] = data
        assert Path(path).read_bytes() == wanted


def test_its_end_is_shown_until_it_is_taken_and_one_write_is_under_way(writer: BlockWriter) -> None:
    assert not writer.has_ended(0)
    writer.begin(bytes(PAGE), 0)
    with pytest.raises(AssertionError, match="one write at a time"):
        writer.begin(bytes(PAGE), 0)
    assert writer.has_ended(LIMIT_SECONDS) and writer.has_ended(0)
    writer.finish()
    assert not writer.has_ended(0)


def test_more_than_it_has_room_for_is_refused_and_nothing_of_it_written(writer: BlockWriter, path: str) -> None:
    with pytest.raises(ValueError, match="16385 bytes, and not 16384"):
        writer.begin(b"x" * (4 * PAGE + 1), 0)
    write(writer, b"y", 0)
    assert Path(path).read_bytes() == b"y" + bytes(PAGE * PAGES - 1)


def test_a_write_that_is_cut_short_is_an_error_and_the_next_one_is_none(writer: BlockWriter, path: str) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((PAGES + 1) * PAGE, limits[1]))
    try:
        with pytest.raises(OSError, match="4096 of 8192 bytes"):
            write(writer, bytes(2 * PAGE), PAGES * PAGE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    write(writer, b"x" * PAGE, 0)
    assert Path(path).read_bytes()[:PAGE] == b"x" * PAGE


def test_an_error_of_the_disk_is_raised_when_the_end_is_taken(writer: BlockWriter, path: str) -> None:
    os.dup2(read_only := os.open(path, os.O_RDONLY), writer._fd)
    os.close(read_only)
    with pytest.raises(OSError, match="Bad file descriptor"):
        write(writer, bytes(PAGE), 0)


def test_one_that_is_closed_leaves_no_descriptor_and_no_thread(path: str) -> None:
    before, threads_before = held_now(), threads()
    with closing(BlockWriter(path, PAGE)) as writer:
        (own,) = threads() - threads_before
        write(writer, bytes(PAGE), 0)
        writer.close()
    assert not opened_since(before)
    deadline = time.monotonic() + LIMIT_SECONDS
    while own in threads():  # for a moment more: one that has been joined is still to be taken off the list
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_the_thread_takes_no_signals_of_the_process(path: str) -> None:
    before = threads()
    with closing(BlockWriter(path, PAGE)):
        (own,) = threads() - before
        lines = Path(f"/proc/self/task/{own}/status").read_text().splitlines()
        blocked = next(int(line.split()[1], 16) for line in lines if line.startswith("SigBlk:"))
    assert blocked & (1 << 14) and blocked & 1  # SIGTERM, SIGHUP


@pytest.mark.parametrize("name", ["nothing", "link"])
def test_a_file_that_cannot_be_opened_leaves_nothing(tmp_path: Path, name: str) -> None:
    before, threads_before = held_now(), threads()
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(OSError) as caught:
        BlockWriter(str(tmp_path / name), PAGE)
    assert caught.value.errno == {"nothing": errno.ENOENT, "link": errno.ELOOP}[name]
    assert not opened_since(before) and not threads() - threads_before


def test_without_room_for_a_thread_it_is_refused_and_leaves_nothing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = held_now()
    Narrow(monkeypatch, native, "BlockThread", errno.EAGAIN)
    with pytest.raises(BlockingIOError):
        BlockWriter(path, PAGE)
    assert not opened_since(before)
