"""containerd is told through its relays: in the log's order, and not by exitd as long as the relay lives."""

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.containerd import couriers, publish
from supervisor.containerd.callers import Hello
from supervisor.monitor import epoll
from tests.supervisor.containerd.relays import ME, Process, Relay
from tests.supervisor.containerd.taskevents import container, life
from tests.supervisor.containerd.test_publish import TOPICS, containerd, publishing, write
from tests.supervisor.fakes import in_loop, until, world

NOBODY = "/of/nobody"
HELLO = Hello("r", 1, (), 1, "k8s.io", NOBODY, courier=ME)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "PAUSE_SECONDS", 0.02)


@pytest.fixture
def process() -> Iterator[Process]:
    made = Process()
    yield made
    made.close()


async def answered(relay: Relay, count: int, first: int = 0) -> None:
    """So many events, each as soon as it is there."""
    for n in range(first, first + count):
        await until(lambda n=n: len(relay.handed) > n)  # type: ignore[misc]
        relay.answers(relay.handed[n])


@in_loop
async def test_the_tasks_of_one_relay_are_reported_one_after_the_other_in_the_order_of_the_log(tmp_path: Path) -> None:
    async with world(tmp_path) as w, publishing(w, tmp_path) as publisher:
        lives = [life(id, address=NOBODY, courier=ME) for id in "ab"]
        await write(w, [event for pair in zip(*lives, strict=True) for event in pair])
        relay = Relay(publisher.couriers)
        await until(lambda: relay.handed == [1])
        for number in range(1, 2 * len(TOPICS) + 1):
            await until(lambda number=number: relay.handed == [*range(1, number + 1)])  # type: ignore[misc]
            relay.answers(number)
        await until(lambda: publisher.senders[NOBODY].outbox.floor == 2 * len(TOPICS))


@in_loop
async def test_an_event_waits_while_there_is_no_descriptor_for_its_relay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, open_process = [OSError(errno.EMFILE, "Too many open files")] * 3, epoll.open_process

    def opened(pid: int, started_ticks: int) -> int | None:
        if refused:
            raise refused.pop()
        return open_process(pid, started_ticks)

    monkeypatch.setattr(couriers, "open_process", opened)
    async with world(tmp_path) as w, publishing(w, tmp_path) as publisher:
        await write(w, life("c1", address=NOBODY, courier=ME))
        await until(lambda: not refused)
        relay = Relay(publisher.couriers)
        await answered(relay, len(TOPICS))
        await until(lambda: publisher.senders[NOBODY].outbox.floor == len(TOPICS))


@in_loop
async def test_the_next_daemon_hands_the_last_event_over_again_if_its_answer_was_not_noted(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        async with publishing(w, tmp_path) as publisher:
            relay = Relay(publisher.couriers)
            await write(w, life("c1", address=NOBODY, courier=ME))
            await answered(relay, 3)
            await until(lambda: relay.handed == [1, 2, 3, 4])
        async with publishing(w, tmp_path) as publisher:
            again = Relay(publisher.couriers)
            await answered(again, len(TOPICS) - 3)
            assert again.handed == [*range(4, len(TOPICS) + 1)]


@in_loop
async def test_a_relay_that_is_slow_holds_up_no_other(tmp_path: Path, process: Process) -> None:
    async with world(tmp_path) as w, publishing(w, tmp_path) as publisher:
        slow, relay = Relay(publisher.couriers, process.name), Relay(publisher.couriers)
        await write(w, life("a", address=NOBODY, courier=process.name))
        await write(w, life("b", address=NOBODY, courier=ME))
        await answered(relay, len(TOPICS))
        assert slow.handed == [1]


@in_loop
async def test_what_a_relay_has_not_brought_when_it_ends_exitd_sends_itself(tmp_path: Path, process: Process) -> None:
    async with world(tmp_path) as w, containerd(tmp_path) as c, publishing(w, tmp_path) as publisher:
        await c.up()
        relay = Relay(publisher.couriers, process.name)
        await write(w, life("c1", address=c.address, courier=process.name))
        await answered(relay, 2)
        await until(lambda: len(relay.handed) == 3)
        assert c.got == []
        process.end()
        await until(lambda: "delete" in c.of())
        assert c.of() == TOPICS[2:]


@in_loop
async def test_a_relay_whose_containerd_is_away_is_asked_again_and_goes_on_in_order(tmp_path: Path) -> None:
    async with world(tmp_path) as w, publishing(w, tmp_path) as publisher:
        relay = Relay(publisher.couriers)
        await write(w, life("c1", address=NOBODY, courier=ME))
        for n in range(3):
            await until(lambda n=n: len(relay.handed) > n)  # type: ignore[misc]
            relay.answers(1, 14, "containerd is away")
        await answered(relay, len(TOPICS), 3)
        assert relay.handed == [1, 1, 1, *range(1, len(TOPICS) + 1)]


@in_loop
async def test_a_dropped_task_does_not_hold_up_others_of_its_relay(tmp_path: Path) -> None:
    async with world(tmp_path) as w, publishing(w, tmp_path) as publisher:
        await write(w, [*life("a", address=NOBODY, courier=ME), *life("b", address=NOBODY, courier=ME)])
        await until(lambda: NOBODY in publisher.senders and len(publisher.senders[NOBODY].outbox) == 2 * len(TOPICS))
        publisher.drop(container("a", NOBODY))
        relay = Relay(publisher.couriers)
        await answered(relay, len(TOPICS))
        assert relay.handed == [*range(len(TOPICS) + 1, 2 * len(TOPICS) + 1)]


@in_loop
async def test_a_relay_is_settled_once_all_that_it_has_to_bring_is_noted(tmp_path: Path) -> None:
    async with world(tmp_path) as w, publishing(w, tmp_path) as publisher:
        relay = Relay(publisher.couriers)
        assert await publisher.settled(HELLO, 0, 20)
        await write(w, life("c1", address=NOBODY, courier=ME))
        settled = asyncio.get_running_loop().create_task(publisher.settled(HELLO, len(TOPICS), 20))
        assert not await publisher.settled(HELLO, len(TOPICS), 0.01)
        await answered(relay, len(TOPICS))
        assert await settled
        assert (tmp_path / "shimv2" / "forwarded").read_text().count('"task"') == len(TOPICS)
        assert not await publisher.settled(HELLO, len(TOPICS) + 1, 0.01)
