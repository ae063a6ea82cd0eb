"""Threads that are there before there is work: none is needed later, when there may be no room for one."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from supervisor.model.errors import CannotStart
from supervisor.system import threads


def room_for(threads: int) -> Callable[[threading.Thread], None]:
    """Of Thread.start: after so many threads no more can be started."""
    begin, left = threading.Thread.start, [None] * threads

    def start(thread: threading.Thread) -> None:
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        begin(thread)

    return start


def named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def test_work_needs_no_thread_that_is_not_there_already(monkeypatch: pytest.MonkeyPatch) -> None:
    with threads.pool(3, "three") as pool:
        assert len(named("three")) == 3
        monkeypatch.setattr(threading.Thread, "start", lambda _: pytest.fail("a thread was started"))
        assert list(pool.map(lambda n: n * n, range(20))) == [n * n for n in range(20)]
    assert named("three") == []


@pytest.mark.parametrize("room", [0, 2])
def test_a_pool_that_finds_no_room_is_refused_and_leaves_no_thread(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    monkeypatch.setattr(threading.Thread, "start", room_for(room))
    with pytest.raises(CannotStart, match=r"no room for 3 threads of few.*TasksMax="):
        threads.pool(3, "few")
    for thread in named("few"):
        thread.join(30)
    assert named("few") == []


def test_one_thread_that_finds_no_room_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", room_for(0))
    with pytest.raises(CannotStart, match="no room for the thread one"):
        threads.start(threading.Thread(name="one"))


TAKING = """
import pathlib, re, sys
from supervisor.system.threads import give_back_large
if sys.argv[1] == "given back":
    give_back_large()
def held_kb():
    return int(re.search(r"VmRSS:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
before = held_kb()
for size in (9 << 20, 8 << 20):
    taken = b"x" * size
    del taken
print(held_kb() - before)
"""


@pytest.mark.parametrize(("how", "least", "most"), [("given back", -9999, 2000), ("as it is", 6000, 99_999)])
def test_large_memory_is_given_back_when_it_is_freed(how: str, least: int, most: int) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    words = [sys.executable, "-c", TAKING, how]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert least <= int(done.stdout) <= most
