import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.engine import ending
from supervisor.engine.services import EngineServices
from supervisor.model.errors import NoSuchContainer, NoSuchExec, WrongState
from supervisor.model.lifecycle import StartAsked, Started
from supervisor.model.values import Exited, Phase, Reason, RunKey, Signaled
from tests.supervisor.engine.callers import services_of
from tests.supervisor.engine.test_operations import Admits
from tests.supervisor.exec_fakes import SPEC, WEB, ExecWorld, at_once, exec_world, settled
from tests.supervisor.fakes import hasty, in_loop, until
from tests.supervisor.happenings import USER

__all__ = ["at_once", "hasty"]
pytestmark = pytest.mark.usefixtures("at_once")


@contextlib.asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[tuple[ExecWorld, EngineServices]]:
    async with exec_world(directory) as x:
        o = services_of(x.w, Admits(), x.execs)
        x.id = await x.w.running(WEB)
        yield x, o


@in_loop
async def test_a_container_is_named_as_everywhere_and_its_exec_by_its_id(tmp_path: Path) -> None:
    async with serving(tmp_path) as (x, o):
        e = await o.execs.exec("web", SPEC, USER)
        x.manager.on_signal = lambda e, number, everyone: x.ends(e.key, Signaled(number))
        waiting = asyncio.create_task(o.execs.wait_exec(x.id[:12], e.key.exec_id, 0))
        await o.execs.kill_exec(x.id[:12], e.key.exec_id, 15, False, USER)
        assert ((await waiting).status, (await waiting).reason) == (Signaled(15), Reason.KILL)


@in_loop
async def test_an_exec_waits_for_a_start_that_is_under_way(tmp_path: Path) -> None:
    async with serving(tmp_path) as (x, o):
        x.w.node.containers[x.id] = replace(x.container, phase=Phase.CREATED)
        await x.w.node.apply(x.id, StartAsked(USER))
        beginning = asyncio.create_task(o.execs.exec("web", SPEC, USER))
        await until(lambda: len(x.w.node.containers.changes) == 1, "it waits")
        assert x.manager.calls == []
        await x.w.node.apply(x.id, Started(5))
        assert (await beginning).key.container == x.id


@in_loop
async def test_an_end_is_reported_again_as_long_as_the_ledger_has_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as (x, o):
        key = (await o.execs.exec("web", SPEC, USER)).key
        x.ends(key, Exited(4))
        first = await o.execs.wait_exec("web", key.exec_id, 0)
        await settled(x)
        for run in (0, 1):
            assert await o.execs.wait_exec("web", key.exec_id, run) == first
        with pytest.raises(NoSuchExec):
            await o.execs.wait_exec("web", key.exec_id, 2)
        with pytest.raises(WrongState, match="has ended"):
            await o.execs.kill_exec("web", key.exec_id, 9, False, USER)
        with pytest.raises(WrongState, match="has ended"):
            await o.execs.target(x.container, key.exec_id)
        x.w.manager.on_kill = lambda container, signal: x.w.manager.ends(container.id)
        await o.containers.remove("web", True, USER)
        assert await o.execs.wait_exec(x.id, key.exec_id, 0) == first


@in_loop
async def test_what_was_never_there_is_said_to_be_missing(tmp_path: Path) -> None:
    async with serving(tmp_path) as (x, o):
        with pytest.raises(NoSuchExec, match="web has no exec e9"):
            await o.execs.wait_exec("web", "e9", 0)
        with pytest.raises(NoSuchExec):
            await o.execs.kill_exec("web", "e9", 9, False, USER)
        with pytest.raises(NoSuchExec):
            await o.execs.target(x.container, "e9")
        with pytest.raises(NoSuchContainer):
            await o.execs.exec("nobody", SPEC, USER)


@in_loop
async def test_a_container_shows_those_that_have_not_ended(tmp_path: Path) -> None:
    async with serving(tmp_path) as (x, o):
        one, two = await o.execs.exec("web", SPEC, USER), await o.execs.exec("web", SPEC, USER)
        assert (await o.containers.inspect("web")).execs == (one, two)
        x.ends(one.key)
        await o.execs.wait_exec("web", one.key.exec_id, 0)
        assert (await o.containers.inspect("web")).execs == (two,)


@in_loop
async def test_what_is_attached_to_is_the_execs_own_directory(tmp_path: Path) -> None:
    async with serving(tmp_path) as (x, o):
        e = await o.execs.exec("web", replace(SPEC, tty=True, stdin=True), USER)
        target = await o.execs.target(x.container, e.key.exec_id)
        assert (target.directory, target.tty, target.stdin) == (f"/state/{e.key.exec_id}", True, True)
        x.ends(e.key)
        await target.over()


@in_loop
async def test_whoever_keeps_an_init_from_dying_is_looked_for_among_its_execs_too(tmp_path: Path) -> None:
    async with serving(tmp_path) as (x, o):
        e = await o.execs.exec("web", SPEC, USER)
        o.ending.unstick(x.container)
        assert x.manager.calls[-1] == ("unstick", e.key.exec_id)


@in_loop
async def test_a_pods_execs_are_those_of_its_members_too(tmp_path: Path) -> None:
    async with serving(tmp_path) as (x, o):
        member = await x.w.running(replace(WEB, name="member", sandbox=x.id))
        e = await o.execs.exec("member", SPEC, USER)
        o.ending.unstick(x.container)
        assert x.manager.calls[-1] == ("unstick", e.key.exec_id)
        assert e.key == RunKey(member, 1, e.key.exec_id)
        assert e.pod == x.id


@in_loop
async def test_a_stop_that_sigkill_does_not_end_looks_at_the_shims_of_execs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "STUCK_SECONDS", 0.01)
    async with serving(tmp_path) as (x, o):
        e = await o.execs.exec("web", SPEC, USER)
        stopping = asyncio.create_task(o.containers.stop("web", 0, USER))
        await until(lambda: ("unstick", e.key.exec_id) in x.manager.calls, "the look")
        x.ends(e.key, Signaled(9))
        x.w.manager.ends(x.id, status=Signaled(9))
        assert (await stopping).phase is Phase.EXITED
