"""What can wait comes after what is still being asked for, and one failure holds up nothing else."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from supervisor.system.leisure import AT_ONCE, Leisure
from tests.supervisor.fakes import in_loop


@in_loop
async def test_it_begins_when_nothing_more_is_asked_for_and_does_all_in_order_a_few_at_once() -> None:
    done: list[str] = []
    tasks: list[asyncio.Task[None]] = []
    present = most = 0

    async def work(number: int) -> None:
        nonlocal present, most
        present += 1
        most = max(most, present)
        await asyncio.sleep(0)
        present -= 1
        done.append(f"work {number}")

    def spawn(coroutine: Coroutine[Any, Any, None]) -> None:
        tasks.append(asyncio.create_task(coroutine))

    leisure = Leisure(work, spawn)
    for number in range(3 * AT_ONCE):
        leisure.add(number)
        done.append("urgent")
        await asyncio.sleep(0)
    assert "work 0" not in done
    await asyncio.gather(*tasks)
    assert done == ["urgent"] * 3 * AT_ONCE + [f"work {number}" for number in range(3 * AT_ONCE)]
    assert most == AT_ONCE and len(tasks) == 1
    leisure.add(99)
    await asyncio.gather(*tasks)
    assert done[-1] == "work 99" and len(tasks) == 2


@in_loop
async def test_one_that_fails_is_logged_and_the_others_are_done(capsys: pytest.CaptureFixture[str]) -> None:
    done = asyncio.Event()

    async def work(thing: str) -> None:
        if thing == "bad":
            raise KeyError(thing)
        done.set()

    tasks: list[asyncio.Task[None]] = []
    leisure = Leisure(work, lambda coroutine: tasks.append(asyncio.create_task(coroutine)))
    leisure.add("bad")
    leisure.add("good")
    await asyncio.gather(*tasks)
    assert done.is_set()
    assert "KeyError" in capsys.readouterr().out
