"""The service of watches with a real store, processes and the kernel's word; only what no kernel does is made up."""

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import AsyncIterator, Collection, Iterable
from pathlib import Path

import pytest

from shim import native
from supervisor.engine.node import Storing
from supervisor.external import nodesearch, observe
from supervisor.external.observer import Observer
from supervisor.external.watchlist import WatchList
from supervisor.external.watchservice import WatchService
from supervisor.model.errors import BadRequest, Busy, CannotWatch, NoSuchWatch, StoreFailed, TimedOut, WrongState
from supervisor.model.values import By, Process
from supervisor.model.watched import NODE, Kind, Target
from supervisor.monitor.epoll import Monitor
from supervisor.monitor.kernelword import BY_PIDFD
from supervisor.store import codec
from supervisor.store.database import Store
from supervisor.store.events import EventLog
from supervisor.system.aside import Aside
from supervisor.system.inotify import Inotify
from tests.supervisor.children import child
from tests.supervisor.fakes import FakeClock, until
from tests.supervisor.stored import all_exits, opened

BY = By(uid=0)


class Quiet:
    """A source that finds nothing."""

    trouble = ""
    begun = 0

    def __init__(self, target: Target) -> None:
        self.target = target

    async def begin(self) -> None:
        Quiet.begun += 1

    async def close(self) -> None:
        Quiet.begun -= 1


@contextlib.asynccontextmanager
async def service(
    store: Store, clock: FakeClock, blind: str = "", own: Collection[Process] = ()
) -> AsyncIterator[tuple[WatchService, Observer]]:
    events, monitor, changes = EventLog(store, clock), Monitor(), Inotify()
    changes.start()
    watched = WatchList()
    parts = (store, events, clock, Storing(print), monitor, changes, watched)
    observer = Observer(*parts, zombie_readable=True, kernel=BY_PIDFD, owns=lambda process: process in own)
    made = WatchService(observer, watched, store, clock, {Kind.RUNC_ROOT: Quiet, Kind.CONTAINERD: Quiet}, blind)
    await made.load()
    await made.begun()
    try:
        yield made, observer
    finally:
        await made.close()
        changes.close()
        monitor.close()
        events.close()


def test_a_kernel_that_does_not_report_is_refused_by_its_own_word(tmp_path: Path) -> None:
    async def main() -> None:
        blind = "kernel 5.10 does not report exits through pidfds"
        async with opened(tmp_path / "db") as store, service(store, FakeClock(), blind) as (watches, _):
            for kind, where in ((Kind.PID, "1"), (Kind.RUNC_ROOT, str(tmp_path)), (Kind.CONTAINERD, "/none")):
                with pytest.raises(CannotWatch, match=rf"^{blind}; .* needs Linux 6\.15, or the process events"):
                    await watches.watch(kind, where, BY)
            assert watches.watches() == []

    asyncio.run(main())


def test_watches_of_directories_are_kept_and_begun_again(tmp_path: Path) -> None:
    async def main() -> None:
        clock = FakeClock()
        async with opened(tmp_path / "db") as store:
            async with service(store, clock) as (watches, _):
                first = await watches.watch(Kind.RUNC_ROOT, str(tmp_path), BY)
                assert await watches.watch(Kind.RUNC_ROOT, str(tmp_path), By()) == first
                assert Quiet.begun == 1
            assert Quiet.begun == 0
            async with service(store, clock) as (watches, _):
                assert watches.watches() == [first]
                assert Quiet.begun == 1
                assert await watches.end(str(tmp_path)) == first
                assert Quiet.begun == 0
                with pytest.raises(NoSuchWatch):
                    await watches.end(str(tmp_path))
            async with service(store, clock) as (watches, _):
                assert watches.watches() == []

    asyncio.run(main())


def test_what_a_search_has_found_ends_before_it_and_what_has_lost_its_search_ends_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodesearch, "sources", lambda: [(Kind.RUNC_ROOT, str(tmp_path))])

    def found(watches: WatchService) -> list[tuple[str, str]]:
        return [(view.target.where, view.target.found_by) for view in watches.watches()]

    async def main() -> None:
        async with opened(tmp_path / "db") as store:
            async with service(store, FakeClock()) as (watches, observer):
                await watches.watch(Kind.NODE, NODE, BY)
                assert found(watches) == [(NODE, ""), (str(tmp_path), NODE)]
                drop, dropped = observer.drop, list[str]()

                async def dies(where: str, targets: Iterable[Target]) -> None:
                    if dropped:
                        raise StoreFailed("killed, or a full disk")
                    dropped.append(where)
                    await drop(where, targets)

                with monkeypatch.context() as patched:
                    patched.setattr(observer, "drop", dies)
                    with pytest.raises(StoreFailed):
                        await watches.end(NODE)
                assert dropped == [str(tmp_path)]
            async with service(store, FakeClock()) as (watches, observer):
                await until(lambda: watches.watches())
                assert NODE in [view.target.where for view in watches.watches()], "the watch goes on"
                await observer.note(Target(Kind.RUNC_ROOT, "/lost", 1, BY, found_by="elsewhere"))
            async with service(store, FakeClock()) as (watches, _):
                assert "/lost" not in [view.target.where for view in watches.watches()]
            assert "/lost" not in [each.where for each in await store.load_all(Target, "watches")]

    asyncio.run(main())


def test_a_directory_that_was_found_and_is_gone_is_watched_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory := tmp_path / "runc").mkdir()
    monkeypatch.setattr(nodesearch, "sources", lambda: [(Kind.RUNC_ROOT, str(directory))] if directory.exists() else [])
    monkeypatch.setattr(nodesearch, "SEARCH_SECONDS", 0.02)

    async def main() -> None:
        async with opened(tmp_path / "db") as store, service(store, FakeClock()) as (watches, _):
            await watches.watch(Kind.NODE, NODE, BY)
            assert len(watches.watches()) == 2
            directory.rmdir()
            await until(lambda: len(watches.watches()) == 1, "its end")
            directory.mkdir()
            await until(lambda: len(watches.watches()) == 2, "its return")

    asyncio.run(main())


def test_another_boot_is_the_end_of_what_was_watched_and_not_of_the_watch(tmp_path: Path) -> None:
    async def main() -> None:
        with child("sleep", "1000") as one:
            async with opened(tmp_path / "db") as store:
                async with service(store, FakeClock()) as (watches, _):
                    await watches.watch(Kind.PID, str(one.pid), BY)
                    await watches.watch(Kind.RUNC_ROOT, str(tmp_path), BY)
                async with service(store, FakeClock("another")) as (watches, observer):
                    await observer.settled()
                    assert [view.target.where for view in watches.watches()] == [str(tmp_path)]
                    (exit,) = await all_exits(store)
                    assert (exit.key.container, exit.source.value) == (f"{one.pid}@pid", "none")
                    assert '"cause":"host-rebooted"' in codec.encode(exit)

    asyncio.run(main())


def test_exitds_own_and_what_another_watch_has_are_not_watched_twice(tmp_path: Path) -> None:
    async def main() -> None:
        own = Process(os.getpid(), native.process_stat(os.getpid())[2])
        with child("sleep", "1000") as one:
            process = Process(one.pid, native.process_stat(one.pid)[2])
            async with (
                opened(tmp_path / "db") as store,
                service(store, FakeClock(), own=[process]) as (watches, _),
            ):
                with pytest.raises(BadRequest, match="exitd itself"):
                    await watches.watch(Kind.PID, str(own.pid), BY)
                with pytest.raises(WrongState, match="exitd's own"):
                    await watches.watch(Kind.PID, str(one.pid), BY)

    asyncio.run(main())


def test_a_pid_that_cannot_be_looked_at_for_want_of_a_descriptor_is_not_called_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(pid: int) -> str:
        raise OSError(errno.EMFILE, "Too many open files")

    async def main() -> None:
        async with opened(tmp_path / "db") as store, service(store, FakeClock()) as (watches, _):
            with child() as process:
                with monkeypatch.context() as patch:
                    patch.setattr(observe, "command_of", refused)
                    with pytest.raises(OSError, match="Too many"):
                        await watches.watch(Kind.PID, str(process.pid), BY)
                assert watches.watches() == []
                assert (await watches.watch(Kind.PID, str(process.pid), BY)).processes == 1

    asyncio.run(main())


def test_there_is_a_most_of_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with opened(tmp_path / "db") as store, service(store, FakeClock()) as (watches, _):
            with child("sleep", "1000") as one:
                with pytest.raises(Busy, match="such watches are the most"):
                    await watches.watch(Kind.RUNC_ROOT, str(tmp_path), BY)
                with pytest.raises(Busy, match="0 processes are watched already"):
                    await watches.watch(Kind.PID, str(one.pid), BY)
            assert watches.watches() == []

    monkeypatch.setattr("supervisor.external.watchservice.MOST_TARGETS", 0)
    monkeypatch.setattr("supervisor.external.observer.MOST_PROCESSES", 0)
    asyncio.run(main())


def test_a_directory_that_hangs_is_looked_at_aside_and_holds_up_no_other_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung, real = threading.Event(), os.stat

    def hangs(path: str, **more: bool) -> os.stat_result:
        if path == "/hung/runc":
            hung.wait()
        return real(path, **more)

    async def main() -> None:
        async with opened(tmp_path / "db") as store, service(store, FakeClock()) as (watches, _):
            watches._looks = Aside(limit_seconds=0.05)
            with monkeypatch.context() as patched:
                patched.setattr(os, "stat", hangs)
                with pytest.raises(TimedOut, match="looking at /hung/runc took more than"):
                    await watches.watch(Kind.RUNC_ROOT, "/hung/runc", BY)
            watches._looks = Aside()
            assert (await watches.watch(Kind.RUNC_ROOT, str(tmp_path), BY)).target.where == str(tmp_path)
            hung.set()

    asyncio.run(main())
