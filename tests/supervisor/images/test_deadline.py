"""Work in threads ends in time, or when it is told to."""

import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from supervisor.images import tools
from supervisor.images.deadline import Deadline, Halt
from supervisor.model.errors import ShuttingDown, TimedOut
from tests.supervisor.descriptors import held_now, opened_since

LIMIT_SECONDS = 20.0


@pytest.fixture
def halt() -> Iterator[Halt]:
    halt = Halt()
    yield halt
    halt.close()


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    process = tools.start(["sleep", "1000"])
    yield process
    tools.end(process)


def test_within_its_time_work_goes_on_and_afterwards_it_is_named_and_given_up(halt: Halt) -> None:
    Deadline("loading x", LIMIT_SECONDS, halt).check()
    with pytest.raises(TimedOut, match=r"loading x took more than 0 s .* nothing was stored"):
        Deadline("loading x", 0, halt).check()


def test_once_told_to_stop_everything_stops(halt: Halt) -> None:
    deadline = Deadline("loading x", LIMIT_SECONDS, halt)
    halt.set()
    with pytest.raises(ShuttingDown, match="loading x was broken off"):
        deadline.check()


@pytest.mark.parametrize("status", [0, 3])
def test_a_child_that_ends_gives_its_status(halt: Halt, status: int) -> None:
    process = tools.start(["sh", "-c", f"exit {status}"])
    assert Deadline("x", LIMIT_SECONDS, halt).wait(process) == status


def test_a_child_is_waited_for_no_longer_than_allowed(halt: Halt, sleeper: "subprocess.Popen[bytes]") -> None:
    before = held_now()
    with pytest.raises(TimedOut):
        Deadline("x", 0.05, halt).wait(sleeper)
    assert sleeper.poll() is None
    assert not opened_since(before)


def test_a_wait_for_a_child_ends_as_soon_as_it_is_told_to(halt: Halt, sleeper: "subprocess.Popen[bytes]") -> None:
    begun = time.monotonic()
    teller = threading.Timer(0.05, halt.set)
    teller.start()
    with pytest.raises(ShuttingDown):
        Deadline("x", LIMIT_SECONDS, halt).wait(sleeper)
    teller.join()
    assert time.monotonic() - begun < LIMIT_SECONDS / 2
