"""Which relay brings an event, and what becomes of it when the relay goes or comes back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest
from google.protobuf.empty_pb2 import Empty

from supervisor.containerd.couriers import Couriers, packed
from supervisor.ttrpc.faults import CallFailed
from tests.supervisor.containerd.relays import ME, Process, Relay
from tests.supervisor.fakes import in_loop, until

DATA = packed(7, "a.Service/Method", Empty())


@contextlib.asynccontextmanager
async def handing_over(couriers: Couriers, name: str = ME) -> AsyncIterator["asyncio.Task[bool]"]:
    task = asyncio.get_running_loop().create_task(couriers.hand_over(name, 7, DATA, lambda: True))
    await asyncio.sleep(0)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        couriers.close()


@pytest.fixture
def process() -> Iterator[Process]:
    made = Process()
    yield made
    made.close()


@in_loop
async def test_an_event_is_handed_over_with_its_number_and_request_as_soon_as_its_relay_is_connected() -> None:
    couriers = Couriers()
    async with handing_over(couriers) as task:
        relay = Relay(couriers)
        await until(lambda: relay.handed == [7])
        assert (relay.requests[0].service, relay.requests[0].method) == ("a.Service", "Method")
        relay.answers(6)
        await asyncio.sleep(0)
        assert not task.done()
        relay.answers(7)
        assert await task


@in_loop
async def test_what_was_not_answered_when_a_connection_ended_is_handed_over_on_the_next() -> None:
    couriers = Couriers()
    async with handing_over(couriers) as task:
        relay = Relay(couriers)
        await until(lambda: relay.handed == [7])
        relay.lost()
        relay.answers(7)
        again = Relay(couriers)
        await until(lambda: again.handed == [7])
        again.answers(7)
        assert await task
        assert relay.handed == [7]


@in_loop
async def test_a_connection_that_says_goodbye_is_handed_nothing_more_and_may_still_answer() -> None:
    couriers = Couriers()
    async with handing_over(couriers) as task:
        relay = Relay(couriers)
        await until(lambda: relay.handed == [7])
        couriers.parting(ME, relay.link)
        relay.answers(7)
        assert await task
    async with handing_over(couriers):
        assert relay.handed == [7]


@in_loop
async def test_a_refusal_is_containerds() -> None:
    couriers = Couriers()
    async with handing_over(couriers) as task:
        relay = Relay(couriers)
        await until(lambda: relay.handed == [7])
        relay.answers(7, 3, "no such topic")
        with pytest.raises(CallFailed, match="no such topic") as caught:
            await task
        assert caught.value.code == 3


@in_loop
async def test_a_relay_that_has_ended_brings_nothing_though_nobody_has_reaped_it(process: Process) -> None:
    process.end()
    couriers = Couriers()
    assert not await couriers.hand_over(process.name, 7, DATA, lambda: True)
    process.close()
    assert not await couriers.hand_over(process.name, 7, DATA, lambda: True)


@pytest.mark.parametrize("connected", [False, True])
def test_a_relay_that_ends_meanwhile_brings_nothing(process: Process, connected: bool) -> None:
    async def ends() -> None:
        couriers = Couriers()
        async with handing_over(couriers, process.name) as task:
            if connected:
                relay = Relay(couriers, process.name)
                await until(lambda: relay.handed == [7])
            process.end()
            assert not await asyncio.wait_for(task, 20)

    asyncio.run(ends())


@in_loop
async def test_what_is_not_wanted_any_more_when_the_relay_connects_is_not_handed_over() -> None:
    couriers, wanted = Couriers(), True
    task = asyncio.get_running_loop().create_task(couriers.hand_over(ME, 7, DATA, lambda: wanted))
    await asyncio.sleep(0)
    wanted = False
    relay = Relay(couriers)
    assert await task
    assert relay.handed == []
    couriers.close()


@in_loop
async def test_a_relay_of_an_older_exitd_is_no_courier_and_a_garbled_word_ends_its_connection() -> None:
    couriers = Couriers()
    Relay(couriers, "")
    relay = Relay(couriers)
    for data in (b"", b"1234567", b"12345678\xff\xff"):
        relay.aborted = False
        couriers.answered(ME, relay.link, data)
        assert relay.aborted
    couriers.close()
