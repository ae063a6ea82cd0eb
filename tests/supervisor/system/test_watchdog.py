"""The pings to the service manager: after turns of the loop, and while it waits for the disk."""

import asyncio
import os
import threading
import time

import pytest

from supervisor.system import watchdog
from supervisor.system.watchdog import Watchdog
from tests.supervisor.fakes import in_loop, until

QUICK_SECONDS = 0.08  # the manager's limit: a ping each 20 ms


class Manager:
    """What was sent, in its order."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, ...]] = []

    def notify(self, *lines: str) -> bool:
        self.lines.append(lines)
        return True


class Disk:
    def __init__(self) -> None:
        self.seconds = 0.0


def made(manager: Manager, disk: Disk, seconds: float = QUICK_SECONDS) -> Watchdog:
    return Watchdog(seconds, lambda: disk.seconds, lambda: "3 containers", manager.notify)


@in_loop
async def test_a_loop_that_turns_is_pinged_for_and_one_that_has_ended_is_not() -> None:
    manager = Manager()
    dog = made(manager, Disk())
    dog.start()
    await until(lambda: len(manager.lines) > 3)
    dog.close()
    dog.close()
    assert set(manager.lines) == {("WATCHDOG=1",)}
    assert not [thread for thread in threading.enumerate() if thread.name == "exitd-watchdog"]


@in_loop
async def test_a_loop_that_stands_still_is_not_pinged_for() -> None:
    manager = Manager()
    dog = made(manager, Disk())
    for _ in range(5):
        dog.look()  # in this thread, so that the loop has no turn in between
    assert manager.lines == [("WATCHDOG=1",)]
    await asyncio.sleep(0)
    dog.look()
    assert len(manager.lines) == 2


@in_loop
async def test_a_loop_that_waits_for_the_disk_is_pinged_for_and_the_status_says_so_until_it_no_longer_does() -> None:
    manager, disk = Manager(), Disk()
    dog = made(manager, disk)
    dog.look()
    disk.seconds = 31.4
    dog.look()
    disk.seconds = 0.0
    await asyncio.sleep(0)
    dog.look()
    await asyncio.sleep(0)
    dog.look()
    assert manager.lines == [
        ("WATCHDOG=1",),
        ("WATCHDOG=1", "STATUS=waiting for the disk: a flush has taken 31 s so far"),
        ("WATCHDOG=1", "STATUS=3 containers"),
        ("WATCHDOG=1",),
    ]


@in_loop
async def test_a_loop_that_is_held_up_for_a_moment_is_pinged_for_within_the_limit() -> None:
    manager = Manager()
    dog = made(manager, Disk(), 2.0)
    dog.start()
    time.sleep(0.7)  # noqa: ASYNC251  (a turn that takes long)
    before = len(manager.lines)
    await until(lambda: len(manager.lines) > before)
    dog.close()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 0.0),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({"WATCHDOG_USEC": "-1"}, 0.0),
    ],
)
def test_the_managers_limit_is_for_the_process_that_it_names_and_for_no_child(
    given: dict[str, str], expected: float
) -> None:
    environment = {**given, "PATH": "/bin"}
    assert (watchdog.limit_seconds(environment), environment) == (expected, {"PATH": "/bin"})
