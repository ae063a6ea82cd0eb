"""A shim that the daemon spawns itself: every descriptor in its seat, wherever in the daemon it was."""

import os
import pathlib
import subprocess
import sys

import pytest

from supervisor import keeper
from supervisor.errors import ShimFailed
from tests.supervisor.children import descriptors

SEATS = range(keeper.FIRST_SEAT, keeper.SEATS_END)
LISTS = "readlink /proc/self/fd/{3,4,5,6,7,8,9,10,11,12} >seats; true"
# Files at the numbers that are given, in a process of its own: in this one the seats belong to others.
SPAWNS = """
import os, sys
from supervisor import keeper
directory, *numbers = sys.argv[1:]
for number in numbers:
    fd = os.open(f"{directory}/file{number}", os.O_RDONLY | os.O_CREAT)
    os.dup2(fd, 100 + int(number), inheritable=False)
os.closerange(3, 100)
sources = [os.dup2(100 + int(number), int(number), inheritable=False) for number in numbers]
before = os.listdir("/proc/self/fd")
pid = keeper.spawn_directly("/bin/bash", "script", directory, sources, adopt=False)
assert os.waitpid(pid, 0)[1] == 0
assert os.listdir("/proc/self/fd") == before
assert os.getcwd() == "/"
"""


def seats(directory: pathlib.Path, numbers: list[int]) -> list[str]:
    """The names of the files that a shim finds in its seats when the daemon has them at `numbers`."""
    (directory / "script").write_text(LISTS)
    words = [sys.executable, "-c", SPAWNS, str(directory), *map(str, numbers)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [os.path.basename(line) for line in (directory / "seats").read_text().splitlines()]


@pytest.mark.parametrize(
    "numbers",
    [
        [3],
        [20, 21, 22, 23, 24],
        [*SEATS],
        [*reversed(SEATS)],
        [4, 3, 6, 5, 8, 7, 10, 9, 11],
        [11, 3, 4, 5, 6, 7, 8, 9, 10],
        [30, 3, 31, 4, 32, 5, 33, 6],
    ],
)
def test_no_descriptor_is_overwritten_before_it_is_in_its_seat(tmp_path: pathlib.Path, numbers: list[int]) -> None:
    assert seats(tmp_path, numbers) == [f"file{number}" for number in numbers]


@pytest.mark.parametrize("program", ["/nowhere/exitd-shim", "/etc/passwd"])
def test_what_cannot_be_spawned_is_named_and_leaves_no_descriptor(tmp_path: pathlib.Path, program: str) -> None:
    before, here = descriptors(), os.getcwd()
    try:
        with open("/dev/null") as file, pytest.raises(ShimFailed, match=program):
            keeper.spawn_directly(program, "box", str(tmp_path), [file.fileno()] * len(SEATS), adopt=False)
    finally:
        os.chdir(here)
    assert descriptors() == before
