import asyncio
import contextlib
import dataclasses
import errno
import os
import signal
import struct
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shim import native
from shim.record import Record
from supervisor.model import evidence
from supervisor.model.values import Exited, Process, Report, RunKey, Signaled, Source, Unknown
from supervisor.monitor import epoll, procfs, rundir, witness
from supervisor.monitor.epoll import Monitor
from supervisor.monitor.keeper import JournalUnread
from supervisor.monitor.kernelword import BY_PIDFD
from supervisor.monitor.witness import Senses, Watch
from supervisor.system import room
from tests.shim.test_record import PLAIN, written
from tests.supervisor.children import child, descriptors, ends_unreaped, name_of
from tests.supervisor.descriptors import held_now, only, opened_since
from tests.supervisor.fakes import until

KEY = RunKey("c1", 1)


class Bench:
    """A run whose init and shim are children of the test, and whose record and fifo it writes."""

    def __init__(
        self, state: Path, init: "subprocess.Popen[bytes]", shim: "subprocess.Popen[bytes]", zombie: bool
    ) -> None:
        self.monitor = Monitor()
        self.entry: Record | None = None
        self.unread = False
        self.is_coming = False
        self.exits: list[Report] = []
        self.lost: list[RunKey] = []
        self.asked = 0
        self.oom_kills = 0
        self.watched: list[str] = []
        self.directory = rundir.make(str(state), "c1", 1, b"")
        senses = Senses(
            monitor=self.monitor,
            zombie_readable=zombie,
            kernel=BY_PIDFD,
            now_ns=lambda: 1_000 * 10**9,
            entry=self._entry,
            entry_is_coming=lambda key: self.is_coming,
            oom_kills=lambda key: self.oom_kills,
            on_exit=lambda key, report: self.exits.append(report),
            on_shim_lost=self.lost.append,
            on_begin=lambda key: self.watched.append("begin"),
            on_over=lambda key: self.watched.append("over"),
        )
        self.watch = Watch(KEY, self.directory, senses)
        self.init_process, self.shim_process = init, shim
        self.init = name_of(init)
        self.watch.watch_shim(name_of(shim), os.pidfd_open(shim.pid))
        self.init_fd = os.pidfd_open(init.pid)

    def _entry(self, key: RunKey) -> Record | None:
        assert key == KEY
        self.asked += 1
        if self.unread:
            raise JournalUnread("keeper-1.journal cannot be read")
        return self.entry

    def made(self) -> None:
        self.watch.init, self.watch.init_fd = self.init, self.init_fd
        self.watch.begin()

    def record(self, code: int = 43, witness: str = "shim") -> Record:
        return dataclasses.replace(
            PLAIN, id="c1", run=1, code=code, witness=witness, pid=self.init.pid, started=self.init.started_ticks
        )

    def shim_writes(self, record: Record | None, number: int) -> None:
        """As the core does: the record first, then four bytes into the fifo."""
        if record is not None:
            os.pwrite(self.directory.record_fd, written(record), 0)
        fd = os.open(f"{self.directory.path}/exit_fifo", os.O_WRONLY | os.O_NONBLOCK)
        os.write(fd, struct.pack("i", number))
        os.close(fd)


@contextlib.asynccontextmanager
async def bench(state: Path, *, zombie: bool = False, made: bool = True) -> AsyncIterator["Bench"]:
    before = held_now()
    with child() as init, child() as shim:
        b = Bench(state, init, shim, zombie)
        if made:
            b.made()
        try:
            yield b
        finally:
            b.watch.close()
            b.watch.close()
            assert len(b.monitor) == 0
            b.monitor.close()
    assert not opened_since(before)


def test_the_record_reports_the_end_once_whatever_else_happens(tmp_path: Path) -> None:
    async def main() -> None:
        async with bench(tmp_path) as b:
            b.shim_writes(b.record(), 43)
            await until(lambda: b.exits)
            ends_unreaped(b.init_process)
            b.init_process.wait()
            b.entry = b.record(1, "keeper")
            b.watch.look()
            b.shim_process.kill()
            await until(lambda: b.watch.shim_gone.is_set())
            (report,) = b.exits
            assert (report.status, report.source, report.init) == (Exited(43), Source.RECORD, b.init)
            assert b.lost == []

    asyncio.run(main())


def test_the_fifo_is_believed_when_the_record_cannot_be_read(tmp_path: Path) -> None:
    async def main() -> None:
        async with bench(tmp_path) as b:
            ends_unreaped(b.init_process)
            os.pwrite(b.directory.record_fd, b"{garbage", 0)
            b.shim_writes(None, 43)
            await until(lambda: b.exits)
            assert (b.exits[0].status, b.exits[0].source) == (Exited(43), Source.FIFO)

    asyncio.run(main())


def test_a_number_in_the_fifo_while_init_lives_ends_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with bench(tmp_path) as b:
            b.shim_writes(None, 0)
            await until(lambda: b.watch.fifo_number == 0)
            assert b.exits == []
            b.shim_process.kill()
            await until(lambda: b.lost == [KEY])
            assert b.exits == []

    asyncio.run(main())


def test_a_shim_that_dies_first_is_reported_lost_and_the_keeper_reports_the_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with bench(tmp_path) as b:
            b.shim_process.kill()
            await until(lambda: b.lost == [KEY])
            assert b.watch.shim_gone.is_set()
            b.entry = b.record(43, "keeper")
            ends_unreaped(b.init_process)
            await until(lambda: b.exits)
            assert (b.exits[0].status, b.exits[0].source) == (Exited(43), Source.KEEPER)

    asyncio.run(main())


def test_an_end_waits_for_a_journal_that_cannot_be_read_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel_without_it(pidfd: int) -> int:
        raise OSError(errno.ENOTTY, "a kernel before 6.15")

    async def main() -> None:
        async with bench(tmp_path) as b:
            monkeypatch.setattr(native, "pidfd_exit_status", kernel_without_it)
            b.unread = True
            b.shim_process.kill()
            await until(lambda: b.lost)
            ends_unreaped(b.init_process)
            b.init_process.wait()
            b.watch.look()
            assert b.asked and b.exits == []
            b.unread, b.entry = False, b.record(43, "keeper")
            b.watch.look()
            assert (b.exits[0].status, b.exits[0].source) == (Exited(43), Source.KEEPER)

    asyncio.run(main())


def test_an_end_waits_for_a_keeper_that_is_about_to_journal_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_held_in_time(pidfd: int) -> int:
        raise OSError(errno.ENODATA, "reaped before the pidfd was opened")

    async def main() -> None:
        async with bench(tmp_path) as b:
            monkeypatch.setattr(native, "pidfd_exit_status", not_held_in_time)
            b.is_coming = True
            b.shim_process.kill()
            await until(lambda: b.lost)
            ends_unreaped(b.init_process)
            b.init_process.wait()
            b.watch.look()
            assert b.exits == []
            b.is_coming, b.entry = False, b.record(43, "keeper")
            b.watch.look()
            assert (b.exits[0].status, b.exits[0].source) == (Exited(43), Source.KEEPER)

    asyncio.run(main())


def test_out_of_descriptors_an_end_is_looked_at_again_until_it_can_be(tmp_path: Path) -> None:
    async def main() -> None:
        async with bench(tmp_path) as b:
            b.shim_process.kill()
            await until(lambda: b.lost)
            ends_unreaped(b.init_process)
            with only(0):
                await until(lambda: b.watch.blind)
                b.watch.look()
                assert b.exits == [] and b.watch.timer is not None
            b.init_process.wait()
            b.entry = b.record(43, "keeper")
            await until(lambda: b.exits)
            assert (b.exits[0].status, b.exits[0].source) == (Exited(43), Source.KEEPER)

    asyncio.run(main())


def test_an_end_waits_for_a_record_that_cannot_be_read_and_then_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kernel_without_it(pidfd: int) -> int:
        raise OSError(errno.ENOTTY, "a kernel before 6.15")

    def unreadable(directory: rundir.RunDirectory) -> Record:
        raise OSError(errno.EIO, "Input/output error")

    async def main() -> None:
        async with bench(tmp_path) as b:
            monkeypatch.setattr(native, "pidfd_exit_status", kernel_without_it)
            monkeypatch.setattr(rundir, "read_record", unreadable)
            b.shim_process.kill()
            await until(lambda: b.lost)
            ends_unreaped(b.init_process)
            b.init_process.wait()
            b.watch.look()
            assert b.exits == [] and b.watch.dead_at is not None
            b.watch.dead_at -= evidence.UNREAD_PATIENCE_SECONDS
            b.watch.look()
            assert b.exits[0].status == Unknown(evidence.RECORD_UNREAD)

    asyncio.run(main())


def test_an_entry_about_another_process_is_not_this_ones_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with bench(tmp_path) as b:
            b.shim_process.kill()
            await until(lambda: b.lost)
            b.entry = dataclasses.replace(b.record(), started=b.init.started_ticks + 1)
            ends_unreaped(b.init_process)
            await until(lambda: b.asked)
            assert b.exits == []
            b.init_process.wait()
            await until(lambda: b.exits)
            assert b.exits[0].source in (Source.PIDFD, Source.NONE)

    asyncio.run(main())


def test_an_unreaped_init_is_read_after_the_patience_with_its_parent(tmp_path: Path) -> None:
    async def main() -> None:
        async with bench(tmp_path, zombie=os.geteuid() == 0) as b:
            ends_unreaped(b.init_process, signal.SIGTERM)
            await until(lambda: b.watch.dead_at is not None)
            assert b.exits == []
            assert b.watch.dead_at is not None
            b.watch.dead_at -= evidence.ZOMBIE_PATIENCE_SECONDS
            b.watch.look()
            if os.geteuid() == 0:
                assert (b.exits[0].status, b.exits[0].source) == (Signaled(15), Source.ZOMBIE)
                assert b.watch.shim_is_stuck
            else:
                assert b.exits == []  # 0 is what the kernel shows to strangers; nobody takes it for a code

    asyncio.run(main())


def test_a_stopped_shim_whose_zombie_cannot_be_read_is_killed_so_that_the_keeper_reports(tmp_path: Path) -> None:
    async def main() -> None:
        async with bench(tmp_path, zombie=False) as b:
            ends_unreaped(b.init_process)
            await until(lambda: b.watch.dead_at is not None)
            assert b.watch.dead_at is not None
            b.watch.dead_at -= evidence.ZOMBIE_PATIENCE_SECONDS
            b.watch.look()
            assert not b.watch.shim_gone.is_set() and b.shim_process.poll() is None  # it may be slow, and report yet
            b.shim_process.send_signal(signal.SIGSTOP)
            await until(lambda: procfs.is_stopped(name_of(b.shim_process)))
            b.watch.look()
            await until(b.watch.shim_gone.is_set)
            assert b.exits == []
            b.entry = b.record(43, "keeper")
            b.watch.look()
            assert (b.exits[0].status, b.exits[0].source) == (Exited(43), Source.KEEPER)

    asyncio.run(main())


def test_a_stopped_shim_is_killed_when_there_is_room_to_see_that_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, is_stopped = [OSError(errno.EMFILE, "Too many open files")] * 3, procfs.is_stopped

    def seen_stopped(process: Process) -> bool:
        if refused:
            raise refused.pop()
        return is_stopped(process)

    async def main() -> None:
        async with bench(tmp_path, zombie=False) as b:
            ends_unreaped(b.init_process)
            b.shim_process.send_signal(signal.SIGSTOP)
            await until(lambda: is_stopped(name_of(b.shim_process)) and b.watch.dead_at is not None)
            assert b.watch.dead_at is not None
            b.watch.dead_at -= evidence.ZOMBIE_PATIENCE_SECONDS
            b.watch.look()
            assert b.watch.timer is not None and len(refused) == 2
            await until(b.watch.shim_gone.is_set)

    monkeypatch.setattr(procfs, "is_stopped", seen_stopped)
    monkeypatch.setattr(witness, "BLIND_SECONDS", 0.001)
    asyncio.run(main())


def test_kills_that_the_record_could_not_count_are_counted_by_the_daemon(tmp_path: Path) -> None:
    async def main() -> None:
        async with bench(tmp_path) as b:
            b.oom_kills = 3
            b.shim_writes(dataclasses.replace(b.record(), oom_kills=-1), 43)
            await until(lambda: b.exits)
            assert b.exits[0].oom_kills == 3
        async with bench(tmp_path / "other") as b:
            b.oom_kills = 3
            b.shim_writes(dataclasses.replace(b.record(), oom_kills=1), 43)
            await until(lambda: b.exits)
            assert b.exits[0].oom_kills == 1

    asyncio.run(main())


def test_init_lives_until_it_dies_or_is_bound_to(tmp_path: Path) -> None:
    async def main() -> None:
        async with bench(tmp_path, made=False) as b:
            assert not b.watch.lives()  # there is none yet
            b.made()
            assert b.watch.lives()
            b.init_process.send_signal(signal.SIGSTOP)
            assert b.watch.lives()
            ends_unreaped(b.init_process)
            assert not b.watch.lives()
        async with bench(tmp_path / "other") as b:
            b.watch.give_up()
            assert not b.watch.lives()

    asyncio.run(main())


def test_whoever_counts_memory_kills_hears_of_the_beginning_and_the_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with bench(tmp_path) as b:
            assert b.watched == ["begin"]
            b.shim_writes(b.record(), 43)
            await until(lambda: b.exits)
            assert b.watched[1:] and set(b.watched[1:]) == {"over"}

    asyncio.run(main())


def test_a_reaped_init_that_nobody_wrote_down_is_the_kernels_word_or_unknown(tmp_path: Path) -> None:
    async def main() -> None:
        async with bench(tmp_path) as b:
            b.shim_process.kill()
            await until(lambda: b.lost)
            b.init_process.kill()
            b.init_process.wait()
            await until(lambda: b.exits)
            (report,) = b.exits
            assert report.status in (Signaled(9), Unknown("monitors-killed"))
            assert (report.status == Signaled(9)) == (report.source is Source.PIDFD)

    asyncio.run(main())


def test_a_run_that_has_no_init_yet_has_no_end(tmp_path: Path) -> None:
    """News of other runs, and the reconcile loop, ask every watch."""

    async def main() -> None:
        async with bench(tmp_path, made=False) as b:
            b.watch.look()
            b.shim_process.kill()
            await until(lambda: b.watch.shim_gone.is_set())
            b.watch.look()
            assert (b.exits, b.lost, b.watch.reported) == ([], [], False)
            b.made()
            b.shim_writes(b.record(), 43)
            await until(lambda: b.exits)

    asyncio.run(main())


def test_an_init_without_a_pidfd_is_alive_while_it_lives(tmp_path: Path) -> None:
    async def main() -> None:
        async with bench(tmp_path, made=False) as b:
            b.watch.init = b.init
            b.watch.look()
            assert b.exits == []
            b.watch.init = Process(b.init.pid, b.init.started_ticks + 1)
            b.watch.look()
            assert b.exits[0].source is Source.NONE
            os.close(b.init_fd)

    asyncio.run(main())


def test_a_fifo_without_writers_does_not_spin(tmp_path: Path) -> None:
    async def main() -> None:
        async with bench(tmp_path) as b:
            watched = len(b.monitor)
            os.close(os.open(f"{b.directory.path}/exit_fifo", os.O_WRONLY | os.O_NONBLOCK))
            await until(lambda: len(b.monitor) == watched - 1)
            assert b.exits == []
            os.pwrite(b.directory.record_fd, written(b.record()), 0)
            ends_unreaped(b.init_process)
            await until(lambda: b.exits)

    asyncio.run(main())


class Narrow:
    """Stands for a kernel that has no room for as long as `left` says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left, self.open = 3, epoll.open_process
        monkeypatch.setattr(epoll, "open_process", self._open)
        monkeypatch.setattr(room, "AGAIN_SECONDS", 0.005)

    def _open(self, pid: int, started_ticks: int) -> int | None:
        self.left -= 1
        if self.left >= 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self.open(pid, started_ticks)


def test_an_init_without_room_for_its_pidfd_is_held_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with bench(tmp_path, made=False) as b:
            os.close(b.init_fd)
            Narrow(monkeypatch)
            b.watch.init, b.watch.is_unheld = b.init, True
            b.watch.begin()
            assert (b.watch.init_fd, b.exits) == (-1, [])
            await until(lambda: b.watch.init_fd >= 0)
            assert not b.watch.is_unheld
            ends_unreaped(b.init_process)
            b.shim_writes(b.record(), 43)
            await until(lambda: b.exits)

    asyncio.run(main())


def test_an_end_is_read_where_nothing_more_can_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with bench(tmp_path, made=False) as b:
            os.close(b.init_fd)
            Narrow(monkeypatch).left = 10**9
            b.watch.init, b.watch.is_unheld = b.init, True
            b.watch.begin()
            b.shim_writes(b.record(), 43)
            await until(lambda: b.exits)
            assert (b.exits[0].status, b.exits[0].source) == (Exited(43), Source.RECORD)

    asyncio.run(main())


@pytest.mark.parametrize("dead", [False, True], ids=["alive", "dead by then"])
def test_a_shim_without_room_for_its_pidfd_is_watched_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dead: bool
) -> None:
    async def main() -> None:
        async with bench(tmp_path) as b:
            with child() as late:
                Narrow(monkeypatch)
                b.watch.drop_shim()
                b.watch.watch_shim(name_of(late), -1)
                assert b.watch.shim_is_unheld
                assert not b.watch.shim_gone.is_set()
                if dead:
                    late.kill()
                    late.wait()
                else:
                    await until(lambda: b.watch.shim_fd >= 0)
                    late.kill()
                await until(b.watch.shim_gone.is_set)
                assert b.lost == [KEY]

    asyncio.run(main())


def test_a_replacement_shim_that_comes_when_all_is_over_is_not_watched(tmp_path: Path) -> None:
    async def main() -> None:
        async with bench(tmp_path) as b:
            b.watch.close()
            with child() as late:
                b.watch.watch_shim(name_of(late), os.pidfd_open(late.pid))
            assert b.watch.shim_fd == -1

    asyncio.run(main())


@pytest.mark.parametrize("how", ["ends first", "ends last", "outlives the watch"])
def test_a_shim_gives_way_to_another_of_the_same_run_and_its_end_is_not_the_end_of_that_one(
    tmp_path: Path, how: str
) -> None:
    """A keeper that dies while it answers has begun a shim of which exitd does not know; exitd begins a second one."""

    async def main() -> None:
        async with bench(tmp_path) as b:
            with child() as first:
                b.watch.watch_shim(name_of(first), os.pidfd_open(first.pid))
                assert len(b.watch.others) == 1
                b.shim_process.kill()
                if how == "ends first":
                    await until(lambda: not b.watch.others)
                    with pytest.raises(ProcessLookupError):  # reaped
                        native.process_stat(b.shim_process.pid)
                    assert b.watch.shim == name_of(first)
                    assert not b.watch.shim_gone.is_set()
                    assert b.lost == []
                if how == "outlives the watch":
                    held = descriptors()
                    b.watch.close()
                    assert not b.watch.others and len(held - descriptors()) >= 2  # the pidfds of both
                else:
                    first.kill()
                    await until(b.watch.shim_gone.is_set)
                    await until(lambda: not b.watch.others)
                    assert b.lost == [KEY]

    asyncio.run(main())


def test_memory_kills_that_can_never_be_counted_do_not_hold_up_an_end(tmp_path: Path) -> None:
    def unreadable(key: RunKey) -> int:
        raise OSError(errno.EIO, "Input/output error")

    async def main() -> None:
        async with bench(tmp_path) as b:
            b.watch.senses = dataclasses.replace(b.watch.senses, oom_kills=unreadable)
            b.shim_process.kill()
            await until(lambda: b.lost)
            b.entry = dataclasses.replace(b.record(43, "keeper"), oom_kills=-1)
            ends_unreaped(b.init_process)
            b.init_process.wait()
            await until(lambda: b.exits)
            assert (b.exits[0].status, b.exits[0].source, b.exits[0].oom_kills) == (Exited(43), Source.KEEPER, 0)

    asyncio.run(main())
