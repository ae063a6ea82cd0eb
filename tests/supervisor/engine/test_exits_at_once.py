"""Ordinary ends take the short way, all others the long one, and what comes of an end is the same on both."""

import asyncio
import contextlib
import errno
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from supervisor.api import replies
from supervisor.engine.containers import exit_of, is_ended
from supervisor.engine.exits import ENDS_TOGETHER
from supervisor.engine.participants import Participant
from supervisor.model import lifecycle, restart
from supervisor.model.values import (
    LIVE,
    Asked,
    Container,
    Event,
    Exit,
    Exited,
    ExitStatus,
    Phase,
    Reason,
    Report,
    RunKey,
    Signaled,
    Source,
    Spec,
    Unknown,
)
from supervisor.store.database import Store, Transaction
from tests.supervisor import happenings
from tests.supervisor.fakes import LIMIT_SECONDS, World, in_loop, until, world
from tests.supervisor.store.slowdisk import SlowDisk
from tests.supervisor.stored import opened, written

WEB = Spec(name="web")


# -- the same comes of them


STATUSES: tuple[ExitStatus, ...] = (
    Exited(0),
    Exited(3),
    Exited(137),
    Signaled(9),
    Signaled(15),
    Signaled(11, core=True),
    Unknown("gone"),
)
ASKED = (None, happenings.STOP, happenings.KILL, Asked(Reason.HEALTH, happenings.POLICY, 15))
POLICIES = ("no", "always", "on-failure:2", "unless-stopped")


def cases() -> Iterator[tuple[Container, lifecycle.Ended]]:
    """Each end that the step knows, of a container that runs or is paused."""
    kills, marks = ((0, 0), (2, 0), (2, 2)), product((False, True), repeat=3)
    for number, (status, asked, policy, (seen, reported), (removes, unseen, rebooted)) in enumerate(
        product(STATUSES, ASKED, POLICIES, kills, marks)
    ):
        phase = (Phase.RUNNING, Phase.PAUSED)[number % 2]
        c = happenings.container(phase, policy=policy, auto_remove=removes, run=1 + number % 3)
        c = replace(c, id=f"c{number}", spec=replace(c.spec, name=f"n{number}"), asked=asked, oom_told=reported)
        c = replace(c, start_unseen=unseen, stopped_by_user=asked is happenings.STOP, exit=exit_before(c))
        report = Report(status, Source.RECORD, happenings.INIT, 99 * happenings.SECOND, seen, began=not unseen)
        yield c, lifecycle.Ended(report, 64 << 20, rebooted, left_behind=number % 2)


def exit_before(c: Container) -> Exit | None:
    earlier = happenings.exit_of(c.run - 1) if c.run > 1 else None
    return replace(earlier, key=RunKey(c.id, c.run - 1)) if earlier is not None else None


def rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        tables = {"containers": "id", "exits": "container, run, exec", "events": "seq"}
        return {
            name: connection.execute(f"SELECT * FROM {name} ORDER BY {by}").fetchall() for name, by in tables.items()
        }


async def long_way(store: Store, steps: list[tuple[Container, lifecycle.Step]]) -> None:
    committed = [
        Transaction((step.container,), exits=step.exits, events=step.events) for _, step in steps if step.container
    ]
    assert len(committed) == len(steps)
    await asyncio.gather(*map(store.commit, committed))  # in this order


async def short_way(store: Store, steps: list[tuple[Container, lifecycle.Step]]) -> None:
    await put(store, steps)
    await store.take_over_ends()


async def short_way_of_a_slow_disk(store: Store, steps: list[tuple[Container, lifecycle.Step]]) -> None:
    """The loop waits for none of its writes."""
    store._ring_ends._slow_seconds = lambda: 1e-9
    await short_way(store, steps)


async def short_way_and_a_crash(store: Store, steps: list[tuple[Container, lifecycle.Step]]) -> None:
    """Only the ring has them when the next store opens it."""
    await put(store, steps)
    store._ring_ends._ends.clear()  # what a crash leaves of them


async def put(store: Store, steps: list[tuple[Container, lifecycle.Step]]) -> None:
    for some in together(steps):
        assert await written(store, *some) is not None


def together(
    steps: list[tuple[Container, lifecycle.Step]],
) -> Iterator[list[tuple[Container, Container, Exit, tuple[Event, ...]]]]:
    for first in range(0, len(steps), ENDS_TOGETHER):
        some = steps[first : first + ENDS_TOGETHER]
        yield [(before, step.container, step.exits[0], step.events) for before, step in some if step.container]


def test_what_is_stored_and_answered_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    steps = [(c, lifecycle.step(c, ended, happenings.moment())) for c, ended in cases()]
    assert len(steps) > 2000

    async def store_by(way: Callable[..., object], path: Path) -> list[bytes]:
        async with opened(path, slow_seconds=lambda: 60.0) as store:
            await store.commit(Transaction(tuple(before for before, _ in steps)))
            for first in range(0, len(steps), 800):  # the ring has room for as many
                await way(store, steps[first : first + 800])  # type: ignore[misc]
                if way is short_way_and_a_crash:
                    break
        async with opened(path) as store:
            found = await asyncio.gather(*(store.last_exit(before.id, before.run) for before, _ in steps))
            return [replies.exit_message(each).SerializeToString(deterministic=True) for each in found if each]

    ways = (long_way, short_way, short_way_of_a_slow_disk, short_way_and_a_crash)
    paths = [tmp_path / f"{way.__name__}.db" for way in ways]
    answers = [asyncio.run(store_by(way, path)) for way, path in zip(ways, paths, strict=True)]
    long, short, aside, crashed = (rows(path) for path in paths)
    assert answers[0] == answers[1] == answers[2] and len(answers[0]) == len(steps)
    assert short == aside == long
    assert answers[3] == answers[0][:800] and crashed["events"] == long["events"][: len(crashed["events"])]
    ended = {id for id, *_ in crashed["exits"]}
    assert [row for row in crashed["containers"] if row[0] in ended] == [
        row for row in long["containers"] if row[0] in ended
    ]


# -- which way an end takes


def counted_writes(w: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ends each write to the ring had."""
    found: list[int] = []
    write = w.store.write_ends

    def counted(steps: list[object], meanwhile: Callable[[], None]) -> object:
        found.append(len(steps))
        return write(steps, meanwhile)  # type: ignore[arg-type]

    monkeypatch.setattr(w.store, "write_ends", counted)
    return found


@in_loop
async def test_ends_of_one_turn_are_one_write_and_each_is_shown_before_the_database_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path) as w:
        writes = counted_writes(w, monkeypatch)
        ids = await asyncio.gather(*(w.running(Spec(name=f"c{n}")) for n in range(ENDS_TOGETHER + 5)))
        waits = [asyncio.create_task(w.node.containers.until(id, is_ended, LIMIT_SECONDS, "its exit")) for id in ids]
        await asyncio.sleep(0)
        with w.store.slow():  # the database takes nothing
            for n, id in enumerate(ids):
                w.manager.ends(id, status=Exited(n))
                assert w.node.is_ending(w.node.containers[id])
            ended = await asyncio.gather(*waits)
            assert [exit.status for c in ended if (exit := exit_of(c))] == [Exited(n) for n in range(len(ids))]
            assert writes == [ENDS_TOGETHER, 5] and not w.node.pending
            assert w.manager.count("delete") == 0
        await until(lambda: w.manager.count("delete") == len(ids))
        await until(lambda: not w.node.background)
        assert all(c.clean and c.phase is Phase.EXITED for c in await w.store.load())
        assert len(await w.store.exits()) == len(ids)


class Delays(Participant):
    def delays_end(self, container_id: str) -> bool:
        return True


def is_paused(w: World, id: str) -> None:
    w.node.containers[id] = replace(w.node.containers[id], phase=Phase.PAUSED)


def is_a_member(w: World, id: str) -> None:
    c = w.node.containers[id]
    w.node.containers[id] = replace(c, spec=replace(c.spec, pid="pod", sandbox="p"))


def has_an_exec(w: World, id: str) -> None:
    w.join(Delays())


def leaves_processes(w: World, id: str) -> None:
    w.manager.left_behind = 1


def is_damaged(w: World, id: str) -> None:
    w.node.containers[id] = replace(w.node.containers[id], damaged="a field")


def has_no_ring(w: World, id: str) -> None:
    w.store._ring_ends.close()


OTHERS = (is_paused, is_a_member, has_an_exec, leaves_processes, is_damaged, has_no_ring)


@pytest.mark.parametrize("other", OTHERS)
@in_loop
async def test_an_end_that_is_not_ordinary_takes_the_long_way(
    tmp_path: Path, other: Callable[[World, str], None]
) -> None:
    async with world(tmp_path) as w:
        id = await w.running(WEB)
        other(w, id)
        with w.store.slow():
            w.manager.ends(id, status=Exited(7))
            await asyncio.sleep(0.02)
            assert w.node.containers[id].phase in LIVE and w.node.pending == {RunKey(id, 1)}
        await until(lambda: w.node.containers[id].phase is Phase.EXITED)
        assert [exit.status for exit in await w.store.exits()] == [Exited(7)]


@in_loop
async def test_a_disk_that_is_slow_holds_up_nobody_but_who_waits_for_these_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop goes on; what ends meanwhile is one write after it; a step of a container waits for its end."""
    writes: list[int] = []
    async with world(tmp_path) as w:
        ids = await asyncio.gather(*(w.running(Spec(name=f"c{n}", restart=restart.parse("always"))) for n in range(6)))
        write = w.store.write_ends

        def counted(steps: list[object], meanwhile: Callable[[], None]) -> object:
            writes.append(len(steps))
            return write(steps, meanwhile)  # type: ignore[arg-type]

        monkeypatch.setattr(w.store, "write_ends", counted)
        with SlowDisk(monkeypatch) as disk:
            w.manager.ends(ids[0], status=Exited(1))
            await until(lambda: writes == [1])
            stop = asyncio.create_task(w.node.apply(ids[0], lifecycle.StopAsked(happenings.USER), patient=True))
            for id in ids[1:]:
                w.manager.ends(id, status=Exited(2))
            await asyncio.sleep(0.05)
            assert all(w.node.containers[id].phase is Phase.RUNNING for id in ids) and not stop.done()
            disk.go()
            await until(lambda: all(w.node.containers[id].phase is not Phase.RUNNING for id in ids))
        await stop
        assert writes == [1, 5]
        found = {exit.key.container: exit.status for exit in await w.store.exits()}
        assert found == {id: Exited(1 if id == ids[0] else 2) for id in ids}


@in_loop
async def test_while_the_disk_is_writing_an_end_can_be_prepared_and_nobody_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[tuple[Exit, Phase]] = []
    async with world(tmp_path) as w:
        id = await w.running(WEB)

        class Preparing(Participant):
            def being_stored(self, exit: Exit) -> None:
                prepared.append((exit, w.node.containers[id].phase))

        w.join(Preparing())
        with SlowDisk(monkeypatch) as disk:
            w.manager.ends(id, status=Exited(7))
            await until(lambda: prepared)
            assert w.node.containers[id].phase is Phase.RUNNING and await w.store.exits() == []
            disk.go()
            await until(lambda: w.node.containers[id].phase is Phase.EXITED)
        assert [(each.status, phase) for each, phase in prepared] == [(Exited(7), Phase.RUNNING)]
        assert w.node.containers[id].exit is prepared[0][0]


@in_loop
async def test_an_end_that_a_slow_disk_refuses_takes_the_long_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path) as w:
        id = await w.running(WEB)
        with SlowDisk(monkeypatch, OSError(errno.EIO, "no")) as disk:
            w.manager.ends(id, status=Exited(7))
            disk.go()
            await until(lambda: w.node.containers[id].phase is Phase.EXITED)
        assert [exit.status for exit in await w.store.exits()] == [Exited(7)]
        assert (await w.event_types()).count("exit") == 1


@pytest.mark.parametrize("source", [each for each in Source if each is not Source.RECORD])
@in_loop
async def test_only_a_record_is_ordinary(tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path) as w:
        writes = counted_writes(w, monkeypatch)
        id = await w.running(WEB)
        w.manager.ends(id, status=Exited(7), source=source)
        await until(lambda: w.node.containers[id].phase is Phase.EXITED)
        assert writes == []


@in_loop
async def test_an_end_in_the_middle_of_a_step_is_stored_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path) as w:
        writes = counted_writes(w, monkeypatch)
        id = await w.running(WEB)
        with w.store.slow():
            asked = asyncio.create_task(w.node.apply(id, lifecycle.EndAsked(happenings.STOP), patient=True))
            await asyncio.sleep(0)
            w.manager.ends(id, status=Signaled(15))
        await asked
        await until(lambda: w.node.containers[id].phase is Phase.EXITED)
        (exit,) = await w.store.exits()
        assert exit.reason is Reason.STOP and writes == []


@in_loop
async def test_what_follows_an_end_waits_until_the_database_has_it(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        id = await w.running(replace(WEB, restart=restart.parse("always")))
        with w.store.slow():
            w.manager.ends(id, status=Exited(1))
            await until(lambda: w.node.containers[id].phase is Phase.RESTARTING)
            stop = asyncio.create_task(w.node.apply(id, lifecycle.StopAsked(happenings.USER), patient=True))
            await asyncio.sleep(0.02)
            assert not stop.done() and w.node.containers[id].phase is Phase.RESTARTING
        await stop
        await until(lambda: not w.node.background)
        (stored,) = await w.store.load()
        assert stored.phase is Phase.EXITED and stored.clean and stored.stopped_by_user


@in_loop
async def test_a_daemon_that_stops_in_between_leaves_the_rest_to_the_next(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        id = await w.running(WEB)
        w.manager.ends(id, status=Exited(7))
        await until(lambda: w.node.containers[id].phase is Phase.EXITED)
    async with world(tmp_path) as w:
        (stored,) = await w.store.load()
        assert stored.phase is Phase.EXITED and not stored.clean
        assert [exit.status for exit in await w.store.exits()] == [Exited(7)]
        assert (await w.event_types()).count("exit") == 1


@in_loop
async def test_subscribers_get_the_event_of_an_end_once_and_in_its_place(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        items = await w.events.subscribe()
        seen: list[tuple[str, int]] = []

        async def read() -> None:
            async for item in items:
                seen.append((getattr(item, "type", ""), item.seq))  # type: ignore[union-attr]

        reading = asyncio.create_task(read())
        id = await w.running(WEB)
        w.manager.ends(id, status=Exited(7))
        await until(lambda: w.node.containers[id].clean)
        await w.node.apply(id, lifecycle.RemoveAsked(happenings.USER))
        await until(lambda: seen[-1:] and seen[-1][0] == "remove")
        assert [type for type, _ in seen] == ["create", "start", "exit", "remove"]
        assert [seq for _, seq in seen] == [1, 2, 3, 4]
        reading.cancel()
