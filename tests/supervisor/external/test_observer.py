"""What is watched and not run, with a real store and real processes: one end, one entry, whatever fails in between."""

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from shim import native
from supervisor.engine import node
from supervisor.engine.node import Storing
from supervisor.external import observe, observer
from supervisor.external.observe import Sight
from supervisor.external.observer import ENDED_UNSEEN, Observer
from supervisor.external.watchlist import WatchEntry, WatchList
from supervisor.model import evidence, foreign
from supervisor.model.errors import Busy, StoreFailed
from supervisor.model.values import NO_NAMES, Exited, Names, Process, RunKey, Signaled, Unknown
from supervisor.model.watched import FoundProcess, Kind, Observed, Target
from supervisor.monitor import epoll, probe
from supervisor.monitor.kernelword import BY_PIDFD
from supervisor.runtime.oci import cgroups
from supervisor.store.codec import begun
from supervisor.store.counts import KILLS, Count
from supervisor.store.database import Store, Transaction
from supervisor.store.events import EventLog
from supervisor.system.inotify import Inotify
from tests.supervisor.children import child, ends_unreaped
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.fakes import FakeClock
from tests.supervisor.narrow import Narrow
from tests.supervisor.stored import all_exits, opened

TARGETS = {"/run/runc"}
LIMIT_SECONDS = 30.0
ZOMBIE = Signaled(9) if probe.zombie().works else Exited(0)  # killed, and reaped by nobody
KILLED = Signaled(9) if probe.pidfd().works else Unknown(foreign.UNTOLD)  # and reaped at once


def found(process: "subprocess.Popen[bytes]", id: str = "web") -> FoundProcess:
    return FoundProcess(f"{id}@/run/runc", id, "oci", process.pid, native.process_stat(process.pid)[2], "/run/runc")


@contextlib.asynccontextmanager
async def watching(
    store: Store, clock: FakeClock | None = None, watches: WatchList | None = None
) -> AsyncIterator[Observer]:
    clock, watches = clock or FakeClock(), watches if watches is not None else WatchList()
    events, watcher, changes = EventLog(store, clock), epoll.Monitor(), Inotify()
    parts = (store, events, clock, Storing(print), watcher, changes, watches)
    made = Observer(*parts, zombie_readable=True, kernel=BY_PIDFD, owns=lambda process: False)
    await made.load({*TARGETS, *watches})
    try:
        yield made
        await made.settled()
    finally:
        await made.close()
        watcher.close()
        changes.close()
        events.close()


async def until(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not look():  # noqa: ASYNC110 - nobody reports it
            await asyncio.sleep(0.005)


def kill_and_reap(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(LIMIT_SECONDS)


def test_the_same_process_is_watched_once_and_reported_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "db") as store, watching(store) as watched:
            with child() as process:
                one = await watched.observe(found(process))
                assert one is not None and one.key == RunKey("web@/run/runc", 1)
                assert await watched.observe(found(process, "another")) is None
                assert (len(watched), watched.count("/run/runc")) == (1, 1)
                kill_and_reap(process)
                await until(lambda: not len(watched))
            assert watched.count("/run/runc") == 0
            assert [exit.status for exit in await all_exits(store)] == [KILLED]
            assert await store.load_all(Observed, "observed") == ()

    asyncio.run(main())


def test_a_process_counts_as_watched_once_the_next_exitd_would_know_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with opened(tmp_path / "db") as store, watching(store) as watched:
            counted, commit = [], store.commit

            async def committed(change: Transaction, **how: bool) -> object:
                counted.append(watched.count("/run/runc"))
                return await commit(change, **how)

            monkeypatch.setattr(store, "commit", committed)
            with child() as process:
                await watched.observe(found(process))
                assert (counted, watched.count("/run/runc")) == ([0], 1)
                kill_and_reap(process)
                await until(lambda: not len(watched))
            assert watched.count("/run/runc") == 0

    asyncio.run(main())


def test_an_exitd_that_watches_nothing_does_not_wake_up_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "POLL_SECONDS", 0.001)

    def pollers() -> int:
        return sum("Observer._poll" in repr(task.get_coro()) for task in asyncio.all_tasks())

    async def main() -> None:
        async with opened(tmp_path / "db") as store, watching(store) as watched:
            assert pollers() == 0
            for _ in range(2):
                with child() as process:
                    await watched.observe(found(process))
                    assert pollers() == 1
                    kill_and_reap(process)
                    await until(lambda: not len(watched) and not pollers())

    asyncio.run(main())


def test_a_zombie_that_was_told_is_not_watched_again_by_the_next_exitd(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "db") as store:
            with child("sh", "-c", "exit 7") as process:
                async with watching(store) as watched:
                    await watched.observe(found(process))
                    await until(lambda: not len(watched))
                async with watching(store) as watched:
                    assert await watched.observe(found(process)) is None
                    await watched.missed(found(process))
            assert [exit.status for exit in await all_exits(store)] == [Exited(7 if probe.zombie().works else 0)]

    asyncio.run(main())


def test_the_next_process_under_an_id_is_its_next_run_also_while_the_last_one_is_being_stored(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "db") as store, watching(store) as watched:
            for _ in range(20):
                with child() as first, child() as second:
                    await watched.observe(found(first))
                    kill_and_reap(first)
                    await watched.observe(found(second))
                    kill_and_reap(second)
            await until(lambda: not len(watched))
            assert sorted(exit.key.run for exit in await all_exits(store)) == list(range(1, 41))

    asyncio.run(main())


def test_an_end_that_cannot_be_stored_is_stored_as_soon_as_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with opened(tmp_path / "db") as store, watching(store) as watched:
            refusals = [StoreFailed("full"), StoreFailed("full")]
            commit = store.commit

            async def refusing(change: Transaction, *, patient: bool = False) -> object:
                if change.exits and refusals:
                    raise refusals.pop()
                return await commit(change, patient=patient)

            with child() as process:
                await watched.observe(found(process))
                monkeypatch.setattr(store, "commit", refusing)
                kill_and_reap(process)
                await until(lambda: not len(watched))
            assert (len(await all_exits(store)), refusals) == (1, [])

    monkeypatch.setattr(node, "RETRY_SECONDS", 0.01)
    asyncio.run(main())


def test_what_cannot_be_stored_is_not_watched_and_may_be_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with opened(tmp_path / "db") as store, watching(store) as watched:
            with child() as process:

                async def refusing(change: Transaction, *, patient: bool = False) -> object:
                    raise StoreFailed("full")

                with monkeypatch.context() as patch:
                    patch.setattr(store, "commit", refusing)
                    with pytest.raises(StoreFailed):
                        await watched.observe(found(process))
                assert len(watched) == 0
                one = await watched.observe(found(process))
                assert one is not None and one.run == 1

    asyncio.run(main())


def test_a_watch_that_cannot_be_ended_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with opened(tmp_path / "db") as store, watching(store) as watched:
            with child() as process:
                await watched.observe(found(process))

                async def refusing(change: Transaction, *, patient: bool = False) -> object:
                    kill_and_reap(process)  # and it ends just then
                    raise StoreFailed("full")

                with monkeypatch.context() as patch:
                    patch.setattr(store, "commit", refusing)
                    with pytest.raises(StoreFailed):
                        await watched.drop("/run/runc", ())
                await until(lambda: not len(watched))
            assert [exit.status for exit in await all_exits(store)] == [KILLED]

    asyncio.run(main())


def test_what_was_dropped_is_neither_reported_nor_kept(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "db") as store, watching(store) as watched:
            before = held_now()
            with child() as process:
                await watched.observe(found(process))
                await watched.drop("/run/runc", ())
                assert len(watched) == 0
                kill_and_reap(process)
            assert await all_exits(store) == []
            assert await store.load_all(Observed, "observed") == ()
            assert not opened_since(before)

    asyncio.run(main())


def test_what_ended_while_exitd_was_away_is_unknown_and_what_was_stored_for_nobody_goes(tmp_path: Path) -> None:
    async def main() -> None:
        clock = FakeClock()
        gone = Observed(Process(1, 1), clock.boot, "gone@/run/runc", 4, "gone", "oci", "/run/runc")
        other = replace(gone, container="other@/x", target="/x")
        async with opened(tmp_path / "db") as store:
            await store.commit(Transaction(watching=tuple(begun((), (gone, other)))))
            async with watching(store, clock):
                pass
            (exit,) = await all_exits(store)
            assert (exit.key, exit.status) == (gone.key, Unknown(foreign.AWAY))
            assert await store.load_all(Observed, "observed") == ()

    asyncio.run(main())


def test_one_that_was_missed_is_reported_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "db") as store, watching(store) as watched:
            with child("true") as process:
                seen = found(process)
                process.wait(LIMIT_SECONDS)
            for _ in range(2):
                await watched.missed(seen)
            await watched.missed(replace(seen, started_ticks=None))
            assert [exit.status for exit in await all_exits(store)] == [Unknown(ENDED_UNSEEN)]

    asyncio.run(main())


def test_a_kernel_that_gives_no_more_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    async def main() -> None:
        async with opened(tmp_path / "db") as store, watching(store) as watched:
            with child() as process:
                with monkeypatch.context() as patch:
                    patch.setattr(epoll.Monitor, "watch", refuse)
                    with pytest.raises(Busy, match="No space left"):
                        await watched.observe(found(process))
                assert len(watched) == 0

    asyncio.run(main())


def test_what_could_not_be_watched_after_a_restart_is_looked_at_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    async def main() -> None:
        async with opened(tmp_path / "db") as store:
            with child() as process:
                async with watching(store) as watched:
                    await watched.observe(found(process))
                monkeypatch.setattr(epoll.Monitor, "watch", refuse)
                async with watching(store) as watched:
                    kill_and_reap(process)
                    await until(lambda: not len(watched))
            assert [exit.status for exit in await all_exits(store)] == [KILLED]

    monkeypatch.setattr(observer, "POLL_SECONDS", 0.01)
    asyncio.run(main())


# -- where there is no room to look


def test_a_zombie_that_cannot_be_looked_at_for_want_of_a_descriptor_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports its death once."""
    refused, look = [OSError(errno.EMFILE, "Too many open files")] * 2, Sight.look

    def looked(self: Sight) -> object:
        if refused:
            raise refused.pop()
        return look(self)

    async def main() -> None:
        async with opened(tmp_path / "db") as store, watching(store) as watched:
            with child("sh", "-c", "exit 7") as process:
                monkeypatch.setattr(Sight, "look", looked)
                await watched.observe(found(process))
                await until(lambda: not len(watched))
                assert [exit.status for exit in await all_exits(store)] == [Exited(7 if probe.zombie().works else 0)]

    monkeypatch.setattr(observer, "BLIND_SECONDS", (0.01,))
    asyncio.run(main())


def narrow_at(patch: pytest.MonkeyPatch, owner: object, name: str) -> Narrow:
    """Looks that fail are made again in no time."""
    patch.setattr(observer, "BLIND_SECONDS", (0.001,))
    return Narrow(patch, owner, name)


@pytest.fixture
def in_cgroup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the tests' own processes are in."""
    monkeypatch.setattr(observe, "cgroup_of", lambda pid: "/exitd-test/none")


LOOKS: dict[str, tuple[object, str]] = {
    "at its state": (native, "process_stat"),
    "at its cgroup": (cgroups, "oom_kills"),
}


@pytest.mark.usefixtures("in_cgroup")
@pytest.mark.parametrize("look", LOOKS)
def test_an_end_for_which_there_is_no_room_to_look_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    """Its pidfd reports it once, and the zombie is not reaped."""

    async def main() -> None:
        async with opened(tmp_path / "db") as store, watching(store) as watched:
            with child() as process:
                await watched.observe(found(process))
                narrow = narrow_at(monkeypatch, *LOOKS[look])
                with capture_logs() as logged:
                    ends_unreaped(process)
                    await until(lambda: narrow.refused > 5)
                assert len(watched.living()) == 1 and len(logged) == 1
                narrow.has_room = True
                await until(lambda: not len(watched))
            assert [exit.status for exit in await all_exits(store)] == [ZOMBIE]

    monkeypatch.setattr(evidence, "ZOMBIE_PATIENCE_SECONDS", 0.01)
    asyncio.run(main())


def test_a_watch_that_cannot_be_ended_goes_on_for_all_its_processes_also_without_room_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with opened(tmp_path / "db") as store, watching(store) as watched:
            with child() as first, child() as second:
                for process in (first, second):
                    await watched.observe(found(process, str(process.pid)))
                narrow = narrow_at(monkeypatch, *LOOKS["at its state"])

                async def refusing(change: Transaction, *, patient: bool = False) -> object:
                    for process in (first, second):
                        ends_unreaped(process)
                    raise StoreFailed("full")

                with monkeypatch.context() as patch:
                    patch.setattr(store, "commit", refusing)
                    with pytest.raises(StoreFailed):
                        await watched.drop("/run/runc", ())
                assert narrow.refused == 2
                narrow.has_room = True
                await until(lambda: not len(watched))
            assert [exit.status for exit in await all_exits(store)] == [ZOMBIE] * 2

    monkeypatch.setattr(evidence, "ZOMBIE_PATIENCE_SECONDS", 0.01)
    asyncio.run(main())


@pytest.mark.usefixtures("in_cgroup")
def test_where_earlier_kills_cannot_be_read_nothing_is_watched_and_it_may_be_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would count as kills of this process."""

    async def main() -> None:
        async with opened(tmp_path / "db") as store, watching(store) as watched:
            with child() as process:
                narrow = narrow_at(monkeypatch, *LOOKS["at its cgroup"])
                with pytest.raises(OSError, match="Too many open files"):
                    await watched.observe(found(process))
                assert len(watched) == 0
                narrow.has_room = True
                one = await watched.observe(found(process))
                assert one is not None and one.run == 1

    asyncio.run(main())


OPENS: dict[str, tuple[object, str]] = {"its state": (native, "process_stat"), "its pidfd": (epoll, "open_pid")}


@contextlib.asynccontextmanager
async def without_room(
    store: Store, process: "subprocess.Popen[bytes]", patch: pytest.MonkeyPatch, opens: str
) -> AsyncIterator[tuple[Observer, Narrow]]:
    """The next exitd, which cannot see whether a process is there that the last one has watched."""
    async with watching(store) as watched:
        await watched.observe(found(process))
    narrow = narrow_at(patch, *OPENS[opens])
    async with watching(store) as watched:
        await until(lambda: narrow.refused > 5)
        yield watched, narrow


@pytest.mark.parametrize("opens", OPENS)
def test_what_the_next_exitd_has_no_room_to_open_is_watched_by_it_when_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opens: str
) -> None:
    async def main() -> None:
        async with opened(tmp_path / "db") as store:
            with child() as process:
                seen = found(process)
                async with without_room(store, process, monkeypatch, opens) as (watched, narrow):
                    (one,) = watched.living()
                    assert (watched.count("/run/runc"), watched.watcher_of(one.process)) == (1, "/run/runc")
                    narrow.has_room = True
                    assert await watched.observe(replace(seen, name="another", container="another")) is None
                    ends_unreaped(process)
                    await until(lambda: not len(watched))
            (exit,) = await all_exits(store)
            assert (exit.key, exit.status) == (one.key, ZOMBIE)
            assert await store.load_all(Observed, "observed") == ()

    monkeypatch.setattr(evidence, "ZOMBIE_PATIENCE_SECONDS", 0.01)
    asyncio.run(main())


def test_what_is_gone_when_there_is_room_to_open_it_is_reported_once_as_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with opened(tmp_path / "db") as store:
            with child() as process:
                seen = found(process)
                async with without_room(store, process, monkeypatch, "its pidfd") as (watched, narrow):
                    kill_and_reap(process)
                    await watched.missed(seen)  # as who finds it in a directory says
                    assert await all_exits(store) == []
                    narrow.has_room = True
                    await until(lambda: not len(watched))
            (exit,) = await all_exits(store)
            assert (exit.key.run, exit.status) == (1, Unknown(foreign.AWAY))
            assert await store.load_all(Observed, "observed") == ()

    asyncio.run(main())


def test_a_watch_is_ended_also_of_what_there_is_no_room_to_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with opened(tmp_path / "db") as store:
            with child() as process:
                async with without_room(store, process, monkeypatch, "its pidfd") as (watched, narrow):
                    await watched.drop("/run/runc", ())
                    assert len(watched) == 0
                    narrow.has_room = True
                    kill_and_reap(process)
            assert await all_exits(store) == []
            assert await store.load_all(Observed, "observed") == ()

    asyncio.run(main())


def test_a_number_that_is_a_threads_by_now_is_no_process_that_was_watched(tmp_path: Path) -> None:
    async def main() -> None:
        clock, over = FakeClock(), threading.Event()
        (thread := threading.Thread(target=over.wait)).start()
        gone = Observed(Process(thread.native_id or 0, 1), clock.boot, "gone@/run/runc", 1, "gone", "oci", "/run/runc")
        async with opened(tmp_path / "db") as store:
            await store.commit(Transaction(watching=tuple(begun((), (gone,)))))
            try:
                async with watching(store, clock):
                    pass
            finally:
                over.set()
                thread.join()
            assert [exit.status for exit in await all_exits(store)] == [Unknown(foreign.AWAY)]

    asyncio.run(main())


# -- the names of tasks

SOCKET = Target(Kind.CONTAINERD, "/c.sock")
WEB = Names("shop", "web-0", "app")


def task(process: "subprocess.Popen[bytes]") -> FoundProcess:
    return foreign.task_found("/c.sock", "n", "web", process.pid)


@contextlib.asynccontextmanager
async def watching_tasks(store: Store) -> AsyncIterator[Observer]:
    watches = WatchList()
    watches[SOCKET.where] = WatchEntry(SOCKET)
    async with watching(store, watches=watches) as made:
        yield made


def test_a_task_has_its_names_when_they_come_and_the_next_exitd_knows_them(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "db") as store:
            with child() as process:
                async with watching_tasks(store) as watched:
                    one = await watched.observe(task(process))
                    assert one is not None and watched.lacks_names(one.container)
                    await watched.name(one.container, WEB)
                    assert not watched.lacks_names(one.container)
                async with watching_tasks(store) as watched:
                    assert not watched.lacks_names(one.container)
                    assert [each.names for each in watched.living()] == [WEB]
                    kill_and_reap(process)
                    await until(lambda: not len(watched))
            assert [exit.names for exit in await all_exits(store)] == [WEB]

    asyncio.run(main())


def test_an_end_waits_for_the_names_that_are_on_their_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "NAMES_SECONDS", 60.0)

    async def main() -> None:
        async with opened(tmp_path / "db") as store, watching_tasks(store) as watched:
            with child() as process:
                one = await watched.observe(task(process))
                assert one is not None
                kill_and_reap(process)
                await until(lambda: not watched.living())
                await watched.name(one.container, WEB)
                await until(lambda: not len(watched))
            assert [exit.names for exit in await all_exits(store)] == [WEB]
            assert await store.load_all(Observed, "observed") == ()

    asyncio.run(main())


def test_names_that_do_not_come_hold_no_end_up_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "NAMES_SECONDS", 0.05)

    async def main() -> None:
        async with opened(tmp_path / "db") as store, watching_tasks(store) as watched:
            with child() as process:
                one = await watched.observe(task(process))
                kill_and_reap(process)
                await until(lambda: not len(watched))
                assert one is not None
                await watched.name(one.container, WEB)  # too late
            assert [exit.names for exit in await all_exits(store)] == [NO_NAMES]

    asyncio.run(main())


def test_kills_that_a_task_has_outlived_are_counted_once_its_names_are_known(tmp_path: Path) -> None:
    def kills(found: list[Count]) -> dict[tuple[str, ...], int]:
        return {each.words: each.value for each in found if each.name == KILLS}

    async def main() -> None:
        async with opened(tmp_path / "db") as store, watching_tasks(store) as watched:
            with child() as process:
                one = await watched.observe(task(process))
                assert one is not None
                watched._outlived(one.key, one.kills_before + 2)
                await until(lambda: watched.living()[0].kills_outlived == one.kills_before + 2)
                assert kills(await store.counts()) == {}
                await watched.name(one.container, WEB)
                assert kills(await store.counts()) == {("shop", "web-0", "app"): 2}
                watched._outlived(one.key, one.kills_before + 3)
                await watched.settled()
                assert kills(await store.counts()) == {("shop", "web-0", "app"): 3}
                kill_and_reap(process)
                await until(lambda: not len(watched))
            (exit,) = await all_exits(store)
            assert kills(await store.counts()) == {("shop", "web-0", "app"): max(3, exit.oom.kills)}

    asyncio.run(main())
