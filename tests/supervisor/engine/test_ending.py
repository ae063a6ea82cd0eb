"""Ends that take time, on a real node: completed whatever fails at first, and by whoever finds them begun."""

from pathlib import Path

import pytest

from supervisor.engine import ending
from supervisor.model import lifecycle as life
from supervisor.model.errors import RuntimeFailed
from supervisor.model.values import Asked, By, Phase, Reason, Signaled, Spec
from supervisor.system.clock import boot_now
from tests.supervisor.engine.callers import services_of
from tests.supervisor.fakes import in_loop, until, world

PROBE = By(policy="liveness-probe")


@in_loop
async def test_an_end_by_a_policy_that_fails_at_first_is_tried_again_until_it_has_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "AGAIN_SECONDS", 0.01)
    async with world(tmp_path) as w:
        services = services_of(w, None)
        w.join(services.ending)
        id = await w.running(Spec(name="web"))
        w.manager.fails["kill"] += [RuntimeFailed("not now")] * 3
        with pytest.raises(RuntimeFailed):
            await services.ending.by_policy(id, Reason.HEALTH, PROBE, 5.0)
        await until(lambda: not w.manager.fails["kill"], "further tries")
        w.manager.ends(id, status=Signaled(15))
        await until(lambda: w.node.containers[id].phase is Phase.EXITED)
        exit_ = w.node.containers[id].exit
        assert exit_ is not None and (exit_.reason, exit_.by) == (Reason.HEALTH, PROBE)


@in_loop
async def test_an_end_that_is_found_begun_is_completed_when_its_time_has_come(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        id = await w.running(Spec(name="web"))
        w.manager.on_kill = lambda c, number: w.manager.ends(c.id, status=Signaled(9)) if number == 9 else None
        asked = Asked(Reason.HEALTH, PROBE, 15)
        await w.node.apply(id, life.EndAsked(asked, 1, boot_now(w.node.clock)))  # by an exitd before this one
        services = services_of(w, None)
        w.join(services.ending)
        services.ending.changed(w.node.containers[id])
        await until(lambda: w.node.containers[id].phase is Phase.EXITED)
        exit_ = w.node.containers[id].exit
        assert exit_ is not None and (exit_.reason, exit_.status) == (Reason.HEALTH, Signaled(9))


@in_loop
async def test_an_end_that_means_an_earlier_run_does_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        services = services_of(w, None)
        id = await w.running(Spec(name="web"))
        before = list(w.manager.calls)
        await services.ending.by_policy(id, Reason.HEALTH, PROBE, 5.0, 7)
        assert w.manager.calls == before and w.node.containers[id].asked is None
