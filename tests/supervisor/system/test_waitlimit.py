"""Waits with one limit share a timer, and end as a wait of their own would."""

import asyncio

import pytest

from supervisor.system.waitlimit import WaitLimit
from tests.supervisor.fakes import in_loop


@in_loop
async def test_what_comes_in_time_is_returned_and_what_is_late_is_cancelled_each_at_its_own_moment() -> None:
    limit, loop = WaitLimit(0.05), asyncio.get_running_loop()
    in_time, late, later = (loop.create_future() for _ in range(3))
    first = asyncio.ensure_future(limit.of(late))
    second = asyncio.ensure_future(limit.of(in_time))
    await asyncio.sleep(0)
    limit.seconds = 0.1
    third = asyncio.ensure_future(limit.of(later))
    in_time.set_result(7)
    assert await second == 7
    with pytest.raises(TimeoutError):
        await first
    assert late.cancelled()
    assert not later.done()
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
