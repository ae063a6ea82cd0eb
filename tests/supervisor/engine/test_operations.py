import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from supervisor.engine import ending, operations
from supervisor.engine.operations import Operations
from supervisor.model.errors import NoSuchContainer, RuntimeFailed, TimedOut, WrongState
from supervisor.model.restart import Backoff
from supervisor.model.values import (
    Asked,
    Container,
    Event,
    Exited,
    Phase,
    Policy,
    Reason,
    RestartPolicy,
    Signaled,
    Spec,
)
from supervisor.store.events import Bookmark
from tests.supervisor.engine.callers import services_of
from tests.supervisor.fakes import World, hasty, until, world
from tests.supervisor.happenings import USER

__all__ = ["hasty"]
pytestmark = pytest.mark.usefixtures("hasty")

WEB = Spec(name="web", runtime="")
ALWAYS = replace(WEB, restart=RestartPolicy(Policy.ALWAYS))


class Admits:
    """An admission to which everything is right as it is."""

    async def admit(self, spec: Spec, container_id: str) -> Spec:
        return replace(spec, runtime=spec.runtime or "runc", network=spec.network or "none")


@contextlib.asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[tuple[World, Operations]]:
    async with world(directory) as w:
        yield w, services_of(w, Admits()).containers


def obeys(w: World, *signals: int) -> None:
    """Init ends at these signals, and at SIGKILL."""

    def on_kill(container: Container, signal: int) -> None:
        if signal in (9, *signals):
            w.manager.ends(container.id, container.run, Signaled(signal))

    w.manager.on_kill = on_kill


async def running(w: World, o: Operations, spec: Spec = WEB) -> str:
    return (await o.start((await o.create(spec, USER)).id, USER)).id


def phase(w: World, id: str) -> Phase | None:
    return c.phase if (c := w.node.containers.get(id)) is not None else None


def in_phase(w: World, id: str, wanted: Phase) -> bool:
    return phase(w, id) is wanted


def test_start_is_safe_to_ask_again_and_takes_up_after_an_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            id = await running(w, o)
            assert w.node.containers[id].spec.runtime == "runc"
            assert (await o.start("web", USER)).run == 1
            w.manager.ends(id)
            await o.wait(id, "exited", 0)
            again = await o.start("web", USER)  # at once: the clean-up of the last run is waited for
            assert (again.run, again.phase, w.manager.count("delete")) == (2, Phase.RUNNING, 1)

    asyncio.run(main())


def test_create_that_fails_leaves_the_name_free_when_the_caller_hears_of_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            w.manager.fails["create"] = [RuntimeFailed("no rootfs")]
            with pytest.raises(RuntimeFailed):
                await o.create(WEB, USER)
            assert w.node.containers == {}
            await o.create(WEB, USER)

    asyncio.run(main())


def test_create_that_is_cancelled_before_there_is_a_container_keeps_nothing_of_its_admission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            begun: list[str] = []
            discarded: list[str] = []

            async def add(spec: Spec, container_id: str) -> None:
                begun.append(container_id)
                await asyncio.Event().wait()

            async def discard(container_id: str) -> None:
                discarded.append(container_id)

            monkeypatch.setattr(w.node, "add", add)
            monkeypatch.setattr(w.node.others, "discarded", discard)
            creating = asyncio.create_task(o.create(WEB, USER))
            await until(lambda: bool(begun), "the container's first step")
            creating.cancel()
            with pytest.raises(asyncio.CancelledError):
                await creating
            assert discarded == begun

    asyncio.run(main())


def test_a_stop_that_is_obeyed_is_one_signal(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            id = await running(w, o, ALWAYS)
            obeys(w, 15)
            stopped = await o.stop("web", 10, USER)
            assert (stopped.phase, stopped.exit is not None and stopped.exit.reason) == (Phase.EXITED, Reason.STOP)
            assert w.manager.count("kill") == 1
            assert (await o.stop(id, 10, USER)).phase is Phase.EXITED

    asyncio.run(main())


@pytest.mark.parametrize("grace", [0, 0.01])
def test_a_stop_that_is_not_obeyed_is_a_stop_by_sigkill(tmp_path: Path, grace: float) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            await running(w, o)
            obeys(w)
            exit = (await o.stop("web", cast(int, grace), USER)).exit
            assert exit is not None
            assert (exit.status, exit.reason, exit.by) == (Signaled(9), Reason.STOP, USER)

    asyncio.run(main())


def test_what_cannot_hear_is_killed_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            obeys(w)
            await o.create(WEB, USER)
            assert (await o.stop("web", 100, USER)).phase is Phase.EXITED
            await o.start("web", USER)
            await o.pause("web", USER)
            assert (await o.stop("web", 100, USER)).phase is Phase.EXITED
            assert w.manager.count("resume") == 0  # that it may die frozen is for who sends the signal

    asyncio.run(main())


def test_an_init_that_sigkill_does_not_end_is_reported_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "DEATH_SECONDS", 0.01)

    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            await running(w, o)
            with pytest.raises(TimedOut, match="after SIGKILL"):
                await o.stop("web", 0, USER)

    asyncio.run(main())


def test_stop_means_stopped_even_when_the_end_was_quicker_than_the_stop(tmp_path: Path) -> None:
    """The policy has planned, or begun, the next run when the stop is about to be stored."""

    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            obeys(w, 15)
            id = await running(w, o, ALWAYS)
            for _ in range(5):
                w.manager.ends(id, w.node.containers[id].run, Exited(0))
                stopped = await o.stop(id, 1, USER)
                assert (stopped.phase, stopped.stopped_by_user) == (Phase.EXITED, True)
                await until(lambda: not w.node.background)
                assert (phase(w, id), w.node._timers) == (Phase.EXITED, {})
                await o.start(id, USER)

    asyncio.run(main())


@pytest.mark.parametrize("when", [Phase.RESTARTING, Phase.CREATING])
def test_a_restarting_container_is_stopped_or_removed_whatever_its_timer_does(tmp_path: Path, when: Phase) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            obeys(w, 15)
            for ask in ("stop", "kill", "remove"):
                id = await running(w, o, ALWAYS)
                w.manager.gates["create"] = asyncio.Event()
                w.manager.ends(id)
                await until(partial(in_phase, w, id, when))
                asking = asyncio.create_task(ended_by(o, ask, id))
                await asyncio.sleep(0)
                w.manager.gates.pop("create").set()
                await asking
                await until(lambda: phase(w, id) is (None if ask == "remove" else Phase.EXITED))  # noqa: B023
                if ask != "remove":
                    assert w.node._timers == {}
                    assert w.node.containers[id].stopped_by_user
                    await o.remove(id, False, USER)

    asyncio.run(main())


async def ended_by(o: Operations, ask: str, id: str) -> None:
    match ask:
        case "stop":
            await o.stop(id, 1, USER)
        case "kill":
            await o.kill(id, 9, False, USER)
        case "remove":
            await o.remove(id, True, USER)


def test_a_kill_cancels_a_planned_restart_if_it_would_have_kept_a_running_one_down(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            w.node.backoff = lambda: Backoff(max_ns=10**15)
            for number in (9, 15):
                id = await running(w, o, ALWAYS)
                w.node.containers[id] = replace(w.node.containers[id], delay_ns=10**14)  # the next one is far away
                w.manager.ends(id)
                await until(lambda: w.node._timers)
                for other in (1, 10):
                    with pytest.raises(WrongState, match="restarting, there is nothing to signal"):
                        await o.kill(id, other, False, USER)
                await o.kill(id, number, False, USER)
                assert (phase(w, id), w.node._timers) == (Phase.EXITED, {})
                last = (await w.store.events_after(0, 1000))[-1]
                assert (last.type, dict(last.attributes)) == ("kill", {"cancelled": "restart"})
                assert w.manager.count("kill") == 0
                with pytest.raises(WrongState, match="nothing to signal"):
                    await o.kill(id, number, False, USER)
                await o.remove(id, False, USER)

    asyncio.run(main())


def test_remove_needs_force_for_what_runs_and_is_safe_to_ask_twice_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            obeys(w)
            id = await running(w, o)
            with pytest.raises(WrongState, match="use force"):
                await o.remove("web", False, USER)
            await asyncio.gather(o.remove(id, True, USER), o.remove(id, True, USER), o.remove(id, True, USER))
            assert w.node.containers == {}
            (exit,) = await w.store.exits()
            assert (exit.reason, exit.status) == (Reason.KILL, Signaled(9))
            with pytest.raises(NoSuchContainer):
                await o.remove(id, True, USER)

    asyncio.run(main())


def test_kill_signals_only_what_lives(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            obeys(w)
            id = await running(w, o)
            await o.kill(id, 10, False, USER)
            assert phase(w, id) is Phase.RUNNING
            await o.kill(id, 9, False, USER)
            exit = await o.wait(id, "exited", 0)
            assert exit is not None and (exit.reason, exit.by) == (Reason.KILL, USER)
            with pytest.raises(WrongState, match="nothing to signal"):
                await o.kill(id, 9, False, USER)

    asyncio.run(main())


def test_who_has_ended_and_is_not_yet_told_of_can_be_killed_and_removed(tmp_path: Path) -> None:
    """As after a daemon's absence: there is no process to signal, and its end is on its way."""

    async def scenario() -> None:
        async with serving(tmp_path) as (w, o):
            id = await running(w, o)
            w.manager.fails["kill"] = [WrongState("it has no process") for _ in range(3)]
            with pytest.raises(WrongState, match="no process"):
                await o.kill(id, 9, False, USER)
            w.manager.ending.add(id)
            await o.kill(id, 9, False, USER)
            removing = asyncio.create_task(o.remove(id, True, USER))
            await until(lambda: not w.manager.fails["kill"])
            w.manager.ends(id)
            await removing
            assert phase(w, id) is None

    asyncio.run(scenario())


def test_pause_and_resume_want_the_right_state(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            await running(w, o)
            with pytest.raises(WrongState):
                await o.resume("web", USER)
            await o.pause("web", USER)
            with pytest.raises(WrongState):
                await o.pause("web", USER)
            await o.resume("web", USER)
            assert (await w.event_types())[-2:] == ["pause", "resume"]

    asyncio.run(main())


def test_what_the_runtime_has_paused_or_resumed_is_stored_however_long_the_store_refuses(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            id = await running(w, o)
            w.store.refusals = 2
            await o.pause(id, USER)
            assert phase(w, id) is Phase.PAUSED
            w.store.refusals = 2
            await o.resume(id, USER)
            assert phase(w, id) is Phase.RUNNING
            assert (await w.event_types())[-2:] == ["pause", "resume"]

    asyncio.run(main())


def test_a_runtime_that_has_done_it_and_says_that_it_failed_is_not_believed(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            id = await running(w, o)
            w.manager.fails["pause"] = [TimedOut("killed"), *[RuntimeFailed("no freezer")] * operations.PAUSE_TRIES]
            w.manager.frozen[id] = True
            await o.pause(id, USER)
            assert phase(w, id) is Phase.PAUSED
            w.manager.fails["resume"] = [RuntimeFailed("it is not paused")]
            w.manager.frozen[id] = False
            await o.resume(id, USER)
            assert phase(w, id) is Phase.RUNNING
            with pytest.raises(RuntimeFailed, match="no freezer"):
                await o.pause(id, USER)
            assert phase(w, id) is Phase.RUNNING

    asyncio.run(main())


def test_a_pause_that_the_runtime_gives_up_is_asked_for_again_as_long_as_nobody_ends_the_container(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            id = await running(w, o)
            w.manager.fails["pause"] = [RuntimeFailed("unable to freeze")] * (operations.PAUSE_TRIES - 1)
            await o.pause(id, USER)
            assert phase(w, id) is Phase.PAUSED
            await o.resume(id, USER)
            before = w.manager.count("pause")
            w.manager.fails["pause"] = [RuntimeFailed("unable to freeze")] * operations.PAUSE_TRIES
            w.node.containers[id] = replace(w.node.containers[id], asked=Asked(Reason.STOP, USER, 15))
            with pytest.raises(RuntimeFailed):
                await o.pause(id, USER)
            assert w.manager.count("pause") == before + 1

    asyncio.run(main())


def test_a_pause_whose_caller_goes_away_comes_to_its_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            id = await running(w, o)
            w.manager.gates["pause"] = asyncio.Event()
            pausing = asyncio.create_task(o.pause(id, USER))
            await until(lambda: w.manager.count("pause"))
            pausing.cancel()
            await asyncio.wait([pausing])
            w.manager.gates["pause"].set()
            await until(lambda: phase(w, id) is Phase.PAUSED)

    asyncio.run(main())


def test_who_ends_as_soon_as_it_is_thawed_has_gone_on_before(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            id = await running(w, o)
            await o.pause(id, USER)
            w.manager.gates["resume"] = asyncio.Event()
            resuming = asyncio.create_task(o.resume(id, USER))
            await until(lambda: w.manager.count("resume"))
            w.manager.ends(id, status=Exited(4))
            w.manager.gates["resume"].set()
            await resuming
            await until(lambda: phase(w, id) is Phase.EXITED)
            assert (await w.event_types())[-3:] == ["pause", "resume", "exit"]

    asyncio.run(main())


def test_a_late_waiter_gets_the_stored_exit_even_of_a_removed_container(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            id = await running(w, o)
            gone = asyncio.create_task(o.wait(id, "removed", 0))
            w.manager.ends(id, status=Exited(43))
            first = await o.wait(id, "exited", 0)
            assert first is not None and first.status == Exited(43)
            assert await o.wait("web", "exited", 1) == first
            await o.remove(id, False, USER)
            assert await gone == await o.wait(id, "exited", 0) == await o.wait(id, "exited", 1) == first
            assert await o.wait(id, "exited", 7) is None
            with pytest.raises(NoSuchContainer):
                await o.wait("nobody", "exited", 0)

    asyncio.run(main())


def test_next_exit_is_not_the_one_that_was(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            id = await running(w, o)
            w.manager.ends(id, status=Exited(1))
            await o.wait(id, "exited", 0)
            waiting = asyncio.create_task(o.wait(id, "next-exit", 0))
            await o.start(id, USER)
            assert not waiting.done()
            w.manager.ends(id, 2, Exited(2))
            exit = await waiting
            assert exit is not None and (exit.key.run, exit.status) == (2, Exited(2))
            first = await o.wait(id, "exited", 1)
            assert first is not None and first.status == Exited(1)

    asyncio.run(main())


def test_nobody_waits_for_ever_for_a_run_that_never_began(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            id = await running(w, o)
            w.manager.ends(id, status=Exited(1))
            await o.wait(id, "exited", 0)
            waiting = [asyncio.create_task(o.wait(id, "next-exit", 0)), asyncio.create_task(o.wait(id, "exited", 2))]
            await asyncio.sleep(0)
            w.manager.fails["create"] = [RuntimeFailed("no rootfs")]
            with pytest.raises(RuntimeFailed):
                await o.start(id, USER)
            for task in waiting:
                with pytest.raises(WrongState, match="never began: no rootfs"):
                    await task
            exit = await o.wait(id, "exited", 0)
            assert exit is not None and exit.key.run == 1

    asyncio.run(main())


def test_a_waiter_that_goes_away_leaves_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            id = await running(w, o)
            waiting = [asyncio.create_task(o.wait(id, word, 0)) for word in ("exited", "next-exit", "removed")]
            await until(lambda: len(w.node.containers.changes) == 3)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            assert len(w.node.containers.changes) == 0

    asyncio.run(main())


def test_a_listing_says_from_where_to_watch(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            id = await running(w, o)
            await o.create(replace(WEB, name="idle"), USER)
            views, seq = o.listing(False, ())
            assert [view.container.id for view in views] == [id]
            assert len(o.listing(True, ())[0]) == 2
            assert [view.container.spec.name for view in o.listing(False, ("status=created",))[0]] == ["idle"]
            w.manager.ends(id)
            await o.wait(id, "exited", 0)
            items = [item async for item in o.subscribe(seq, None, None, (), False)]
            assert [item.type for item in items if isinstance(item, Event)] == ["exit"]
            assert all(isinstance(item, Event | Bookmark) for item in items)
            assert (await o.inspect(id)).run_directory == f"/state/c/{id}/1"
            assert [exit.key.container async for exit in o.exits(None, False, "web")] == [id]
            assert await o.pids(id) == ()

    asyncio.run(main())
