import asyncio
import errno
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.engine import execlife, node
from supervisor.model.errors import (
    Busy,
    CommandNotFound,
    NoSuchExec,
    RuntimeFailed,
    ShimFailed,
    StoreFailed,
    WrongState,
)
from supervisor.model.execs import CONTAINER_EXIT, ExecPhase
from supervisor.model.lifecycle import Paused
from supervisor.model.values import Exited, Phase, Reason, RunKey, Signaled, Unknown
from tests.supervisor.exec_fakes import SPEC, at_once, running, settled
from tests.supervisor.fakes import hasty, in_loop, until
from tests.supervisor.happenings import USER

__all__ = ["at_once", "hasty"]
pytestmark = pytest.mark.usefixtures("at_once")
LIMITED = replace(SPEC, timeout_seconds=0.05)


@in_loop
async def test_the_row_is_stored_before_anything_is_made_and_goes_with_the_end(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        x.manager.gates["create"] = asyncio.Event()
        beginning = asyncio.create_task(x.begin())
        await until(lambda: x.manager.names() == ["create"], "create")
        (row,) = await x.stored()
        assert (row.phase, row.key.container, row.key.run) == (ExecPhase.CREATING, x.id, 1)
        x.manager.gates["create"].set()
        live = await beginning
        (row,) = await x.stored()
        assert (row.phase, row.init, row.oom_before) == (ExecPhase.RUNNING, live.exec.init, 2)
        assert x.execs.of(x.id) == (live.exec,)
        x.ends(live.key, Exited(3))
        exit = await x.execs.wait(live)
        assert (exit.key, exit.status, exit.reason) == (live.key, Exited(3), Reason.SELF)
        await settled(x)
        assert await x.w.store.exec_exit(x.id, live.key.exec_id) == exit
        assert await x.log() == [
            *(("create", ""), ("start", "")),
            *(("exec", live.key.exec_id), ("exit", live.key.exec_id)),
        ]
        assert x.manager.names() == ["create", "settle", "delete"]


@in_loop
async def test_what_cannot_be_stored_is_not_made(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        x.w.store.refusals = 1
        with pytest.raises(StoreFailed):
            await x.begin()
        assert x.manager.calls == []
        await settled(x)


@in_loop
async def test_what_failed_to_begin_is_told_to_its_caller_and_leaves_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        x.manager.fails["create"] = [CommandNotFound("'nope': not found")]
        with pytest.raises(CommandNotFound):
            await x.begin()
        await settled(x)
        assert [kind for kind, exec_id in await x.log() if exec_id] == ["failed"]
        assert x.manager.deleted[0].init is None
        assert await x.w.store.exits() == []


@in_loop
async def test_a_bug_in_between_leaves_nothing_either(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        x.manager.fails["create"] = [ZeroDivisionError("a bug")]
        with pytest.raises(ZeroDivisionError):
            await x.begin()
        await settled(x)


@in_loop
async def test_an_end_that_is_quicker_than_the_commit_of_the_beginning_comes_after_it(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        x.manager.on_create = lambda e: x.ends(e.key, Exited(7))
        live = await x.begin()
        assert (await x.execs.wait(live)).status == Exited(7)
        assert [kind for kind, exec_id in await x.log() if exec_id] == ["exec", "exit"]


@in_loop
async def test_an_end_waits_for_a_store_that_refuses_and_nobody_is_told_before(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        live = await x.begin()
        x.w.store.refusals = sys.maxsize
        x.ends(live.key)
        await until(lambda: x.w.health == [False], "bad health")
        assert (live.over.is_set(), live.key in x.w.node.pending) == (False, True)
        x.w.store.refusals = 0
        await x.execs.wait(live)
        assert x.w.health == [False, True]
        await settled(x)


@in_loop
async def test_an_end_whose_commit_got_through_unheard_is_stored_once(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        live = await x.begin()
        x.w.store.late = 1
        x.ends(live.key)
        await x.execs.wait(live)
        await settled(x)
        assert len(await x.w.store.exits()) == 1
        assert [kind for kind, exec_id in await x.log() if exec_id] == ["exec", "exit"]


@in_loop
async def test_a_second_witness_of_an_end_is_no_news(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        live = await x.begin()
        x.ends(live.key, Exited(7))
        x.ends(live.key, Unknown("monitors-killed"))
        assert (await x.execs.wait(live)).status == Exited(7)
        await settled(x)
        x.ends(live.key)
        assert len(await x.w.store.exits()) == 1


@in_loop
async def test_only_a_running_container_takes_one(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        await x.w.node.apply(x.id, Paused())
        with pytest.raises(WrongState, match="web is paused; resume it first"):
            await x.begin()
        for phase in set(Phase) - {Phase.RUNNING, Phase.PAUSED}:
            x.w.node.containers[x.id] = replace(x.container, phase=phase)
            with pytest.raises(WrongState, match=f"web is {phase.value}; an exec needs a running container"):
                await x.begin()
        x.w.node.containers[x.id] = replace(x.container, phase=Phase.RUNNING)
        x.w.manager.ending.add(x.id)
        with pytest.raises(WrongState, match="web has ended"):
            await x.begin()
        assert (x.manager.calls, await x.stored()) == ([], [])


@in_loop
async def test_a_container_that_has_ended_meanwhile_is_the_reason_not_the_runtimes_words(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        x.manager.fails["create"] = [RuntimeFailed("exec: cannot join")]
        x.manager.on_create = lambda e: x.w.manager.ending.add(x.id)
        with pytest.raises(WrongState, match="web has ended"):
            await x.begin()


@in_loop
async def test_an_exec_whose_container_ended_while_it_was_made_is_killed_and_ends_with_it(tmp_path: Path) -> None:
    """Also where the runtime took another process for the dead init, whose number it has."""
    async with running(tmp_path) as x:
        x.manager.on_create = lambda e: x.w.manager.ending.add(x.id)
        x.manager.on_signal = lambda e, number, everyone: x.ends(e.key, Signaled(number))
        live = await x.begin()
        exit = await x.execs.wait(live)
        assert (exit.status, exit.reason, exit.by) == (Signaled(9), Reason.KILL, CONTAINER_EXIT)
        assert x.manager.names()[:2] == ["create", "signal 9"]
        await settled(x)


@in_loop
async def test_a_kill_is_recorded_before_it_is_sent(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        live = await x.begin()
        x.manager.on_signal = lambda e, number, everyone: x.ends(e.key, Signaled(number))
        await x.execs.kill(live, 15, False, USER)
        exit = await x.execs.wait(live)
        assert (exit.status, exit.reason, exit.by) == (Signaled(15), Reason.KILL, USER)
        assert [kind for kind, exec_id in await x.log() if exec_id] == ["exec", "kill", "exit"]
        with pytest.raises(WrongState):
            await x.execs.kill(live, 15, False, USER)


@in_loop
async def test_a_kill_of_all_reaches_its_family(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        live = await x.begin()
        await x.execs.kill(live, 9, True, USER)
        assert "signal 9 all" in x.manager.names()


@in_loop
async def test_an_exec_that_reaches_its_limit_is_ended_whole_and_says_so(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        x.manager.on_signal = lambda e, number, everyone: x.ends(e.key, Signaled(number))
        live = await x.begin(LIMITED)
        exit = await x.execs.wait(live)
        assert (exit.status, exit.reason, exit.by.policy) == (Signaled(9), Reason.TIMEOUT, "timeout")
        assert "signal 9 all" in x.manager.names()
        assert [kind for kind, exec_id in await x.log() if exec_id] == ["exec", "timeout", "exit"]
        await settled(x)


@in_loop
async def test_an_exec_that_ends_in_time_is_not_ended_later(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        live = await x.begin(LIMITED)
        x.ends(live.key, Exited(0))
        assert (await x.execs.wait(live)).reason is Reason.SELF
        assert live.timer is None
        await settled(x)


@in_loop
async def test_a_limit_that_cannot_be_stored_is_enforced_as_soon_as_it_can(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        live = await x.begin(replace(SPEC, timeout_seconds=0.01))
        x.w.store.refusals = 3
        await until(lambda: "signal 9 all" in x.manager.names(), "the end")
        assert x.w.store.refusals == 0
        assert live.exec.asked is not None and live.exec.asked.reason is Reason.TIMEOUT


@in_loop
async def test_the_ends_of_execs_come_before_their_containers_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execlife, "BEFORE_END_SECONDS", 60.0)
    async with running(tmp_path) as x:
        one, two = await x.begin(), await x.begin()
        x.w.manager.ending.add(x.id)
        x.w.manager.ends(x.id, status=Signaled(9))
        await until(lambda: "signal 9" in x.manager.names(), "the execs' end")
        x.ends(one.key, Signaled(9))
        x.ends(two.key, Signaled(9))
        await until(lambda: x.container.phase is Phase.EXITED, "the container's end")
        ended = [exec_id for kind, exec_id in await x.log() if kind == "exit"]
        assert ended == [one.key.exec_id, two.key.exec_id, ""]
        exit = await x.execs.wait(one)
        assert (exit.reason, exit.by) == (Reason.KILL, CONTAINER_EXIT)
        await settled(x)


@in_loop
async def test_a_container_without_execs_waits_for_nobody(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        async with asyncio.timeout(0.001):
            await x.execs.before_end(x.id)
            await x.execs.before_clean_up(x.id)


@in_loop
async def test_an_exec_that_cannot_be_signalled_for_want_of_a_descriptor_keeps_no_end_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execlife, "BEFORE_END_SECONDS", 0.01)
    async with running(tmp_path) as x:
        live = await x.begin()

        async def refused(*_: object, **__: object) -> None:
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr(x.manager, "signal_exec", refused)
            x.w.manager.ends(x.id, status=Signaled(9))
            await until(lambda: x.container.phase is Phase.EXITED, "the container's end")
        x.ends(live.key, Signaled(9))
        await settled(x)


@in_loop
async def test_an_exec_whose_end_nobody_reports_holds_its_container_up_for_a_moment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execlife, "BEFORE_END_SECONDS", 0.01)
    monkeypatch.setattr(execlife, "STUCK_SECONDS", 0.01)
    async with running(tmp_path) as x:
        live = await x.begin()
        x.w.manager.ends(x.id)
        await until(lambda: x.container.phase is Phase.EXITED, "the container's end")
        await until(lambda: "unstick" in x.manager.names(), "a look at its shim")
        assert (x.container.clean, x.w.manager.count("delete")) == (False, 0)
        with pytest.raises(WrongState):
            await x.begin()
        x.ends(live.key, Signaled(9))
        await until(lambda: x.container.clean, "the clean-up of the run")
        assert x.manager.deleted == [live.exec]


@in_loop
async def test_output_that_is_to_be_attached_to_waits_but_not_beyond_the_container(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        x.manager.on_create = lambda e: x.manager.shims.update({e.key: asyncio.Event()})
        one, two = await x.begin(replace(SPEC, attach=True)), await x.begin(replace(SPEC, attach=True))
        x.ends(one.key)
        x.ends(two.key)
        await asyncio.gather(x.execs.wait(one), x.execs.wait(two))
        assert x.execs.get(x.id, one.key.exec_id) is one
        x.manager.shims[one.key].set()  # somebody came, and has it all
        async with asyncio.timeout(30):
            await one.gone.wait()
        assert not two.gone.is_set()
        x.w.manager.ends(x.id)
        async with asyncio.timeout(30):
            await two.gone.wait()


@in_loop
async def test_a_clean_up_that_fails_is_tried_again(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        x.manager.fails["delete"] = [ShimFailed("busy"), OSError("busy")]
        live = await x.begin()
        x.ends(live.key)
        await settled(x)
        assert x.manager.names().count("delete") == 3


@in_loop
async def test_what_never_ran_cannot_be_waited_for(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        x.manager.gates["create"] = asyncio.Event()
        x.manager.fails["create"] = [RuntimeFailed("broken")]
        beginning = asyncio.create_task(x.begin())
        await until(lambda: x.manager.names() == ["create"], "create")
        (live,) = x.execs._of(x.id)
        waiting = asyncio.create_task(x.execs.wait(live))
        x.manager.gates["create"].set()
        with pytest.raises(RuntimeFailed):
            await beginning
        with pytest.raises(NoSuchExec, match="never ran: broken"):
            await waiting


@in_loop
async def test_keys_are_those_the_keeper_must_not_forget(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        live = await x.begin()
        assert list(x.execs.keys()) == [RunKey(x.id, 1, live.key.exec_id)]
        x.ends(live.key)
        await x.execs.wait(live)
        assert list(x.execs.keys()) == []


def test_an_exec_that_a_slow_disk_takes_long_to_store_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "SLOW_SECONDS", 0.02)

    async def main() -> None:
        async with running(tmp_path) as x:
            x.manager.gates["create"] = asyncio.Event()
            begun = asyncio.ensure_future(x.begin())
            await until(lambda: x.manager.names() == ["create"], "the shim")
            with x.w.store.slow():
                x.manager.gates["create"].set()
                await until(lambda: x.w.health, "the word of health")
            live = await begun
            x.ends(live.key)
            await settled(x)
            assert [kind for kind, exec_id in await x.log() if exec_id] == ["exec", "exit"]

    asyncio.run(main())


@in_loop
async def test_an_exec_past_its_limit_is_killed_as_soon_as_there_is_room_for_that(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        x.manager.fails["signal 9 all"] = [Busy("full"), OSError(errno.EMFILE, "full")]
        x.manager.on_signal = lambda e, number, everyone: x.ends(e.key, Signaled(number))
        live = await x.begin(LIMITED)
        assert (await x.execs.wait(live)).reason is Reason.TIMEOUT
        assert x.manager.names().count("signal 9 all") == 3
        await settled(x)


@in_loop
async def test_a_settling_of_an_exec_that_finds_no_room_is_tried_again(tmp_path: Path) -> None:
    async with running(tmp_path) as x:
        x.manager.fails["settle"] = [OSError(errno.EMFILE, "full")]
        live = await x.begin()
        x.ends(live.key)
        await settled(x)
        assert live.gone.is_set() and x.manager.names() == ["create", "settle", "settle", "delete"]
