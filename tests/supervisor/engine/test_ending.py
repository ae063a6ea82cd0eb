"""Ends that take time, on a real node: completed whatever fails at first, and by whoever finds them begun."""

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from supervisor.engine import ending
from supervisor.model import lifecycle as life
from supervisor.model.errors import Busy, RuntimeFailed, StoreFailed
from supervisor.model.values import Asked, By, Container, Phase, Reason, Signaled, Spec
from supervisor.system.clock import boot_now
from tests.supervisor.engine.callers import services_of
from tests.supervisor.fakes import World, in_loop, until, world

PROBE = By(policy="liveness-probe")


def killed_by_9(w: World) -> list[int]:
    """Return the signals that arrive. The containers die of SIGKILL alone."""
    signals: list[int] = []

    def on_kill(c: Container, number: int) -> None:
        signals.append(number)
        if number == 9:
            w.manager.ends(c.id, c.run, Signaled(9))

    w.manager.on_kill = on_kill
    return signals


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
            await services.ending.by_policy(id, Reason.HEALTH, PROBE, 0.05)
        await until(lambda: not w.manager.fails["kill"], "further tries")
        w.manager.ends(id, status=Signaled(15))
        await until(lambda: w.node.containers[id].phase is Phase.EXITED)
        exit_ = w.node.containers[id].exit
        assert exit_ is not None and (exit_.reason, exit_.by) == (Reason.HEALTH, PROBE)


@in_loop
@pytest.mark.parametrize("grace_seconds", [0.05, 0])
async def test_a_stop_that_fails_is_said_to_have_failed_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grace_seconds: float
) -> None:
    """No liveness probe ends a run that its user is ending: it would live for ever, sick."""
    monkeypatch.setattr(ending, "AGAIN_SECONDS", 0.01)
    async with world(tmp_path) as w:
        services = services_of(w, None)
        w.join(services.ending)
        id = await w.running(Spec(name="web"))
        signals = killed_by_9(w)
        w.manager.fails["kill"] += [RuntimeFailed("not now")] * 3
        with pytest.raises(RuntimeFailed):
            await services.ending.end(w.node.containers[id], Reason.STOP, By(), grace_seconds)
        assert w.node.containers[id].ending is not None  # for the next exitd
        await until(lambda: w.node.containers[id].phase is Phase.EXITED)
        exit_ = w.node.containers[id].exit
        assert exit_ is not None and (exit_.reason, exit_.by) == (Reason.STOP, By())
        assert signals[-1] == 9


@in_loop
async def test_a_stop_that_was_not_recorded_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller learns that nothing has changed. What was asked before is a signal that ends nothing."""
    async with world(tmp_path) as w:
        services = services_of(w, None)
        id = await w.running(Spec(name="web"))
        await w.node.apply(id, life.EndAsked(Asked(Reason.KILL, By(), 1), 1))
        before, apply, refused = w.node.containers[id], w.node.apply, [StoreFailed("the disk is full")]

        async def full_at_first(*args: Any, **rest: Any) -> Container | None:
            if refused:
                raise refused.pop()
            return await apply(*args, **rest)

        monkeypatch.setattr(w.node, "apply", full_at_first)
        with pytest.raises(StoreFailed):
            await services.ending.end(before, Reason.STOP, By(), 5.0)
        assert w.node.containers[id] == before


@in_loop
async def test_an_end_that_is_found_begun_is_completed_when_its_time_has_come(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        id = await w.running(Spec(name="web"))
        signals = killed_by_9(w)
        asked = Asked(Reason.HEALTH, PROBE, 15)
        await w.node.apply(id, life.EndAsked(asked, 1, boot_now(w.node.clock)))  # by an exitd before this one
        services = services_of(w, None)
        w.join(services.ending)
        services.ending.changed(w.node.containers[id])
        await until(lambda: w.node.containers[id].phase is Phase.EXITED)
        exit_ = w.node.containers[id].exit
        assert exit_ is not None and (exit_.reason, exit_.status) == (Reason.HEALTH, Signaled(9))
        assert signals == [9]  # its time to end gently is over


@in_loop
async def test_an_end_that_means_an_earlier_run_does_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        services = services_of(w, None)
        id = await w.running(Spec(name="web"))
        before = list(w.manager.calls)
        await services.ending.by_policy(id, Reason.HEALTH, PROBE, 5.0, 7)
        assert w.manager.calls == before and w.node.containers[id].asked is None


@pytest.mark.parametrize("error", [RuntimeFailed("not mine"), Busy("no room"), OSError(errno.EMFILE, "too many")])
def test_who_cannot_be_sent_the_stop_signal_is_killed_when_the_time_has_come(tmp_path: Path, error: Exception) -> None:
    @in_loop
    async def run() -> None:
        async with world(tmp_path) as w:
            services = services_of(w, None)
            w.join(services.ending)
            id = await w.running(Spec(name="web"))
            signals = killed_by_9(w)
            arrives = w.manager.on_kill

            def only_9(container: Container, number: int) -> None:
                if number != 9:
                    raise error
                arrives(container, number)

            w.manager.on_kill = only_9
            await services.ending.by_policy(id, Reason.HEALTH, PROBE, 0.05)
            exit_ = w.node.containers[id].exit
            assert exit_ is not None and (exit_.reason, exit_.status, signals) == (Reason.HEALTH, Signaled(9), [9])

    run()


@in_loop
async def test_an_end_without_time_is_stored_too_and_tried_until_it_has_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "AGAIN_SECONDS", 0.01)
    async with world(tmp_path) as w:
        services = services_of(w, None)
        w.join(services.ending)
        id = await w.running(Spec(name="web"))
        signals = killed_by_9(w)
        w.manager.fails["kill"] = [RuntimeFailed("not now")] * 3
        with pytest.raises(RuntimeFailed):
            await services.ending.by_policy(id, Reason.HEALTH, PROBE, 0.0)
        assert w.node.containers[id].ending is not None  # for the next exitd
        await until(lambda: w.node.containers[id].phase is Phase.EXITED)
        assert signals == [9]


@pytest.mark.parametrize("by_policy", [True, False])
def test_what_exitd_has_frozen_hears_its_stop_signal_after_the_thaw(tmp_path: Path, by_policy: bool) -> None:
    @in_loop
    async def run() -> None:
        async with world(tmp_path) as w:
            services = services_of(w, None)
            w.join(services.ending)
            id = await w.running(Spec(name="web"))
            signals = killed_by_9(w)
            w.node.frozen.add(id)
            frozen = await w.node.apply(id, life.Paused())
            assert frozen is not None
            if by_policy:
                end = asyncio.ensure_future(services.ending.by_policy(id, Reason.TIMEOUT, PROBE, 3600.0))
                await until(lambda: w.node.containers[id].ending is not None, "the end")
            else:
                end = asyncio.ensure_future(services.ending.end(frozen, Reason.STOP, By(uid=0), 3600.0))
            await w.node.apply(id, life.Resumed())
            assert signals == [] and not end.done()
            w.node.frozen.discard(id)
            w.node.containers.changes.notify(id, w.node.containers[id])
            await until(lambda: signals == [15], "the stop signal")
            w.manager.ends(id)
            await end

    run()


@in_loop
async def test_what_its_user_has_frozen_is_killed_at_once(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        services = services_of(w, None)
        w.join(services.ending)
        id = await w.running(Spec(name="web"))
        signals = killed_by_9(w)
        frozen = await w.node.apply(id, life.Paused())
        assert frozen is not None
        await services.ending.end(frozen, Reason.STOP, By(uid=0), 3600.0)
        assert signals == [9]
