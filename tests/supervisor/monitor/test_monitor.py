import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from shim import native
from supervisor.monitor.epoll import FIFO, PIDFD, SLICE, Monitor, open_pid, open_process, read_ready
from tests.supervisor.children import child, ends_unreaped, name_of
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.fakes import until


@contextlib.asynccontextmanager
async def watching() -> AsyncIterator[Monitor]:
    made = Monitor()
    try:
        yield made
    finally:
        made.close()


async def turns(count: int = 5) -> None:
    """So many turns of the loop, each of which asks the epoll set."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_what_is_written_calls_back_until_it_is_read() -> None:
    async def main() -> None:
        reading, writing = os.pipe()
        async with watching() as m:
            seen: list[int] = []
            m.watch(reading, FIFO, seen.append)
            os.write(writing, b"1234")
            await until(lambda: len(seen) >= 3)  # level-triggered: not read, so reported again
            os.read(reading, 4)
            await turns()
            before = len(seen)
            await turns()
            assert len(seen) == before
            m.unwatch(reading)
        os.close(reading)
        os.close(writing)

    asyncio.run(main())


def test_a_zombie_does_not_spin_and_reports_again_once_it_is_reaped() -> None:
    async def main() -> None:
        with child() as process:
            pidfd = os.pidfd_open(process.pid)
            async with watching() as m:
                seen: list[int] = []
                m.watch(pidfd, PIDFD, seen.append)
                ends_unreaped(process)
                await until(lambda: seen)
                before = len(seen)
                await turns(200)
                assert len(seen) == before
                assert read_ready(pidfd)
                m.unwatch(pidfd)
            os.close(pidfd)

    asyncio.run(main())


def test_unwatch_holds_within_the_slice_that_is_being_worked_on() -> None:
    async def main() -> None:
        pipes = [os.pipe() for _ in range(2)]
        async with watching() as m:
            seen: list[int] = []

            def first_wins(fd: int) -> Callable[[int], None]:
                def callback(_: int) -> None:
                    seen.append(fd)
                    for reading, _writing in pipes:
                        m.unwatch(reading)
                        m.unwatch(reading)

                return callback

            for reading, writing in pipes:
                os.write(writing, b"x")
                m.watch(reading, FIFO, first_wins(reading))
            await until(lambda: seen)
            await turns()
            assert len(seen) == 1
            assert len(m) == 0
        for pipe in pipes:
            os.close(pipe[0])
            os.close(pipe[1])

    asyncio.run(main())


def test_a_callback_that_fails_costs_the_others_nothing() -> None:
    async def main() -> None:
        pipes = [os.pipe() for _ in range(3)]
        async with watching() as m:
            seen: list[int] = []

            def fails(_: int) -> None:
                raise ZeroDivisionError

            def notes(fd: int) -> Callable[[int], None]:
                return lambda _: seen.append(fd)

            for n, (reading, writing) in enumerate(pipes):
                os.write(writing, b"x")
                m.watch(reading, FIFO, fails if n == 1 else notes(reading))
            await until(lambda: {pipes[0][0], pipes[2][0]} <= set(seen))
        for pipe in pipes:
            os.close(pipe[0])
            os.close(pipe[1])

    asyncio.run(main())


def test_a_burst_is_taken_in_slices_so_that_others_get_their_turn() -> None:
    async def main() -> None:
        count = SLICE + 20
        fds = [os.eventfd(1, os.EFD_NONBLOCK) for _ in range(count)]
        async with watching() as m:
            seen: list[int] = []

            def take(fd: int) -> Callable[[int], None]:
                def callback(_: int) -> None:
                    os.eventfd_read(fd)
                    seen.append(fd)

                return callback

            for fd in fds:
                m.watch(fd, FIFO, take(fd))
            sizes = []
            while len(seen) < count:
                before = len(seen)
                await asyncio.sleep(0)
                sizes.append(len(seen) - before)
            assert max(sizes) == SLICE
            assert sorted(seen) == sorted(fds)
        for fd in fds:
            os.close(fd)

    asyncio.run(main())


def test_a_descriptor_the_kernel_refuses_is_not_watched() -> None:
    async def main() -> None:
        async with watching() as m:
            with pytest.raises(OSError):
                m.watch(9999, FIFO, lambda _: None)
            m.unwatch(9999)
            assert len(m) == 0

    asyncio.run(main())


def test_what_the_kernel_refuses_to_forget_is_unwatched_all_the_same() -> None:
    async def main() -> None:
        async with watching() as m:
            reading, writing = os.pipe()
            m.watch(reading, FIFO, lambda _: None)
            os.close(reading)
            m.unwatch(reading)
            assert len(m) == 0
            os.close(writing)

    asyncio.run(main())


def test_closing_gives_everything_back() -> None:
    before = held_now()

    async def main() -> None:
        async with watching() as m:
            assert opened_since(before)
            assert len(m) == 0

    asyncio.run(main())
    assert not opened_since(before)


def test_only_the_very_same_process_is_opened() -> None:
    before = held_now()
    with child() as process:
        name = name_of(process)
        assert open_process(name.pid, name.started_ticks + 1) is None
        pidfd = open_process(name.pid, name.started_ticks)
        assert pidfd is not None
        assert not read_ready(pidfd)
        ends_unreaped(process)
        assert read_ready(pidfd)
        os.close(pidfd)
        process.wait()
        assert open_process(name.pid, name.started_ticks) is None
    assert not opened_since(before)


def test_a_number_that_is_a_threads_by_now_is_no_process() -> None:
    before, over = held_now(), threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        started = native.process_stat(thread.native_id)[2]
        assert open_process(thread.native_id, started) is None
        assert open_pid(thread.native_id) is None
    finally:
        over.set()
        thread.join()
    assert open_pid(-1) is None
    assert not opened_since(before)


@pytest.mark.parametrize("number", [errno.ESRCH, errno.ENOENT, errno.EINVAL])
def test_older_and_newer_kernels_words_for_no_process_all_mean_gone(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuses(pid: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pidfd_open", refuses)
    assert open_process(os.getpid(), 1) is None


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_where_there_is_no_room_nothing_is_said_of_the_process(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuses(*_: int) -> int:
        raise OSError(number, os.strerror(number))

    before = held_now()
    with monkeypatch.context() as patched, pytest.raises(OSError):
        patched.setattr(os, "pidfd_open", refuses)
        open_process(os.getpid(), 1)
    with monkeypatch.context() as patched, pytest.raises(OSError):
        patched.setattr(native, "process_stat", refuses)
        open_process(os.getpid(), 1)
    assert not opened_since(before)
