import _sqlite3
import asyncio
import contextlib
import ctypes
import sqlite3
from pathlib import Path

import pytest

from shim.frozen import replace
from supervisor.model.errors import CannotStart
from supervisor.model.values import BootTime, Retained
from supervisor.store import codec, schema
from supervisor.store.database import Store, Transaction
from tests.supervisor.stored import ended, event, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "exitd.db"


def test_the_file_is_for_its_owner_alone(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            await store.commit(Transaction(events=(event("c"),)))
            assert {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {
                "exitd.db": 0o600,
                "exitd.db-wal": 0o600,
                "exitd.db-shm": 0o600,
                "exitd.ring": 0o600,
            }

    asyncio.run(main())


def refuse(path: Path) -> str:
    before = path.read_bytes()
    with pytest.raises(CannotStart) as caught:
        Store(path)
    assert path.read_bytes() == before
    assert str(path) in str(caught.value)
    assert not Path(f"{path}-wal").exists() or Path(f"{path}-wal").stat().st_size == 0
    return str(caught.value)


def write_some(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            await store.commit(Transaction(events=tuple(event("c" * 64) for _ in range(500)), exits=(ended("c"),)))

    asyncio.run(main())


def test_a_database_of_a_newer_version_is_refused_and_left_as_it_is(path: Path) -> None:
    write_some(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version={schema.VERSION + 1}")
    assert "newer exitd" in refuse(path)


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(path: Path) -> None:
    path.write_bytes(b"this is not a database, but it may be dear to somebody\n" * 100)
    assert "SQLITE_NOTADB" in refuse(path)


def test_a_damaged_database_is_refused_and_left_as_it_is(path: Path) -> None:
    write_some(path)
    data = bytearray(path.read_bytes())
    for start in range(4096 * 2, len(data), 4096):
        data[start : start + 16] = b"\xaa" * 16
    path.write_bytes(data)
    assert "damaged" in refuse(path)


def test_a_truncated_database_is_refused_and_left_as_it_is(path: Path) -> None:
    write_some(path)
    path.write_bytes(path.read_bytes()[: 4096 * 3])
    assert "damaged" in refuse(path)


def test_another_programs_database_is_refused_and_left_as_it_is(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    assert "not exitd's" in refuse(path)


def test_a_place_where_no_file_can_be_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing" / "exitd.db", tmp_path):
        with pytest.raises(CannotStart, match="cannot be opened"):
            Store(path)


def test_a_database_of_every_older_version_is_brought_up_to_date_with_all_that_is_in_it(path: Path) -> None:
    async def main(version: int, file: Path) -> None:
        with contextlib.closing(sqlite3.connect(file)) as old:
            for script in schema.MIGRATIONS[:version]:
                old.executescript(script)
            old.execute("INSERT INTO exits VALUES (?, ?, ?, ?, ?, ?)", codec.exit_row(ended("c")))
            old.execute(f"PRAGMA application_id={schema.APPLICATION_ID}")
            old.execute(f"PRAGMA user_version={version}")
            old.commit()
        async with opened(file) as store:
            assert await store.exits() == [ended("c")]
            gone = Retained("c", "default", "web", BootTime("boot", 5))
            await store.commit(Transaction(events=(event("c"),), retained=(gone,)))
            assert await store.retained("web", BootTime("boot", 1)) == [gone]

    for version in range(1, schema.VERSION):
        asyncio.run(main(version, path.with_name(f"{version}.db")))


def test_an_empty_file_is_a_new_database(path: Path) -> None:
    path.touch()
    write_some(path)


def _sqlites_bytes() -> int:
    """What SQLite has of this process's memory, with all connections."""
    used = ctypes.CDLL(_sqlite3.__file__).sqlite3_memory_used
    used.restype = ctypes.c_int64
    return int(used())


def test_a_large_database_is_written_and_read_with_little_memory(path: Path) -> None:
    """SQLite's own limit is 2 MB for each of the two connections."""

    async def main() -> None:
        async with opened(path) as store:
            before = _sqlites_bytes()
            large = replace(event("c"), attributes=(("text", "x" * 3000),))
            for _ in range(20):
                await store.commit(Transaction(events=(large,) * 100))
            assert len(await store.events_after(0, 2000)) == 2000
            assert _sqlites_bytes() - before < 2 << 20

    asyncio.run(main())
    assert path.stat().st_size > 6 << 20
