import asyncio
import contextlib
import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.model.errors import NameTaken
from supervisor.model.execs import ExecPhase
from supervisor.model.taskfacts import Tombstone
from supervisor.model.values import Exited, RunKey, Source, Unknown
from supervisor.model.watched import Kind, Target
from supervisor.store import codec, salvage
from supervisor.store.codec import TOMBSTONE_OF
from supervisor.store.database import DAY_NS, AlreadyStored, Keep, Transaction
from supervisor.store.salvage import Remains
from tests.supervisor.stored import FOREVER, all_exits, container, ended, event, exec_of, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "exitd.db"


def test_what_was_committed_is_there_after_a_restart(path: Path) -> None:
    web, exit = container("c1", "web"), ended("c1", at_ns=5)

    async def main() -> None:
        async with opened(path) as store:
            assert (store.oldest_seq(), store.last_seq()) == (1, 0)
            events = await store.commit(Transaction((web,), exits=(exit,), events=(event("c1", 4), event("c1", 5))))
            assert events == (replace(event("c1", 4), seq=1), replace(event("c1", 5), seq=2))
        async with opened(path) as store:
            assert await store.load() == (web,)
            assert await store.exits() == [exit]
            assert await store.last_exit("c1", 1) == exit
            assert await store.last_exit("c1", 2) is None
            assert await store.events_after(0, 10) == list(events)
            assert await store.events_after(1, 10) == [events[1]]
            assert (store.oldest_seq(), store.last_seq()) == (1, 2)
            assert store.flush_seconds == 0.0

    asyncio.run(main())


def test_an_end_is_stored_once_and_a_second_witness_changes_nothing(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            await store.commit(Transaction((container("c1"),), exits=(ended("c1"),), events=(event("c1"),)))
            other = ended("c1", status=Unknown("late"), at_ns=9)
            with pytest.raises(AlreadyStored) as caught:
                await store.commit(Transaction((container("c1", "new"),), exits=(other,), events=(event("c1"),)))
            assert caught.value.key == RunKey("c1", 1)
            assert await store.exits() == [ended("c1")]
            assert [each.spec.name for each in await store.load()] == ["c1"]
            assert store.last_seq() == 1
            await store.commit(Transaction(exits=(ended("c1", exec_id="e1"), ended("c1", run=2))))
            assert len(await store.exits()) == 3

    asyncio.run(main())


def test_a_name_is_unique_in_its_namespace_and_can_pass_on_within_one_change(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            await store.commit(Transaction((container("c1", "web"), container("c2", "web", namespace="other"))))
            with pytest.raises(NameTaken, match="web"):
                await store.commit(Transaction((container("c3", "web"),), events=(event("c3"),)))
            await store.commit(Transaction((container("c3", "web"),), removed=("c1",)))
            assert [each.id for each in await store.load()] == ["c2", "c3"]
            await store.commit(Transaction((replace(container("c3", "web"), run=2),)))
            assert [each.run for each in await store.load()] == [1, 2]

    asyncio.run(main())


def test_the_ledger_is_read_in_pages_by_time_and_keeps_removed_containers(path: Path) -> None:
    exits = [
        ended(f"c{n % 5}", run=n, at_ns=n // 3, status=Unknown("lost") if n % 4 == 0 else Exited(0)) for n in range(90)
    ]

    async def main() -> None:
        async with opened(path) as store:
            await store.commit(Transaction((container("c1"),), exits=tuple(reversed(exits))))
            await store.commit(Transaction(removed=("c1",)))
            pages = [await store.exits(limit=20)]
            while page := await store.exits(limit=20, after=pages[-1][-1]):
                pages.append(page)
            assert [len(page) for page in pages] == [20, 20, 20, 20, 10]
            found = [exit for page in pages for exit in page]
            assert {exit.key for exit in found} == {exit.key for exit in exits}
            assert [exit.at_ns for exit in found] == sorted(exit.at_ns for exit in exits)
            assert await all_exits(store) == found
            assert await store.exits(since_ns=10) == [exit for exit in found if exit.at_ns >= 10]
            assert await store.exits(unknown=True) == [exit for exit in found if isinstance(exit.status, Unknown)]
            assert await store.exits(20, True, "c1") == [
                exit
                for exit in found
                if exit.at_ns >= 20 and isinstance(exit.status, Unknown) and exit.key.container == "c1"
            ]

    asyncio.run(main())


def test_compaction_by_number_keeps_the_newest_events_and_the_numbering(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            await store.commit(Transaction(events=tuple(event("c", n) for n in range(2500))))
            await store.compact(replace(FOREVER, events=100), now_ns=2500)
            assert (store.oldest_seq(), store.last_seq()) == (2401, 2500)
            assert [each.seq for each in await store.events_after(0, 1000)] == list(range(2401, 2501))
            await store.compact(replace(FOREVER, events=0), now_ns=2500)
            assert (store.oldest_seq(), store.last_seq()) == (2500, 2500)
        async with opened(path) as store:
            assert (store.oldest_seq(), store.last_seq()) == (2500, 2500)
            assert (await store.commit(Transaction(events=(event("c"),))))[0].seq == 2501

    asyncio.run(main())


def test_compaction_by_age_deletes_from_the_old_end_only_whatever_the_wall_clock_did(path: Path) -> None:
    days = (1, 2, 9, 3, 4, 10)  # the clock jumped to the ninth day and back

    async def main() -> None:
        async with opened(path) as store:
            await store.commit(Transaction(events=tuple(event("c", day * DAY_NS) for day in days)))
            assert await store.first_seq_since(8 * DAY_NS) == 3
            assert await store.first_seq_since(11 * DAY_NS) is None
            await store.compact(replace(FOREVER, events_age_ns=7 * DAY_NS), now_ns=11 * DAY_NS)
            assert [each.seq for each in await store.events_after(0, 9)] == [3, 4, 5, 6]
            await store.compact(replace(FOREVER, events_age_ns=7 * DAY_NS), now_ns=99 * DAY_NS)
            assert (store.oldest_seq(), store.last_seq()) == (6, 6)

    asyncio.run(main())


def test_compaction_of_an_empty_log_is_no_event(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            await store.compact(Keep(), now_ns=1)
            assert (store.oldest_seq(), store.last_seq()) == (1, 0)

    asyncio.run(main())


def test_compaction_of_the_ledger_never_forgets_an_end_of_a_container_that_exists(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            exits = [ended("gone", run=n, at_ns=n) for n in range(2500)] + [
                ended("here", run=n, at_ns=0) for n in (1, 2)
            ]
            await store.commit(Transaction((container("here"),), exits=tuple(exits)))
            await store.compact(replace(FOREVER, exits=102), now_ns=3000)
            left = await all_exits(store)
            assert [exit.key.run for exit in left if exit.key.container == "gone"] == list(range(2400, 2500))
            await store.compact(replace(FOREVER, exits_age_ns=510), now_ns=3000)
            assert [exit.key.run for exit in await all_exits(store)] == [1, 2, *range(2490, 2500)]
            with pytest.raises(AlreadyStored):
                await store.commit(Transaction(exits=(ended("here", run=1),)))

    asyncio.run(main())


def test_ends_of_execs_go_by_number_and_age_though_their_container_stays(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            exits = [ended("here", at_ns=n, exec_id=f"e{n:04}") for n in range(1500)]
            await store.commit(Transaction((container("here"),), exits=(*exits, ended("here", at_ns=1))))
            await store.compact(replace(FOREVER, exits=101), now_ns=3000)
            left = await all_exits(store)
            assert [exit.at_ns for exit in left if exit.key.exec_id] == list(range(1400, 1500))
            assert [exit.at_ns for exit in left if not exit.key.exec_id] == [1]
            await store.compact(replace(FOREVER, exits_age_ns=1510), now_ns=3000)
            assert [exit.at_ns for exit in await all_exits(store)] == [1, *range(1490, 1500)]

    asyncio.run(main())


def test_an_exec_has_a_row_until_its_end_is_stored_with_it(path: Path) -> None:
    async def main() -> None:
        one, two = exec_of("e1"), exec_of("e2")
        async with opened(path) as store:
            await store.commit(Transaction(execs=(one, two)))
            await store.commit(Transaction(execs=(replace(one, phase=ExecPhase.RUNNING),)))
            assert await store.load_execs() == ((replace(one, phase=ExecPhase.RUNNING), two), ())
            exit = ended("c1", exec_id="e1")
            await store.commit(Transaction(exits=(exit,), ended_execs=(one.key,)))
            with pytest.raises(AlreadyStored):
                await store.commit(Transaction(exits=(exit,), ended_execs=(two.key,)))
            assert await store.load_execs() == ((two,), ())
            assert await store.exec_exit("c1", "e1") == exit == await store.last_exit("c1", 1, "e1")
            assert (await store.exec_exit("c1", "e2"), await store.newest_exit("c1")) == (None, None)

    asyncio.run(main())


def test_commits_pass_a_compaction_and_the_file_gives_its_space_back(path: Path) -> None:
    async def compact() -> None:
        async with opened(path) as store:
            compaction = asyncio.create_task(store.compact(replace(FOREVER, events=10), now_ns=0))
            passed = 0
            while not compaction.done():
                await store.commit(Transaction(events=(event("c"),)))
                passed += 1
            await compaction
            assert passed > 5

    async def fill() -> None:
        async with opened(path) as store:
            for _ in range(10):
                await store.commit(Transaction(events=tuple(event("x" * 64, n) for n in range(2000))))

    asyncio.run(fill())
    full = path.stat().st_size
    asyncio.run(compact())
    assert path.stat().st_size < full / 10


DAMAGE = ("'{}'", "'x'", "x'ff00'", "CAST(x'7bff7d' AS TEXT)", "3", "'[' || body || ']'", "replace(body, 'c1', 'c9')")


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_row_that_cannot_be_read_costs_no_other_row(path: Path, damage: str) -> None:
    """Lines of the ledger and of the event log keep their places: readers page by them."""

    async def main() -> None:
        async with opened(path) as store:
            execs = (exec_of("e1"), exec_of("e2"))
            exits = (ended("c1", at_ns=5), ended("c2", at_ns=6))
            containers, watched = (container("c1"), container("c2")), Target(Kind.PID, "77")
            events = (event("c1", 5), event("c2", 6))
            await store.commit(Transaction(containers, exits=exits, execs=execs, events=events))
            await store.commit(Transaction(watching=tuple(codec.begun((watched, Target(Kind.PID, "78"))))))
            with contextlib.closing(sqlite3.connect(path)) as other, other:
                for table in ("containers WHERE id = 'c1'", "exits WHERE container = 'c1'", "events WHERE seq = 1"):
                    name, _, where = table.partition(" ")
                    other.execute(f"UPDATE {name} SET body = {damage} {where}")
                other.execute(f"UPDATE execs SET body = {damage.replace('c9', 'c1')} WHERE exec = 'e1'")
                other.execute("UPDATE watches SET body = 'x' WHERE target = '77'")
            whole, damaged = await store.load_containers()
            assert ([c.id for c in whole], [row.id for row in damaged]) == (["c2"], ["c1"])
            assert (damaged[0].name, damaged[0].namespace) == ("c1", "default")
            assert [target.where for target in await store.load_all(Target, "watches")] == ["78"]
            first, second = await store.exits()
            assert (first.key, first.at_ns, second) == (exits[0].key, 5, exits[1])
            assert (first.status, first.source) == (Unknown("row-damaged"), Source.NONE)
            assert (first.name, first.namespace, first.init) == ("", "", None)  # nobody's, not another's
            assert await store.last_exit("c1", 1) == first == await store.newest_exit("c1")
            assert [each async for page in store.exit_pages() for each in page] == [first, second]
            one, two = await store.events_after(0, 10)
            assert (one.seq, two) == (1, replace(events[1], seq=2))
            assert (one.type == "unreadable") is ("c9" not in damage)
            stored, bad = await store.load_execs()
            assert len(stored) + len(bad) == 2 and stored[-1] == execs[1]

    asyncio.run(main())


def test_a_tombstone_that_cannot_be_read_costs_no_other(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            stones = [Tombstone("k8s.io", f"t{n}", "", f"relay/1/{n}", 5, n, 6, "boot", n) for n in (1, 2)]
            await store.commit(Transaction(tombstones=tuple(stones)))
            with contextlib.closing(sqlite3.connect(path)) as other, other:
                other.execute("UPDATE tombstones SET body = '{\"name' WHERE stream = 1")
            assert await store.tombstones("relay = ?", "relay") == [stones[1]]
            assert await store.tombstones(TOMBSTONE_OF, "k8s.io", "t2", "") == [stones[1]]
            assert await store.tombstones(TOMBSTONE_OF, "k8s.io", "t1", "") == []

    asyncio.run(main())


def test_the_newest_run_of_which_there_is_an_event_is_found_in_the_event_log(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            started = [replace(event("c1", 1, "start"), attributes=(("run", str(n)),)) for n in (1, 3)]
            await store.commit(
                Transaction(events=(*started, event("c2"), replace(event("c1"), attributes=(("run", "x"),))))
            )
            assert [await store.newest_logged_run(id) for id in ("c1", "c2", "c3")] == [3, 1, 0]

    asyncio.run(main())


@pytest.mark.parametrize("column", ["name", "namespace"])
@pytest.mark.parametrize("raw", [b"other", b"\xff"])
@pytest.mark.parametrize("in_body", [False, True])
def test_a_name_that_is_not_the_body_s_or_no_utf8_is_damage(path: Path, column: str, raw: bytes, in_body: bool) -> None:
    """What was made of such a row can be stored."""

    async def main() -> None:
        async with opened(path) as store:
            await store.commit(Transaction((container("c1"), container("c2"))))
            said = json.dumps(raw.decode("utf-8", "surrogateescape"))
            with contextlib.closing(sqlite3.connect(path)) as other, other:
                other.execute(f"UPDATE containers SET {column} = CAST(? AS TEXT) WHERE id = 'c1'", (raw,))
                if in_body:
                    change = f"UPDATE containers SET body = json_set(body, '$.spec.{column}', json(?)) WHERE id = 'c1'"
                    other.execute(change, (said,))
            whole, damaged = await store.load_containers()
            if in_body and raw == b"other":
                assert damaged == ()
                return
            assert ([c.id for c in whole], [row.id for row in damaged]) == (["c2"], ["c1"])
            made = salvage.container(damaged[0], Remains(), "boot")
            await store.commit(Transaction((made,)))
            assert await store.load() == (made, *whole)

    asyncio.run(main())
