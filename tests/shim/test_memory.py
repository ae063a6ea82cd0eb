"""The shim's hold on a counter of memory kills: what it says when the counter has gone at the end."""

import os
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from shim._native import ffi, lib

EVENTS = "low 0\nhigh 0\nmax 9\noom 3\noom_kill {}\noom_group_kill 0\n"


@pytest.fixture
def counter(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "memory.events"
    path.write_text(EVENTS.format(0))
    return path


@pytest.fixture
def memory(counter: pathlib.Path) -> Iterator[Any]:
    made = ffi.new("struct memory *")
    lib.memory_begin(made, bytes(counter))
    yield made
    lib.memory_end(made)
    assert made.fd == -1


def last(memory: Any, path: pathlib.Path) -> int:
    return int(lib.memory_last(memory, bytes(path)))


def gone(memory: Any, counter: pathlib.Path) -> None:
    """As after rmdir: no name, and a descriptor of which nothing can be read."""
    counter.unlink()
    null_fd = os.open("/dev/null", os.O_WRONLY)
    os.dup2(null_fd, memory.fd, inheritable=False)
    os.close(null_fd)


def test_the_count_at_the_end_is_the_one_that_is_reported(memory: Any, counter: pathlib.Path) -> None:
    assert last(memory, counter) == 0
    counter.write_text(EVENTS.format(12))
    assert last(memory, counter) == 12


def test_kills_that_were_seen_outlive_their_counter(memory: Any, counter: pathlib.Path) -> None:
    counter.write_text(EVENTS.format(2))
    lib.memory_look(memory)
    gone(memory, counter)
    assert last(memory, counter) == 2
    lib.memory_look(memory)
    assert (memory.fd, last(memory, counter)) == (-1, 2)


def test_none_seen_before_the_counter_has_gone_is_not_none(memory: Any, counter: pathlib.Path) -> None:
    gone(memory, counter)
    assert last(memory, counter) == -1


def test_a_counter_that_can_not_be_read_is_let_go_lest_its_poll_never_waits(memory: Any, counter: pathlib.Path) -> None:
    held_fd = memory.fd
    gone(memory, counter)
    lib.memory_look(memory)
    assert memory.fd == -1
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(held_fd)


@pytest.mark.parametrize("kind", ["none", "absent", "fifo", "directory", "no counter"])
def test_where_there_is_no_counter_nothing_is_watched_and_nothing_waits(tmp_path: pathlib.Path, kind: str) -> None:
    path = tmp_path / "memory.events"
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "no counter":
            path.write_text("low 0\n")
    made = ffi.new("struct memory *")
    lib.memory_begin(made, b"" if kind == "none" else bytes(path))
    assert (made.fd, made.kills) == (-1, -1)
    if kind != "fifo":
        assert lib.memory_last(made, b"" if kind == "none" else bytes(path)) == -1
