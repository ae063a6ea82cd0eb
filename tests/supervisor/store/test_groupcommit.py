import asyncio
import contextlib
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.model.errors import StoreFailed
from supervisor.store.database import AlreadyStored, Store, Transaction
from supervisor.store.groupcommit import KEPT_BYTES, Writer
from supervisor.store.schema import open_database
from tests.supervisor.stored import all_exits, container, ended, event, opened

PROJECT = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "exitd.db"


def test_a_change_that_fails_takes_no_neighbour_with_it_and_its_numbers_are_never_given_again(path: Path) -> None:
    def change(number: int) -> Transaction:
        id = f"c{number}"
        if number % 7 == 3:  # a second report of the end that the change before it has stored
            return Transaction(exits=(ended(f"c{number - 1}"),), events=(event(id),))
        if number % 7 == 5:  # a name that cannot be text in a database
            return Transaction((container(id, "\udcff"),), events=(event(id),))
        return Transaction((container(id),), exits=(ended(id),), events=(event(id), event(id)))

    async def main() -> None:
        async with opened(path) as store:
            changes = (store.commit_soon(change(number)) for number in range(700))
            results = await asyncio.gather(*changes, return_exceptions=True)
            failed = [result for result in results if isinstance(result, BaseException)]
            assert sum(isinstance(error, AlreadyStored) for error in failed) == 100
            assert sum(isinstance(error, UnicodeEncodeError) for error in failed) == 100
            numbers = [event.seq for result in results if isinstance(result, tuple) for event in result]
            assert numbers == sorted(set(numbers)) and len(numbers) == 1000
            assert [seq for seq in range(1, 1201) if seq not in numbers] == list(filter(store.is_void, range(1, 1201)))
            assert [event.seq for event in await store.events_after(0, 2000)] == numbers
            assert len(await store.load()) == len(await store.exits()) == 500

    asyncio.run(main())


def test_commits_waiting_together_share_flushes(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            changes = [store.commit_soon(Transaction(events=(event(str(number)),))) for number in range(5000)]
            stored = [(await change)[0] for change in changes]
            assert [each.seq for each in stored] == list(range(1, 5001))
            assert store.flush_seconds > 0

    asyncio.run(main())


def test_a_cancelled_caller_undoes_nothing_and_disturbs_nobody(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            first = store.commit_soon(Transaction(events=(event("a"),)))
            second = store.commit_soon(Transaction(events=(event("b"),)))
            first.cancel()
            assert (await second)[0].seq == 2
            assert [each.id for each in await store.events_after(0, 9)] == ["a", "b"]

    asyncio.run(main())


def test_after_close_nothing_is_taken_and_what_was_queued_is_stored(path: Path) -> None:
    async def main() -> None:
        store = Store(path)
        queued = store.commit_soon(Transaction(events=(event("c"),)))
        assert await store.close(60)
        assert (await queued)[0].seq == 1
        with pytest.raises(StoreFailed):
            await store.commit(Transaction(events=(event("c"),)))
        with pytest.raises(StoreFailed):
            await store.load()
        assert await store.close(60)
        async with opened(path) as again:
            assert again.last_seq() == 1

    asyncio.run(main())


def test_a_database_that_others_hold_fails_the_commit_and_not_the_next_one_nor_the_loop(path: Path) -> None:
    async def main() -> None:
        async with opened(path, lock_seconds=0.05) as store:
            await store.commit(Transaction(exits=(ended("c1"),)))
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                stuck = store.commit_soon(Transaction(exits=(ended("c2"),)))
                assert await store.exits() == [ended("c1")]
                with pytest.raises(StoreFailed, match="SQLITE_BUSY"):
                    await stuck
                other.execute("ROLLBACK")
            await store.commit(Transaction(exits=(ended("c2"),)))
            assert len(await store.exits()) == 2

    asyncio.run(main())


def test_a_commit_that_the_disk_does_not_answer_fails_within_its_limit(path: Path) -> None:
    async def main() -> None:
        async with opened(path, limit_seconds=0.1) as store:
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(StoreFailed, match="did not answer"):
                    await store.commit(Transaction(exits=(ended("c1"),)))
                other.execute("ROLLBACK")
        async with opened(path) as store:  # with a limit that a slow disk of today keeps
            with contextlib.suppress(AlreadyStored):  # this is how a late commit that got through shows
                await store.commit(Transaction(exits=(ended("c1"),)))
            assert await store.exits() == [ended("c1")]

    asyncio.run(main())


def test_a_log_that_has_its_length_from_the_beginning_is_written_over_and_does_not_grow(path: Path) -> None:
    wal = path.with_name("exitd.db-wal")

    async def main() -> None:
        for _ in range(2):
            async with opened(path, room_bytes=1 << 20) as store:
                await store.commit(Transaction(events=(event("first"),)))
                length = wal.stat().st_size
                assert length == 1 << 20
                for _ in range(60):
                    await store.commit(Transaction(events=(event("e"),)))
                assert wal.stat().st_size == length
        async with opened(path) as store:
            assert store.last_seq() == 2 * 61

    asyncio.run(main())


def test_a_log_that_was_only_begun_or_cut_short_gets_its_length_and_loses_nothing(path: Path) -> None:
    """As a kill leaves it: with commits in it, and no end."""
    wal, kept = path.with_name("exitd.db-wal"), path.parent / "kept"

    async def main() -> None:
        async with opened(path) as store:
            for _ in range(3):
                await store.commit(Transaction(events=(event("e"),)))
            kept.mkdir()
            for each in path.parent.glob("exitd.db*"):
                shutil.copy(each, kept)
        short = (kept / wal.name).stat().st_size
        assert 0 < short < 1 << 20
        for _ in range(2):
            async with opened(kept / path.name, room_bytes=1 << 20) as store:
                assert store.last_seq() >= 3
                await store.commit(Transaction(events=(event("e"),)))
                assert (kept / wal.name).stat().st_size == 1 << 20
        async with opened(kept / path.name) as store:
            assert store.last_seq() == 5

    asyncio.run(main())


def test_a_closed_database_keeps_the_room_that_a_start_needs_and_is_whole_without_it(path: Path) -> None:
    async def main() -> None:
        for number in range(1, 3):
            async with opened(path, room_bytes=1 << 20) as store:
                await store.commit(Transaction(events=(event("e"),)))
            for suffix, length in KEPT_BYTES.items():
                kept = os.stat(f"{path}{suffix}")
                assert (kept.st_size, stat.S_IMODE(kept.st_mode)) == (length, 0o600)
                assert kept.st_blocks * 512 >= length
            alone = path.with_name(f"alone{number}.db")
            shutil.copy(path, alone)
            async with opened(alone) as store:
                assert store.last_seq() == number

    asyncio.run(main())


def test_what_another_connection_keeps_open_is_left_alone(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            await store.commit(Transaction(events=(event("e"),)))
        with contextlib.closing(sqlite3.connect(path)) as other:
            (before,) = other.execute("SELECT count(*) FROM events").fetchone()
            async with opened(path, room_bytes=1 << 20) as store:
                await store.commit(Transaction(events=(event("e"),)))
            assert os.stat(f"{path}-wal").st_size == 1 << 20
            assert other.execute("SELECT count(*) FROM events").fetchone() == (before + 1,)

    asyncio.run(main())


def test_only_what_is_written_ahead_alone_spares_the_disk_a_flush(path: Path) -> None:
    """The words for it are SQLite's: 1 is NORMAL, 2 FULL."""

    async def main() -> None:
        writer = Writer(path, open_database(path, 2.0), 2.0)
        begun, go_on = threading.Event(), threading.Event()

        def hold(connection: sqlite3.Connection) -> int:
            begun.set()
            assert go_on.wait(60)
            return _synchronous(connection)

        async def asked(*flushes: bool) -> list[int]:
            jobs = [writer.submit(_synchronous, lambda number: None, flush=flush) for flush in flushes]
            return list(await asyncio.gather(*jobs))

        assert await asked(True) == [2]
        assert await asked(False) == [1]
        first = writer.submit(hold, lambda number: None, flush=False)
        assert await asyncio.to_thread(begun.wait, 60)
        together = asyncio.gather(*(writer.submit(_synchronous, lambda number: None, flush=f) for f in (False, True)))
        go_on.set()
        assert await first == 1
        assert await together == [2, 2]
        writer.stop()
        assert await asyncio.to_thread(writer.wait_ended, 60)

    asyncio.run(main())


def _synchronous(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA synchronous").fetchone()[0])


PROGRAM = """
import asyncio, resource, sys
from dataclasses import replace
from pathlib import Path
from supervisor.model.errors import StoreFailed
from supervisor.store.database import Transaction, Store
from tests.supervisor.stored import container, ended, event

def change(number):
    id = f"c{number}"
    return Transaction((container(id),), exits=(ended(id, at_ns=number),), events=(event(id, number),))

"""
COMMIT_FOR_EVER = """
async def one(store, queue):
    for number in range(queue, 10**9, 8):
        (stored,) = await store.commit(replace(change(number), ahead=number % 3 > 0))
        print(number, stored.seq, flush=True)

async def main():
    store = Store(Path(sys.argv[1]))
    await asyncio.gather(*(one(store, queue) for queue in range(8)))

asyncio.run(main())
"""
FAIL_AND_RECOVER = """
async def main():
    store = Store(Path(sys.argv[1]))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    number = failed = 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))  # writes beyond: EFBIG, an I/O error to SQLite
    while failed < 3:
        try:
            await store.commit(change(number))
            number += 1
        except StoreFailed as error:
            assert "SQLITE_IOERR" in str(error) or "SQLITE_FULL" in str(error), error
            failed += 1
    assert number > 5
    assert len(await store.exits()) == len(await store.events_after(0, 1000)) == number
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await store.commit(change(number))
    assert len(await store.exits()) == len(await store.events_after(0, 1000)) == number + 1
    assert await store.close(60)

asyncio.run(main())
"""


@pytest.fixture
def in_a_process() -> Iterator[list[subprocess.Popen[str]]]:
    """The programs a test has started; whatever still runs afterwards is killed."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate(timeout=10)


def start(source: str, path: Path) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-c", PROGRAM + source, str(path)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("kill_after", [1, 50, 400])
def test_a_killed_daemon_leaves_a_database_with_every_commit_that_was_acknowledged(
    path: Path, in_a_process: list[subprocess.Popen[str]], kill_after: int
) -> None:
    process = start(COMMIT_FOR_EVER, path)
    in_a_process.append(process)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(kill_after)]
    process.send_signal(signal.SIGKILL)
    lines += process.stdout.readlines()
    acknowledged = [tuple(map(int, line.split())) for line in lines if line.endswith("\n")]

    async def main() -> None:
        async with opened(path) as store:
            stored = {exit.at_ns async for page in store.exit_pages() for exit in page}
            events = {each.seq: each.time_ns for each in await store.events_after(0, 100_000)}
            assert len(acknowledged) >= kill_after
            for number, seq in acknowledged:
                assert number in stored
                assert events[seq] == number
            assert sorted(events) == list(range(1, store.last_seq() + 1))
            assert len(stored) == len(events) == len(await store.load())

    asyncio.run(main())


def test_an_io_error_fails_the_commit_and_the_store_recovers_once_writes_work_again(
    path: Path, in_a_process: list[subprocess.Popen[str]]
) -> None:
    process = start(FAIL_AND_RECOVER, path)
    in_a_process.append(process)
    assert process.wait(timeout=60) == 0


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "tiny"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2560k", "tmpfs", place], check=True, timeout=10)
    yield place
    subprocess.run(["umount", place], check=True, timeout=10)


def grow(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=5m", disk], check=True, timeout=10)


@pytest.mark.system
def test_a_full_disk_fails_commits_and_storing_goes_on_once_there_is_space(tiny_disk: Path) -> None:
    ballast = tiny_disk / "ballast"

    def change(number: int) -> Transaction:
        id = f"c{number}"
        return Transaction((container(id),), exits=(ended(id, at_ns=number),), events=(event(id),))

    async def fill(store: Store, number: int) -> int:
        while True:
            try:
                await store.commit(change(number))
            except StoreFailed as error:
                assert "SQLITE_FULL" in str(error) or "SQLITE_IOERR" in str(error)
                return number
            number += 1

    async def main() -> None:
        async with opened(tiny_disk / "exitd.db") as store:
            ballast.write_bytes(bytes(900_000))
            number = await fill(store, 0)
            for _ in range(3):
                with pytest.raises(StoreFailed):
                    await store.commit(change(number))
            assert [exit.at_ns for exit in await all_exits(store)] == list(range(number))
            assert len(await store.events_after(0, number + 9)) == number
            ballast.unlink()
            await store.commit(change(number))
            number = await fill(store, number + 1)
        # SQLite needs room to open a log that it could not empty, and an exitd that finds none does not start.
        await asyncio.to_thread(grow, tiny_disk)
        async with opened(tiny_disk / "exitd.db") as store:
            assert [exit.at_ns for exit in await all_exits(store)] == list(range(number))
            assert len(await store.load()) == len(await store.events_after(0, number + 9)) == number

    asyncio.run(main())
