"""The line to a shim, against a real socket: what is sent, what comes back, and what a shim may do wrong."""

import asyncio
import errno
import os
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from shim import fields
from supervisor.model.errors import Busy, ExitdError, ShimFailed, TimedOut, WrongState
from supervisor.model.values import Counters, Winsize
from supervisor.monitor import control
from supervisor.monitor.control import Control
from supervisor.system import room
from tests.supervisor.descriptors import held_now, only, opened_since
from tests.supervisor.fakes import in_loop, until
from tests.supervisor.fakeshim import FakeShim, shim


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(control, "LOOK_SECONDS", 0.05)


@in_loop
async def test_each_request_goes_out_as_the_shim_reads_it(tmp_path: Path) -> None:
    with shim(tmp_path) as fake:
        async with control.opened(str(tmp_path)) as line:
            await line.resize(Winsize(24, 80))
            await line.close_stdin()
            await line.reopen_log()
            await line.end()
    assert fake.asked == [("resize", "24", "80"), ("close-stdin",), ("reopen-log",), ("end",)]


@in_loop
async def test_attach_passes_a_descriptor_for_each_stream_in_order(tmp_path: Path) -> None:
    with shim(tmp_path) as fake:
        (in_read, in_write), (out_read, out_write) = os.pipe(), os.pipe()
        async with control.opened(str(tmp_path)) as line:
            await line.attach(["in", "out"], "drop", [in_read, out_write])
        os.write(in_write, b"to the shim")
        assert os.read(fake.attached[0]["in"], 99) == b"to the shim"
        os.write(fake.attached[0]["out"], b"from the shim")
        assert os.read(out_read, 99) == b"from the shim"
        for fd in (in_read, in_write, out_read, out_write):
            os.close(fd)
    assert fake.asked == [("attach", "in,out", "drop")]


@in_loop
async def test_counters_are_reported_by_name(tmp_path: Path) -> None:
    with shim(tmp_path) as fake:
        fake.counters.update({"out": 1, "err": 2, "in": 3, "lost": 4, "dropped": 5})
        fake.counters.update({"in_session": 6, "missed_session": 7})
        assert await control.counters_of(str(tmp_path)) == Counters(1, 2, 3, 4, 5, 6, 7)


@in_loop
async def test_the_counters_that_a_shim_reports_at_its_end_are_kept(tmp_path: Path) -> None:
    with shim(tmp_path) as fake:
        async with control.opened(str(tmp_path)) as line:
            await line.reopen_log()
            fake.counters["missed_session"] = 8
            fake.say_farewell()
            fake.die()
            with pytest.raises(ShimFailed):
                await line.reopen_log()
            assert line.newest is not None and line.newest.missed_bytes == 8


@in_loop
async def test_a_newer_shim_may_report_more(tmp_path: Path) -> None:
    with shim(tmp_path) as fake:
        fake.counters["and"] = 9
        assert await control.counters_of(str(tmp_path)) == Counters(0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOTTY, WrongState), (errno.EBUSY, Busy), (errno.EIO, ShimFailed), (errno.EINVAL, ShimFailed)],
)
def test_a_refusal_is_an_error_by_its_number_with_the_shims_words(
    tmp_path: Path, number: int, kind: type[ExitdError]
) -> None:
    @in_loop
    async def test() -> None:
        with shim(tmp_path) as fake:
            fake.refuse("resize", number, "these words")
            async with control.opened(str(tmp_path)) as line:
                with pytest.raises(kind, match="these words"):
                    await line.resize(Winsize(1, 1))
                await line.reopen_log()  # the connection is as good as before

    test()


@in_loop
async def test_a_stdin_that_is_closed_already_is_closed(tmp_path: Path) -> None:
    with shim(tmp_path) as fake:
        fake.refuse("close-stdin", errno.EPIPE)
        async with control.opened(str(tmp_path)) as line:
            await line.close_stdin()


@in_loop
async def test_no_directory_no_socket_and_no_listener_are_a_missing_shim(tmp_path: Path) -> None:
    with pytest.raises(ShimFailed, match="no shim listens"):
        await Control.open(str(tmp_path / "none"))
    with pytest.raises(ShimFailed, match="no shim listens"):
        await Control.open(str(tmp_path))
    with shim(tmp_path):
        pass
    with pytest.raises(ShimFailed, match="no shim listens"):
        await Control.open(str(tmp_path))
    assert await control.counters_of(str(tmp_path)) is None


@in_loop
async def test_a_run_directory_with_a_long_path_is_reached(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    with shim(deep):
        assert await control.counters_of(str(deep)) is not None


@in_loop
async def test_a_shim_that_goes_ends_the_request_and_says_so_to_who_waits(tmp_path: Path) -> None:
    with shim(tmp_path) as fake:
        fake.answers["resize"] = None
        line = await Control.open(str(tmp_path))
        asking = asyncio.ensure_future(line.resize(Winsize(1, 1)))
        await until(lambda: fake.asked)
        assert not line.lost.is_set()
        fake.die()
        with pytest.raises(ShimFailed, match="closed"):
            await asking
        assert line.lost.is_set()
        with pytest.raises(ShimFailed):
            await line.reopen_log()
        line.close()


@in_loop
async def test_an_answer_that_is_none_ends_the_connection(tmp_path: Path) -> None:
    with shim(tmp_path) as fake:
        fake.answers["counters"] = b"nonsense"
        async with control.opened(str(tmp_path)) as line:
            with pytest.raises(ShimFailed):
                await line.counters()
            assert line.lost.is_set()


@in_loop
async def test_counters_without_numbers_end_the_connection(tmp_path: Path) -> None:
    with shim(tmp_path) as fake:
        fake.answers["counters"] = fields.encode("exitd-counters", [("out", "many")])
        async with control.opened(str(tmp_path)) as line:
            with pytest.raises(ShimFailed, match="closed"):
                await line.counters()


@in_loop
async def test_descriptors_that_come_with_an_answer_are_closed(tmp_path: Path) -> None:
    with shim(tmp_path) as fake:
        fake.answers["reopen-log"] = None
        async with control.opened(str(tmp_path)) as line:
            asking = asyncio.ensure_future(line.reopen_log())
            await until(lambda: fake.asked)
            reader, writer = os.pipe()
            before = held_now()
            socket.send_fds(fake.connection, [fields.encode("exitd-ok", [])], [reader, writer])
            await asking
            assert not opened_since(before)
            os.close(reader)
            os.close(writer)


def test_a_silent_shim_is_given_up_after_its_time(tmp_path: Path, impatient: None) -> None:
    @in_loop
    async def test() -> None:
        with shim(tmp_path) as fake:
            fake.answers["counters"] = fake.answers["resize"] = None
            line = await Control.open(str(tmp_path))
            with pytest.raises(TimedOut, match="no answer to resize"):
                await line.resize(Winsize(1, 1))
            assert line.lost.is_set()  # a late answer would be taken for the next one's
            assert await control.counters_of(str(tmp_path)) is None

    test()


def test_a_shim_that_does_not_accept_is_given_up_after_its_time(tmp_path: Path, impatient: None) -> None:
    @in_loop
    async def test() -> None:
        stopped = FakeShim(tmp_path).begin(accepts=False)
        lines = []
        with pytest.raises(TimedOut, match="queue"):
            for _ in range(20):
                lines.append(await Control.open(str(tmp_path)))
        for line in lines:
            line.close()
        stopped.die()

    test()


@in_loop
async def test_requests_of_several_tasks_get_each_its_own_answer(tmp_path: Path) -> None:
    with shim(tmp_path) as fake:
        fake.refuse("resize", errno.ENOTTY)
        fake.counters["out"] = 7
        async with control.opened(str(tmp_path)) as line:
            asked = [line.counters(), line.resize(Winsize(1, 1)), line.counters(), line.resize(Winsize(2, 2))]
            first, second, third, fourth = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(first, Counters) and isinstance(third, Counters)
        assert isinstance(second, WrongState) and isinstance(fourth, WrongState)


@in_loop
async def test_a_closed_line_leaves_no_descriptor(tmp_path: Path) -> None:
    with shim(tmp_path) as fake:
        before = held_now()
        for _ in range(5):
            line = await Control.open(str(tmp_path))
            await line.reopen_log()
            line.close()
            line.close()
        await until(lambda: fake.open_connections == 0)
        assert not opened_since(before)


@in_loop
async def test_a_shim_registers_anew_and_an_older_one_does_not_know_how(tmp_path: Path) -> None:
    with shim(tmp_path) as fake:
        async with control.opened(str(tmp_path)) as line:
            assert await line.register()
            fake.refuse("register", errno.ENOSYS, "unknown request")
            assert not await line.register()
            fake.refuse("register", errno.EAGAIN, "the keeper did not say yes")
            with pytest.raises(ShimFailed, match="the keeper did not say yes"):
                await line.register()


@in_loop
async def test_out_of_descriptors_the_shim_is_not_taken_for_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "PATIENCE_SECONDS", 0.05)
    with shim(tmp_path):
        for count in (0, 1):
            with only(count), pytest.raises(Busy, match="the shim was not asked, try again"):
                await Control.open(str(tmp_path))
        (await Control.open(str(tmp_path))).close()


@in_loop
async def test_a_line_to_a_shim_waits_for_descriptors_that_come(tmp_path: Path) -> None:
    """As everything else does that has not begun."""
    with shim(tmp_path), ExitStack() as stack:
        stack.enter_context(only(1))
        asyncio.get_running_loop().call_later(3 * room.AGAIN_SECONDS, stack.close)
        (await Control.open(str(tmp_path))).close()


@in_loop
async def test_a_request_that_the_kernel_cannot_pass_on_now_says_nothing_about_the_shim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ETOOMANYREFS, os.strerror(errno.ETOOMANYREFS))

    with shim(tmp_path):
        async with control.opened(str(tmp_path)) as line:
            monkeypatch.setattr(socket, "send_fds", refuse)
            with pytest.raises(Busy, match="try again"):
                await line.counters()
