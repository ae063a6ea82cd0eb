"""Streams between a thread and the event loop: in order, bounded, and with an end that both sides learn of."""

import asyncio
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.model.errors import TimedOut, WrongState
from supervisor.system.conduit import MOST_PARTS, Inflow, Outflow, StreamOver

PARTS = st.lists(st.binary(min_size=1, max_size=20), max_size=40)


@settings(max_examples=30, deadline=None)
@given(PARTS)
def test_all_parts_arrive_in_their_order_both_ways(parts: list[bytes]) -> None:
    async def main() -> None:
        out, back = Outflow("out"), Inflow("back")

        def echo() -> None:
            for part in back.parts():
                out.put(part)
            out.end()

        thread = threading.Thread(target=echo)
        thread.start()

        async def send() -> None:
            for part in parts:
                assert await back.put(part)
            back.finish()

        sending = asyncio.create_task(send())
        assert [part async for part in out.parts()] == parts
        await sending
        await asyncio.to_thread(thread.join)

    asyncio.run(main())


def test_a_reader_that_takes_nothing_ends_the_thread_and_keeps_no_more_than_a_few_parts() -> None:
    async def main() -> None:
        out, count = Outflow("the copy", 0.05), []

        def send() -> None:
            while True:
                out.put(b"x")
                count.append(1)

        with pytest.raises(TimedOut, match="the copy: nothing was taken"):
            await asyncio.to_thread(send)
        assert len(count) == MOST_PARTS

    asyncio.run(main())


def test_a_thread_that_gives_nothing_is_not_waited_for_and_learns_that_nobody_reads() -> None:
    async def main() -> None:
        out, back = Outflow("the copy", 0.05), Inflow("the copy", 0.05)
        with pytest.raises(TimedOut, match="does a file system hang"):
            await anext(aiter(out.parts()))
        for _ in range(MOST_PARTS):
            await back.put(b"x")
        with pytest.raises(TimedOut, match="does a file system hang"):
            await back.put(b"x")
        out.close()
        back.close()
        with pytest.raises(StreamOver):
            out.put(b"x")
        with pytest.raises(StreamOver):
            next(back.parts())

    asyncio.run(main())


def test_a_thread_that_is_at_work_on_its_first_part_is_waited_for() -> None:
    async def main() -> None:
        out, loop, looks = Outflow("the archive", 0.1), asyncio.get_running_loop(), []

        def work() -> None:
            looks.append(loop.time())
            if looks[-1] - looks[0] < 0.5:
                out.working()
                loop.call_later(0.01, work)  # by the same clock: no load makes it late for the reader alone
            else:
                out.put(b"at last")

        work()
        assert await anext(aiter(out.parts())) == b"at last"
        out.close()
        with pytest.raises(StreamOver):
            out.working()

    asyncio.run(main())


def stand_still() -> None:
    """As a loop does whose process gets no time."""
    time.sleep(0.06)


def test_what_comes_in_the_turn_in_which_its_limit_passes_has_come() -> None:
    async def main() -> None:
        out, back = Outflow("the copy", 0.05), Inflow("the copy", 0.05)
        for _ in range(MOST_PARTS):
            await back.put(b"x")
        taking, giving = asyncio.ensure_future(anext(aiter(out.parts()))), asyncio.ensure_future(back.put(b"y"))
        await asyncio.sleep(0)  # both wait
        out.put(b"x")
        next(back.parts())
        stand_still()
        assert await taking == b"x"
        assert await giving

    asyncio.run(main())


def test_what_is_broken_off_ends_on_both_sides_by_the_same_error() -> None:
    async def main() -> None:
        out, back = Outflow("the copy"), Inflow("the copy")
        out.put(b"x")
        for each in (out, back):
            each.break_off(WrongState("is being removed"))
        out.end()
        with pytest.raises(WrongState, match="removed"):
            await anext(aiter(out.parts()))
        with pytest.raises(WrongState, match="removed"):
            out.put(b"x")
        assert not await back.put(b"x")
        with pytest.raises(WrongState, match="removed"):
            next(back.parts())
        done = Outflow("the copy")
        done.put(b"x")
        done.end()
        done.break_off(WrongState("too late"))
        assert [part async for part in done.parts()] == [b"x"]

    asyncio.run(main())


def test_an_error_comes_after_what_was_sent_before_it() -> None:
    async def main() -> None:
        out = Outflow("the copy")
        out.put(b"a")
        out.end(WrongState("torn"))
        parts = aiter(out.parts())
        assert await anext(parts) == b"a"
        with pytest.raises(WrongState, match="torn"):
            await anext(parts)

    asyncio.run(main())


def test_a_thread_that_takes_no_more_stops_the_sender() -> None:
    async def main() -> None:
        back = Inflow("the copy")
        back.taken()
        assert not await back.put(b"x")

    asyncio.run(main())
