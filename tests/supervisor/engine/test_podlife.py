"""Pods in the daemon without a runtime: cascades, revivals, refusals, and what is left to do after a restart."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from supervisor.config.settings import CgroupDriver, Config, RuntimeEntry
from supervisor.engine import exits
from supervisor.engine.admission import Admission
from supervisor.engine.imageservice import ImageService
from supervisor.engine.services import EngineServices
from supervisor.model.errors import BadRequest, NoSuchContainer, RuntimeFailed, WrongState
from supervisor.model.pods import PodState
from supervisor.model.values import (
    Container,
    ExitPolicy,
    LogSpec,
    OnPauseExit,
    Phase,
    Pod,
    Policy,
    Process,
    Reason,
    Report,
    RestartPolicy,
    RunKey,
    Signaled,
    Source,
    Spec,
)
from tests.supervisor.engine.callers import services_of
from tests.supervisor.fakes import LIMIT_SECONDS, World, hasty, in_loop, until, world
from tests.supervisor.happenings import USER

__all__ = ["hasty"]
pytestmark = pytest.mark.usefixtures("hasty")

PAUSE = Spec("", rootfs="/", args=("/pause",), runtime="", network="")
MEMBER = replace(PAUSE, name="m")


@pytest.fixture
def patient(hasty: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a pause process is waited for, however long the disk takes to store it."""
    monkeypatch.setattr(exits, "END_SEEN_SECONDS", LIMIT_SECONDS)


RUNTIMES = Config(
    cgroup_driver=CgroupDriver.CGROUPFS, runtimes=tuple(RuntimeEntry(name, "/bin/true") for name in ("runc", "crun"))
)


class NoImages:
    """Nothing here stands on an image."""

    async def look_up(self, spec: Spec) -> None:
        return None

    async def hold(self, spec: Spec, container_id: str) -> None:
        assert not spec.image_id


@contextlib.asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[tuple[World, EngineServices]]:
    async with world(directory) as w:
        admission = Admission(w.node.containers, cast(ImageService, NoImages()), lambda: RUNTIMES)
        services = services_of(w, admission)
        w.join(services.pod_keeper)
        obeys(w)
        yield w, services


def obeys(w: World) -> None:
    w.manager.on_kill = lambda container, signal: w.manager.ends(container.id, container.run, Signaled(signal))


async def pod(o: EngineServices, **fields: object) -> Container:
    spec = replace(PAUSE, **fields)  # type: ignore[arg-type]
    return (await o.pods.run_pod(spec, USER)).pause.container


async def member(o: EngineServices, pause: Container, **fields: object) -> Container:
    made = await o.containers.create(replace(MEMBER, sandbox=pause.id, **fields), USER)  # type: ignore[arg-type]
    return await o.containers.start(made.id, USER)


def now(w: World, container: Container) -> Container:
    return w.node.containers[container.id]


@in_loop
async def test_a_pod_is_ready_when_it_has_been_run(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, o):
        view = await o.pods.run_pod(replace(PAUSE, pod=Pod("web", attempt=3)), USER)
        assert (view.state, view.pod.name, view.pod.attempt) == (PodState.READY, "web", 3)
        assert view.pause.container.spec.name == "web_3"
        assert [each.pause.container.id for each in o.pods.pods(("state=ready",))[0]] == [view.pause.container.id]
        assert not o.pods.pods(("state=notready",))[0]


@in_loop
async def test_a_pod_whose_pause_container_cannot_be_started_leaves_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as (w, o):
        w.manager.fails["start"].append(RuntimeFailed("no"))
        with pytest.raises(RuntimeFailed):
            await pod(o)
        await until(lambda: not w.node.containers)


@in_loop
async def test_a_pod_whose_pause_container_ends_while_it_is_started_is_none_and_leaves_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as (w, o):
        w.manager.on_start = lambda container: w.manager.ends(container.id, container.run, Signaled(9))
        for policy in (Policy.NO, Policy.ALWAYS):
            with pytest.raises(RuntimeFailed, match="before the pod was ready"):
                await pod(o, restart=RestartPolicy(policy))
            assert not w.node.containers


@in_loop
async def test_a_pod_that_removes_itself_takes_its_members_along_and_its_files_go_last(tmp_path: Path) -> None:
    async with serving(tmp_path) as (w, o):
        pause = await pod(o, auto_remove=True)
        joined = [(await member(o, pause, name=name)).id for name in ("m", "n")]
        w.manager.ends(pause.id)
        await until(lambda: not w.node.containers)
        assert {*w.manager.discarded[:-1]} == {*joined}
        assert w.manager.discarded[-1] == pause.id


@in_loop
async def test_a_member_that_comes_while_its_pod_is_removed_goes_too(tmp_path: Path) -> None:
    async with serving(tmp_path) as (w, o):
        pause = await pod(o)
        w.manager.gates["kill"] = asyncio.Event()
        removing = asyncio.ensure_future(o.pods.remove_pod(pause.id, True, USER))
        await until(lambda: w.manager.count("kill") == 1)
        await o.containers.create(replace(MEMBER, sandbox=pause.id), USER)
        w.manager.gates["kill"].set()
        await removing
        assert not w.node.containers


@in_loop
async def test_members_get_their_pods_network_runtime_host_name_and_namespace(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, o):
        pause = await pod(o, runtime="crun", hostname="h", namespace="other")
        joined = (await member(o, pause, network="none")).spec
        assert (joined.network, joined.runtime, joined.hostname, joined.namespace) == ("pod", "crun", "h", "other")
        on_host = await pod(o, network="host")
        assert (await member(o, on_host, name="n")).spec.network == "host"


@in_loop
async def test_a_members_log_path_is_below_its_pods_log_directory_unless_it_is_absolute(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, o):
        (tmp_path / "web").mkdir()
        pause, below = await pod(o, pod=Pod(log_directory=f"{tmp_path}/")), f"{tmp_path}/web/0.log"
        for asked, path in (("web/0.log", below), (f"{tmp_path}/a.log", f"{tmp_path}/a.log"), ("", "")):
            made = await o.containers.create(replace(MEMBER, sandbox=pause.id, name="", log=LogSpec(path=asked)), USER)
            assert made.spec.log.path == path
        for taken in ("web/0.log", below):
            with pytest.raises(WrongState, match="is that of"):
                await o.containers.create(replace(MEMBER, sandbox=pause.id, name="x", log=LogSpec(path=taken)), USER)


@in_loop
async def test_what_contradicts_itself_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, o):
        pause = await pod(o)
        single = await o.containers.create(MEMBER, USER)
        docker = (("io.kubernetes.docker.type", "container"), ("io.kubernetes.sandbox.id", "other"))
        for spec, error in (
            (replace(MEMBER, sandbox=pause.id, pod=Pod()), BadRequest),
            (replace(MEMBER, sandbox=pause.id, annotations=docker), BadRequest),
            (replace(MEMBER, sandbox=single.id), BadRequest),
            (replace(MEMBER, sandbox="nobody"), NoSuchContainer),
            (replace(MEMBER, sandbox=pause.id, network="host"), BadRequest),
            (replace(MEMBER, network="pod"), BadRequest),
            (replace(MEMBER, pid="pod"), BadRequest),
            (replace(PAUSE, pod=Pod(), network="pod"), BadRequest),
            (replace(PAUSE, pod=Pod(), pid="pod"), BadRequest),
            (replace(PAUSE, pod=Pod(on_pause_exit=OnPauseExit.KEEP), auto_remove=True), BadRequest),
        ):
            with pytest.raises(error):
                await o.containers.create(replace(spec, name="x"), USER)
        assert len(await members_left(o)) == 2


async def members_left(o: EngineServices) -> list[str]:
    views, _ = o.containers.listing(True, ())
    return [view.container.id for view in views]


@in_loop
async def test_members_end_with_their_sandbox(tmp_path: Path) -> None:
    async with serving(tmp_path) as (w, o):
        pause = await pod(o)
        joined = await member(o, pause)
        w.manager.ends(pause.id)
        await until(lambda: now(w, joined).phase is Phase.EXITED)
        exit_ = now(w, joined).exit
        assert exit_ is not None
        assert (exit_.reason, exit_.by.policy) == (Reason.PAUSE_EXIT, "pause-exit")


@in_loop
async def test_a_member_with_a_policy_waits_for_the_next_sandbox_and_comes_back_with_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as (w, o):
        pause = await pod(o)
        joined = await member(o, pause, restart=RestartPolicy(Policy.ALWAYS))
        w.manager.ends(pause.id)
        await until(lambda: now(w, joined).phase is Phase.EXITED and now(w, joined).clean)
        await o.containers.start(pause.id, USER)
        await until(lambda: now(w, joined).phase is Phase.RUNNING)
        assert (now(w, joined).run, now(w, joined).sandbox_run) == (2, 2)
        assert (await o.pods.inspect_pod(pause.id)).pod.attempt == 1


@pytest.mark.usefixtures("patient")
@in_loop
async def test_who_is_killed_with_the_pid_namespace_of_its_pod_says_so_and_nobody_else_does(tmp_path: Path) -> None:
    async with serving(tmp_path) as (w, o):
        made = await pod(o)
        shares, own, earlier = [
            await member(o, made, name=name, pid=pid) for name, pid in (("a", "pod"), ("b", "own"), ("c", "pod"))
        ]
        w.manager.ends(earlier.id, status=Signaled(9))  # somebody else's doing
        await until(lambda: now(w, earlier).exit is not None)
        w.manager.ending.add(made.id)
        w.manager.ends(shares.id, status=Signaled(9))
        w.manager.ends(own.id, status=Signaled(9))
        await until(lambda: now(w, own).exit is not None)
        assert now(w, shares).exit is None  # the kernel lets the pause process die after those of its namespace
        w.manager.ends(made.id, status=Signaled(9))
        await until(lambda: now(w, shares).exit is not None)
        reasons = [(e.reason, e.by.policy) for c in (shares, own, earlier) if (e := now(w, c).exit)]
        assert reasons == [(Reason.PAUSE_EXIT, "pause-exit"), (Reason.UNKNOWN, ""), (Reason.UNKNOWN, "")]


@in_loop
async def test_a_pause_process_that_takes_long_to_die_does_not_keep_its_members_exits_back(tmp_path: Path) -> None:
    async with serving(tmp_path) as (w, o):
        made = await pod(o)
        shares = await member(o, made, pid="pod")
        w.manager.ending.add(made.id)
        w.manager.ends(shares.id, status=Signaled(9))
        await until(lambda: (e := now(w, shares).exit) and e.reason is Reason.PAUSE_EXIT)
        assert now(w, made).phase is Phase.RUNNING


@pytest.mark.usefixtures("patient")
@in_loop
async def test_an_end_long_before_that_of_the_pause_process_is_none_of_its_doing(tmp_path: Path) -> None:
    """Both were found when a daemon came back."""
    async with serving(tmp_path) as (w, o):
        made = await pod(o)
        shares = await member(o, made, pid="pod")
        w.manager.ending.add(made.id)
        long_ago = time.time_ns() - 31 * 10**9
        ended = Report(Signaled(9), Source.RECORD, Process(40, 4), long_ago)
        w.node.spawn(w.exits.end(RunKey(shares.id, 1), ended))
        await asyncio.sleep(0)
        w.manager.ends(made.id, status=Signaled(9))
        await until(lambda: (e := now(w, shares).exit) and e.reason is Reason.UNKNOWN)


@in_loop
async def test_a_policy_is_not_blamed_for_an_end_that_was_under_way_before_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as (w, o):
        made = await pod(o)
        w.manager.ending.add(made.id)
        ending = asyncio.ensure_future(o.ending.by_policy(made.id, Reason.HEALTH, USER))
        await asyncio.sleep(0)
        w.manager.ends(made.id, status=Signaled(9))
        await ending
        exit_ = now(w, made).exit
        assert exit_ is not None and exit_.reason is Reason.UNKNOWN and w.manager.count("kill") == 0


@in_loop
async def test_a_member_does_not_start_without_a_sandbox(tmp_path: Path) -> None:
    async with serving(tmp_path) as (w, o):
        pause = await pod(o, pod=Pod(on_pause_exit=OnPauseExit.KEEP))
        joined = await member(o, pause)
        w.manager.ends(pause.id)
        await until(lambda: now(w, pause).phase is Phase.EXITED)
        assert now(w, joined).phase is Phase.RUNNING
        await o.containers.stop(joined.id, 0, USER)
        await until(lambda: now(w, joined).clean)
        with pytest.raises(WrongState, match="NotReady"):
            await o.containers.start(joined.id, USER)


@in_loop
async def test_a_pod_is_stopped_and_removed_with_its_members(tmp_path: Path) -> None:
    async with serving(tmp_path) as (w, o):
        pause = await pod(o)
        joined = await member(o, pause)
        with pytest.raises(WrongState, match="Ready"):
            await o.pods.remove_pod(pause.id, False, USER)
        assert (await o.pods.stop_pod(pause.id, 1, USER)).state is PodState.NOT_READY
        exit_ = now(w, joined).exit
        assert exit_ is not None
        assert exit_.reason is Reason.STOP
        await o.pods.remove_pod(pause.id, False, USER)
        assert not w.node.containers


@in_loop
async def test_a_pod_that_is_to_end_with_its_last_member_does(tmp_path: Path) -> None:
    async with serving(tmp_path) as (w, o):
        pause = await pod(o, pod=Pod(exit_policy=ExitPolicy.STOP))
        joined = await member(o, pause)
        w.manager.ends(joined.id)
        await until(lambda: now(w, pause).phase is Phase.EXITED)
        assert [exit_.key.container for exit_ in await o.pods.wait_members(pause.id)] == [joined.id]


@in_loop
async def test_a_duty_that_fails_is_found_again_at_the_next_look(tmp_path: Path) -> None:
    async with serving(tmp_path) as (w, o):
        pause = await pod(o)
        joined = await member(o, pause)
        refusals, many = w.manager.fails["kill"], 100
        refusals += [RuntimeFailed("not now")] * many
        w.manager.ends(pause.id)
        await until(lambda: len(refusals) < many and now(w, pause).clean)
        assert now(w, joined).phase is Phase.RUNNING
        refusals.clear()

        def looked_at_and_ended() -> bool:
            o.pod_keeper.look_at_all()  # as the slow loop does, again and again
            return now(w, joined).phase is Phase.EXITED

        await until(looked_at_and_ended)


@in_loop
async def test_a_member_joins_its_pod_only_after_that_has_been_looked_up(tmp_path: Path) -> None:
    async with serving(tmp_path) as (w, o):
        pause = await pod(o)
        joined = await member(o, pause)
        w.manager.ends(joined.id)
        await until(lambda: now(w, joined).phase is Phase.EXITED and now(w, joined).clean)
        looked_up = w.node.containers.recovering[pause.id] = asyncio.Event()
        starting = asyncio.ensure_future(o.containers.start(joined.id, USER))
        await until(lambda: now(w, joined).phase is Phase.CREATING)
        assert [call[1] for call in w.manager.calls if call[0] == "create"] == [pause.id, joined.id]
        del w.node.containers.recovering[pause.id]
        looked_up.set()
        assert (await starting).phase is Phase.RUNNING


@in_loop
async def test_a_round_over_the_pods_that_fails_does_not_end_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as (w, o):
        made = await pod(o)
        refused, unstuck = [OSError(24, "Too many open files")] * 2, asyncio.Event()

        def is_ending(container: Container) -> bool:
            if refused:
                raise refused.pop()
            return True

        monkeypatch.setattr(w.manager, "is_ending", is_ending)
        monkeypatch.setattr(o.ending, "unstick", lambda container: unstuck.set())
        loop = asyncio.create_task(o.pod_keeper.forever(lambda: 0.001))
        async with asyncio.timeout(LIMIT_SECONDS):
            await unstuck.wait()
        loop.cancel()
        assert not refused and w.node.containers[made.id].phase is Phase.RUNNING
