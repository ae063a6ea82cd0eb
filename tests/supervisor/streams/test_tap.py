"""Pipes read for somebody who has not asked yet: no more than a little, in order, and to the end."""

import asyncio
import os

import pytest

from supervisor.streams.attach import CHUNK_BYTES, Tap
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.fakes import in_loop


@in_loop
async def test_what_comes_is_taken_with_its_pipes_name_until_all_are_at_their_end() -> None:
    tap, before = Tap(), held_now()
    one, two = tap.add("one"), tap.add("two")
    os.write(one, b"a")
    assert await tap.get() == ("one", b"a")
    os.close(one)
    os.write(two, b"b")
    assert await tap.get() == ("two", b"b")
    os.close(two)
    assert await tap.get() is None
    assert not opened_since(before)


@in_loop
async def test_one_chunk_waits_and_the_rest_stays_in_the_pipes() -> None:
    tap = Tap()
    pipes = [tap.add(name) for name in ("one", "two")]
    filled = dict.fromkeys(pipes, 0)
    for _ in range(10):
        for fd in pipes:
            try:
                filled[fd] += os.write(fd, bytes(CHUNK_BYTES))
            except BlockingIOError:
                continue
        await asyncio.sleep(0)
    assert sorted(filled.values()) == [CHUNK_BYTES, 2 * CHUNK_BYTES]
    for fd in pipes:
        os.close(fd)
    taken = [await tap.get() for _ in range(3)]
    assert sorted(item[0] for item in taken if item) in (["one", "one", "two"], ["one", "two", "two"])
    assert await tap.get() is None


@in_loop
async def test_with_more_room_the_writer_goes_on() -> None:
    tap = Tap()
    fd = tap.add("one")
    os.set_blocking(fd, True)
    writing = asyncio.create_task(asyncio.to_thread(_write_all, fd, bytes(10 * CHUNK_BYTES)))
    await asyncio.wait((writing,), timeout=0.05)
    assert not writing.done()
    tap.widen(10 * CHUNK_BYTES)
    await writing
    os.close(fd)
    size = 0
    while (item := await tap.get()) is not None:
        size += len(item[1])
    assert size == 10 * CHUNK_BYTES


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


@in_loop
async def test_an_error_reaches_who_waits_and_who_comes_later() -> None:
    tap = Tap()
    fd = tap.add("one")
    waiting = [asyncio.ensure_future(tap.get()), asyncio.ensure_future(tap.failure())]
    await asyncio.sleep(0)
    tap.fail(ZeroDivisionError())
    for each in waiting:
        with pytest.raises(ZeroDivisionError):
            await each
    with pytest.raises(ZeroDivisionError):
        await tap.get()
    tap.drop()
    os.close(fd)


@in_loop
async def test_what_was_read_survives_the_pipes() -> None:
    tap, before = Tap(), held_now()
    fd = tap.add("one")
    os.write(fd, b"read")
    await asyncio.sleep(0.01)
    tap.drop()
    os.close(fd)
    assert await tap.get() == ("one", b"read")
    assert await tap.get() is None
    assert not opened_since(before)
