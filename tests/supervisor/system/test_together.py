import asyncio
import os
import threading
from collections.abc import Callable

import pytest

from supervisor.system.together import Together


def test_what_is_asked_for_during_a_read_is_read_next_all_at_once() -> None:
    async def act() -> None:
        together, begun, go_on = Together(), threading.Event(), threading.Event()
        order: list[str] = []

        def read(name: str) -> Callable[[], str]:
            def one() -> str:
                order.append(name)
                begun.set()
                assert go_on.wait(30)
                return f"{name} in {threading.get_ident()}"

            return one

        first = asyncio.create_task(together.read(read("a")))
        assert await asyncio.to_thread(begun.wait, 30)
        rest = [asyncio.create_task(together.read(read(name))) for name in "bcd"]
        await asyncio.sleep(0)
        assert order == ["a"]
        go_on.set()
        found = [await first, *await asyncio.gather(*rest)]
        assert order == ["a", "b", "c", "d"] and [each[0] for each in found] == order
        assert len({each.split()[-1] for each in found[1:]}) == 1

    asyncio.run(act())


def test_a_read_that_fails_or_is_given_up_costs_the_others_nothing() -> None:
    async def act() -> None:
        together = Together()
        with pytest.raises(FileNotFoundError):
            await together.read(lambda: os.stat("/proc/none"))
        given_up = asyncio.create_task(together.read(lambda: 1))
        beside = asyncio.create_task(together.read(lambda: 2))
        await asyncio.sleep(0)
        given_up.cancel()
        assert await beside == 2 and await together.read(lambda: 3) == 3

    asyncio.run(act())
