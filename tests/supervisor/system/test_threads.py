"""Threads that are there before there is work: none is needed later, when there may be no room for one."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

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


ALLOCATING = """
import ctypes, re, sys, threading
from supervisor.system.threads import share_heaps
if sys.argv[1] == "shared":
    share_heaps()
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
libc.malloc.argtypes, libc.malloc_info.argtypes = [ctypes.c_size_t], [ctypes.c_int, ctypes.c_void_p]
libc.fopen.argtypes, libc.fclose.argtypes = [ctypes.c_char_p] * 2, [ctypes.c_void_p]
together = threading.Barrier(8)
def take():
    together.wait()
    libc.malloc(5000)
    together.wait()
threads = [threading.Thread(target=take) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
file = libc.fopen(sys.argv[2].encode(), b"w")
libc.malloc_info(0, file)
libc.fclose(file)
print(len(re.findall("<heap ", open(sys.argv[2]).read())))
"""


@pytest.mark.parametrize(("how", "most", "least"), [("shared", 2, 1), ("each its own", 99, 3)])
def test_threads_share_two_heaps(tmp_path: Path, how: str, most: int, least: int) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    words = [sys.executable, "-c", ALLOCATING, how, str(tmp_path / "info")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert least <= int(done.stdout) <= most
