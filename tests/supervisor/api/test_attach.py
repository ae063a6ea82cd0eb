"""Attach over each transport, from a client's threads to a shim's pipes: both ways, who holds up whom, every end."""

import asyncio
import errno
import os
import select
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api import streams as doors
from supervisor.api.attachment import Attachment
from supervisor.api.client import Client, ttrpc_beside
from supervisor.model.errors import BadRequest, NoSuchContainer, ShimFailed, WrongState
from supervisor.model.values import Winsize
from supervisor.streams import attach as streams
from supervisor.streams.attach import WantedStreams
from tests.supervisor.api.fake_node import until
from tests.supervisor.api.rig import LIMIT_SECONDS, Rig, created, refused, run, serving
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.fakeshim import FakeShim

PIPE_BYTES = 64 * 1024
IN_FLIGHT_BYTES = 16 * 1024 * 1024  # more than pipes, sockets and gRPC hold between the two ends

each_way = pytest.mark.parametrize("ttrpc", [True, False], ids=["ttrpc", "grpc"])


class Ends:
    """A server with a fake shim, and a synchronous client whose calls run in threads."""

    def __init__(self, rig: Rig, shim: FakeShim, client: Client) -> None:
        self.rig, self.shim, self.client = rig, shim, client

    async def attach(self, id: str = "c1", **wanted: Any) -> Attachment:
        return await asyncio.to_thread(lambda: self.client.attach(id, **wanted))

    @property
    def theirs(self) -> dict[str, int]:
        """What the shim got with the newest attach."""
        return self.shim.attached[-1]


@asynccontextmanager
async def both(folder: Path, *, ttrpc: bool) -> AsyncIterator[Ends]:
    async with asyncio.timeout(LIMIT_SECONDS), serving(folder) as rig:
        rig.node.run_directory = str(folder)
        shim = FakeShim(folder).begin()
        client = await asyncio.to_thread(
            lambda: Client(rig.server.path, ttrpc_beside(rig.server.path) if ttrpc else None)
        )
        try:
            yield Ends(rig, shim, client)
        finally:
            await asyncio.to_thread(client.close)
            shim.die()


def attached(folder: Path, test: Callable[[Ends], Awaitable[None]], *, ttrpc: bool = False) -> None:
    async def main() -> None:
        async with both(folder, ttrpc=ttrpc) as ends:
            await test(ends)

    asyncio.run(main())


async def reply(attachment: Attachment) -> pb.AttachReply | None:
    return await asyncio.to_thread(lambda: next(attachment, None))


async def received(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        try:
            data += os.read(fd, size - len(data))
        except BlockingIOError:
            await asyncio.sleep(0)
    return data


async def sent(fd: int, data: bytes) -> None:
    os.set_blocking(fd, True)
    await asyncio.to_thread(os.write, fd, data)


@each_way
def test_both_directions_and_the_end(tmp_path: Path, ttrpc: bool) -> None:
    async def test(ends: Ends) -> None:
        it = await ends.attach()
        assert (it.tty, it.stdin) == (False, True)
        assert await asyncio.to_thread(it.write, b"to it")
        assert await received(ends.theirs["in"], 5) == b"to it"
        await sent(ends.theirs["out"], b"out")
        assert await reply(it) == pb.AttachReply(stdout=b"out")
        await sent(ends.theirs["err"], b"err")
        assert await reply(it) == pb.AttachReply(stderr=b"err")
        ends.shim.close("out", "err")
        assert await reply(it) is None
        assert not await asyncio.to_thread(it.write, b"nobody is there")
        assert ends.rig.node.asked == [("attach", "c1", "", WantedStreams())]

    attached(tmp_path, test, ttrpc=ttrpc)


@each_way
def test_what_is_wanted_arrives(tmp_path: Path, ttrpc: bool) -> None:
    async def test(ends: Ends) -> None:
        it = await ends.attach("on-a-tty", exec_id="e1", stdin=False, lossless=False, size=(24, 80))
        assert (it.tty, it.stdin) == (True, False)
        wanted = WantedStreams(stdin=False, lossless=False, size=Winsize(24, 80))
        assert ends.rig.node.asked == [("attach", "on-a-tty", "e1", wanted)]
        assert ends.shim.asked == [("attach", "out", "drop"), ("resize", "24", "80")]

    attached(tmp_path, test, ttrpc=ttrpc)


@each_way
def test_a_resize_and_the_end_of_the_input_come_behind_what_was_written(tmp_path: Path, ttrpc: bool) -> None:
    async def test(ends: Ends) -> None:
        on_tty = await ends.attach("on-a-tty")
        assert await asyncio.to_thread(on_tty.resize, 5, 6)
        await until(lambda: ("resize", "5", "6") in ends.shim.asked)
        it = await ends.attach()
        data = os.urandom(3 * PIPE_BYTES)
        writing = asyncio.create_task(asyncio.to_thread(lambda: it.write(data) and it.close_stdin()))
        assert await received(ends.theirs["in"], 2 * PIPE_BYTES) == data[: 2 * PIPE_BYTES]
        assert ("close-stdin",) not in ends.shim.asked
        assert await received(ends.theirs["in"], PIPE_BYTES) == data[2 * PIPE_BYTES :]
        await until(lambda: ("close-stdin",) in ends.shim.asked)
        assert await writing

    attached(tmp_path, test, ttrpc=ttrpc)


@each_way
def test_a_client_that_ends_its_input_goes_on_reading(tmp_path: Path, ttrpc: bool) -> None:
    async def test(ends: Ends) -> None:
        it = await ends.attach()
        await asyncio.to_thread(it.write, b"last")
        await asyncio.to_thread(it.end_input)
        assert not await asyncio.to_thread(it.write, b"more")
        assert await received(ends.theirs["in"], 4) == b"last"
        os.set_blocking(ends.theirs["in"], True)
        assert await asyncio.to_thread(os.read, ends.theirs["in"], 9) == b""
        await sent(ends.theirs["out"], b"still")
        assert await reply(it) == pb.AttachReply(stdout=b"still")
        assert ("close-stdin",) not in ends.shim.asked

    attached(tmp_path, test, ttrpc=ttrpc)


@each_way
def test_a_client_that_does_not_read_holds_the_shim_up_and_loses_nothing(tmp_path: Path, ttrpc: bool) -> None:
    async def test(ends: Ends) -> None:
        it, out = await ends.attach(), ends.theirs["out"]
        written, pattern = b"", os.urandom(PIPE_BYTES)
        while await room(out, seconds=0.5):
            written += pattern[: os.write(out, pattern)]
            assert len(written) < IN_FLIGHT_BYTES, "everything was taken from the pipe, and nobody reads"
        ends.shim.close("out", "err")
        assert b"".join([each.stdout async for each in replies(it)]) == written

    attached(tmp_path, test, ttrpc=ttrpc)


async def room(fd: int, seconds: float) -> bool:
    """Whether there is any within that time. `fd` does not block."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_writer(fd, ready.set)
    try:
        async with asyncio.timeout(seconds):
            return await ready.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_writer(fd)


async def replies(it: Attachment) -> AsyncIterator[pb.AttachReply]:
    while (each := await reply(it)) is not None:
        yield each


@each_way
def test_a_container_that_does_not_read_holds_the_client_up_until_it_detaches(tmp_path: Path, ttrpc: bool) -> None:
    async def test(ends: Ends) -> None:
        it = await ends.attach()
        writing = asyncio.create_task(asyncio.to_thread(it.write, bytes(IN_FLIGHT_BYTES)))
        await asyncio.wait((writing,), timeout=0.5)
        assert not writing.done()
        it.cancel()
        assert not await writing
        assert await reply(it) is None
        await until(lambda: ends.shim.open_connections == 0)

    attached(tmp_path, test, ttrpc=ttrpc)


@each_way
def test_what_was_written_before_a_client_leaves_reaches_the_container(tmp_path: Path, ttrpc: bool) -> None:
    async def test(ends: Ends) -> None:
        it = await ends.attach()
        await asyncio.to_thread(it.write, b"last words")
        leaving = asyncio.create_task(asyncio.to_thread(it.leave))
        await until(lambda: bool(select.select([ends.theirs["in"]], [], [], 0)[0]))
        assert ends.shim.open_connections == 1  # the shim has not taken them yet
        assert await received(ends.theirs["in"], 10) == b"last words"
        await leaving
        assert await reply(it) is None
        await until(lambda: ends.shim.open_connections == 0)

    attached(tmp_path, test, ttrpc=ttrpc)


@each_way
def test_a_client_can_leave_a_container_that_never_reads_and_one_that_never_stops_writing(
    tmp_path: Path, ttrpc: bool
) -> None:
    async def test(ends: Ends) -> None:
        it = await ends.attach()
        await asyncio.to_thread(it.write, b"unread")
        os.write(ends.theirs["out"], bytes(PIPE_BYTES))
        await asyncio.to_thread(it.leave)
        await until(lambda: ends.shim.open_connections == 0)

    attached(tmp_path, test, ttrpc=ttrpc)


@each_way
def test_a_client_that_goes_away_is_let_go_and_leaves_nothing_behind(tmp_path: Path, ttrpc: bool) -> None:
    async def test(ends: Ends) -> None:
        with await ends.attach() as it:
            await asyncio.to_thread(it.write, b"x")
        await until(lambda: ends.shim.open_connections == 0)
        ends.shim.close("in", "out", "err")
        before = held_now()
        for _ in range(5):
            with await ends.attach():
                pass
            await until(lambda: ends.shim.open_connections == 0)
            ends.shim.close("in", "out", "err")
        assert not opened_since(before)

    attached(tmp_path, test, ttrpc=ttrpc)


@each_way
def test_no_thread_stays_behind_an_attach_that_is_over(tmp_path: Path, ttrpc: bool) -> None:
    async def test(ends: Ends) -> None:
        def others() -> int:
            """Those but the pool's own, which grows while none of it is idle."""
            return sum(not thread.name.startswith("asyncio_") for thread in threading.enumerate())

        before = others()
        for _ in range(5):
            it = await ends.attach()
            ends.shim.close("out", "err")
            assert await reply(it) is None
        await until(lambda: others() <= before)

    attached(tmp_path, test, ttrpc=ttrpc)


@each_way
def test_errors_have_their_names(tmp_path: Path, ttrpc: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(ends: Ends) -> None:
        with pytest.raises(BadRequest, match="none of them"):
            await ends.attach(stdin=False, stdout=False, stderr=False)
        with pytest.raises(BadRequest, match="rows"):
            await ends.attach("on-a-tty", size=(70_000, 1))
        ends.rig.node.failure = NoSuchContainer("no container c9", id="c9")
        with pytest.raises(NoSuchContainer, match="c9"):
            await ends.attach("c9")
        ends.rig.node.failure = None
        ends.shim.refuse("attach", errno.ENOTTY, "these words")
        with pytest.raises(WrongState, match="these words"):
            await ends.attach()
        ends.shim.die()
        monkeypatch.setattr(streams, "BEGIN_SECONDS", 0.1)  # the others are to be begun on a busy machine
        with pytest.raises(ShimFailed, match="no shim listens"):
            await ends.attach()

    attached(tmp_path, test, ttrpc=ttrpc)


@each_way
def test_what_the_container_has_not_got_is_refused_in_the_midst_of_it(tmp_path: Path, ttrpc: bool) -> None:
    async def test(ends: Ends) -> None:
        it = await ends.attach()
        assert await asyncio.to_thread(it.resize, 1, 1)
        with pytest.raises(WrongState, match="no terminal"):
            await reply(it)
        assert not await asyncio.to_thread(it.write, b"over")
        it = await ends.attach("on-a-tty")
        assert await asyncio.to_thread(it.close_stdin)
        with pytest.raises(WrongState, match="ctrl-d"):
            await reply(it)

    attached(tmp_path, test, ttrpc=ttrpc)


@pytest.mark.parametrize("first", [pb.AttachRequest(stdin=b"x"), pb.AttachRequest(), None])
def test_the_first_request_must_be_start(tmp_path: Path, first: pb.AttachRequest | None) -> None:
    async def test(rig: Rig) -> None:
        call = rig.exitd.Attach(iter([first] if first is not None else []))
        refusal = await refused(call.read())
        assert (refusal.code(), refusal.details()) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "the first request must be `start`",
        )

    run(tmp_path, test)


def test_a_second_start_is_refused(tmp_path: Path) -> None:
    async def test(ends: Ends) -> None:
        start = pb.AttachRequest(start=pb.AttachStart(id="c1", stdout=True))
        call = ends.rig.exitd.Attach(iter([start, start]))
        assert (await call.read()).HasField("started")
        assert (await refused(call.read())).details() == "`start` stands only in the first request"

    attached(tmp_path, test)


def test_a_later_request_that_is_none_ends_the_session_and_leaves_nothing(tmp_path: Path) -> None:
    async def test(ends: Ends) -> None:
        start = pb.AttachRequest(start=pb.AttachStart(id="c1", stdout=True)).SerializeToString()
        attach: Any = ends.rig.channel.stream_stream(
            "/exitd.v1.Exitd/Attach", response_deserializer=pb.AttachReply.FromString
        )
        call = attach(iter([start, b"\xff\xff"]))
        assert (await call.read()).HasField("started")
        refusal = await refused(call.read())
        assert refusal.code() is grpc.StatusCode.INVALID_ARGUMENT and "no message of its kind" in str(refusal.details())
        await until(lambda: ends.shim.open_connections == 0)

    attached(tmp_path, test)


def test_a_client_that_says_nothing_is_sent_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "START_SECONDS", 0.05)

    async def test(rig: Rig) -> None:
        call = rig.exitd.Attach()
        assert (await refused(call.read())).code() is grpc.StatusCode.DEADLINE_EXCEEDED

    run(tmp_path, test)


def test_an_attached_client_is_told_of_the_daemons_end(tmp_path: Path) -> None:
    async def test(ends: Ends) -> None:
        call = ends.rig.exitd.Attach(endless(pb.AttachRequest(start=pb.AttachStart(id="c1", stdout=True))))
        assert (await call.read()).HasField("started")
        reading = asyncio.ensure_future(call.read())
        await ends.rig.server.stop(1)
        assert (await refused(reading)).code() is grpc.StatusCode.UNAVAILABLE
        await until(lambda: ends.shim.open_connections == 0)

    attached(tmp_path, test)


async def endless(first: pb.AttachRequest) -> AsyncIterator[pb.AttachRequest]:
    yield first
    await asyncio.Event().wait()


@each_way
def test_small_orders_reach_their_owner(tmp_path: Path, ttrpc: bool) -> None:
    async def test(ends: Ends) -> None:
        await asyncio.to_thread(lambda: ends.client.resize("c1", 5, 6, exec_id="e1"))
        await asyncio.to_thread(ends.client.close_stdin, "c1")
        await asyncio.to_thread(ends.client.reopen_log, "c1")
        with pytest.raises(BadRequest, match="cols"):
            await asyncio.to_thread(ends.client.resize, "c1", 1, 65_536)
        assert ends.rig.node.asked == [
            ("resize", "c1", "e1", Winsize(5, 6)),
            ("close_stdin", "c1", ""),
            ("reopen_log", "c1"),
        ]

    attached(tmp_path, test, ttrpc=ttrpc)


def test_inspect_has_the_counters(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await created(rig)
        shown = (await rig.exitd.Inspect(pb.InspectRequest(id="c1"))).container
        assert shown.streams == pb.StreamCounters(
            stdout_bytes=1, stderr_bytes=2, stdin_bytes=3, lost_bytes=4, dropped_bytes=5
        )
        (listed,) = (await rig.exitd.List(pb.ListRequest(all=True))).containers
        assert not listed.HasField("streams")

    run(tmp_path, test)
