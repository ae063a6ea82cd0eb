"""supervisor/api/unfinished.py: the bound of messages received at once, also within one turn of the loop."""

import asyncio
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from supervisor.api import streams
from supervisor.api.unfinished import LOOK_SECONDS, MOST_STUCK, PLACE_SECONDS, STUCK_SECONDS, Context, Unfinished


class Call:
    """A call whose message comes when the test says so."""

    def __init__(self, *, is_deaf: bool = False, stays_deaf: bool = True) -> None:
        self.is_deaf, self.stays_deaf = is_deaf, stays_deaf
        self.code: grpc.StatusCode | None = None
        self.is_read = False
        self.message: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def read(self) -> str:
        self.is_read = True
        return await self.message

    def done(self) -> bool:
        """It has its answer."""
        return not self.is_deaf

    async def abort(self, code: grpc.StatusCode, text: str, metadata: object) -> None:
        """Answer; that never ends where the client does not read."""
        self.code = code
        if self.stays_deaf:
            await asyncio.Event().wait()
        raise grpc.aio.AbortError

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


def test_a_refusal_that_cannot_be_written_keeps_no_place() -> None:
    async def act() -> None:
        unfinished = Unfinished(most=1, patience_seconds=0)
        deaf, other = Call(is_deaf=True), Call()
        begun = [deaf.begin(unfinished), other.begin(unfinished)]
        await turns()
        unfinished._age()
        await turns()
        assert other.is_read
        other.message.set_result("two")
        assert await begun[1] == "two"
        begun[0].cancel()

    asyncio.run(act())


def test_refusals_that_cannot_be_written_are_bounded_and_then_choke_it() -> None:
    """Each keeps what has come of its message."""

    async def act() -> None:
        unfinished = Unfinished(most=2, patience_seconds=0)
        calls = [Call(is_deaf=True) for _ in range(50)]
        begun = [call.begin(unfinished) for call in calls]
        for _ in range(50):
            await turns()
            unfinished._age()
        assert sum(call.is_read for call in calls) == MOST_STUCK + 2
        assert len([call for call in calls if call.code]) == MOST_STUCK + 2
        for _ in range(int(STUCK_SECONDS / LOOK_SECONDS) + 2):
            unfinished._age()
        assert unfinished.is_choked()
        for each in begun:
            each.cancel()

    asyncio.run(act())


def test_a_caller_that_has_gone_while_it_waited_counts_no_more() -> None:
    async def act() -> None:
        unfinished = Unfinished(most=1, patience_seconds=0)
        first, second = Call(is_deaf=True), Call()
        begun = [first.begin(unfinished), second.begin(unfinished)]
        await turns()
        begun[1].cancel()
        await turns()
        unfinished._age()
        await turns()
        assert first.code is None
        first.message.set_result("one")
        assert await begun[0] == "one"

    asyncio.run(act())


def test_a_stream_that_finds_no_place_for_its_first_request_is_refused_as_busy() -> None:
    async def act() -> None:
        unfinished = Unfinished(most=1, place_seconds=0.01)
        first, second = Call(), Call(is_deaf=True, stays_deaf=False)
        begun = first.begin(unfinished)
        await turns()
        with pytest.raises(grpc.aio.AbortError):
            await unfinished.start(cast(Context, second))
        assert second.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        first.message.set_result("one")
        assert await begun == "one"

    asyncio.run(act())
    assert PLACE_SECONDS < streams.START_SECONDS
