"""Health checks kept on a real node, with probes that answer as told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from supervisor.engine.health_checks import HEALTH, Prober
from supervisor.model import lifecycle as life
from supervisor.model.errors import RuntimeFailed, StoreFailed, WrongState
from supervisor.model.health import ProbeResult
from supervisor.model.values import (
    Asked,
    By,
    Container,
    Event,
    Exited,
    HealthSpec,
    HealthStatus,
    OnUnhealthy,
    Phase,
    Reason,
    RunKey,
    Signaled,
    Spec,
)
from tests.supervisor.fakes import World, in_loop, until, world

MS = 10**6
GOOD, BAD = ProbeResult(1, 2, Exited(0)), ProbeResult(1, 2, Exited(1), b"no")


@dataclass(slots=True)
class Probes:
    """What answers, and what was asked. A probe without an answer goes on until it is cancelled, or has one."""

    answers: list[ProbeResult | Exception | None] = field(default_factory=list)
    begun: int = 0
    under_way: int = 0
    cancelled: int = 0
    most: int = 0

    async def run(self, container: Container, spec: HealthSpec) -> ProbeResult | None:
        self.begun += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await until(lambda: self.answers, "an answer")
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.under_way -= 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass(slots=True)
class Rig:
    world: World
    probes: Probes
    prober: Prober
    ends: list[tuple[Reason, By, float | None]]
    refusing: list[Exception] = field(default_factory=list)

    async def end(self, id: str, reason: Reason, by: By, grace_seconds: float | None, run: int) -> None:
        self.ends.append((reason, by, grace_seconds))
        if self.refusing:
            raise self.refusing.pop(0)
        await self.world.node.apply(id, life.EndAsked(Asked(reason, by, 9)))
        self.world.manager.ends(id, status=Signaled(9))
        await until(lambda: self.phase(id) is not Phase.RUNNING)

    def phase(self, id: str) -> Phase:
        return self.world.node.containers[id].phase

    def status(self, id: str) -> HealthStatus | None:
        return self.world.node.containers[id].health

    async def running(self, **fields: object) -> str:
        check = HealthSpec(("true",), 5 * MS, 1000 * MS, 3)
        return await self.world.running(Spec(name="web", health=replace(check, **fields)))  # type: ignore[arg-type]

    async def answered(self, *answers: ProbeResult | Exception | None) -> None:
        """Once each of them was taken, and the next probe is under way."""
        begun = self.probes.begun + len(answers)
        self.probes.answers += answers
        await until(lambda: self.probes.begun >= begun and self.probes.under_way, "the next probe")

    async def reported(self) -> list[tuple[str, str]]:
        """health_status events: the status and the streak."""
        events: list[Event] = list(await self.world.store.events_after(0, 1000))
        changes = [dict(event.attributes) for event in events if event.type == "health_status"]
        return [(each["health"], each["failing_streak"]) for each in changes]


@asynccontextmanager
async def rig(directory: Path) -> AsyncIterator[Rig]:
    async with world(directory) as w:
        probes = Probes()
        made = Rig(w, probes, Prober(w.node, probes.run, lambda *asked: made.end(*asked)), [])
        w.join(made.prober)
        try:
            yield made
        finally:
            made.prober.close()


@in_loop
async def test_a_status_is_reported_when_it_becomes_another_and_shown_with_its_results(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        id = await r.running(retries=2)
        assert r.status(id) is HealthStatus.STARTING
        await r.answered(GOOD, GOOD)
        await until(lambda: r.status(id) is HealthStatus.HEALTHY)
        await r.answered(BAD, BAD, BAD)
        await until(lambda: r.status(id) is HealthStatus.UNHEALTHY)
        await r.answered(GOOD)
        await until(lambda: r.status(id) is HealthStatus.HEALTHY)
        assert await r.reported() == [("healthy", "0"), ("unhealthy", "2"), ("healthy", "0")]
        seen = r.prober.seen(id)
        assert seen is not None and seen.failing_streak == 0
        assert seen.log == (GOOD, BAD, BAD, BAD, GOOD)
        assert r.probes.most == 1


@in_loop
async def test_what_has_no_check_is_not_probed(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        id = await r.world.running(Spec(name="plain"))
        other = await r.running()
        await r.answered(GOOD)
        assert r.prober.seen(id) is None and r.status(id) is None
        assert r.prober.seen(other) is not None


@pytest.mark.parametrize(("action", "grace"), [("kill", 0.0), ("stop", None), ("restart", None)])
def test_what_follows_is_done_once_after_the_event_and_its_exit_says_why(
    tmp_path: Path, action: str, grace: float | None
) -> None:
    @in_loop
    async def run() -> None:
        async with rig(tmp_path) as r:
            id = await r.running(retries=1, on_failure=OnUnhealthy(action))
            r.probes.answers += [BAD]
            await until(lambda: r.phase(id) in (Phase.EXITED, Phase.RESTARTING))
            assert r.ends == [(Reason.HEALTH, HEALTH, grace)]
            events = [event for event in await r.world.store.events_after(0, 100) if event.type != "create"]
            assert [event.type for event in events[:4]] == ["start", "health_status", "health", "exit"]
            (exit_,) = [event.exit for event in events if event.exit is not None]
            assert (exit_.reason, exit_.by) == (Reason.HEALTH, HEALTH)
            assert exit_.decision == ("restart" if action == "restart" else "ended")
            assert r.probes.begun == 1

    run()


@in_loop
async def test_the_next_run_begins_with_a_health_of_its_own(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        id = await r.running(retries=1, on_failure=OnUnhealthy.RESTART)
        r.probes.answers += [BAD]
        await until(lambda: r.world.node.containers[id].run == 2 and r.phase(id) is Phase.RUNNING)
        assert r.status(id) is HealthStatus.STARTING
        await r.answered(GOOD)
        seen = r.prober.seen(id)
        assert seen is not None and seen.log == (GOOD,)
        await until(lambda: r.status(id) is HealthStatus.HEALTHY)
        assert await r.reported() == [("unhealthy", "1"), ("healthy", "0")]


@in_loop
async def test_an_end_that_does_not_work_is_tried_again_after_the_next_failure(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        id = await r.running(retries=1, on_failure=OnUnhealthy.KILL)
        r.refusing += [RuntimeFailed("stuck")]
        r.probes.answers += [BAD, BAD]
        await until(lambda: r.phase(id) is Phase.EXITED)
        assert len(r.ends) == 2 and await r.reported() == [("unhealthy", "1")]


@in_loop
async def test_a_pause_ends_the_probe_under_way_and_the_next_one_comes_after_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        id = await r.running()
        await r.answered(BAD)
        await r.world.node.apply(id, life.Paused())
        await until(lambda: r.probes.cancelled == 1 and not r.probes.under_way)
        await r.world.running(replace(r.world.node.containers[id].spec, name="other"))
        await r.answered(*[GOOD] * 10)  # the other one's: so many intervals have passed
        seen = r.prober.seen(id)
        assert seen is not None and seen.paused and seen.log == (BAD,)
        await r.world.node.apply(id, life.Resumed())
        while (seen := r.prober.seen(id)) is not None and seen.log == (BAD,):
            await r.answered(GOOD)  # this one's or the other one's
        assert seen is not None and seen.log == (BAD, GOOD)
        await until(lambda: r.status(id) is HealthStatus.HEALTHY)


@in_loop
async def test_a_pause_waits_for_the_end_of_the_probe_and_one_that_fails_changes_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        id = await r.running()
        for works in (False, True):
            await until(lambda: r.probes.under_way)
            cancelled = r.probes.cancelled
            async with r.prober.resting(id):
                assert (r.probes.under_way, r.probes.cancelled) == (0, cancelled + 1)
                await r.world.node.apply(id, life.OomSeen(1, 1 + works))  # a change that is none of the pause's
                seen = r.prober.seen(id)
                assert seen is not None and seen.paused
                if works:
                    await r.world.node.apply(id, life.Paused())
            seen = r.prober.seen(id)
            assert seen is not None and seen.paused is works
        async with r.prober.resting(id), r.prober.resting("no check"):
            pass
        assert not r.probes.under_way


@in_loop
async def test_the_containers_end_ends_its_probes_and_what_was_seen_stays_until_it_is_removed(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        id = await r.running()
        await r.answered(GOOD)
        await until(lambda: r.status(id) is HealthStatus.HEALTHY)
        r.world.manager.ends(id)
        await until(lambda: r.phase(id) is Phase.EXITED and r.world.node.containers[id].clean)
        await until(lambda: r.probes.cancelled == 1 and not r.probes.under_way)
        begun = r.probes.begun
        seen = r.prober.seen(id)
        assert seen is not None and seen.log == (GOOD,) and r.status(id) is HealthStatus.HEALTHY
        await r.world.node.apply(id, life.RemoveAsked(By()))
        await until(lambda: id not in r.world.node.containers)
        assert r.prober.seen(id) is None and r.probes.begun == begun


@in_loop
async def test_what_the_end_of_a_container_has_taken_along_is_no_failure_of_its_check(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        id = await r.running(retries=1)
        r.world.manager.ending.add(id)
        await r.answered(BAD, None)
        r.world.manager.ending.discard(id)
        key = RunKey(id, 1)
        r.world.node.pending.add(key)
        await r.answered(BAD)
        r.world.node.pending.discard(key)
        seen = r.prober.seen(id)
        assert seen is not None and (seen.log, seen.failing_streak) == ((), 0)
        assert await r.reported() == []


@pytest.mark.parametrize("error", [WrongState("paused"), StoreFailed("full"), OSError(24, "fds"), ValueError("a bug")])
def test_a_probe_that_cannot_be_run_for_no_fault_of_the_container_does_not_count_and_is_not_the_last(
    tmp_path: Path, error: Exception
) -> None:
    @in_loop
    async def run() -> None:
        async with rig(tmp_path) as r:
            id = await r.running(retries=1)
            await r.answered(error, GOOD)
            await until(lambda: r.status(id) is HealthStatus.HEALTHY)
            assert await r.reported() == [("healthy", "0")]

    run()


@in_loop
async def test_a_status_that_could_not_be_stored_is_reported_after_the_next_probe(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        id = await r.running()
        await until(lambda: r.probes.under_way)
        r.world.store.refusals = 1
        await r.answered(GOOD)
        await until(lambda: not r.world.store.refusals)
        assert r.status(id) is HealthStatus.STARTING
        await r.answered(GOOD)
        await until(lambda: r.status(id) is HealthStatus.HEALTHY)
        assert await r.reported() == [("healthy", "0")]


@in_loop
async def test_a_daemon_that_finds_it_running_goes_on_without_reporting_what_was_reported(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        id = await r.running(retries=1)
        await r.answered(GOOD)
        await until(lambda: r.status(id) is HealthStatus.HEALTHY)
        found = r.world.node.containers[id]
        r.prober.close()
        again = Probes()
        prober = Prober(r.world.node, again.run, r.end)
        r.world.node.containers.recovering[id] = asyncio.Event()
        prober.changed(found)
        assert prober.seen(id) is None  # it is being looked up still
        del r.world.node.containers.recovering[id]
        prober.changed(found)
        again.answers += [GOOD, BAD]
        await until(lambda: r.status(id) is HealthStatus.UNHEALTHY)
        assert await r.reported() == [("healthy", "0"), ("unhealthy", "1")]
        prober.close()
