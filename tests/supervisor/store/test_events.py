import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest

from supervisor.model import filters
from supervisor.model.errors import BadRequest, Compacted
from supervisor.model.taskfacts import Notice
from supervisor.model.values import Event
from supervisor.store.database import AlreadyStored, Keep, Store, Transaction
from supervisor.store.events import Bookmark, EventLog, Item, Lost
from tests.supervisor.store.slowdisk import SlowDisk
from tests.supervisor.store.test_ringends import end_of
from tests.supervisor.stored import container, ended

FOREVER = Keep(events=10**9, events_age_ns=10**18, exits=10**9, exits_age_ns=10**18)
ONLY_B = filters.parse(("id=b",), filters.EVENT_KEYS)


class FakeClock:
    def __init__(self) -> None:
        self.now = 0

    def now_ns(self) -> int:
        return self.now

    def boottime_ns(self) -> int:
        return self.now

    def boot_id(self) -> str:
        return "boot"


class World:
    """A store, the log before it, and a clock that stands still."""

    def __init__(self, path: Path, ring: int, idle_seconds: float, gap_seconds: float) -> None:
        self.clock = FakeClock()
        self.store = Store(path)
        self.log = EventLog(self.store, self.clock, ring=ring, idle_seconds=idle_seconds, gap_seconds=gap_seconds)

    async def stored(self, ids: str) -> tuple[Event, ...]:
        """One stored event per letter, not yet published; its time is its number."""
        first = self.store.last_seq() + 1
        events = (Event("exit", id, id, "default", first + n) for n, id in enumerate(ids))
        return await self.store.commit(Transaction(events=tuple(events)))

    async def happens(self, ids: str) -> tuple[Event, ...]:
        events = await self.stored(ids)
        self.log.publish(events)
        return events


@contextlib.asynccontextmanager
async def opened(path: Path, ring: int = 16, idle_seconds: float = 60, gap_seconds: float = 60) -> AsyncIterator[World]:
    world = World(path, ring, idle_seconds, gap_seconds)
    try:
        yield world
    finally:
        world.log.close()
        await world.store.close()


async def take(stream: AsyncGenerator[Item, None], count: int) -> list[Item]:
    async with asyncio.timeout(60):
        return [await anext(stream) for _ in range(count)]


async def rest(stream: AsyncGenerator[Item, None]) -> list[Item]:
    async with asyncio.timeout(60):
        return [item async for item in stream]


def seqs(items: list[Item]) -> list[int | Item]:
    return [item.seq if isinstance(item, Event) else item for item in items]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "exitd.db"


def test_a_subscriber_sees_what_happens_after_it_came_in_order(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as world:
            await world.happens("ab")
            stream = await world.log.subscribe()
            later = await world.happens("cde")
            assert await take(stream, 3) == list(later)
            waiting = asyncio.create_task(take(stream, 1))
            await asyncio.sleep(0)
            assert await world.happens("f") == tuple(await waiting)
            await stream.aclose()
            assert world.log.subscribers == 0

    asyncio.run(main())


def test_a_subscriber_far_behind_is_served_from_the_store_and_catches_up_with_the_ring(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as world:
            await world.happens("x" * 1200)
            stream = await world.log.subscribe(1)
            assert seqs(await take(stream, 3)) == [1, 2, 3]
            await world.happens("y" * 10)
            assert seqs(await take(stream, 1207)) == list(range(4, 1211))

    asyncio.run(main())


def test_after_a_restart_a_subscriber_goes_on_where_it_was(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as world:
            await world.happens("abcdef")
        async with opened(path) as world:
            stream = await world.log.subscribe(4)
            await world.happens("gh")
            assert seqs(await take(stream, 5)) == [4, 5, 6, 7, 8]

    asyncio.run(main())


def test_events_acknowledged_out_of_order_are_published_in_order(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as world:
            stream = await world.log.subscribe()
            first, second, third = [await world.stored(ids) for ids in ("ab", "c", "de")]
            world.log.publish(third)
            world.log.publish(second)
            assert world.log.last_seq == 0
            world.log.publish(first)
            world.log.publish(second)
            assert world.log.last_seq == 5
            assert await take(stream, 5) == [*first, *second, *third]

    asyncio.run(main())


def test_an_event_whose_publisher_was_cancelled_is_read_from_the_store(path: Path) -> None:
    async def main() -> None:
        async with opened(path, gap_seconds=0.01) as world:
            stream = await world.log.subscribe()
            lost = await world.stored("a")
            later = await world.happens("b")
            assert await take(stream, 2) == [*lost, *later]

    asyncio.run(main())


def test_an_event_on_its_way_into_the_ring_is_waited_for_however_slow_the_disk_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later ones are in the database by then. Else nobody would get it."""

    async def main() -> None:
        async with opened(path, gap_seconds=0.01) as world:
            stream = await world.log.subscribe()
            with SlowDisk(monkeypatch) as disk:
                writing = world.store.write_ends([end_of(container("c1"))])
                assert writing is not None and not writing.done()
                later = await world.happens("b")
                await asyncio.sleep(0.1)
                assert world.log.last_seq == 0
                assert await world.store.first_seq_since(5) == 1  # the time of its end
                disk.go()
                numbered = await writing
            assert numbered is not None
            world.log.publish(numbered)
            assert await take(stream, 3) == [*numbered, *later]

    asyncio.run(main())


def test_the_newest_event_is_not_lost_either_when_its_publisher_was_cancelled(path: Path) -> None:
    async def main() -> None:
        async with opened(path, idle_seconds=0.01, gap_seconds=0.01) as world:
            stream = await world.log.subscribe()
            lost = await world.stored("a")
            items = [item for item in await take(stream, 1) if isinstance(item, Event)]
            while not items:
                items = [item for item in await take(stream, 1) if isinstance(item, Event)]
            assert items == list(lost)

    asyncio.run(main())


def test_a_beginning_that_is_no_longer_kept_is_refused_with_the_oldest_that_is(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as world:
            await world.happens("x" * 100)
            await world.store.compact(Keep(events=40), now_ns=0)
            with pytest.raises(Compacted) as caught:
                await world.log.subscribe(60)
            assert caught.value.metadata == {"oldest": "61", "newest": "100"}
            assert seqs(await rest(await world.log.subscribe(61, follow=False))) == list(range(61, 101))
            assert seqs(await rest(await world.log.subscribe(0, follow=False))) == list(range(61, 101))

    asyncio.run(main())


def test_what_is_about_no_task_is_passed_by_unread_and_what_cannot_be_read_is_not(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as world:
            await world.happens("abcde")
            assert [await world.log.before_tasks(seq) for seq in (0, 3, 5, 9)] == [5, 5, 5, 9]
            about = Event("exit", "t", "t", "default", 6, task=Notice("/run/containerd.ttrpc"))
            world.log.publish(await world.store.commit(Transaction(events=(about,))))
            await world.happens("fg")
            assert [await world.log.before_tasks(seq) for seq in (0, 5, 6)] == [5, 5, 8]
            await world.stored("h")  # and not published yet
            assert await world.log.before_tasks(6) == 8
            with sqlite3.connect(path) as other:
                other.execute("UPDATE events SET body = '{' WHERE seq = 3")
            assert await world.log.before_tasks(0) == 2
            await world.store.compact(Keep(events=4), now_ns=0)
            assert await world.log.before_tasks(0) == 0  # a reader says what is lost

    asyncio.run(main())


def test_a_beginning_that_never_was_is_refused_and_the_next_number_is_none_such(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as world:
            await world.happens("abc")
            with pytest.raises(BadRequest):
                await world.log.subscribe(5)
            stream = await world.log.subscribe(4)
            assert await world.happens("d") == tuple(await take(stream, 1))

    asyncio.run(main())


def test_a_subscriber_overrun_by_compaction_is_told_what_it_lost_and_goes_on(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as world:
            await world.happens("x" * 1000)
            stream = await world.log.subscribe(1)
            assert seqs(await take(stream, 2)) == [1, 2]  # the first 500 have been read by now
            await world.store.compact(Keep(events=100), now_ns=0)
            items = await take(stream, 498)
            assert seqs(items) == list(range(3, 501))
            assert seqs(await take(stream, 101)) == [Lost(501, 900), *range(901, 1001)]

    asyncio.run(main())


def test_a_subscriber_that_lost_everything_up_to_now_is_told_so(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as world:
            await world.happens("x" * 600)
            stream = await world.log.subscribe(1, follow=False)
            await take(stream, 500)
            await world.stored("y" * 50)  # not yet published, and soon the only one that is left
            await world.store.compact(Keep(events=1), now_ns=0)
            assert await rest(stream) == [Lost(501, 600)]

    asyncio.run(main())


def test_without_following_it_ends_at_the_newest_event_of_that_moment(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as world:
            await world.happens("abab")
            everything = await world.log.subscribe(follow=False)
            some = await world.log.subscribe(filter=ONLY_B, follow=False)
            few = await world.log.subscribe(3, ONLY_B, follow=False)
            await world.happens("ba")
            assert seqs(await rest(everything)) == [1, 2, 3, 4]
            assert seqs(await rest(some)) == [2, 4]
            assert seqs(await rest(few)) == [4]
            await world.happens("aa")
            assert seqs(await rest(await world.log.subscribe(6, ONLY_B, follow=False))) == [Bookmark(8)]
            assert await rest(await world.log.subscribe(9, follow=False)) == []

    asyncio.run(main())


def test_an_empty_log_ends_at_once_when_not_followed(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as world:
            assert await rest(await world.log.subscribe(follow=False)) == []
            assert await rest(await world.log.subscribe(0, follow=False)) == []

    asyncio.run(main())


def test_a_time_span_is_honoured_at_both_ends_and_ends_the_stream(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as world:
            await world.happens("abcdef")  # times are 1 to 6
            world.clock.now = 100
            assert seqs(await rest(await world.log.subscribe(since_ns=3, until_ns=5))) == [3, 4, 5, Bookmark(6)]
            assert seqs(await rest(await world.log.subscribe(since_ns=5, follow=False))) == [5, 6]
            assert await rest(await world.log.subscribe(since_ns=50, follow=False)) == []
            assert seqs(await rest(await world.log.subscribe(2, until_ns=2))) == [2, Bookmark(6)]

    asyncio.run(main())


def test_a_stream_until_a_time_to_come_follows_until_then(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as world:
            stream = await world.log.subscribe(until_ns=20_000_000)
            await world.happens("a")
            assert seqs(await take(stream, 1)) == [1]
            world.clock.now = 20_000_001
            assert await rest(stream) == []

    asyncio.run(main())


def test_filtered_events_move_the_bookmark(path: Path) -> None:
    async def main() -> None:
        async with opened(path, idle_seconds=0.01) as world:
            stream = await world.log.subscribe(1, ONLY_B)
            await world.happens("aab" + "a" * 2500)
            items = seqs(await take(stream, 3))
            assert items == [3, Bookmark(1003), Bookmark(2003)]
            assert await take(stream, 2) == [Bookmark(2503), Bookmark(2503)]  # at each idle interval, as a sign of life

    asyncio.run(main())


def test_closing_ends_every_subscription_after_what_was_published(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as world:
            behind = await world.log.subscribe(0)
            waiting = asyncio.create_task(rest(await world.log.subscribe()))
            await asyncio.sleep(0)
            events = await world.happens("abc")
            world.log.close()
            assert await waiting == list(events)
            assert await rest(behind) == list(events)
            assert world.log.subscribers == 0

    asyncio.run(main())


def test_a_cancelled_reader_leaves_nothing_behind(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as world:
            tasks = [asyncio.create_task(rest(await world.log.subscribe())) for _ in range(10)]
            await asyncio.sleep(0)
            assert world.log.subscribers == 10
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert world.log.subscribers == 0

    asyncio.run(main())


def test_a_thousand_subscribers_at_their_own_pace_all_see_everything(path: Path) -> None:
    async def main() -> None:
        async with opened(path, ring=64) as world:
            readers = [
                asyncio.create_task(take(await world.log.subscribe(0, ONLY_B if n % 2 else filters.EVERYTHING), 60))
                for n in range(1000)
            ]
            published: list[Event] = []
            for _ in range(60):
                published += await world.happens("ab")
            for n, reader in enumerate(readers):
                expected = [event for event in published if event.id == "b"] if n % 2 else published[:60]
                assert await reader == expected

    asyncio.run(main())


def test_a_reader_that_does_not_read_holds_nothing_back(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as world:
            lazy = await world.log.subscribe(0)
            await take(lazy, 0)
            quick = await world.log.subscribe(0)
            for _ in range(20):
                await world.happens("x" * 100)
            assert seqs(await take(quick, 2000)) == list(range(1, 2001))
            assert seqs(await take(lazy, 2000)) == list(range(1, 2001))

    asyncio.run(main())


async def fails(world: World, count: int) -> None:
    """So many transactions, of an event each, whose exit the ledger has."""
    for _ in range(count):
        with pytest.raises(AlreadyStored):
            await world.store.commit(Transaction(exits=(ended("c"),), events=(Event("exit", "c", "c", "default", 1),)))


def test_a_number_whose_event_was_not_stored_is_no_gap_and_nothing_lost(path: Path) -> None:
    async def main() -> None:
        async with opened(path, ring=4) as world:
            await world.store.commit(Transaction(exits=(ended("c"),)))
            stream = await world.log.subscribe()
            await world.happens("a")
            await fails(world, 3)
            await world.happens("b")
            await fails(world, 2)
            await world.happens("cd")
            assert seqs(await take(stream, 4)) == [1, 5, 8, 9]
            behind = await world.log.subscribe(0, follow=False)
            assert seqs(await rest(behind)) == [1, 5, 8, 9]
            await world.happens("efghi")  # the ring has no longer all of them
            assert seqs(await rest(await world.log.subscribe(2, follow=False))) == [5, 8, 9, 10, 11, 12, 13, 14]

    asyncio.run(main())


def test_nobody_learns_of_a_void_number_before_there_is_an_event_behind_it(path: Path) -> None:
    """The next daemon may give it."""

    async def main() -> None:
        async with opened(path, idle_seconds=0.02) as world:
            await world.store.commit(Transaction(exits=(ended("c"),)))
            stream = await world.log.subscribe()
            await world.happens("a")
            await fails(world, 3)
            world.log.publish(())
            assert seqs(await take(stream, 2)) == [1, Bookmark(1)]
            assert world.log.last_seq == 1
        async with opened(path) as world:
            assert seqs(list(await world.happens("b"))) == [2]

    asyncio.run(main())


def test_an_eager_reader_gets_an_event_in_the_moment_of_its_publication(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as world:
            given: list[int] = []
            takes = True

            def take_it(event: Event) -> bool:
                if takes:
                    given.append(event.seq)
                return takes

            await world.happens("ab")
            stream = await world.log.subscribe(1, at_once=take_it)
            assert seqs(await take(stream, 2)) == [1, 2]  # what there was is yielded
            waiting = asyncio.create_task(anext(stream))
            await asyncio.sleep(0)
            await world.store.commit(Transaction(exits=(ended("c"),)))
            await fails(world, 1)
            events = await world.stored("cd")
            world.log.publish(events)
            assert given == [4, 5] and not waiting.done()
            assert not [wake for wake in world.log._wakes if wake.is_set()]  # who took all is not woken
            takes = False
            await world.happens("e")
            assert (await asyncio.wait_for(waiting, 10)).seq == 6  # type: ignore[union-attr]
            takes = True
            await world.happens("f")  # nobody waits: it is read
            assert seqs(await take(stream, 1)) == [7] and given == [4, 5]
            await stream.aclose()
            await world.happens("g")
            assert given == [4, 5]

    asyncio.run(main())
