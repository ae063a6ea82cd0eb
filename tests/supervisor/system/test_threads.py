"""Threads that are there before there is work: none is needed later, when there may be no room for one."""

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
