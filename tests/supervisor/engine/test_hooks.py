"""Hooks on a real node, their processes being make-believe: what is tried again, and what ends a run."""

import asyncio
import errno
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from supervisor.engine import ending, hooks
from supervisor.engine.hooks import POST_START, HookKeeper, HookRunner
from supervisor.model import lifecycle as life
from supervisor.model.errors import Busy, RuntimeFailed, StoreFailed, WrongState
from supervisor.model.health import ProbeAnswer, ProbeResult
from supervisor.model.values import (
    Asked,
    By,
    Container,
    Exited,
    HealthSpec,
    HookAction,
    HookKind,
    Hooks,
    HookStage,
    HttpTarget,
    Phase,
    Reason,
    Signaled,
    Spec,
)
from supervisor.system.clock import boot_now
from tests.supervisor.engine.callers import services_of
from tests.supervisor.fakes import World, hasty, in_loop, until, world

__all__ = ["hasty"]
pytestmark = pytest.mark.usefixtures("hasty", "soon")
WORKED, FAILED = ProbeResult(1, 2, Exited(0)), ProbeResult(1, 2, Exited(1))
EXEC, HTTP = HookAction(("true",)), HookAction((), HttpTarget("", 80))


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(ending, "AGAIN_SECONDS", 0.01)


@dataclass
class Script:
    """Runs hooks: each comes to the next of these."""

    outcomes: list[ProbeResult | Exception | None] = field(default_factory=list)
    begun: int = 0

    async def run(self, container: Container, spec: HealthSpec) -> ProbeResult | None:
        self.begun += 1
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def joined(w: World, script: Script) -> HookKeeper:
    """The keeper of the world's hooks; what it ends dies of its stop signal."""
    services = services_of(w, None)
    w.manager.on_kill = lambda c, number: w.manager.ends(c.id, c.run, Signaled(number))
    keeper = HookKeeper(w.node, HookRunner(w.node, script.run), services.ending.by_policy)
    w.join(services.ending, keeper)
    return keeper


@pytest.mark.parametrize(
    ("action", "error"),
    [
        (EXEC, Busy("no room")),
        (EXEC, StoreFailed("the disk is full")),
        (EXEC, WrongState("web is paused", phase="paused")),
        (HTTP, OSError(errno.EAGAIN, "no thread")),
    ],
)
def test_a_hook_that_could_not_be_begun_for_no_fault_of_the_containers_is_tried_again(
    tmp_path: Path, action: HookAction, error: Exception
) -> None:
    @in_loop
    async def run() -> None:
        async with world(tmp_path) as w:
            script = Script([error, error, WORKED])
            joined(w, script)
            id = await w.running(Spec(name="web", hooks=Hooks(post_start=action)))
            await until(lambda: w.node.containers[id].post_start is HookStage.DONE, "the hook")
            assert script.begun == 3 and w.node.containers[id].asked is None

    run()


@pytest.mark.parametrize("outcome", [FAILED, ProbeResult(1, 2, ProbeAnswer(False)), RuntimeFailed("no")])
def test_one_that_has_failed_ends_the_run_and_is_not_tried_again(
    tmp_path: Path, outcome: ProbeResult | Exception
) -> None:
    @in_loop
    async def run() -> None:
        async with world(tmp_path) as w:
            script = Script([outcome])
            joined(w, script)
            id = await w.running(Spec(name="web", hooks=Hooks(post_start=EXEC)))
            await until(lambda: w.node.containers[id].phase is Phase.EXITED, "its end")
            exit_ = w.node.containers[id].exit
            assert exit_ is not None and (exit_.reason, exit_.by) == (Reason.HEALTH, POST_START)
            assert "hook" not in await w.event_types()

    run()


@in_loop
async def test_a_store_that_refuses_delays_a_hook_and_the_end_that_its_failure_asks_for(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        script = Script([FAILED])
        keeper = joined(w, script)
        w.join()  # nobody hears of its start
        id = await w.running(Spec(name="web", hooks=Hooks(post_start=EXEC)))
        services = services_of(w, None)
        w.join(services.ending, keeper)
        w.store.refusals = 3
        keeper.changed(w.node.containers[id])
        await until(lambda: script.begun, "the hook")
        w.store.refusals = 3
        await until(lambda: w.node.containers[id].phase is Phase.EXITED, "its end")
        exit_ = w.node.containers[id].exit
        assert exit_ is not None and exit_.reason is Reason.HEALTH and script.begun == 1


@in_loop
async def test_a_hook_waits_for_the_thaw_of_its_container(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        script = Script([WORKED])
        id = await w.running(Spec(name="web", hooks=Hooks(post_start=HTTP)))
        await w.node.apply(id, life.Paused())
        runner = HookRunner(w.node, script.run)
        once = asyncio.ensure_future(runner.once(w.node.containers[id], HookKind.POST_START, HTTP, 60.0))
        await until(lambda: w.node.containers[id].post_start is HookStage.BEGUN, "its beginning")
        assert script.begun == 0
        await w.node.apply(id, life.Resumed())
        assert await once is True and script.begun == 1


@in_loop
async def test_the_hook_of_an_earlier_run_is_not_waited_for_and_ends_with_its_run(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        services = services_of(w, None)
        w.join(services.ending)
        w.manager.on_kill = lambda c, number: w.manager.ends(c.id, c.run, Signaled(number))
        sleeps = Hooks(pre_stop=HookAction(sleep_seconds=3600))
        id = await w.running(Spec(name="web", hooks=sleeps))
        stopping = asyncio.ensure_future(services.ending.end(w.node.containers[id], Reason.STOP, By(uid=0), 3600.0))
        await until(lambda: _stage(w, id) is HookStage.BEGUN, "the hook")
        w.manager.ends(id, 1)
        await stopping
        await until(lambda: w.node.containers[id].clean, "its clean-up")
        await w.node.apply(id, life.Again(By(uid=0)))
        await w.runs.make(id)
        await w.runs.launch(id)
        again = w.node.containers[id]
        asked = Asked(Reason.STOP, By(uid=0), 15)
        await w.node.apply(id, life.EndAsked(asked, again.run, boot_now(w.node.clock).later(3600 * 10**9)))
        await until(lambda: _stage(w, id) is HookStage.BEGUN, "the hook of this run")
        w.manager.ends(id, again.run)
        await until(lambda: w.node.containers[id].phase is Phase.EXITED, "its end")
        await until(lambda: not services.ending._hooks_under_way, "the end of the hooks")


def _stage(w: World, id: str) -> HookStage | None:
    ending_ = w.node.containers[id].ending
    return ending_.pre_stop if ending_ is not None else None
