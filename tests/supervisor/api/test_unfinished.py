"""supervisor/api/unfinished.py: the bound of messages received at once, also within one turn of the loop."""

import asyncio
from typing import Any, cast

from supervisor.api.unfinished import Context, Unfinished


class Call:
    """A call whose message comes when the test says so."""

    def __init__(self) -> None:
        self.is_read = False
        self.message: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def read(self) -> str:
        self.is_read = True
        return await self.message

    def done(self) -> bool:
        """It has its answer."""
        return True

    def begin(self, unfinished: Unfinished) -> "asyncio.Task[Any]":
        return asyncio.create_task(unfinished.request(cast(Context, self)))


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_call_that_comes_while_another_is_woken_for_the_last_place_waits() -> None:
    async def act() -> None:
        unfinished = Unfinished(most=1)
        first, second, third = calls = Call(), Call(), Call()
        begun = [first.begin(unfinished), second.begin(unfinished)]
        await turns()
        assert [call.is_read for call in calls] == [True, False, False]
        first.message.set_result("one")
        begun.append(third.begin(unfinished))  # its turn comes after the first one's, and before the second is woken
        await turns()
        assert [call.is_read for call in calls] == [True, True, False]
        second.message.set_result("two")
        await turns()
        assert third.is_read
        third.message.set_result("three")
        assert await asyncio.gather(*begun) == ["one", "two", "three"]

    asyncio.run(act())


def test_a_call_that_is_cancelled_when_it_has_been_woken_gives_its_place_away() -> None:
    async def act() -> None:
        unfinished = Unfinished(most=1)
        first, second, third = Call(), Call(), Call()
        begun = [call.begin(unfinished) for call in (first, second, third)]
        await turns()
        first.message.set_result("one")
        asyncio.get_running_loop().call_soon(begun[1].cancel)  # after the first one's turn
        await turns()
        assert (second.is_read, third.is_read) == (False, True)
        third.message.set_result("three")
        assert await begun[2] == "three"

    asyncio.run(act())


def test_a_place_that_a_newcomer_has_taken_wakes_nobody() -> None:
    """A message is refused, one comes in its place before its call has ended, and then one that waits is not woken."""

    async def act() -> None:
        unfinished = Unfinished(most=1, longest_seconds=0)
        first, second, third = Call(), Call(), Call()
        begun = [first.begin(unfinished)]
        await turns()
        unfinished._age()
        begun.append(second.begin(unfinished))
        await turns(1)
        begun.append(third.begin(unfinished))
        await turns(1)
        first.message.set_exception(RuntimeError("the call was aborted"))
        await turns()
        assert (second.is_read, third.is_read) == (True, False)
        second.message.set_result("two")
        await turns()
        assert third.is_read
        third.message.set_result("three")
        assert (await asyncio.gather(*begun, return_exceptions=True))[1:] == ["two", "three"]

    asyncio.run(act())
