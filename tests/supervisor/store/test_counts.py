"""Counters: one for each end that the ledger has ever taken, whatever becomes of exitd and of the ledger."""

import asyncio
import contextlib
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.model.values import (
    Container,
    Exit,
    MemoryKills,
    Names,
    Oom,
    Phase,
    Reason,
    RunKey,
    Signaled,
    Source,
    Unknown,
)
from supervisor.store import codec, counts, ringends, schema
from supervisor.store.counts import Count
from supervisor.store.database import AlreadyStored, Keep, Store, Transaction
from tests.supervisor.store.test_ringends import end_of, run_of
from tests.supervisor.stored import all_exits, container, ended, event, opened, written

WEB = Names("shop", "web-0", "app", "img:1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "exitd.db"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No flush is slow, whatever else this machine does."""
    monkeypatch.setattr(ringends, "SLOW_SECONDS", 60.0)


def values(found: list[Count], name: str) -> dict[tuple[str, ...], int]:
    return {each.words: each.value for each in found if each.name == name}


async def exits_counted(store: Store) -> int:
    return sum(values(await store.counts(), counts.EXITS).values())


def killed(id: str, kills: int, run: int = 1, names: Names = WEB) -> Exit:
    return replace(ended(id, run, status=Signaled(9)), reason=Reason.OOM, oom=Oom(True, kills, 1), names=names)


def test_ends_are_counted_by_what_they_were() -> None:
    assert counts.class_of(ended("c")).words == ("container", "exited", "self", "record", "", "ended")
    watched = replace(ended("1@pid", status=Unknown("watcher-away")), decision="", source=Source.NONE)
    assert counts.class_of(watched).words == ("watched", "unknown", "self", "none", "watcher-away", "ended")
    assert counts.class_of(ended("c", exec_id="e")).what == "exec"


@given(st.text())
def test_a_cause_that_is_a_sentence_makes_no_counter_of_its_own(text: str) -> None:
    cause = counts.class_of(ended("c", status=Unknown(text))).cause
    assert cause == text if counts.CAUSE.fullmatch(text) else cause == "other"


def test_an_end_is_counted_once_however_often_it_is_reported(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            await store.commit(Transaction(exits=(ended("c"),)))
            with pytest.raises(AlreadyStored):
                await store.commit(Transaction(exits=(ended("d"), ended("c"))))
            assert [exit.key.container for exit in await all_exits(store)] == ["c"]
            assert await exits_counted(store) == 1
        async with opened(path) as store:
            assert await exits_counted(store) == 1

    asyncio.run(main())


def test_ends_of_the_ring_are_counted_before_and_after_the_database_has_them(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            ones = [await run_of(store, f"c{number}") for number in range(3)]
            await store.commit(Transaction(exits=(ended("c9"),)))
            await written(store, *map(end_of, ones[:2]))
            before = await store.counts()
            assert values(before, counts.EXITS) == {("container", "exited", "self", "record", "", "ended"): 3}
            await store.take_over_ends()
            assert sorted(await store.counts(), key=str) == sorted(before, key=str)
            await written(store, end_of(ones[2]))
        async with opened(path) as store:
            assert await exits_counted(store) == 4

    asyncio.run(main())


def test_an_end_that_the_database_has_from_elsewhere_is_not_counted_for_the_ring_too(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            before, after, exit, events = end_of(await run_of(store, "c1"))
            await written(store, (before, after, exit, events))
            await store.commit(Transaction((after,), exits=(exit,), events=events))
            assert await exits_counted(store) == 1
            await store.take_over_ends()
            assert await exits_counted(store) == 1

    asyncio.run(main())


def test_an_end_that_the_database_has_had_and_pruned_is_not_counted_again(path: Path) -> None:
    """It was taken over, and the loop does not know that yet."""

    async def main() -> None:
        async with opened(path) as store:
            step = end_of(await run_of(store, "c"))
            await written(store, step)
            ((exit, block),) = store._ring_ends.blocks()
            await store.take_over_ends()
            await store.commit(Transaction(removed=("c",)))
            await store.compact(Keep(exits=0), now_ns=0)
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                found = ringends.counted([(exit, block)], other)
            assert await all_exits(store) == [] and sum(values(found, counts.EXITS).values()) == 1

    asyncio.run(main())


def test_a_memory_kill_is_counted_when_it_is_reported_and_not_again_with_the_end(path: Path) -> None:
    kills = MemoryKills(RunKey("c", 1), 2, WEB, 7)

    async def main() -> None:
        async with opened(path) as store:
            await store.commit(Transaction((container("c"),), memory_kills=(kills,)))
            await store.commit(Transaction(memory_kills=(kills,)))  # once more, as after a commit that seemed to fail
            assert values(await store.counts(), counts.KILLS) == {("shop", "web-0", "app"): 2}
        async with opened(path) as store:
            await store.commit(Transaction(memory_kills=(replace(kills, kills=3),)))
            await store.commit(Transaction(exits=(killed("c", 4),)))
            found = await store.counts()
            assert values(found, counts.KILLS) == {("shop", "web-0", "app"): 4}
            assert values(found, counts.NODE_KILLS) == {("container",): 4}
            await store.commit(Transaction(exits=(killed("c", 1, run=2), killed("d@x", 5, names=Names()))))
            found = await store.counts()
            assert values(found, counts.KILLS) == {("shop", "web-0", "app"): 5, ("default", "", "d@x"): 5}
            assert values(found, counts.NODE_KILLS) == {("container",): 5, ("watched",): 5}
            with closing(sqlite3.connect(path)) as other:
                assert other.execute("SELECT count(*) FROM memory_told").fetchone() == (0,)

    asyncio.run(main())


def test_the_memory_kills_of_an_end_in_the_ring_are_those_that_were_not_counted_yet(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            before, after, exit, events = end_of(await run_of(store, "c"))
            await store.commit(Transaction(memory_kills=(MemoryKills(RunKey("c", 1), 2, WEB, 7),)))
            killed_ = replace(exit, oom=Oom(True, 3), names=WEB)
            await written(store, (before, replace(after, exit=killed_), killed_, events))
            for _ in range(2):
                assert values(await store.counts(), counts.KILLS) == {("shop", "web-0", "app"): 3}
                await store.take_over_ends()

    asyncio.run(main())


def test_a_memory_kill_during_an_exec_is_its_containers(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            exec_ = replace(ended("c", exec_id="e", status=Signaled(9)), oom=Oom(True, 1))
            await store.commit(Transaction(exits=(exec_, killed("c", 1))))
            assert values(await store.counts(), counts.NODE_KILLS) == {("container",): 1}
            assert values(await store.counts(), counts.NAMED) == {("shop", "web-0", "app", "img:1", "oom"): 1}

    asyncio.run(main())


def test_pruning_the_ledger_takes_no_end_from_the_counters(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            ends = tuple(ended(f"c{number}") for number in range(9))
            await store.commit(Transaction(exits=ends, events=(event("c"),)))
            await store.compact(Keep(events=1, exits=2), now_ns=0)
            assert len(await all_exits(store)) == 2 and await exits_counted(store) == 9

    asyncio.run(main())


def test_series_of_single_containers_go_by_age_and_number_and_the_totals_stay(path: Path) -> None:
    ends = [replace(killed(f"c{at}", 1, names=Names("n", "p", f"c{at}")), at_ns=at) for at in range(10)]

    async def main() -> None:
        async with opened(path) as store:
            await store.commit(Transaction((container("c"),), exits=tuple(ends), events=(event("c"),)))
            await store.commit(Transaction(memory_kills=(MemoryKills(RunKey("c", 1), 1, WEB, 100),)))
            await store.commit(Transaction(memory_kills=(MemoryKills(RunKey("gone", 1), 1, Names("n", "p", "c0"), 0),)))
            await store.compact(Keep(series=100, series_age_ns=10), now_ns=13)
            assert len(values(await store.counts(), counts.NAMED)) == 7
            assert len(values(await store.counts(), counts.KILLS)) == 8
            await store.compact(Keep(series=2, series_age_ns=10), now_ns=13)
            found = await store.counts()
            assert {words[2] for words in values(found, counts.NAMED)} == {"c8", "c9"}
            assert {words[2] for words in values(found, counts.KILLS)} == {"app", "c9"}
            assert sum(values(found, counts.NODE_KILLS).values()) == 12
            assert sum(values(found, counts.EXITS).values()) == 10
            with closing(sqlite3.connect(path)) as other:
                assert other.execute("SELECT container FROM memory_told").fetchall() == [("c",)]

    asyncio.run(main())


def test_a_counter_of_its_own_outlives_the_daemon(path: Path) -> None:
    async def main() -> None:
        for number in range(1, 3):
            async with opened(path) as store:
                await store.count(counts.SHIM_DEATHS, 5)
                assert values(await store.counts(), counts.SHIM_DEATHS) == {(): number}

    asyncio.run(main())


def test_a_row_that_cannot_be_read_costs_its_own_counter(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            await store.commit(Transaction(exits=(ended("c"),)))
            with closing(sqlite3.connect(path)) as other, other:
                for words in ("x", "{}", "[1]", '"a"'):
                    other.execute("INSERT INTO counts VALUES ('exits', ?, 5, 0)", (words,))
                other.execute("INSERT INTO counts VALUES ('exits', '[\"a\"]', 'many', 0)")
            assert await exits_counted(store) == 1

    asyncio.run(main())


def test_a_database_from_before_the_counters_has_its_ledger_counted_once(path: Path) -> None:
    rows = [ended("c"), ended("c", 2, status=Unknown("monitors-killed")), ended("c", exec_id="e"), killed("d", 3)]
    with closing(sqlite3.connect(path)) as old:
        for script in schema.MIGRATIONS[:8]:
            old.executescript(script)
        for exit in rows:
            old.execute("INSERT INTO exits VALUES (?, ?, ?, ?, ?, ?)", codec.exit_row(exit))
        old.execute("INSERT INTO exits VALUES ('damaged', 1, '', 5, 0, X'ff7b')")
        old.execute("INSERT INTO exits VALUES ('odd', 'x', '', 5, 0, 'x')")  # put aside: the ledger does not show it
        old.execute(f"PRAGMA application_id={schema.APPLICATION_ID}")
        old.execute("PRAGMA user_version=8")
        old.commit()

    async def main() -> None:
        for _ in range(2):
            async with opened(path) as store:
                found = await store.counts()
                shown = Counter(counts.class_of(exit).words for exit in await all_exits(store))
                assert values(found, counts.EXITS) == shown and shown.total() == 5
                assert values(found, counts.NODE_KILLS) == {("container",): 3}
                assert values(found, counts.KILLS) == {("shop", "web-0", "app"): 3}

    asyncio.run(main())


def test_of_a_large_ledger_the_newest_single_containers_are_counted_and_all_in_the_totals(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "MOST_FILLED", 2)
    with closing(sqlite3.connect(path)) as old:
        for script in schema.MIGRATIONS[:8]:
            old.executescript(script)
        for at in range(5):
            old.execute("INSERT INTO exits VALUES (?, ?, ?, ?, ?, ?)", codec.exit_row(ended(f"c{at}", at_ns=at)))
        old.execute(f"PRAGMA application_id={schema.APPLICATION_ID}")
        old.execute("PRAGMA user_version=8")
        old.commit()

    async def main() -> None:
        async with opened(path) as store:
            found = await store.counts()
            assert {words[2] for words in values(found, counts.NAMED)} == {"c3", "c4"}
            assert sum(values(found, counts.EXITS).values()) == 5

    asyncio.run(main())


# -- whatever happens, in whatever order

STEP = st.sampled_from(["commit", "again", "ring", "take over", "exec", "prune", "kill", "restart"])
STEPS = st.lists(STEP, max_size=16)


class Life:
    """A store, and what it has been given. A kill leaves its files as they are at that moment."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._copies = 0
        self.path = base / "0" / "exitd.db"
        self.path.parent.mkdir()
        self.store = Store(self.path)
        self.given: list[Exit] = []
        self.runs: list[Container] = []

    async def step(self, name: str) -> None:
        id = f"c{len(self.given)}"
        if name == "commit":
            self.given.append(ended(id))
            await self.store.commit(Transaction(exits=(self.given[-1],), events=(event(id),)))
        elif name == "exec":
            self.given.append(ended(id, exec_id="e"))
            await self.store.commit(Transaction(exits=(self.given[-1],)))
        elif name == "again" and self.given:
            gone = self.given[0].key not in {exit.key for exit in await all_exits(self.store)}
            if not gone:  # the database refuses it, or has it before the ring brings it
                with contextlib.suppress(AlreadyStored):
                    await self.store.commit(Transaction(exits=(self.given[0],)))
        elif name == "ring":
            step = end_of(await run_of(self.store, id))
            assert await written(self.store, step) is not None
            self.given.append(step[2])
        elif name == "take over":
            await self.store.take_over_ends()
        elif name == "prune":
            gone_ids = tuple(c.id for c in await self.store.load() if c.phase is Phase.EXITED)
            await self.store.commit(Transaction(removed=gone_ids))
            await self.store.compact(Keep(events=1, exits=1, series=1), now_ns=0)
        elif name == "kill":
            await self._leave_files()
        elif name == "restart":
            assert await self.store.close(60)
            self.store = Store(self.path)

    async def _leave_files(self) -> None:
        self._copies += 1
        place = self._base / str(self._copies)
        shutil.copytree(self.path.parent, place)
        await self.store.close()
        self.path = place / "exitd.db"
        self.store = Store(self.path)


@settings(max_examples=15)
@given(STEPS)
def test_whatever_happens_there_are_as_many_ends_counted_as_were_ever_stored(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    async def main() -> None:
        life = Life(tmp_path_factory.mktemp("life"))
        for step in steps:
            await life.step(step)
            found = await life.store.counts()
            expected = Counter(counts.class_of(exit).words for exit in life.given)
            assert values(found, counts.EXITS) == expected, step
        assert await life.store.close(60)

    asyncio.run(main())
