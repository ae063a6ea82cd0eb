"""One attached client between its pipes and a shim: what flows, what waits, what ends it."""

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from supervisor.model.errors import ShimFailed, WrongState
from supervisor.model.values import Winsize
from supervisor.streams import attach
from supervisor.streams.attach import AttachSession, AttachTarget, Dropped, Item, Output, WantedStreams
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.fakes import in_loop, until
from tests.supervisor.fakeshim import FakeShim

LIMIT_SECONDS = 10
PIPE_BYTES = 64 * 1024


class Run:
    """A run with a fake shim in its directory; `over` is the end of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.over = asyncio.get_running_loop().create_future()
        self.shim = FakeShim(directory).begin()

    def target(self, *, tty: bool = False, stdin: bool = True) -> AttachTarget:
        return AttachTarget("web", str(self.directory), tty, stdin, self._over)

    async def _over(self) -> None:
        await asyncio.shield(self.over)

    def end(self) -> None:
        self.over.set_result(None)

    def replace_shim(self) -> FakeShim:
        self.shim = FakeShim(self.directory).begin()
        return self.shim


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Run]:
    before = held_now()
    run = Run(directory)
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            yield run
        await until(lambda: run.shim.open_connections == 0, "the end of every connection")
    finally:
        run.shim.die()
    assert not opened_since(before)


async def collected(session: AttachSession) -> list[Item]:
    async with aclosing(session.items()) as items:
        return [item async for item in items]


@in_loop
async def test_output_comes_by_its_stream_until_both_are_at_their_end(tmp_path: Path) -> None:
    async with running(tmp_path) as run, AttachSession(run.target(), WantedStreams()) as session:
        (theirs,) = run.shim.attached
        os.write(theirs["out"], b"one")
        os.write(theirs["err"], b"two")
        run.shim.close("out", "err")
        assert await collected(session) == [Output("stdout", b"one"), Output("stderr", b"two")]
    assert run.shim.asked[0] == ("attach", "in,out,err", "lossless")


@in_loop
async def test_only_what_is_wanted_and_there_is_attached(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        async with AttachSession(run.target(stdin=False), WantedStreams(stderr=False)) as session:
            assert not session.stdin
        async with AttachSession(run.target(tty=True), WantedStreams(size=Winsize(5, 6), lossless=False)) as session:
            assert session.tty
    assert run.shim.asked == [("attach", "out", "lossless"), ("attach", "in,out", "drop"), ("resize", "5", "6")]


@in_loop
async def test_a_client_that_does_not_read_leaves_everything_in_the_pipe(tmp_path: Path) -> None:
    async with running(tmp_path) as run, AttachSession(run.target(), WantedStreams()) as session:
        out = run.shim.attached[0]["out"]
        async with aclosing(session.items()) as items:
            os.write(out, b"x")
            assert await anext(items) == Output("stdout", b"x")
            os.set_blocking(out, False)
            written = 0
            for _ in range(20):  # more often than there is room
                with contextlib.suppress(BlockingIOError):
                    written += os.write(out, bytes(PIPE_BYTES))
                await asyncio.sleep(0)
            assert written == 2 * PIPE_BYTES  # one that waits for it, and the pipe


@in_loop
async def test_input_of_a_container_that_does_not_read_waits(tmp_path: Path) -> None:
    async with running(tmp_path) as run, AttachSession(run.target(), WantedStreams()) as session:
        data = os.urandom(3 * PIPE_BYTES + 17)
        writing = asyncio.create_task(session.write(data))
        await asyncio.wait((writing,), timeout=0.05)
        assert not writing.done()
        received = b""
        while not writing.done():
            received += os.read(run.shim.attached[0]["in"], PIPE_BYTES)
            await asyncio.wait((writing,), timeout=0.001)
        received += os.read(run.shim.attached[0]["in"], PIPE_BYTES)
        assert received == data


@in_loop
async def test_the_end_of_the_input_is_an_end_of_file_for_the_shim_and_the_output_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path) as run, AttachSession(run.target(), WantedStreams()) as session:
        (theirs,) = run.shim.attached
        await session.write(b"last")
        session.end_input()
        assert [os.read(theirs["in"], 99), os.read(theirs["in"], 99)] == [b"last", b""]
        await session.write(b"too late")  # let fall
        os.write(theirs["out"], b"still here")
        run.shim.close("out", "err")
        assert await collected(session) == [Output("stdout", b"still here")]
    assert "close-stdin" not in [op for op, *_ in run.shim.asked]


@in_loop
async def test_without_stdin_input_is_let_fall(tmp_path: Path) -> None:
    async with running(tmp_path) as run, AttachSession(run.target(stdin=False), WantedStreams()) as session:
        await session.write(bytes(10 * PIPE_BYTES))
        session.end_input()


@in_loop
async def test_orders_go_to_the_shim(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        async with AttachSession(run.target(tty=True), WantedStreams()) as session:
            await session.resize(Winsize(3, 4))
        async with AttachSession(run.target(), WantedStreams()) as session:
            await session.close_stdin()
    assert ("resize", "3", "4") in run.shim.asked and ("close-stdin",) in run.shim.asked


@in_loop
async def test_orders_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        async with AttachSession(run.target(), WantedStreams()) as session:
            with pytest.raises(WrongState, match="no terminal"):
                await session.resize(Winsize(3, 4))
        async with AttachSession(run.target(tty=True), WantedStreams()) as session:
            with pytest.raises(WrongState, match="ctrl-d"):
                await session.close_stdin()


@in_loop
async def test_what_goes_wrong_with_the_input_ends_the_output(tmp_path: Path) -> None:
    async def wrong() -> None:
        raise WrongState("these words")

    async with running(tmp_path) as run:
        for wanted in (WantedStreams(), WantedStreams(stdout=False, stderr=False)):
            async with AttachSession(run.target(), wanted) as session:
                reading = asyncio.create_task(collected(session))
                await asyncio.sleep(0)
                feeding = asyncio.create_task(wrong())
                feeding.add_done_callback(session.input_over)
                with pytest.raises(WrongState, match="these words"):
                    await reading


@in_loop
async def test_a_killed_shim_is_waited_for_and_the_next_one_goes_on(tmp_path: Path) -> None:
    wanted = WantedStreams(size=Winsize(5, 6))
    async with (
        running(tmp_path) as run,
        AttachSession(run.target(tty=True), wanted) as session,
        aclosing(session.items()) as items,
    ):
        os.write(run.shim.attached[0]["out"], b"before")
        assert await anext(items) == Output("stdout", b"before")
        os.write(run.shim.attached[0]["out"], b"last words")
        await session.write(b"unread")
        run.shim.die()
        assert await anext(items) == Output("stdout", b"last words")
        after = asyncio.ensure_future(anext(items))
        await asyncio.wait((after,), timeout=0.05)
        await session.resize(Winsize(7, 8))
        shim = run.replace_shim()
        await until(lambda: ("resize", "7", "8") in shim.asked, "the size")
        assert os.read(shim.attached[0]["in"], 99) == b"unread"
        os.write(shim.attached[0]["out"], b"after")
        assert await after == Output("stdout", b"after")
        run.end()
        shim.close("out")
        assert await anext(items, None) is None


@in_loop
async def test_the_next_shim_is_told_to_close_stdin_too(tmp_path: Path) -> None:
    async with running(tmp_path) as run, AttachSession(run.target(), WantedStreams()) as session:
        reading = asyncio.create_task(collected(session))
        await session.close_stdin()
        run.shim.die()
        shim = run.replace_shim()
        await until(lambda: ("close-stdin",) in shim.asked, "it")
        run.end()
        shim.close("out", "err")
        assert await reading == []


@in_loop
async def test_input_alone_lasts_until_the_run_is_over(tmp_path: Path) -> None:
    async with (
        running(tmp_path) as run,
        AttachSession(run.target(), WantedStreams(stdout=False, stderr=False)) as session,
    ):
        reading = asyncio.create_task(collected(session))
        await session.write(b"in")
        run.shim.die()
        shim = run.replace_shim()
        await until(lambda: shim.attached, "the next attach")
        assert os.read(shim.attached[0]["in"], 99) == b"in"
        assert not reading.done()
        run.end()
        assert await reading == []


@in_loop
async def test_the_end_of_the_run_ends_it_although_the_shim_has_gone_without_a_word(tmp_path: Path) -> None:
    async with running(tmp_path) as run, AttachSession(run.target(), WantedStreams()) as session:
        os.write(run.shim.attached[0]["err"], b"bye")
        run.shim.die()
        reading = asyncio.create_task(collected(session))
        await asyncio.wait((reading,), timeout=0.01)
        run.end()
        assert await reading == [Output("stderr", b"bye")]


@in_loop
async def test_what_was_dropped_is_counted_over_shims_and_to_the_last_word(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        wanted = WantedStreams(stderr=False, lossless=False)
        async with AttachSession(run.target(), wanted) as session, aclosing(session.items()) as items:
            os.write(run.shim.attached[0]["out"], bytes(PIPE_BYTES))
            run.shim.counters["missed_session"] = 30
            assert await anext(items) == Output("stdout", bytes(PIPE_BYTES))
            assert await anext(items) == Dropped(30)
            run.shim.die()
            shim = run.replace_shim()
            again = asyncio.ensure_future(anext(items))
            await until(lambda: shim.attached, "the next attach")
            shim.counters["missed_session"] = 3
            run.end()
            shim.say_farewell()
            shim.die()
            assert await again == Dropped(33)
            assert await anext(items, None) is None


@in_loop
async def test_who_has_everything_is_told_of_no_loss_and_who_was_cut_off_is(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        for missed, expected in ((0, []), (7, [Dropped(7)])):
            async with AttachSession(run.target(), WantedStreams()) as session:
                run.shim.counters["missed_session"] = missed
                run.shim.say_farewell()
                run.shim.close("out", "err")
                assert await collected(session) == expected


@in_loop
async def test_a_run_that_is_over_cannot_be_attached_to(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        run.end()
        run.shim.die()
        with pytest.raises(WrongState, match="web has ended"):
            async with AttachSession(run.target(), WantedStreams()):
                pass


def test_without_a_shim_an_attach_is_given_up_after_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @in_loop
    async def test() -> None:
        async with running(tmp_path) as run:
            async with AttachSession(run.target(), WantedStreams()) as session:
                monkeypatch.setattr(attach, "BEGIN_SECONDS", 0.1)
                monkeypatch.setattr(attach, "REPLACED_SECONDS", 0.1)
                run.shim.die()
                with pytest.raises(ShimFailed, match="no shim listens"):
                    await collected(session)
            with pytest.raises(ShimFailed, match="no shim listens"):
                async with AttachSession(run.target(), WantedStreams()):
                    pass

    test()


@in_loop
async def test_the_rest_of_a_run_that_is_over_is_taken_although_the_client_is_slow(tmp_path: Path) -> None:
    async with running(tmp_path) as run, AttachSession(run.target(), WantedStreams(stderr=False)) as session:
        out, rest = run.shim.attached[0]["out"], os.urandom(attach.LAST_BYTES // 2)
        async with aclosing(session.items()) as items:
            os.write(out, b"x")
            assert await anext(items) == Output("stdout", b"x")
            os.set_blocking(out, True)
            writing = asyncio.create_task(asyncio.to_thread(_write_all, out, rest))
            await asyncio.wait((writing,), timeout=0.05)
            assert not writing.done()
            run.end()
            await writing  # nobody has asked for it
            run.shim.die()
            assert b"".join([item.data async for item in items if isinstance(item, Output)]) == rest


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


@in_loop
async def test_a_closed_stdin_is_no_obstacle(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        run.shim.closed_stdin = True
        async with AttachSession(run.target(), WantedStreams()) as session:
            assert not session.stdin
            assert run.shim.asked == [("attach", "in,out,err", "lossless"), ("attach", "out,err", "lossless")]
            await session.write(bytes(3 * PIPE_BYTES))  # let fall


@in_loop
async def test_who_waits_to_write_is_let_go_when_the_next_shim_knows_that_stdin_is_closed(tmp_path: Path) -> None:
    async with running(tmp_path) as run, AttachSession(run.target(), WantedStreams()) as session:
        reading = asyncio.create_task(collected(session))
        writing = asyncio.create_task(session.write(bytes(3 * PIPE_BYTES)))
        run.shim.die()
        run.replace_shim().closed_stdin = True
        await writing
        run.end()
        run.shim.die()
        assert await reading == []


@in_loop
async def test_a_refused_attach_leaves_nothing_open(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        run.shim.refuse("attach", errno.ENOTTY, "these words")
        with pytest.raises(WrongState, match="these words"):
            async with AttachSession(run.target(), WantedStreams()):
                pass
