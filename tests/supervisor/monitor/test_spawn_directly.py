"""A shim that the daemon spawns itself: every descriptor in its slot, wherever in the daemon it was."""

import os
import pathlib
import subprocess
import sys
from types import SimpleNamespace

import pytest

from shim import slots
from supervisor.model.errors import ShimFailed
from supervisor.model.values import RunKey
from supervisor.monitor import keeper
from supervisor.monitor.shims import Shims
from tests.supervisor.descriptors import held_now, only, opened_since
from tests.system.processes import children_of

SLOTS = range(slots.STATUS_FD, slots.SLOTS_END)
LISTS = "for n in {3..16}; do readlink /proc/self/fd/$n || echo; done >wanted; true"
# Files at the numbers that are given, and their slots, in a process of its own: in this one the slots belong to others.
SPAWNS = """
import os, sys
from supervisor.monitor import keeper
directory, wanted, *numbers = sys.argv[1:]
for number in numbers:
    fd = os.open(f"{directory}/file{number}", os.O_RDONLY | os.O_CREAT)
    os.dup2(fd, 100 + int(number), inheritable=False)
os.closerange(3, 100)
sources = [os.dup2(100 + int(number), int(number), inheritable=False) for number in numbers]
before = os.listdir("/proc/self/fd")
given = dict(zip(map(int, wanted.split(",")), sources, strict=True))
pid = keeper.spawn_directly("/bin/bash", "script", directory, given, adopt=False)
assert os.waitpid(pid, 0)[1] == 0
assert os.listdir("/proc/self/fd") == before
assert os.getcwd() == "/"
"""


def found(directory: pathlib.Path, numbers: list[int], wanted: list[int]) -> dict[int, str]:
    """The names of the files that a shim finds in its slots when the daemon has them at `numbers`."""
    (directory / "script").write_text(LISTS)
    words = [sys.executable, "-c", SPAWNS, str(directory), ",".join(map(str, wanted)), *map(str, numbers)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = (directory / "wanted").read_text().splitlines()
    return {slot: os.path.basename(line) for slot, line in enumerate(lines, slots.STATUS_FD) if line}


@pytest.mark.parametrize(
    "numbers",
    [
        [3],
        [20, 21, 22, 23, 24],
        [*SLOTS],
        [*reversed(SLOTS)],
        [4, 3, 6, 5, 8, 7, 10, 9, 12, 11, 14, 13, 15],
        [15, *range(3, 15)],
        [30, 3, 31, 4, 32, 5, 33, 6],
    ],
)
def test_no_descriptor_is_overwritten_before_it_is_in_its_slot(tmp_path: pathlib.Path, numbers: list[int]) -> None:
    wanted = list(SLOTS)[: len(numbers)]
    assert found(tmp_path, numbers, wanted) == {s: f"file{number}" for s, number in zip(wanted, numbers, strict=True)}


def test_nobody_sits_where_nobody_was_placed(tmp_path: pathlib.Path) -> None:
    wanted = [3, 4, 5, 6, 7, 12, 13, 14, 15]
    assert found(tmp_path, [*range(3, 12)], wanted) == {s: f"file{n}" for n, s in enumerate(wanted, 3)}


@pytest.mark.parametrize("program", ["/nowhere/exitd-shim", "/etc/passwd"])
def test_what_cannot_be_spawned_is_named_and_leaves_no_descriptor(tmp_path: pathlib.Path, program: str) -> None:
    before, here = held_now(), os.getcwd()
    try:
        with open("/dev/null") as file, pytest.raises(ShimFailed, match=program):
            keeper.spawn_directly(program, "box", str(tmp_path), dict.fromkeys(SLOTS, file.fileno()), adopt=False)
    finally:
        os.chdir(here)
    assert not opened_since(before)


@pytest.mark.parametrize("room", [0, 1])
def test_a_shim_that_cannot_be_watched_is_ended(tmp_path: pathlib.Path, room: int) -> None:
    """It would make a container that nobody knows of."""
    watch = SimpleNamespace(key=RunKey("600", 1), directory=SimpleNamespace(path=str(tmp_path)))
    begun = Shims.__new__(Shims)
    begun._program = "/bin/sleep"
    before = children_of(os.getpid())
    with only(room), pytest.raises(OSError, match="Too many open files"):
        begun._directly(watch, SimpleNamespace(all={}), adopt=False)  # type: ignore[arg-type]
    assert children_of(os.getpid()) == before
