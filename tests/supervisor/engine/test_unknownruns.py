"""Directories that come, change and go under a node, with a real file system, a real inotify and make-believe shims."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from supervisor.engine import unknownruns
from supervisor.engine.unknownruns import UnknownRuns
from supervisor.model import adoption
from supervisor.model.adoption import UnknownRun
from supervisor.model.errors import RuntimeFailed
from supervisor.model.values import Exited, Phase, Process
from supervisor.monitor import survey
from supervisor.runtime.sandbox import Found
from supervisor.store.database import Transaction
from supervisor.system.inotify import Inotify, Overflow
from tests.supervisor.children import child, name_of
from tests.supervisor.fakes import World, until, world
from tests.supervisor.handmade import Handmade
from tests.supervisor.happenings import container

DEAD = Process(2**22 - 1, 1)
OWN_ID = "0123456789abcdef" * 4


class Watched:
    """A node with its unknown runs, and what they logged."""

    def __init__(self, w: World, state: Path, logged: Sequence[MutableMapping[str, Any]]) -> None:
        self.world, self.node, self.state = w, w.node, state
        self.unknownruns = UnknownRuns(w.runs, str(state))
        self.inotify = Inotify()
        self.logged = logged

    def begin(self) -> None:
        self.inotify.start()
        self.unknownruns.begin(self.inotify)

    def refusals(self) -> list[str]:
        return [line["why"] for line in self.logged if line["event"] == "run directory not adopted"]

    async def settled(self) -> None:
        """Nothing is under way."""
        await self.node.background.settled()


def with_unknown_runs(tmp_path: Path, test: Callable[[Watched], Awaitable[None]]) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            w.clock.boot = Handmade(tmp_path / "other", "x").mark.boot_id
            with structlog.testing.capture_logs() as logged:
                watched = Watched(w, tmp_path / "s", logged)
                (tmp_path / "s").mkdir()
                try:
                    await test(watched)
                finally:
                    watched.inotify.close()

    asyncio.run(main())


@contextlib.asynccontextmanager
async def alive() -> AsyncIterator[Process]:
    with child() as process:
        yield name_of(process)


def test_what_lies_there_at_the_start_is_adopted_with_its_events(tmp_path: Path) -> None:
    async def test(t: Watched) -> None:
        async with alive() as init:
            Handmade(t.state, "box", name="web").made(init).started()
            t.begin()
            await until(lambda: "box" in t.node.containers and "box" not in t.node.containers.recovering, "adoption")
            c = t.node.containers["box"]
            assert (c.spec.name, c.phase, c.init, c.started_ns) == ("web", Phase.RUNNING, init, 5)
            assert (c.spec.bundle, c.spec.restart.policy.value) == ("/bundle", "no")
            assert await t.world.event_types() == ["create", "start"]
            assert t.world.manager.calls == [("connect", "box", 1)]

    with_unknown_runs(tmp_path, test)


def test_what_comes_later_is_adopted_as_soon_as_its_start_is_noted_and_not_before(tmp_path: Path) -> None:
    async def test(t: Watched) -> None:
        t.begin()
        await t.settled()
        async with alive() as init:
            box = Handmade(t.state, "box")
            await until(lambda: len(t.unknownruns._inner.get("box", ())) == 2, "watches")
            await t.settled()
            before = t.unknownruns._timers["box"]
            box.made(init)
            await until(lambda: t.unknownruns._timers["box"] is not before, "another look")
            await t.settled()
            assert "box" not in t.node.containers
            box.started()
            await until(lambda: "box" in t.node.containers, "adoption")
            await until(lambda: not t.unknownruns._inner and not t.unknownruns._timers, "the end of its watches")
        assert t.refusals() == []

    with_unknown_runs(tmp_path, test)


def test_a_run_directory_made_between_a_look_and_its_watch_is_watched_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the container would wait for seconds, until it is looked at by time."""
    look, made = survey.look, list[Handmade]()

    def looked(state: str, id: str) -> list[UnknownRun]:
        found = look(state, id)
        if not made:
            made.append(Handmade(tmp_path / "s", "box"))
        return found

    async def test(t: Watched) -> None:
        t.begin()
        await t.settled()
        async with alive() as init:
            (t.state / "c" / "box").mkdir()
            await until(lambda: len(t.unknownruns._inner.get("box", ())) == 2, "watches")
            made[0].made(init).started()
            await until(lambda: "box" in t.node.containers, "adoption")

    monkeypatch.setattr(survey, "look", looked)
    with_unknown_runs(tmp_path, test)


def test_a_run_directory_that_is_removed_and_made_again_is_watched_again(tmp_path: Path) -> None:
    async def test(t: Watched) -> None:
        t.begin()
        await t.settled()
        async with alive() as init:
            for _ in range(2):
                box = Handmade(t.state, "box")
                await until(lambda: len(t.unknownruns._inner.get("box", ())) == 2, "watches")
                await t.settled()
                shutil.rmtree(box.path)
                await until(lambda: len(t.unknownruns._inner.get("box", ())) == 1, "the end of a watch")
            box = Handmade(t.state, "box")
            await until(lambda: len(t.unknownruns._inner.get("box", ())) == 2, "watches")
            box.made(init).started()
            await until(lambda: "box" in t.node.containers, "adoption")

    with_unknown_runs(tmp_path, test)


def test_one_that_nobody_started_is_adopted_by_time_as_created_and_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adoption, "STARTS_SECONDS", 0.05)

    async def test(t: Watched) -> None:
        async with alive() as init:
            Handmade(t.state, "box").made(init)
            t.begin()
            await until(lambda: "box" in t.node.containers and not t.node.containers.recovering, "adoption")
            assert [c.phase for c in t.node.containers.values()] == [Phase.CREATED]
            assert await t.world.event_types() == ["create"]
            await t.world.runs.launch("box")
            assert [c.phase for c in t.node.containers.values()] == [Phase.RUNNING]

    with_unknown_runs(tmp_path, test)


def test_one_whose_start_nobody_noted_is_what_its_runtime_says_and_else_counts_as_running(tmp_path: Path) -> None:
    async def test(t: Watched) -> None:
        t.world.manager.states = {"froze": "paused", "runs": "running"}
        async with alive() as init:
            for id in ("froze", "runs"):
                Handmade(t.state, id).made(init).old()
            await t.unknownruns.look_at_all()
            t.world.manager.fails["state"] = [RuntimeFailed("it is gone")]
            Handmade(t.state, "unknown").made(init).old()
            await t.unknownruns.look_at_all()
        phases = {id: c.phase for id, c in t.node.containers.items()}
        assert phases == {"froze": Phase.PAUSED, "runs": Phase.RUNNING, "unknown": Phase.RUNNING}
        assert {c.started_ns for c in t.node.containers.values()} == {None}

    with_unknown_runs(tmp_path, test)


def test_one_that_ended_meanwhile_is_adopted_and_looked_up_for_its_exit(tmp_path: Path) -> None:
    async def test(t: Watched) -> None:
        t.world.manager.found["box"] = Found.ENDED
        t.world.manager.on_connect = lambda c: t.world.manager.ends(c.id, status=Exited(43))
        Handmade(t.state, "box").made(DEAD).recorded(DEAD, 43).started()
        await t.unknownruns.look_at_all()
        await until(lambda: t.node.containers["box"].exit is not None, "its exit")
        (row,) = await t.world.store.exits(id="box")
        assert row.status == Exited(43)
        await t.settled()
        assert ("delete", "box", 1) in t.world.manager.calls

    with_unknown_runs(tmp_path, test)


@pytest.mark.parametrize("recorded", [True, False])
def test_one_of_another_boot_is_unknown_unless_its_end_is_written_down(tmp_path: Path, recorded: bool) -> None:
    async def test(t: Watched) -> None:
        t.world.clock.boot = "another boot"
        box = Handmade(t.state, "box").made(DEAD).started()
        if recorded:
            box.recorded(DEAD, 43)
        await t.unknownruns.look_at_all()
        await t.settled()
        asked = ("connect", "box", 1) in t.world.manager.calls
        ends = [row.status for row in await t.world.store.exits(id="box")]
        assert asked == recorded
        assert [getattr(status, "cause", "") for status in ends] == ([] if recorded else ["host-rebooted"])

    with_unknown_runs(tmp_path, test)


def test_a_name_that_is_taken_costs_the_name_and_not_the_container(tmp_path: Path) -> None:
    async def test(t: Watched) -> None:
        async with alive() as init:
            for id in ("one", "two"):
                Handmade(t.state, id, name="web").made(init).started()
            await t.unknownruns.look_at_all()
        assert {c.id: c.spec.name for c in t.node.containers.values()} == {"one": "web", "two": "two"}

    with_unknown_runs(tmp_path, test)


def test_a_refusal_is_reported_once_for_its_reason_and_again_for_another(tmp_path: Path) -> None:
    async def test(t: Watched) -> None:
        box = Handmade(t.state, "box").old()
        for _ in range(3):
            await t.unknownruns.look_at_all()
        assert t.refusals() == ["no shim has made a container in it"]
        (box.path / "link").symlink_to("plan")
        for _ in range(2):
            await t.unknownruns.look_at_all()
        assert t.refusals()[1:] == ["'link' is a link; nothing here may be one"]
        shutil.rmtree(box.path.parent)
        await t.unknownruns.look_at_all()
        Handmade(t.state, "box").old()
        await t.unknownruns.look_at_all()
        assert t.refusals()[2:] == ["no shim has made a container in it"]
        assert t.node.containers == {}

    with_unknown_runs(tmp_path, test)


def test_what_is_refused_and_then_put_right_is_adopted(tmp_path: Path) -> None:
    async def test(t: Watched) -> None:
        async with alive() as init:
            box = Handmade(t.state, "box").made(init).started()
            box.path.chmod(0o777)
            await t.unknownruns.look_at_all()
            assert len(t.refusals()) == 1 and t.node.containers == {}
            box.path.chmod(0o700)
            await t.unknownruns.look_at_all()
            assert "box" in t.node.containers

    with_unknown_runs(tmp_path, test)


def test_leftovers_of_our_own_are_handed_out_and_nothing_else(tmp_path: Path) -> None:
    async def test(t: Watched) -> None:
        t.node.containers["known"] = replace(container(Phase.EXITED), id="known", run=2)
        for name in (f"{OWN_ID}/1", f"{OWN_ID}/x", "known/1", "known/2", "stranger/1", "file"):
            (t.state / "c" / name).mkdir(parents=True)
        (t.state / "c" / "plain").touch()
        left = await t.unknownruns.look_at_all()
        assert sorted((found.id, found.run) for found in left) == [(OWN_ID, "1"), ("known", "1")]

    with_unknown_runs(tmp_path, test)


def test_a_name_that_is_no_utf_8_stops_nobody(tmp_path: Path) -> None:
    async def test(t: Watched) -> None:
        t.begin()
        await t.settled()
        os.mkdir(os.fsencode(t.state / "c") + b"/\xff")
        async with alive() as init:
            Handmade(t.state, "box").made(init).started()
            await until(lambda: "box" in t.node.containers, "adoption")
        os.utime(os.fsencode(t.state / "c") + b"/\xff", (1, 1))
        await t.unknownruns.look_at_all()
        assert [why.isascii() for why in t.refusals()] == [True]

    with_unknown_runs(tmp_path, test)


def test_an_overflow_is_a_look_at_everything(tmp_path: Path) -> None:
    async def test(t: Watched) -> None:
        t.begin()
        await t.settled()
        async with alive() as init:
            Handmade(t.state, "hidden").made(init).started()
            t.inotify.close()  # nobody reports it
            t.unknownruns._changed(Overflow())
            await until(lambda: "hidden" in t.node.containers, "adoption")

    with_unknown_runs(tmp_path, test)


def test_the_directory_of_all_may_be_removed_and_is_watched_again_when_it_is_back(tmp_path: Path) -> None:
    async def test(t: Watched) -> None:
        t.begin()
        await t.settled()
        shutil.rmtree(t.state / "c")
        await until(lambda: (t.state / "c").is_dir(), "the directory")
        await until(lambda: t.unknownruns._top is not None, "the watch")
        async with alive() as init:
            Handmade(t.state, "box").made(init).started()
            await until(lambda: "box" in t.node.containers, "adoption")

    with_unknown_runs(tmp_path, test)


def test_a_store_that_refuses_is_asked_again_and_nothing_is_shown_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unknownruns, "AGAIN_SECONDS", 0.01)

    async def test(t: Watched) -> None:
        t.world.store.refusals = 3
        async with alive() as init:
            Handmade(t.state, "box").made(init).started()
            t.begin()
            await until(lambda: "box" in t.node.containers and not t.node.containers.recovering, "adoption")
            assert t.world.store.refusals == 0
            assert await t.world.event_types() == ["create", "start"]

    with_unknown_runs(tmp_path, test)


def test_twenty_at_once_are_all_adopted_once(tmp_path: Path) -> None:
    async def test(t: Watched) -> None:
        t.begin()
        async with alive() as init:
            for number in range(20):
                Handmade(t.state, f"box{number}").made(init).started()
            await until(lambda: len(t.node.containers) == 20 and not t.node.containers.recovering, "adoption")
            await t.settled()
            assert sorted(await t.world.event_types()) == ["create"] * 20 + ["start"] * 20
            assert t.world.manager.count("connect") == 20

    with_unknown_runs(tmp_path, test)


def test_a_living_containers_directory_that_somebody_removed_is_reported_once_and_at_once(tmp_path: Path) -> None:
    async def test(t: Watched) -> None:
        t.begin()
        await t.settled()
        for id, phase in (("lives", Phase.RUNNING), ("ended", Phase.EXITED)):
            t.node.containers[id] = replace(container(phase), id=id, run=1)
            (t.state / "c" / id / "1").mkdir(parents=True)
        await t.unknownruns.look_at_all()
        assert await t.world.event_types() == []
        for id in ("lives", "ended"):
            shutil.rmtree(t.state / "c" / id)
        await until(lambda: t.unknownruns._lost, "a word about it")
        for _ in range(2):
            await t.unknownruns.look_at_all()
        await t.settled()
        (event,) = await t.world.store.events_after(0, 10)
        assert (event.type, event.id, dict(event.attributes)) == ("directory-lost", "lives", {"run": "1"})

    with_unknown_runs(tmp_path, test)


def test_a_loss_that_could_not_be_stored_is_reported_in_the_next_round(tmp_path: Path) -> None:
    async def test(t: Watched) -> None:
        t.node.containers["lives"] = replace(container(), id="lives", run=1)
        t.world.store.refusals = 1
        await t.unknownruns.look_at_all()
        assert await t.world.event_types() == []
        await t.unknownruns.look_at_all()
        assert await t.world.event_types() == ["directory-lost"]

    with_unknown_runs(tmp_path, test)


def test_an_end_that_was_reported_and_removed_is_not_reported_again(tmp_path: Path) -> None:
    async def test(t: Watched) -> None:
        Handmade(t.state, "box").made(DEAD).recorded(DEAD, 43).started()
        t.world.manager.on_connect = lambda c: t.world.manager.ends(c.id, status=Exited(43))
        t.world.manager.found["box"] = Found.ENDED
        await t.unknownruns.look_at_all()
        await until(lambda: t.node.containers["box"].clean and t.node.containers["box"].exit is not None, "its exit")
        await t.world.store.commit(Transaction(removed=("box",)))
        del t.node.containers["box"]
        (row,) = await t.world.store.exits(id="box")
        left = await t.unknownruns.look_at_all()
        assert t.node.containers == {} and await t.world.store.exits(id="box") == [row]
        # The make-believe manager reported another init's end: as the ledger sees it, a stranger has taken the id.
        assert left == [] and "the ledger has an exit of run 1 of box already" in t.refusals()[0]

    with_unknown_runs(tmp_path, test)


def test_a_refused_commit_leaves_no_half_known_container(tmp_path: Path) -> None:
    async def test(t: Watched) -> None:
        t.world.store.refusals = 1
        async with alive() as init:
            Handmade(t.state, "box").made(init).started()
            await t.unknownruns._visit("box")
            assert (t.node.containers, t.node.containers.recovering) == ({}, {})
            await t.unknownruns.look_at_all()
            assert "box" in t.node.containers

    with_unknown_runs(tmp_path, test)
