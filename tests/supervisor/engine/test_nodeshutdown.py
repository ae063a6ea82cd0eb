"""The host goes down: who is stopped, with which grace, in which order, and that nothing begins from then on."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from supervisor.config.settings import CgroupDriver, Config, RuntimeEntry
from supervisor.engine import ending, nodeshutdown
from supervisor.engine.admission import Admission
from supervisor.engine.imageservice import ImageService
from supervisor.engine.services import EngineServices
from supervisor.model.errors import ShuttingDown
from supervisor.model.taskfacts import Task
from supervisor.model.values import (
    Container,
    Phase,
    Policy,
    Reason,
    RestartPolicy,
    Signaled,
    Spec,
)
from tests.supervisor.engine.callers import services_of
from tests.supervisor.engine.test_podlife import MEMBER, PAUSE, NoImages
from tests.supervisor.fakes import World, hasty, in_loop, let_pass, until, world
from tests.supervisor.happenings import USER

__all__ = ["hasty"]
pytestmark = pytest.mark.usefixtures("hasty")

WEB = Spec("web", rootfs="/", args=("/x",), runtime="", network="")
ALWAYS = RestartPolicy(Policy.ALWAYS)
CONFIG = Config(cgroup_driver=CgroupDriver.CGROUPFS, runtimes=(RuntimeEntry("runc", "/bin/true"),))
LIMIT = 60.0


@contextlib.asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[tuple[World, EngineServices]]:
    async with world(directory) as w:
        services = services_of(w, Admission(w.node.containers, cast(ImageService, NoImages()), lambda: CONFIG))
        w.join(services.pod_keeper)
        obeys(w, 15)
        try:
            yield w, services
        finally:
            services.shutdown.close()


def obeys(w: World, *signals: int, never: tuple[str, ...] = ()) -> None:
    """Init ends at these signals and at SIGKILL, but for the containers named last, which nothing ends."""

    def on_kill(container: Container, signal: int) -> None:
        if signal in (9, *signals) and container.spec.name not in never:
            w.manager.ends(container.id, container.run, Signaled(signal))

    w.manager.on_kill = on_kill


async def up(o: EngineServices, spec: Spec = WEB) -> Container:
    return await o.containers.start((await o.containers.create(spec, USER)).id, USER)


def now(w: World, container: Container) -> Container:
    return w.node.containers[container.id]


@in_loop
async def test_what_runs_is_stopped_by_its_own_signal_and_rests_whatever_its_policy(tmp_path: Path) -> None:
    async with serving(tmp_path) as (w, o):
        containers = [
            await up(o, replace(WEB, name=f"w{number}", restart=RestartPolicy(policy)))
            for number, policy in enumerate(Policy)
        ]
        stopped = await o.shutdown.shut_down_node(LIMIT)
        assert (set(stopped.ended), stopped.left) == ({container.id for container in containers}, ())
        for each in (now(w, container) for container in containers):
            assert each.exit is not None and each.phase is Phase.EXITED and not each.stopped_by_user
            assert (each.exit.status, each.exit.reason) == (Signaled(15), Reason.NODE_SHUTDOWN)
            assert each.exit.by.policy == "node-shutdown"
        assert w.manager.count("kill") == len(containers)


@in_loop
async def test_all_are_stopped_at_once_and_killed_within_the_limit_whatever_their_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodeshutdown, "KILL_SHARE", 59 / 60)
    async with serving(tmp_path) as (w, o):
        obeys(w)
        for number in range(3):
            await up(o, replace(WEB, name=f"w{number}", stop_timeout_seconds=100))
        began = time.monotonic()
        stopped = await o.shutdown.shut_down_node(60.0)
        assert 0.9 < time.monotonic() - began < 30 and len(stopped.ended) == 3
        assert all(c.exit is not None and c.exit.status == Signaled(9) for c in w.node.containers.values())


@in_loop
async def test_what_cannot_be_ended_is_named_and_the_limit_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "STUCK_SECONDS", 1000.0)  # it would wait for as long as that
    async with serving(tmp_path) as (w, o):
        obeys(w, 15, never=("web",))
        stuck, other = await up(o), await up(o, replace(WEB, name="other"))
        stopping = asyncio.create_task(o.shutdown.shut_down_node(60.0))
        await until(lambda: w.manager.count("kill") == 2 and now(w, other).phase is Phase.EXITED, "the stop signals")
        let_pass(monkeypatch, 50)
        await until(lambda: w.manager.count("kill") == 3, "SIGKILL")
        assert not stopping.done()
        let_pass(monkeypatch, 10)
        stopped = await asyncio.wait_for(stopping, 60)
        assert (stopped.left, stopped.ended) == ((stuck.id,), (other.id,))
        obeys(w, 15)
        assert (await o.shutdown.shut_down_node(LIMIT)).ended == (stuck.id,)  # asked again


@in_loop
async def test_members_of_a_pod_end_before_its_pause_container_and_by_the_same_reason(tmp_path: Path) -> None:
    async with serving(tmp_path) as (w, o):
        pause = (await o.pods.run_pod(replace(PAUSE, restart=ALWAYS), USER)).pause.container
        member = await up(o, replace(MEMBER, sandbox=pause.id, restart=ALWAYS))
        await o.shutdown.shut_down_node(LIMIT)
        ends = [(e.name, e.exit.reason) for e in await w.store.events_after(0, 1000) if e.exit is not None]
        assert ends == [(member.spec.name, Reason.NODE_SHUTDOWN), (pause.spec.name, Reason.NODE_SHUTDOWN)]
        await asyncio.sleep(0)
        assert (now(w, member).phase, now(w, pause).phase) == (Phase.EXITED, Phase.EXITED)  # and no policy revives one


@in_loop
async def test_nothing_is_begun_from_then_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as (w, o):
        ended, created = await up(o), await o.containers.create(replace(WEB, name="created"), USER)
        await o.shutdown.shut_down_node(LIMIT)
        for refused in (
            o.containers.create(replace(WEB, name="new"), USER),
            o.containers.start(ended.id, USER),
            o.containers.restart(ended.id, 0, USER),
            o.containers.start(created.id, USER),
            o.pods.run_pod(PAUSE, USER),
        ):
            with pytest.raises(ShuttingDown):
                await refused
        assert {c.spec.name for c in w.node.containers.values()} == {"web", "created"}


@in_loop
async def test_a_planned_restart_is_not_acted_on_until_the_host_turns_out_to_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodeshutdown, "STAY_SECONDS", 0.5)
    async with serving(tmp_path) as (w, o):
        web = await up(o, replace(WEB, restart=ALWAYS))
        w.manager.ends(web.id, 1)
        await until(lambda: now(w, web).phase is Phase.RESTARTING)
        await o.shutdown.shut_down_node(LIMIT)
        await asyncio.sleep(0.2)  # its delay is 0.1
        assert (now(w, web).phase, now(w, web).run) == (Phase.RESTARTING, 1)
        await until(lambda: now(w, web).phase is Phase.RUNNING)
        assert now(w, web).run == 2


@in_loop
async def test_containerds_tasks_are_stopped_too_and_what_others_have_begun_is_left_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as (w, o):
        task = await w.running(replace(WEB, name="task", runtime="runc", task=Task("/bundle")))
        stranger = replace(now(w, await up(o)), id="begun-by-hand", spec=replace(WEB, name="hand"))
        w.node.containers[stranger.id] = stranger
        stopped = await o.shutdown.shut_down_node(LIMIT)
        assert len(stopped.ended) == 2 and task in stopped.ended
        exit_ = w.node.containers[task].exit
        assert exit_ is not None and (exit_.status, exit_.reason) == (Signaled(15), Reason.NODE_SHUTDOWN)
        assert w.node.containers[stranger.id].phase is Phase.RUNNING
        del w.node.containers[stranger.id]


@in_loop
async def test_a_run_that_was_about_to_begin_is_stopped_too(tmp_path: Path) -> None:
    async with serving(tmp_path) as (w, o):
        w.manager.gates["create"] = asyncio.Event()
        making = asyncio.create_task(o.containers.create(WEB, USER))
        await until(lambda: w.manager.count("create"))
        stopping = asyncio.create_task(o.shutdown.shut_down_node(LIMIT))
        await asyncio.sleep(0)
        w.manager.gates["create"].set()
        made = await making
        assert (await stopping).ended == (made.id,)
