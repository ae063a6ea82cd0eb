import asyncio
import errno
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.engine import node, runs
from supervisor.engine.containers import exit_of, is_ended, is_over
from supervisor.model import lifecycle
from supervisor.model.errors import Busy, RuntimeFailed, ShimFailed, StoreFailed, WrongState
from supervisor.model.restart import Backoff
from supervisor.model.values import Exited, Phase, Policy, RestartPolicy, RunKey, Signaled, Source, Spec, Unknown
from supervisor.store.database import Transaction
from supervisor.system.clock import boot_now
from tests.supervisor.fakes import LIMIT_SECONDS, World, hasty, in_loop, until, world
from tests.supervisor.happenings import STOP, USER

__all__ = ["hasty"]
pytestmark = pytest.mark.usefixtures("hasty")

WEB = Spec(name="web")
ALWAYS = Spec(name="web", restart=RestartPolicy(Policy.ALWAYS))


def phase(w: World, id: str) -> Phase | None:
    container = w.node.containers.get(id)
    return container.phase if container is not None else None


async def settled(w: World, id: str) -> None:
    await until(lambda: (c := w.node.containers.get(id)) is None or c.clean, "its clean-up")


def test_a_whole_life_is_stored_shown_and_reported_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            id = await w.running(WEB)
            w.manager.ends(id, status=Exited(43))
            ended = await w.node.containers.until(id, is_over(1), LIMIT_SECONDS, "its exit")
            exit = exit_of(ended)
            assert exit is not None and (exit.status, exit.key) == (Exited(43), RunKey(id, 1))
            await settled(w, id)
            await w.node.apply(id, lifecycle.RemoveAsked(USER))
            assert await w.node.containers.until(id, lambda c: c is None, LIMIT_SECONDS, "its removal") is None
            assert await w.event_types() == ["create", "start", "exit", "remove"]
            assert await w.store.exits() == [exit]
            assert await w.store.load() == ()
            assert [call[0] for call in w.manager.calls] == ["create", "start", "settle", "delete"]
            assert w.manager.discarded == [id]
            assert w.health == []

    asyncio.run(main())


def test_a_waiter_is_woken_after_the_exit_is_stored_and_published(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            id = await w.running(WEB)

            async def client() -> tuple[int, int]:
                await w.node.containers.until(id, is_ended, LIMIT_SECONDS, "its exit")
                return len(await w.store.exits()), w.events.last_seq

            waiting = asyncio.create_task(client())
            await asyncio.sleep(0)
            w.manager.ends(id)
            assert await waiting == (1, 3)

    asyncio.run(main())


def test_an_end_is_stored_when_whoever_init_has_left_is_dead_or_cannot_be_ended(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            id = await w.running(WEB)
            gate = w.manager.gates["end_rest"] = asyncio.Event()
            w.manager.fails["end_rest"] = [OSError("the cgroup cannot be read")]
            w.manager.ends(id)
            await until(lambda: w.manager.rest_asked == [id], "the end of the rest is asked for")
            assert await w.store.exits() == [] and phase(w, id) is Phase.RUNNING
            gate.set()
            await w.node.containers.until(id, is_over(1), LIMIT_SECONDS, "its exit")
            assert len(await w.store.exits()) == 1

    asyncio.run(main())


def test_how_many_could_not_be_killed_is_part_of_the_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            id, w.manager.left_behind = await w.running(WEB), 2
            w.manager.ends(id)
            await w.node.containers.until(id, is_over(1), LIMIT_SECONDS, "its exit")
            assert [exit_.left_behind for exit_ in await w.store.exits()] == [2]

    asyncio.run(main())


def test_an_exit_during_start_is_held_until_it_has_started(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            w.manager.gates["start"] = asyncio.Event()
            w.manager.on_start = lambda container: w.manager.ends(container.id, status=Exited(7))
            running = asyncio.create_task(w.running(WEB))
            await until(lambda: w.manager.count("start"))
            w.manager.gates["start"].set()
            id = await running
            await until(lambda: phase(w, id) is Phase.EXITED)
            assert await w.event_types() == ["create", "start", "exit"]

    asyncio.run(main())


def test_an_exit_that_is_quicker_than_the_commit_of_its_create_is_not_lost(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            container = await w.node.add(WEB)
            w.manager.gates["create"] = asyncio.Event()
            making = asyncio.create_task(w.runs.make(container.id))
            await until(lambda: w.manager.count("create"))
            w.manager.ends(container.id, status=Signaled(9))
            w.store.refusals = 3
            w.manager.gates["create"].set()
            await making
            await until(lambda: phase(w, container.id) is Phase.EXITED)
            assert [exit.status for exit in await w.store.exits()] == [Unknown("never-started")]
            assert await w.event_types() == ["create", "exit"]

    asyncio.run(main())


def test_a_second_start_is_refused_and_takes_nothing_from_the_first(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            container = await w.node.add(WEB)
            await w.runs.make(container.id)
            w.manager.gates["start"] = asyncio.Event()
            first = asyncio.create_task(w.runs.launch(container.id))
            await until(lambda: w.manager.count("start"))
            w.manager.ends(container.id)
            with pytest.raises(WrongState):
                await w.runs.launch(container.id)
            w.manager.gates["start"].set()
            await first
            await until(lambda: phase(w, container.id) is Phase.EXITED)
            assert await w.event_types() == ["create", "start", "exit"]

    asyncio.run(main())


def test_a_start_that_fails_ends_the_init_that_waits_for_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            container = await w.node.add(ALWAYS)
            await w.runs.make(container.id)
            w.manager.fails["start"] = [RuntimeFailed("seccomp")]
            with pytest.raises(RuntimeFailed):
                await w.runs.launch(container.id)
            assert w.manager.count("kill") == 1
            w.manager.ends(container.id, status=Signaled(9))
            await until(lambda: phase(w, container.id) is Phase.EXITED)
            assert (await w.store.exits())[0].by.policy == "start-failed"

    asyncio.run(main())


@pytest.mark.parametrize("word", ["running", "stopped"])
def test_a_start_that_failed_and_worked_all_the_same_is_a_start(tmp_path: Path, word: str) -> None:
    """Two starts after a crash give 0 and 1; the runtime's state, or the exit, settles it."""

    async def main() -> None:
        async with world(tmp_path) as w:
            container = await w.node.add(WEB)
            await w.runs.make(container.id)
            w.manager.fails["start"] = [RuntimeFailed("container is not created")]
            w.manager.states[container.id] = word
            if word == "stopped":
                w.manager.on_start = lambda c: w.manager.ends(c.id, status=Exited(5))
            await w.runs.launch(container.id)
            await until(lambda: phase(w, container.id) is (Phase.EXITED if word == "stopped" else Phase.RUNNING))
            assert (await w.event_types())[:2] == ["create", "start"]
            assert w.manager.count("kill") == 0

    asyncio.run(main())


def test_a_refused_commit_keeps_the_exit_pending_and_health_down_until_it_is_stored(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            id = await w.running(WEB)
            waiting = asyncio.create_task(w.node.containers.until(id, is_ended, LIMIT_SECONDS, "its exit"))
            w.store.refusals = sys.maxsize
            w.manager.ends(id, status=Exited(43), source=Source.KEEPER)  # not an ordinary one, for which the ring is
            await until(lambda: w.health == [False])
            assert w.node.pending == {RunKey(id, 1)}
            assert not waiting.done()
            assert phase(w, id) is Phase.RUNNING
            w.store.refusals = 0
            assert exit_of(await waiting) == (await w.store.exits())[0]
            await until(lambda: w.health == [False, True])
            await until(lambda: not w.node.pending)
            assert (await w.event_types()).count("exit") == 1

    asyncio.run(main())


def test_a_commit_that_got_through_although_it_was_given_up_is_stored_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            id = await w.running(WEB)
            w.store.late = 1
            w.manager.ends(id, status=Exited(43))
            await until(lambda: phase(w, id) is Phase.EXITED)
            assert len(await w.store.exits()) == 1
            assert (await w.event_types()).count("exit") == 1
            await settled(w, id)
            assert (await w.store.load())[0] == w.node.containers[id]

    asyncio.run(main())


def test_a_second_witness_of_an_end_is_no_news(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            id = await w.running(ALWAYS)
            w.manager.ends(id, status=Exited(43))
            w.manager.ends(id, status=Signaled(9), source=Source.ZOMBIE)
            await until(lambda: phase(w, id) is Phase.RUNNING and w.node.containers[id].run == 2)
            w.manager.ends(id, run=1, status=Signaled(9), source=Source.KEEPER)  # and a very late one
            await w.node.background.settled()
            assert [exit.status for exit in await w.store.exits()] == [Exited(43)]
            assert phase(w, id) is Phase.RUNNING
            w.manager.ends("nobody")

    asyncio.run(main())


def test_clean_up_is_tried_until_it_works_and_nothing_begins_before(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            id = await w.running(ALWAYS)
            w.manager.fails["delete"] = [ShimFailed("busy"), OSError(5, "io"), ShimFailed("busy")]
            w.manager.ends(id)
            await until(lambda: phase(w, id) is Phase.RUNNING and w.node.containers[id].run == 2)
            names = [call[0] for call in w.manager.calls if call[1] == id]
            assert names == ["create", "start", "settle", "delete", "delete", "delete", "delete", "create", "start"]

    asyncio.run(main())


def test_files_are_removed_until_it_works_and_the_id_is_free_only_then(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            id = await w.running(replace(WEB, auto_remove=True))
            w.manager.discard_fails = [OSError(16, "busy"), ShimFailed("mounted")]
            w.manager.ends(id)
            await w.node.containers.until(id, lambda c: c is None, LIMIT_SECONDS, "its removal")
            assert w.manager.discarded == [id]
            assert w.node._turns == {}

    asyncio.run(main())


async def waiting_for_its_timer(w: World) -> str:
    """The id of a container that has ended and begins again when a test says so: by itself only after a day."""
    w.node.backoff = lambda: Backoff(max_ns=10**15)
    id = await w.running(ALWAYS)
    w.node.containers[id] = replace(w.node.containers[id], delay_ns=10**14)
    w.manager.ends(id)
    await until(lambda: w.node._timers, "its timer")
    return id


def test_a_restart_timer_survives_the_daemon(tmp_path: Path) -> None:
    async def first() -> str:
        async with world(tmp_path) as w:
            return await waiting_for_its_timer(w)

    async def second(id: str) -> None:
        async with world(tmp_path) as w:
            (container,) = await w.store.load()
            assert (container.phase, container.clean) == (Phase.RESTARTING, True)
            w.node.containers[id] = due = replace(container, restart_at=boot_now(w.clock))
            w.node.resume_effects(due)
            await until(lambda: phase(w, id) is Phase.RUNNING)
            assert w.node.containers[id].run == 2

    asyncio.run(second(asyncio.run(first())))


@in_loop
async def test_what_has_ended_and_is_not_stored_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime's start would make its directory again behind the clean-up."""
    monkeypatch.setattr(runs, "END_SEEN_SECONDS", LIMIT_SECONDS)  # the end is stored within, also on a busy machine
    async with world(tmp_path) as w:
        container = await w.node.add(Spec(name="box"))
        await w.runs.make(container.id)
        w.store.refusals = 1
        w.manager.ends(container.id)
        assert w.node.pending == {RunKey(container.id, 1)}
        with pytest.raises(WrongState, match="ended before it was started"):
            await w.runs.launch(container.id)
        assert w.manager.count("start") == 0 and phase(w, container.id) is Phase.EXITED
        await until(lambda: not w.node.pending)


def test_a_timer_that_a_stop_was_quicker_than_begins_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            id = await waiting_for_its_timer(w)
            # The timer fires while the stop is being stored.
            await asyncio.gather(w.node.apply(id, lifecycle.StopAsked(USER)), w.node._due(id))
            assert phase(w, id) is Phase.EXITED
            assert w.node._timers == {}
            assert w.manager.count("create") == 1

    asyncio.run(main())


def test_a_restart_that_the_store_refuses_is_begun_all_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            id = await waiting_for_its_timer(w)
            w.store.refusals = 2
            w.node.spawn(w.node._due(id))
            await until(lambda: w.manager.count("create") == 2)
            w.store.refusals = 2
            await until(lambda: phase(w, id) is Phase.RUNNING)
            assert (w.node.containers[id].run, w.manager.count("start")) == (2, 2)

    asyncio.run(main())


def test_a_restart_that_cannot_be_made_is_tried_again_later(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            id = await w.running(ALWAYS)
            w.manager.fails["create"] = [RuntimeFailed("no rootfs"), KeyError("process")]
            w.manager.ends(id)
            await until(lambda: phase(w, id) is Phase.RUNNING and w.node.containers[id].run == 4)
            assert [exit.key.run for exit in await w.store.exits()] == [1]
            assert (await w.event_types()).count("failed") == 2

    asyncio.run(main())


@pytest.mark.parametrize("error", [RuntimeFailed("no rootfs"), OSError(28, "no space"), KeyError("process")])
def test_a_first_create_that_fails_leaves_no_container_and_a_free_name(tmp_path: Path, error: Exception) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            w.manager.fails["create"] = [error]
            with pytest.raises(type(error)):
                await w.running(WEB)
            await w.running(WEB)  # waits for the other one to be gone
            assert len(w.node.containers) == 1
            assert await w.event_types() == ["failed", "remove", "create", "start"]

    asyncio.run(main())


def test_ten_thousand_waiters_are_all_told_of_one_exit_and_leave_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            id = await w.running(WEB)
            waiting = [
                asyncio.create_task(w.node.containers.until(id, is_over(1), None, "its exit")) for _ in range(10_000)
            ]
            await until(lambda: len(w.node.containers.changes) == 10_000)
            for task in waiting[::2]:
                task.cancel()
            w.manager.ends(id, status=Exited(43))
            found = await asyncio.gather(*waiting, return_exceptions=True)
            assert sum(isinstance(each, asyncio.CancelledError) for each in found) == 5_000
            assert len({id_of for each in found if not isinstance(each, BaseException) and (id_of := each)}) == 1
            assert len(w.node.containers.changes) == 0

    asyncio.run(main())


def test_a_hundred_containers_that_end_at_once_are_a_hundred_exits(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            ids = await asyncio.gather(*(w.running(Spec(name=f"c{n}")) for n in range(100)))
            for n, id in enumerate(ids):
                w.manager.ends(id, status=Exited(n))
            await until(lambda: not w.node.background)
            exits = {exit.key.container: exit.status for exit in await w.store.exits()}
            assert exits == {id: Exited(n) for n, id in enumerate(ids)}

    asyncio.run(main())


def test_what_was_asked_is_stored_before_anybody_is_signalled(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            id = await w.running(WEB)
            await w.node.apply(id, lifecycle.EndAsked(STOP))
            assert (await w.store.load())[0].asked == STOP

    asyncio.run(main())


def test_closing_in_the_middle_of_everything_leaves_no_task(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            id = await w.running(ALWAYS)
            w.manager.gates["start"] = asyncio.Event()
            other = await w.node.add(Spec(name="other"))
            await w.runs.make(other.id)
            w.node.spawn(w.runs.launch(other.id))
            await until(lambda: w.manager.count("start") == 2)
            w.manager.ends(other.id)  # held
            w.manager.gates["delete"] = asyncio.Event()
            w.manager.ends(id)
            await until(lambda: w.manager.count("delete"))
            await w.node.close()
            assert not w.node.background
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_what_a_slow_disk_takes_long_to_store_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever tries again what the disk is still at work on stores it twice."""
    monkeypatch.setattr(node, "SLOW_SECONDS", 0.02)

    async def main() -> None:
        async with world(tmp_path) as w:
            container = await w.node.add(WEB)
            with w.store.slow():
                made = asyncio.ensure_future(w.runs.make(container.id))
                await until(lambda: w.health, "the word of health")
            await made
            await until(lambda: w.node.containers[container.id].phase is Phase.CREATED, "its create")
            w.manager.ends(container.id, status=Exited(43))
            await settled(w, container.id)
            assert await w.event_types() == ["create", "exit"]
            assert w.health[-1]  # well again

    asyncio.run(main())


def test_a_memory_kill_that_a_slow_disk_takes_long_to_store_is_reported_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            id = await w.running(WEB)
            with w.store.slow():
                w.manager.kills_for_memory(id, 1)
                await until(lambda: w.node._turns[id].is_taken, "the commit")
                with pytest.raises(StoreFailed):  # from now on whoever has a limit has given up
                    await w.store.commit(Transaction())
                w.manager.kills_for_memory(id, 1)  # as a round of the reconcile loop does
            await w.node.background.settled()
            assert (await w.event_types()).count("oom") == 1

    asyncio.run(main())


def test_a_settling_that_finds_no_room_is_tried_again_before_the_clean_up(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            id = await w.running(ALWAYS)
            w.manager.fails["settle"] = [OSError(errno.EMFILE, "full"), OSError(errno.EIO, "io")]
            w.manager.ends(id)
            await until(lambda: phase(w, id) is Phase.RUNNING and w.node.containers[id].run == 2)
            assert [call[0] for call in w.manager.calls][2:6] == ["settle", "settle", "settle", "delete"]

    asyncio.run(main())


def test_an_init_whose_start_failed_is_killed_as_soon_as_there_is_room_for_that(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            container = await w.node.add(Spec(name="web"))
            await w.runs.make(container.id)
            w.manager.fails["start"] = [RuntimeFailed("seccomp")]
            w.manager.fails["kill"] = [Busy("full"), OSError(errno.EMFILE, "full")]
            w.manager.on_kill = lambda c, number: w.manager.ends(c.id, status=Signaled(number))
            with pytest.raises(RuntimeFailed, match="seccomp"):
                await w.runs.launch(container.id)
            await until(lambda: is_ended(w.node.containers.get(container.id)))
            assert w.manager.count("kill") == 3

    asyncio.run(main())
