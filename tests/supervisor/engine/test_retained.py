"""Containers that removed themselves, found for a while by name and by the beginning of their id."""

from pathlib import Path

from supervisor.model.values import BootTime, Retained
from supervisor.store.database import Keep, Store, Transaction
from tests.supervisor.fakes import in_loop
from tests.supervisor.stored import ended

SECOND = 10**9
A, B = "a1" * 32, "b2" * 32


def at(seconds: int, boot: str = "boot") -> BootTime:
    return BootTime(boot, seconds * SECOND)


def one(container: str, name: str, when: BootTime, namespace: str = "default") -> Retained:
    return Retained(container, namespace, name, when)


async def found(store: Store, reference: str, since: BootTime) -> list[str]:
    return [each.container for each in await store.retained(reference, since)]


@in_loop
async def test_they_are_found_newest_first_and_only_of_this_boot(tmp_path: Path) -> None:
    store = Store(tmp_path / "db")
    await store.commit(Transaction(retained=(one(A, "web", at(100)), one(B, "web", at(200)))))
    assert await found(store, "web", at(50)) == [B, A]
    assert await found(store, "web", at(150)) == [B]
    assert await found(store, "a1a1", at(50)) == [A]
    assert await found(store, "w", at(50)) == []
    assert await found(store, "web", at(50, "another boot")) == []
    assert await store.close(60)


@in_loop
async def test_names_of_other_namespaces_are_not_meant(tmp_path: Path) -> None:
    store = Store(tmp_path / "db")
    await store.commit(Transaction(retained=(one(A, "web", at(100), "other"),)))
    assert await found(store, "web", at(50)) == []
    assert await found(store, A, at(50)) == [A]
    assert await store.close(60)


@in_loop
async def test_they_outlive_the_daemon_and_go_when_nobody_can_ask_any_more(tmp_path: Path) -> None:
    store = Store(tmp_path / "db")
    await store.commit(Transaction(retained=(one(A, "old", at(100)),)))
    assert await store.close(60)
    store = Store(tmp_path / "db")
    assert await found(store, "old", at(50)) == [A]
    await store.commit(Transaction(retained=(one(B, "new", at(101)),)))
    await store.forget_retained(at(101))
    assert (await found(store, "old", at(0)), await found(store, "new", at(0))) == ([], [B])
    await store.forget_retained(at(1, "next boot"))
    assert await found(store, "new", at(0)) == []
    assert await store.close(60)


@in_loop
async def test_the_exits_that_names_lead_to_are_not_compacted_away(tmp_path: Path) -> None:
    store = Store(tmp_path / "db")
    nothing = Keep(events=1, events_age_ns=1, exits=0, exits_age_ns=1)
    await store.commit(Transaction(exits=(ended(A), ended(B)), retained=(one(A, "web", at(100)),)))
    await store.compact(nothing, 10**9)
    assert [each.key.container for each in await store.exits()] == [A]
    await store.forget_retained(at(101))
    await store.compact(nothing, 10**9)
    assert await store.exits() == []
    assert await store.close(60)


@in_loop
async def test_the_newest_end_is_found_however_many_there_were(tmp_path: Path) -> None:
    store = Store(tmp_path / "db")
    await store.commit(Transaction(exits=tuple(ended(A, run, at_ns=9_999 - run) for run in range(1, 1200))))
    await store.commit(Transaction(exits=(ended(A, 5000, exec_id="probe"),)))
    newest = await store.newest_exit(A)
    assert newest is not None and newest.key.run == 1199
    assert await store.newest_exit(B) is None
    assert await store.close(60)
