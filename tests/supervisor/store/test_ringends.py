"""Ends that are reported from the ring: read before the database has them, and stored once, whatever happens then."""

import asyncio
import errno
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.model.errors import CannotStart, StoreFailed
from supervisor.model.values import Container, Event, Exit, Exited, Phase, Signaled, Unknown
from supervisor.store import ringends
from supervisor.store.database import Keep, Store, Transaction
from supervisor.store.ring import PAGES, Ring
from supervisor.system import room
from tests.supervisor.narrow import Narrow
from tests.supervisor.store.slowdisk import SlowDisk
from tests.supervisor.stored import all_exits, container, ended, event, opened, written

PROJECT = Path(__file__).parents[3]
BROKEN = OSError(errno.EIO, os.strerror(errno.EIO))
Reported = tuple[Container, Container, Exit, tuple[Event, ...]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "exitd.db"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No flush is slow, whatever else this machine does."""
    monkeypatch.setattr(ringends, "SLOW_SECONDS", 60.0)


def end_of(before: Container, at_ns: int = 5, code: int = 43) -> Reported:
    exit = ended(before.id, at_ns=at_ns, status=Exited(code))
    after = replace(before, phase=Phase.EXITED, exit=exit, clean=False, init=None)
    return before, after, exit, (event(before.id, at_ns, "oom"), replace(event(before.id, at_ns), exit=exit))


async def run_of(store: Store, id: str) -> Container:
    """A container whose row says that it runs."""
    made = container(id)
    await store.commit(Transaction((made,), events=(event(id, 1, "start"),)))
    return made


def test_before_the_database_has_an_end_it_is_read_as_after(path: Path) -> None:
    async def read(store: Store) -> list[object]:
        first = (await all_exits(store))[0]
        return [
            await all_exits(store),
            await store.exits(since_ns=6),
            await store.exits(since_ns=8),
            await store.exits(unknown=True),
            await store.exits(id="c1"),
            await store.exits(id="c3"),
            await store.exits(after=first),
            await store.exits(limit=1),
            await store.last_exit("c1", 1),
            await store.last_exit("c1", 2),
            await store.newest_exit("c2"),
            await store.exec_exit("c1", "e"),
            await store.events_after(0, 100),
            await store.events_after(4, 2),
            await store.first_seq_since(4),
            await store.first_seq_since(7),
            await store.first_seq_since(70),
            await store.first_seq_with_task(0, 100),
            await store.first_seq_with_task(2, 3),
        ]

    async def main() -> None:
        async with opened(path) as store:
            ones = [await run_of(store, id) for id in ("c1", "c2")]
            await store.commit(Transaction(exits=(ended("c0", at_ns=6, status=Unknown("gone")),)))
            numbered = await written(store, *(end_of(one, at_ns=5 + 2 * number) for number, one in enumerate(ones)))
            assert numbered is not None and [each.seq for each in numbered] == [3, 4, 5, 6]
            before = await read(store)
            with closing(sqlite3.connect(path)) as other:
                assert other.execute("SELECT count(*) FROM exits").fetchone() == (1,)
            await store.take_over_ends()
            with closing(sqlite3.connect(path)) as other:
                assert other.execute("SELECT count(*) FROM exits").fetchone() == (3,)
            assert await read(store) == before
            assert {c.id: c.phase for c in await store.load()} == {"c1": Phase.EXITED, "c2": Phase.EXITED}

    asyncio.run(main())


PROGRAM = """
import asyncio, os, signal, sys
from pathlib import Path
from supervisor.store import ringends
ringends.SLOW_SECONDS = 60.0
from supervisor.store.database import Store, Transaction
from tests.supervisor.store.test_ringends import end_of, run_of
from tests.supervisor.stored import container, event

async def main():
    store = Store(Path(sys.argv[1]))
    ones = [await run_of(store, f"c{number}") for number in range(9)]
    for number, one in enumerate(ones):
        numbered = await store.write_ends([end_of(one, at_ns=number, code=number)])
        print(*(each.seq for each in numbered), flush=True)
        if number == 4:
            await store.take_over_ends()
            later = await store.commit(Transaction(events=(event("later"),)))
            print(later[0].seq, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def killed_after_reporting(path: Path) -> list[int]:
    """Nine ends were reported, four of them are in the ring alone. Returns the events' numbers."""
    command = [sys.executable, "-c", PROGRAM, str(path)]
    env = {**os.environ, "PYTHONPATH": str(PROJECT)}
    result = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    assert result.returncode == -signal.SIGKILL
    return [int(word) for word in result.stdout.split()]


def test_what_was_reported_before_a_kill_is_stored_at_the_next_start_and_once(path: Path) -> None:
    reported = killed_after_reporting(path)

    async def look() -> None:
        async with opened(path) as store:
            assert [(exit.key.container, exit.status) for exit in await all_exits(store)] == [
                (f"c{number}", Exited(number)) for number in range(9)
            ]
            found = [each for each in await store.events_after(0, 1000) if each.id != "new"]
            assert [each.seq for each in found if each.type != "start"] == reported
            assert [each.exit is not None for each in found if each.seq in reported] == (
                5 * [False, True] + [False] + 4 * [False, True]
            )
            assert all(c.phase is Phase.EXITED and c.exit is not None and not c.clean for c in await store.load())
            (new,) = await store.commit(Transaction(events=(event("new"),)))
            assert new.seq > reported[-1]

    asyncio.run(look())
    asyncio.run(look())


def test_what_retention_has_deleted_does_not_come_back(path: Path) -> None:
    killed_after_reporting(path)

    async def forget() -> None:
        async with opened(path) as store:
            gone = tuple(c.id for c in await store.load())
            await store.commit(Transaction(removed=gone))
            await store.compact(Keep(events=1, exits=0), now_ns=0)

    async def look() -> None:
        async with opened(path) as store:
            assert await all_exits(store) == [] and len(await store.events_after(0, 100)) == 1

    asyncio.run(forget())
    asyncio.run(look())


def test_an_end_that_the_database_has_already_brings_nothing_twice(path: Path) -> None:
    """The write to the ring failed, or seemed to, and the end was committed: the block may be whole all the same."""

    async def main() -> None:
        async with opened(path) as store:
            before, after, exit, events = end_of(await run_of(store, "c1"))
            await written(store, (before, after, exit, events))
            await store.commit(Transaction((replace(after, clean=True),), exits=(exit,), events=events))
            await store.take_over_ends()
            assert [each.type for each in await store.events_after(0, 100)] == ["start", "oom", "exit"]
            assert (await store.load())[0].clean

    asyncio.run(main())


def test_another_databases_ring_is_not_read(path: Path) -> None:
    killed_after_reporting(path)
    for file in path.parent.glob("exitd.db*"):
        file.unlink()

    async def main() -> None:
        async with opened(path) as store:
            assert await all_exits(store) == [] and await store.load() == ()

    asyncio.run(main())


def test_a_row_that_cannot_be_read_costs_its_end_nothing_but_the_row(path: Path) -> None:
    killed_after_reporting(path)
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE containers SET body = 'x' WHERE id = 'c7'")
        other.execute("DELETE FROM containers WHERE id = 'c8'")

    async def main() -> None:
        async with opened(path) as store:
            assert len(await all_exits(store)) == 9
            assert {c.id for c in await store.load()} == {f"c{number}" for number in range(7)}

    asyncio.run(main())


def test_a_ring_that_cannot_be_read_is_not_passed_over(path: Path) -> None:
    killed_after_reporting(path)
    path.with_suffix(".ring").unlink()
    path.with_suffix(".ring").mkdir()
    with pytest.raises(CannotStart, match=r"exitd\.ring: Is a directory; it may have ends"):
        Store(path)


def test_a_newer_exitds_ring_refuses_the_start(path: Path) -> None:
    killed_after_reporting(path)
    place = path.with_suffix(".ring")
    data = bytearray(place.read_bytes())
    data[4] += 1
    place.write_bytes(data)
    with pytest.raises(CannotStart, match=r"exitd\.ring: written by a newer exitd"):
        Store(path)


def test_without_room_for_a_ring_the_database_does_it_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Ring:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(ringends, "Ring", full)

    async def main() -> None:
        async with opened(path) as store:
            assert store.write_ends([end_of(await run_of(store, "c1"))]) is None
            assert await store.events_after(1, 9) == []

    asyncio.run(main())


def test_a_ring_that_fails_is_given_up_and_no_number_is_given_twice(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with opened(path) as store:
            one, other = await run_of(store, "c1"), await run_of(store, "c2")
            with SlowDisk(monkeypatch, BROKEN) as disk:
                disk.go()
                assert await written(store, end_of(one)) is None
            assert store.write_ends([end_of(other)]) is None
            assert store.is_void(3) and store.is_void(4) and not store.is_void(5)
            (new,) = await store.commit(Transaction(events=(event("c1"),)))
            assert new.seq == 5

    asyncio.run(main())


def copied(path: Path, to: Path) -> Path:
    """What an exitd that is killed now leaves."""
    to.mkdir()
    for file in path.parent.glob("exitd.*"):
        if not file.name.endswith("-shm"):
            shutil.copy(file, to)
    return to / path.name


def test_a_block_whose_write_seemed_to_fail_does_not_come_back(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its events' numbers are void: readers have passed them by the time of the next start."""

    async def main() -> None:
        async with opened(path) as store:
            one = await run_of(store, "c1")
            with SlowDisk(monkeypatch, BROKEN) as disk:
                disk.writes_first = True
                disk.go()
                assert await written(store, end_of(one)) is None
            before = copied(path, tmp_path / "before")
            (later,) = await store.commit(Transaction(events=(event("later"),)))
            assert later.seq == 4
            after = copied(path, tmp_path / "after")
        async with opened(before) as store:  # nobody has seen a number behind the block's: it may count
            assert [each.seq for each in await store.events_after(0, 100)] == [1, 2, 3]
        async with opened(after) as store:
            assert [each.seq for each in await store.events_after(0, 100)] == [1, 4]
            assert await all_exits(store) == []
            assert await written(store, end_of(one)) is not None
            once_more = copied(after, tmp_path / "once-more")
        async with opened(once_more) as store:
            assert [each.seq for each in await store.events_after(0, 100)] == [1, 4, 5, 6]

    asyncio.run(main())


REPORTED_AND_TAKEN_OVER = """
import asyncio, os, shutil, signal, sys
from pathlib import Path
from supervisor.store import ringends
ringends.SLOW_SECONDS = 60.0
from supervisor.store.database import Store
from tests.supervisor.store.test_ringends import end_of, run_of
from tests.supervisor.stored import container

async def main():
    path, flushed = Path(sys.argv[1]), sys.argv[2]
    store = Store(path)
    one = await run_of(store, "c1")
    assert await store.write_ends([end_of(one)]) is not None
    shutil.copy(f"{path}-wal", flushed)
    await store.take_over_ends()
    os.kill(os.getpid(), signal.SIGKILL)

async def again():
    store = Store(Path(sys.argv[1]))
    assert await store.write_ends([end_of(container("c2"))]) is not None
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(again() if sys.argv[2] == "again" else main())
"""
FLUSHED = re.compile(r"(?:fsync|fdatasync)\(\d+<([^>]+)>\) += 0")


def test_an_end_survives_a_kill_the_next_end_and_a_power_cut(path: Path, tmp_path: Path) -> None:
    """The database had it, but not on the disk, and the next exitd writes another block in its block's place. What the
    power cut leaves of the database's log is what was flushed: before the kill, or by the next exitd."""
    flushed, trace = tmp_path / "flushed", tmp_path / "trace"
    command = [sys.executable, "-c", REPORTED_AND_TAKEN_OVER, str(path)]
    env = {**os.environ, "PYTHONPATH": str(PROJECT)}
    first = subprocess.run([*command, str(flushed)], env=env, timeout=60, check=False)
    traced = ["strace", "-f", "-y", "-qq", "-o", str(trace), "-e", "trace=fsync,fdatasync"]
    again = subprocess.run([*traced, *command, "again"], env=env, timeout=60, check=False)
    assert (first.returncode, again.returncode) == (-signal.SIGKILL, -signal.SIGKILL)
    log = Path(f"{path}-wal")
    if str(log) not in FLUSHED.findall(trace.read_text()):
        shutil.copy(flushed, log)
    Path(f"{path}-shm").unlink(missing_ok=True)

    async def main() -> None:
        async with opened(path) as store:
            assert [exit.key.container for exit in await all_exits(store)] == ["c1", "c2"]

    asyncio.run(main())


def test_after_a_slow_flush_none_is_waited_for_until_a_quick_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patience: dict[int, float] = {}  # by block: how long it was waited for at once
    has_ended = Ring.has_ended

    def noted(ring: Ring, seconds: float) -> bool:
        patience.setdefault(ring._used[-1][0], seconds)
        return has_ended(ring, seconds)

    async def main() -> None:
        async with opened(path) as store:
            ones = [await run_of(store, f"c{number}") for number in range(4)]
            with monkeypatch.context() as patched:
                patched.setattr(ringends, "SLOW_SECONDS", 1e-9)
                assert await written(store, end_of(ones[0])) is not None
                assert await written(store, end_of(ones[1])) is not None
            assert await written(store, end_of(ones[2])) is not None
            await store.commit(Transaction(events=(event("c1"),)))  # its flush is quick
            assert await written(store, end_of(ones[3])) is not None

    monkeypatch.setattr(Ring, "has_ended", noted)
    asyncio.run(main())
    assert list(patience.values()) == [1e-9, 0, 0, ringends.SLOW_SECONDS]
    patience.clear()

    async def busy() -> None:
        async with opened(path) as store:
            monkeypatch.setattr(type(store._writer), "flushing_seconds", ringends.SLOW_SECONDS)
            assert await written(store, end_of(container("c9"))) is not None
            assert list(patience.values()) == [0]

    asyncio.run(main())


def test_a_block_on_its_way_is_alone_and_the_mark_stays_below_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with opened(path) as store:
            ones = [await run_of(store, f"c{number}") for number in range(3)]
            assert await written(store, end_of(ones[0])) is not None
            with SlowDisk(monkeypatch) as disk:
                writing = store.write_ends([end_of(ones[1])])
                assert writing is not None and not writing.done()
                assert store.write_ends([end_of(ones[2])]) is None
                await store.take_over_ends()
                assert [exit.key.container for exit in await all_exits(store)] == ["c0"]
                with closing(sqlite3.connect(path)) as other:
                    (mark,) = other.execute("SELECT value FROM meta WHERE key = ?", (ringends.MARK,)).fetchone()
                assert int(mark) == store._ring_ends._under_way - 1
                disk.go()
                numbered = await writing
            assert numbered is not None and [each.type for each in numbered] == ["oom", "exit"]
            assert sorted(exit.key.container for exit in await all_exits(store)) == ["c0", "c1"]
            assert await written(store, end_of(ones[2])) is not None

    asyncio.run(main())


def test_a_block_that_cannot_be_written_after_a_while_is_void_and_the_ring_is_given_up(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with opened(path) as store:
            one = await run_of(store, "c1")
            with SlowDisk(monkeypatch, BROKEN) as disk:
                writing = store.write_ends([end_of(one)])
                assert writing is not None and not writing.done()
                disk.go()
                assert await writing is None
            assert store.is_void(store.last_seq() + 1)
            assert store.write_ends([end_of(one)]) is None
            assert await all_exits(store) == []

    asyncio.run(main())


def test_a_block_whose_end_the_loop_cannot_be_woken_by_is_looked_at_until_it_is_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """max_user_watches of epoll(7) are in use."""

    async def main() -> None:
        async with opened(path) as store:
            one = await run_of(store, "c1")
            with SlowDisk(monkeypatch) as disk, monkeypatch.context() as patched:
                narrow = Narrow(patched, asyncio.get_running_loop(), "add_reader", errno.ENOSPC)
                patched.setattr(room, "AGAIN_SECONDS", 0.01)
                writing = store.write_ends([end_of(one)])
                assert writing is not None and not writing.done()
                await asyncio.sleep(0.05)
                assert narrow.refused > 1 and not writing.done()
                disk.go()
                assert await writing is not None
            assert [exit.key.container for exit in await all_exits(store)] == ["c1"]

    asyncio.run(main())


def test_closing_while_the_loop_cannot_be_woken_waits_for_the_block(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        problems: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: problems.append(context))
        async with opened(path) as store:
            one = await run_of(store, "c1")
            with SlowDisk(monkeypatch) as disk, monkeypatch.context() as patched:
                Narrow(patched, loop, "add_reader", errno.ENOSPC)
                patched.setattr(room, "AGAIN_SECONDS", 0.01)
                writing = store.write_ends([end_of(one)])
                loop.call_later(0.1, disk.go)
                assert await store.close(limit_seconds=60)
                assert writing is not None and writing.done()
        assert problems == []

    asyncio.run(main())


@pytest.mark.parametrize("fails", [True, False])
def test_closing_waits_no_longer_than_the_block_takes(path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    async def main() -> None:
        async with opened(path) as store:
            one = await run_of(store, "c1")
            with SlowDisk(monkeypatch, BROKEN if fails else None) as disk:
                assert store.write_ends([end_of(one)]) is not None
                asyncio.get_running_loop().call_later(0.02, disk.go)
                async with asyncio.timeout(20):
                    assert await store.close(limit_seconds=60)
        async with opened(path) as store:
            assert [exit.key.container for exit in await all_exits(store)] == ([] if fails else ["c1"])

    asyncio.run(main())


@pytest.mark.parametrize("is_waited_for", [True, False])
def test_closing_stores_the_block_on_its_way(path: Path, monkeypatch: pytest.MonkeyPatch, is_waited_for: bool) -> None:
    """Also where nobody waits for it any more."""

    async def main() -> None:
        async with opened(path) as store:
            one = await run_of(store, "c1")
            with SlowDisk(monkeypatch) as disk:
                writing = store.write_ends([end_of(one)])
                assert writing is not None
                if not is_waited_for:
                    writing.cancel()
                asyncio.get_running_loop().call_later(0.05, disk.go)
                assert await store.close(60)
        async with opened(path) as store:
            assert [exit.key.container for exit in await all_exits(store)] == ["c1"]
            assert (await store.load())[0].phase is Phase.EXITED

    asyncio.run(main())


def test_closing_gives_up_a_block_that_a_hanging_disk_does_not_take(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start finds it, if the disk takes it later."""

    async def main() -> None:
        async with opened(path) as store:
            one = await run_of(store, "c1")
            with SlowDisk(monkeypatch) as disk:
                own = store._ring_ends._ring
                writing = store.write_ends([end_of(one)])
                await store.close(limit_seconds=0.05)
                assert own is not None and writing is not None and not writing.done()
                disk.go()
                assert own.has_ended(30)
        async with opened(path) as store:
            assert [exit.key.container for exit in await all_exits(store)] == ["c1"]

    asyncio.run(main())


def test_a_ring_that_is_not_to_be_used_is_not_written(path: Path) -> None:
    async def main() -> None:
        async with opened(path, slow_seconds=lambda: 0.0) as store:
            one = await run_of(store, "c1")
            assert store.write_ends([end_of(one)]) is None

    asyncio.run(main())


def test_a_ring_is_emptied_by_the_flushes_of_others_and_by_its_own(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            for number in range(3 * PAGES):
                id = f"c{number}"
                assert await written(store, end_of(container(id))) is not None, f"no room for the end {number}"
                await store.take_over_ends()
            assert len(await all_exits(store)) == 3 * PAGES

    asyncio.run(main())


def test_a_full_ring_refuses_until_the_database_has_taken_over(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            reported = 0
            while await written(store, end_of(container(f"c{reported}"))) is not None:
                reported += 1
            assert reported == PAGES
            await store.take_over_ends()
            assert await written(store, end_of(container("next"))) is not None
            assert len(await all_exits(store)) == PAGES + 1

    asyncio.run(main())


def test_a_database_that_refuses_takes_over_later_and_the_end_is_read_meanwhile(path: Path) -> None:
    async def main() -> None:
        async with opened(path, lock_seconds=0.05) as store:
            one = await run_of(store, "c1")
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                await written(store, end_of(one))
                with pytest.raises(StoreFailed):
                    await store.take_over_ends()
                assert [exit.key.container for exit in await all_exits(store)] == ["c1"]
            await store.take_over_ends()
            assert len(await store.events_after(0, 10)) == 3
            assert (await store.load())[0].phase is Phase.EXITED

    asyncio.run(main())


def test_closing_stores_what_was_only_reported(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            before, after, exit, events = end_of(await run_of(store, "c1"))
            killed = replace(exit, status=Signaled(9))
            await written(store, (before, replace(after, exit=killed), killed, events))
        with closing(sqlite3.connect(path)) as other:
            assert other.execute("SELECT count(*) FROM exits").fetchone() == (1,)

    asyncio.run(main())
