"""containerd is told of its tasks, whatever becomes of it or of us."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.empty_pb2 import Empty

from protos.containerd import events_pb2
from protos.containerd.forward_pb2 import Envelope, ForwardRequest
from supervisor.containerd import outbox, publish
from supervisor.containerd.publish import Publisher, request
from supervisor.model.errors import CannotStart, Code
from supervisor.model.values import Event
from supervisor.store.database import Transaction
from supervisor.ttrpc.faults import CallFailed
from supervisor.ttrpc.server import Call, Server
from supervisor.ttrpc.services import Method
from tests.supervisor.containerd.taskevents import container, life, unpublished
from tests.supervisor.fakes import World, in_loop, until, world

SERVICE = "containerd.services.events.ttrpc.v1.Events"
TOPICS = ["create", "start", "exec-added", "exec-started", "exit", "oom", "exit", "delete"]
Hook = Callable[[Envelope], Coroutine[Any, Any, None]]


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(publish, "MOST_PAUSE_SECONDS", 0.1)


class Containerd:
    """Takes events on a socket of its own. `hook` comes before each is taken."""

    def __init__(self, path: Path) -> None:
        self.address = str(path)
        self.asked: list[Envelope] = []
        self.got: list[Envelope] = []
        self.hook: Hook | None = None
        self._server: Server | None = None

    async def up(self) -> None:
        self._server = Server({SERVICE: {"Forward": Method(ForwardRequest, Empty, self._forward)}})
        await self._server.listen(self.address)

    async def down(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    async def _forward(self, request: ForwardRequest, call: Call) -> Empty:
        self.asked.append(request.envelope)
        if self.hook is not None:
            await self.hook(request.envelope)
        self.got.append(request.envelope)
        return Empty()

    def of(self, id: str = "c1") -> list[str]:
        """The topics' last words for one task."""
        return [envelope.topic.rpartition("/")[2] for envelope in self.got if task_of(envelope) == f"task-{id}"]


def task_of(envelope: Envelope) -> str:
    """Every event has the task's id as its first field."""
    message = getattr(events_pb2, envelope.event.type_url.rpartition(".")[2])()
    message.ParseFromString(envelope.event.value)
    return str(message.container_id)


@contextlib.asynccontextmanager
async def containerd(tmp_path: Path, name: str = "containerd.sock") -> AsyncIterator[Containerd]:
    made = Containerd(tmp_path / name)
    try:
        yield made
    finally:
        await made.down()


@contextlib.asynccontextmanager
async def publishing(w: World, tmp_path: Path, boot: str = "boot") -> AsyncIterator[Publisher]:
    publisher = Publisher(w.events, str(tmp_path), boot)
    publisher.begin()
    try:
        yield publisher
    finally:
        await publisher.close()


async def write(w: World, events: list[Event]) -> None:
    w.events.publish(await w.store.commit(Transaction(events=tuple(events))))


@in_loop
async def test_containerd_is_told_of_a_whole_life_in_order_and_in_its_words(tmp_path: Path) -> None:
    async with world(tmp_path) as w, containerd(tmp_path) as c, publishing(w, tmp_path):
        await c.up()
        await write(w, [unpublished(), *life("c1", address=c.address)])
        await until(lambda: len(c.got) == len(TOPICS))
    assert c.of() == TOPICS
    for envelope in c.got:
        assert envelope.namespace == "k8s.io"
        assert envelope.timestamp.seconds > 0
        assert envelope.event.type_url.startswith("containerd.events.Task")


@in_loop
async def test_events_wait_for_a_containerd_that_is_away_and_keep_their_order(tmp_path: Path) -> None:
    async with world(tmp_path) as w, containerd(tmp_path) as c, publishing(w, tmp_path) as publisher:
        for id in "ab":
            await write(w, life(id, address=c.address))
        await until(
            lambda: c.address in publisher.senders and len(publisher.senders[c.address].outbox) == 2 * len(TOPICS)
        )
        await c.up()
        await until(lambda: len(c.got) == 2 * len(TOPICS))
    assert c.of("a") == c.of("b") == TOPICS


@in_loop
async def test_a_containerd_that_is_restarted_misses_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as w, containerd(tmp_path) as c, publishing(w, tmp_path):
        await c.up()
        for n in range(20):
            await write(w, life(f"c{n}", address=c.address))
            if n % 5 == 0:
                await c.down()
                await c.up()
        await until(lambda: all("delete" in c.of(f"c{n}") for n in range(20)))
    for n in range(20):  # what was under way when it ended may have been taken twice
        assert once(c.of(f"c{n}")) == once(TOPICS)


def once(topics: list[str]) -> list[str]:
    return [topic for n, topic in enumerate(topics) if n == 0 or topics[n - 1] != topic]


@in_loop
async def test_what_is_refused_is_tried_again_and_others_go_on_meanwhile(tmp_path: Path) -> None:
    refusals = 0

    async def refuse(envelope: Envelope) -> None:
        nonlocal refusals
        if task_of(envelope) == "task-a" and (refusals < 3 or "delete" not in c.of("b")):
            refusals += 1
            raise CallFailed(Code.UNKNOWN, "not now")

    async with world(tmp_path) as w, containerd(tmp_path) as c, publishing(w, tmp_path):
        c.hook = refuse
        await c.up()
        await write(w, [*life("a", address=c.address), *life("b", address=c.address)])
        await until(lambda: "delete" in c.of("a"))
    assert c.of("a") == c.of("b") == TOPICS


@in_loop
async def test_what_containerd_will_never_take_is_passed_over(tmp_path: Path) -> None:
    async def refuse(envelope: Envelope) -> None:
        if envelope.topic == "/tasks/oom":
            raise CallFailed(Code.INVALID_ARGUMENT, "no such topic")

    async with world(tmp_path) as w, containerd(tmp_path) as c, publishing(w, tmp_path):
        c.hook = refuse
        await c.up()
        await write(w, life("c1", address=c.address))
        await until(lambda: "delete" in c.of())
    assert c.of() == [topic for topic in TOPICS if topic != "oom"]
    assert len(c.asked) == len(TOPICS)


@in_loop
async def test_a_containerd_that_does_not_answer_holds_up_no_other_and_no_commit(tmp_path: Path) -> None:
    async def for_ever(envelope: Envelope) -> None:
        await asyncio.Event().wait()

    async with (
        world(tmp_path) as w,
        containerd(tmp_path, "one") as one,
        containerd(tmp_path, "other") as other,
        publishing(w, tmp_path),
    ):
        one.hook = for_ever
        await one.up()
        await other.up()
        for n in range(outbox.ROOM // 4):  # more than its sender has room for
            await write(w, life(f"a{n}", address=one.address))
        await write(w, life("b", address=other.address))
        await until(lambda: "delete" in other.of("b"))
        assert one.got == []


@in_loop
async def test_a_slow_containerd_is_told_of_one_event_of_a_task_at_a_time(tmp_path: Path) -> None:
    under_way: defaultdict[str, int] = defaultdict(int)
    most = 0

    async def slowly(envelope: Envelope) -> None:
        nonlocal most
        under_way[task_of(envelope)] += 1
        most = max(most, *under_way.values())
        for _ in range(20):
            await asyncio.sleep(0)
        under_way[task_of(envelope)] -= 1

    async with world(tmp_path) as w, containerd(tmp_path) as c, publishing(w, tmp_path):
        c.hook = slowly
        await c.up()
        for id in "abc":
            await write(w, life(id, address=c.address))
        await until(lambda: len(c.got) == 3 * len(TOPICS))
    assert most == 1
    assert [c.of(id) for id in "abc"] == [TOPICS] * 3


@in_loop
async def test_the_next_daemon_goes_on_where_this_one_ended(tmp_path: Path) -> None:
    async with world(tmp_path) as w, containerd(tmp_path) as c:
        await c.up()
        for half in (life("c1", address=c.address)[:4], life("c1", address=c.address)[4:]):
            before = len(c.got)
            async with publishing(w, tmp_path):
                await write(w, half)
                await until(lambda before=before, half=half: len(c.got) == before + len(half))  # type: ignore[misc]
    assert c.of() == TOPICS


@pytest.mark.parametrize("at", range(len(TOPICS)))
def test_killed_between_an_answer_and_its_note_the_next_daemon_reports_that_event_once_more(
    tmp_path: Path, at: int
) -> None:
    asyncio.run(killed_at(tmp_path, at))


async def killed_at(tmp_path: Path, at: int) -> None:
    noted = tmp_path / "shimv2" / "forwarded"
    seen: list[bytes] = []

    async def look(envelope: Envelope) -> None:
        seen.append(noted.read_bytes())  # as a kill would leave it, were it now

    async with world(tmp_path) as w, containerd(tmp_path) as c:
        c.hook = look
        await c.up()
        async with publishing(w, tmp_path):
            await write(w, life("c1", address=c.address))
            await until(lambda: len(c.got) == len(TOPICS))
        c.got.clear()
        noted.write_bytes(seen[at])
        async with publishing(w, tmp_path):
            await until(lambda: "delete" in c.of())
    assert c.of() == TOPICS[at:]


@in_loop
async def test_a_dropped_task_is_not_reported_any_more_by_this_daemon_or_the_next(tmp_path: Path) -> None:
    async with world(tmp_path) as w, containerd(tmp_path) as c:
        async with publishing(w, tmp_path) as publisher:
            await write(w, life("c1", address=c.address)[:2])
            await until(lambda: publisher.senders.get(c.address) and len(publisher.senders[c.address].outbox) == 2)
            publisher.drop(container("c1", c.address))
            assert len(publisher.senders[c.address].outbox) == 0
        await c.up()
        async with publishing(w, tmp_path):
            await write(w, [*life("c1", address=c.address)[2:], *life("c2", address=c.address)])
            await until(lambda: "delete" in c.of("c2"))
    assert c.of("c1") == []


@in_loop
async def test_a_task_that_was_given_up_while_exitd_was_away_is_dropped_before_anything_is_reported(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as w, containerd(tmp_path) as c:
        await c.up()
        publisher = Publisher(w.events, str(tmp_path), "boot")
        await write(w, [*life("c1", address=c.address), *life("c2", address=c.address)])
        publisher.drop(container("c1", c.address))
        publisher.begin()
        await until(lambda: "delete" in c.of("c2"))
        await publisher.close()
    assert c.of("c1") == []
    assert c.of("c2") == TOPICS


@in_loop
async def test_a_sign_of_life_ends_the_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "PAUSE_SECONDS", 1000.0)
    async with world(tmp_path) as w, containerd(tmp_path) as c, publishing(w, tmp_path) as publisher:
        await write(w, life("c1", address=c.address))
        await until(lambda: c.address in publisher.senders and publisher.senders[c.address].link.is_resting)
        await c.up()
        publisher.wake("/of/nobody")
        publisher.wake(c.address)
        await until(lambda: "delete" in c.of())
    assert c.of() == TOPICS


@in_loop
async def test_nothing_of_another_boot_is_reported(tmp_path: Path) -> None:
    async with world(tmp_path) as w, containerd(tmp_path) as c:
        async with publishing(w, tmp_path):
            await write(w, life("old", address=c.address))
        await c.up()
        async with publishing(w, tmp_path, boot="next"):
            await write(w, life("new", address=c.address))
            await until(lambda: "delete" in c.of("new"))
    assert c.of("old") == []


@in_loop
async def test_ten_thousand_events_of_a_hundred_tasks_wait_in_the_log_and_not_in_memory(tmp_path: Path) -> None:
    async with world(tmp_path) as w, containerd(tmp_path) as c, publishing(w, tmp_path) as publisher:
        lives = {f"c{n}": life(f"c{n}", execs=32, address=c.address) for n in range(100)}
        for each in zip(*lives.values(), strict=True):
            await write(w, list(each))
        await until(lambda: c.address in publisher.senders and not publisher.senders[c.address].outbox.has_room)
        await c.up()
        most = 0
        total = sum(map(len, lives.values()))
        assert total > 10_000
        async with asyncio.timeout(150):
            while len(c.got) < total:
                most = max(most, len(publisher.senders[c.address].outbox))
                await asyncio.sleep(0.01)
    assert most <= outbox.ROOM
    got: defaultdict[str, list[bytes]] = defaultdict(list)
    for envelope in c.got:
        got[task_of(envelope)].append(envelope.event.value)
    for id, events in lives.items():
        assert got[f"task-{id}"] == [request(e, e.task).envelope.event.value for e in events if e.task is not None]


@in_loop
async def test_a_state_directory_that_cannot_be_written_is_reported_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "shimv2").write_text("in the way")
    async with world(tmp_path) as w:
        with pytest.raises(CannotStart, match="forwarded"):
            Publisher(w.events, str(tmp_path), "boot")
