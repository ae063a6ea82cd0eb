"""Waits with one limit share a timer, and end as a wait of their own would."""

import asyncio

import pytest

from supervisor.system.waitlimit import WaitLimit
from tests.supervisor.fakes import in_loop, let_pass, until


@in_loop
async def test_what_comes_in_time_is_returned_and_what_is_late_is_cancelled_each_at_its_own_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit, loop = WaitLimit(60), asyncio.get_running_loop()
    in_time, late, later = (loop.create_future() for _ in range(3))
    first = asyncio.ensure_future(limit.of(late))
    second = asyncio.ensure_future(limit.of(in_time))
    await asyncio.sleep(0)
    limit.seconds = 120
    third = asyncio.ensure_future(limit.of(later))
    in_time.set_result(7)
    assert await second == 7
    assert not late.done()
    let_pass(monkeypatch, 60)
    with pytest.raises(TimeoutError):
        await first
    assert late.cancelled()
    assert not later.done()
    let_pass(monkeypatch, 60)
    with pytest.raises(TimeoutError):
        await third
    error = loop.create_future()
    error.set_exception(KeyError("x"))
    with pytest.raises(KeyError):
        await limit.of(error)


@in_loop
async def test_who_is_cancelled_is_not_late() -> None:
    limit, future = WaitLimit(30), asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(limit.of(future))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert future.cancelled()
    assert not limit.end(future)


@in_loop
async def test_who_was_cancelled_before_and_goes_on_is_late_all_the_same() -> None:
    """As a clean-up after a cancellation is, which has to hear of a slow disk."""
    limit, loop = WaitLimit(0.01), asyncio.get_running_loop()
    is_cleaning_up = asyncio.Event()

    async def clean_up() -> None:
        try:
            await loop.create_future()
        except asyncio.CancelledError:
            is_cleaning_up.set()
            with pytest.raises(TimeoutError):
                await limit.of(loop.create_future())
            limit.seconds = 30
            await limit.of(loop.create_future())

    working = asyncio.ensure_future(clean_up())
    await asyncio.sleep(0)
    working.cancel()
    await is_cleaning_up.wait()
    await until(lambda: limit.seconds == 30, "the end of the first wait")
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working


@in_loop
async def test_an_error_of_what_is_called_for_a_late_one_leaves_the_others_their_limit() -> None:
    limit, loop = WaitLimit(0.01), asyncio.get_running_loop()
    errors = list[object]()
    loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))

    def fail() -> None:
        raise KeyError("x")

    limit.begin("one", fail)
    limit.begin("other", fail)
    with pytest.raises(TimeoutError):
        await limit.of(loop.create_future())
    assert [str(error) for error in errors] == ["'x'", "'x'"]
