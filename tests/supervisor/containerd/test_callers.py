"""Who asks, in the words of a relay; and the turns of those who change something."""

import asyncio
from functools import partial

import pytest

from shim import fields
from supervisor.containerd import callers
from supervisor.containerd.callers import Turns
from supervisor.model.errors import BadRequest, ShuttingDown, WrongState
from tests.supervisor.fakes import in_loop, until

PAIRS = (
    ("relay", "00ff"),
    ("connection", 3),
    ("live", "1,3"),
    ("pid", 77),
    ("started", 5),
    ("namespace", "k8s.io"),
    ("group", "g"),
    ("address", "/run/containerd/containerd.sock.ttrpc"),
    ("socket", "/run/containerd/s/x"),
)
BOX = ("ns", "box", "")


def test_a_hello_says_who_asks_and_which_connections_live() -> None:
    hello = callers.read_hello(fields.encode("relay-hello", PAIRS))
    assert (hello.relay, hello.connection, hello.live, hello.pid) == ("00ff", 3, (1, 3), 77)
    assert (hello.namespace, hello.address) == ("k8s.io", "/run/containerd/containerd.sock.ttrpc")
    assert callers.key_of(hello, 9) == "00ff/3/9"


def test_a_relay_that_brings_events_says_so_and_is_known_by_its_process() -> None:
    assert callers.read_hello(fields.encode("relay-hello", PAIRS)).courier == ""
    assert callers.read_hello(fields.encode("relay-hello", (*PAIRS, ("courier", 1)))).courier == "77/5"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        fields.encode("goodbye", PAIRS),
        fields.encode("relay-hello", PAIRS[:1]),
        fields.encode("relay-hello", (*PAIRS[:2], ("live", "1;2"), *PAIRS[3:])),
        fields.encode("relay-hello", PAIRS)[:-1],
    ],
)
def test_a_hello_that_is_not_understood_is_refused(data: bytes) -> None:
    with pytest.raises(BadRequest, match="hello is not understood"):
        callers.read_hello(data)


@in_loop
async def test_changes_of_one_process_come_in_the_order_in_which_they_were_asked() -> None:
    turns, done, gate = Turns(), list[int](), asyncio.Event()

    async def work(number: int) -> int:
        if number == 0:
            await gate.wait()
        done.append(number)
        return number

    asked = [asyncio.ensure_future(turns.run(f"r/1/{n}", BOX, partial(work, n))) for n in range(5)]
    other = asyncio.ensure_future(turns.run("r/1/9", ("ns", "other", ""), lambda: work(9)))
    assert await other == 9 and done == [9]  # nobody else waits for them
    gate.set()
    assert await asyncio.gather(*asked) == [0, 1, 2, 3, 4] and done == [9, 0, 1, 2, 3, 4]
    assert not turns._at and not turns._locks


@in_loop
async def test_what_was_begun_is_done_to_its_end_and_told_to_who_asks_again() -> None:
    turns, gate, begun = Turns(), asyncio.Event(), list[int]()

    async def work() -> str:
        begun.append(1)
        await gate.wait()
        return "done"

    first = asyncio.ensure_future(turns.run("r/1/1", BOX, work))
    await until(lambda: begun)
    first.cancel()  # its connection has gone
    second = asyncio.ensure_future(turns.run("r/1/1", BOX, work))
    await asyncio.sleep(0)
    gate.set()
    assert await second == "done" and begun == [1]


@in_loop
async def test_a_refusal_is_its_callers_and_keeps_nobody_up() -> None:
    turns = Turns()

    async def refuse() -> None:
        raise WrongState("no")

    async def work() -> int:
        return 1

    with pytest.raises(WrongState):
        await turns.run("r/1/1", BOX, refuse)
    assert await turns.run("r/1/3", BOX, work) == 1


@in_loop
async def test_a_daemon_that_stops_begins_nothing_and_breaks_off_what_takes_too_long() -> None:
    turns, broken = Turns(), list[bool]()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            broken.append(True)

    asked = asyncio.ensure_future(turns.run("", BOX, work))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await turns.close(0.01)
    assert broken == [True]
    with pytest.raises(ShuttingDown):
        await turns.run("r/1/5", BOX, work)
    with pytest.raises(asyncio.CancelledError):
        await asked
