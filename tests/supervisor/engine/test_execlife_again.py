"""Execs after a daemon start: found again, or reported as what became of them."""

import asyncio
import contextlib
import errno
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.engine import execlife
from supervisor.model.errors import ShimFailed
from supervisor.model.execs import Exec, ExecPhase, ExecSpec
from supervisor.model.values import Exited, Phase, Process, Unknown
from supervisor.runtime.sandbox import NoProcess
from supervisor.store.database import Transaction
from tests.supervisor.exec_fakes import SPEC, again, at_once, looked_up, running, settled
from tests.supervisor.fakes import hasty, in_loop, until
from tests.supervisor.stored import all_exits

__all__ = ["at_once", "hasty"]
pytestmark = pytest.mark.usefixtures("at_once")
LIMITED = replace(SPEC, timeout_seconds=0.05)
LONG = replace(SPEC, timeout_seconds=1000.0)


async def left_behind(directory: Path, spec: ExecSpec = SPEC) -> Exec:
    """An exec that ran when its daemon ended."""
    async with running(directory) as x:
        return (await x.begin(spec)).exec


async def broken_off(directory: Path) -> None:
    """The daemon ended while an exec was being made."""
    async with running(directory) as x:
        x.manager.gates["create"] = asyncio.Event()
        making = asyncio.ensure_future(x.begin())
        await until(lambda: x.manager.calls, "its making")
        making.cancel()
        await asyncio.wait([making])


@in_loop
async def test_an_exec_of_which_nobody_knows_whether_it_began_is_unknown(tmp_path: Path) -> None:
    await broken_off(tmp_path)
    async with again(tmp_path) as x:
        x.manager.begun = NoProcess.UNKNOWN
        await looked_up(x)
        await settled(x)
        (exit,) = await all_exits(x.w.store)
        assert (exit.status, exit.init) == (Unknown("monitors-killed"), None)
        assert [kind for kind, exec_id in await x.log() if exec_id] == ["exec", "exit"]


@in_loop
async def test_an_exec_that_was_being_made_when_the_host_went_down_is_unknown(tmp_path: Path) -> None:
    await broken_off(tmp_path)
    async with again(tmp_path, boot="new") as x:
        await looked_up(x)
        await settled(x)
        found = [exit.status for exit in await all_exits(x.w.store) if exit.key.exec_id]
        assert found == [Unknown("host-rebooted")]
        assert "begun" not in x.manager.names()


@in_loop
async def test_an_exec_goes_on_under_the_next_daemon(tmp_path: Path) -> None:
    e = await left_behind(tmp_path)
    async with again(tmp_path) as x:
        await looked_up(x)
        await until(lambda: not x.w.node.containers.recovering, "the look-up")
        assert x.execs.of(x.id) == (e,)
        assert list(x.execs.keys()) == [e.key]
        x.ends(e.key, Exited(9))
        live = x.execs.get(x.id, e.key.exec_id)
        assert live is not None
        assert (await x.execs.wait(live)).status == Exited(9)
        await settled(x)


@in_loop
async def test_an_exec_that_ended_meanwhile_is_reported_before_its_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execlife, "BEFORE_END_SECONDS", 60.0)
    e = await left_behind(tmp_path)
    async with again(tmp_path) as x:
        x.manager.on_connect = lambda e: x.ends(e.key, Exited(43))
        x.w.manager.on_connect = lambda c: x.w.manager.ends(c.id)
        await looked_up(x)
        await until(lambda: x.container.phase is Phase.EXITED, "the end")
        assert [exec_id for kind, exec_id in await x.log() if kind == "exit"] == [e.key.exec_id, ""]
        exit = await x.w.store.exec_exit(x.id, e.key.exec_id)
        assert exit is not None and exit.status == Exited(43)
        await settled(x)


@in_loop
async def test_a_look_up_that_fails_is_tried_again(tmp_path: Path) -> None:
    e = await left_behind(tmp_path)
    async with again(tmp_path) as x:
        x.manager.fails["connect"] = [ShimFailed("no descriptors")]
        await looked_up(x)
        await until(lambda: not x.w.node.containers.recovering, "the look-up")
        assert x.manager.calls == [("connect", e.key.exec_id)] * 2


@in_loop
async def test_an_exec_that_never_began_has_failed_and_leaves_nothing(tmp_path: Path) -> None:
    await broken_off(tmp_path)
    async with again(tmp_path) as x:
        await looked_up(x)
        await settled(x)
        assert [kind for kind, exec_id in await x.log() if exec_id] == ["failed"]
        assert x.manager.names() == ["begun", "settle", "delete"]
        assert x.manager.deleted[0].init is None


@in_loop
async def test_after_a_reboot_every_exec_is_unknown_and_reported_before_its_container(tmp_path: Path) -> None:
    e = await left_behind(tmp_path)
    async with again(tmp_path, boot="new") as x:
        await looked_up(x)
        await settled(x)
        exit = await x.w.store.exec_exit(x.id, e.key.exec_id)
        assert exit is not None and exit.status == Unknown("host-rebooted")
        assert [exec_id for kind, exec_id in await x.log() if kind == "exit"] == [e.key.exec_id, ""]
        assert "connect" not in x.manager.names()


@in_loop
async def test_a_limit_outlives_the_daemon(tmp_path: Path) -> None:
    await left_behind(tmp_path, LIMITED)
    async with again(tmp_path) as x:
        await looked_up(x)
        await until(lambda: "signal 9 all" in x.manager.names(), "the limit")


@in_loop
async def test_a_limit_that_is_far_away_is_armed_again(tmp_path: Path) -> None:
    e = await left_behind(tmp_path, LONG)
    async with again(tmp_path) as x:
        await looked_up(x)
        await until(lambda: not x.w.node.containers.recovering, "the look-up")
        live = x.execs.get(x.id, e.key.exec_id)
        assert live is not None and live.timer is not None
        assert "signal 9 all" not in x.manager.names()


@in_loop
async def test_an_end_that_was_being_enforced_is_enforced_on(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        await x.begin(replace(SPEC, timeout_seconds=0.01))
        await until(lambda: "signal 9 all" in x.manager.names(), "the limit")
    async with again(tmp_path) as x:
        await looked_up(x)
        await until(lambda: "signal 9 all" in x.manager.names(), "the limit")
        assert [kind for kind, exec_id in await x.log() if exec_id] == ["exec", "timeout"]


@in_loop
async def test_what_a_killed_daemon_had_not_cleaned_up_is_looked_for(tmp_path: Path) -> None:
    e = await left_behind(tmp_path)
    async with again(tmp_path) as x:
        await looked_up(x)
        await until(lambda: x.manager.known, "the look")
        assert x.manager.known == [{e.key.exec_id}]
        x.ends(e.key)
        x.w.manager.ends(x.id)
        await until(lambda: x.container.clean, "the clean-up")
        assert x.manager.known == [{e.key.exec_id}, set()]


@in_loop
async def test_a_container_whose_execs_cannot_be_looked_for_is_found_all_the_same(tmp_path: Path) -> None:
    """What an adopted run directory has in their place may be a file."""
    await left_behind(tmp_path)
    async with again(tmp_path) as x:
        x.manager.fails["leaked_execs"] = [NotADirectoryError(errno.ENOTDIR, "a file") for _ in range(10_000)]
        await looked_up(x)
        await until(lambda: not x.w.node.containers.recovering, "the look-up")
        x.manager.fails["leaked_execs"].clear()
        await until(lambda: x.manager.known, "the clean-up that goes on")


@in_loop
async def test_rows_of_containers_that_are_gone_are_dropped(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        await x.begin()
        await x.w.store.commit(Transaction(removed=(x.id,)))
    async with again(tmp_path) as x:
        await x.execs.load()
        assert (x.execs._live, await x.stored()) == ({}, [])


@in_loop
async def test_what_a_shim_has_begun_goes_on_under_the_next_daemon(tmp_path: Path) -> None:
    await broken_off(tmp_path)
    async with again(tmp_path) as x:
        x.manager.begun = Process(50, 5)
        await looked_up(x)
        await until(lambda: not x.w.node.containers.recovering, "the look-up")
        (e,) = x.execs.of(x.id)
        assert (e.phase, e.init) == (ExecPhase.RUNNING, Process(50, 5))
        assert x.manager.names().count("connect") == 1
        x.ends(e.key, Exited(3))
        await settled(x)
        assert [kind for kind, exec_id in await x.log() if exec_id] == ["exec", "exit"]


@pytest.mark.parametrize("id", ["a\0b", "../../x", "", "/x", "\udcff", "e" * 201])
@in_loop
async def test_a_row_that_cannot_be_read_makes_no_path_of_an_id_that_no_exec_has(tmp_path: Path, id: str) -> None:
    async with running(tmp_path) as x:
        container = x.id
    with contextlib.closing(sqlite3.connect(tmp_path / "exitd.db")) as database, database:
        raw = id.encode("utf-8", "surrogateescape")
        database.execute("INSERT INTO execs VALUES (?, 1, CAST(? AS TEXT), 'x')", (container, raw))
        database.execute("INSERT INTO execs VALUES (?, -1, 'good', 'x')", (container,))
    async with again(tmp_path) as x:
        await looked_up(x)
        await until(lambda: not x.w.node.containers.recovering and not x.w.node.background, "the look-up")
        assert list(x.execs.keys()) == []
        assert x.execs._live == {}
        assert await all_exits(x.w.store) == []
