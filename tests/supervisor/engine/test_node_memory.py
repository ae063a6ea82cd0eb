"""Memory kills on their way into the event log, and whose limit an exit names."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.model.values import Event, Exited, Phase, Pod, Spec
from tests.supervisor.fakes import World, hasty, in_loop, until, world

__all__ = ["hasty"]
pytestmark = pytest.mark.usefixtures("hasty")

WEB = Spec(name="web", memory_bytes=64 << 20)


async def reported(w: World) -> list[str]:
    """The counts of all oom events."""
    return [_kills(event) for event in await w.store.events_after(0, 1000) if event.type == "oom"]


def _kills(event: Event) -> str:
    return dict(event.attributes)["kills"]


@in_loop
async def test_a_count_is_stored_and_reported_once_however_often_it_is_seen(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        id = await w.running(WEB)
        for kills in (1, 1, 1, 3, 2, 3):
            w.manager.kills_for_memory(id, kills)
            await w.node.background.settled()
        assert await reported(w) == ["1", "3"]
        w.manager.kills_for_memory(id, 4, run=2)  # a run there is not
        w.manager.kills_for_memory("nobody", 1)
        await w.node.background.settled()
        w.manager.ends(id, status=Exited(0))
        await until(lambda: w.node.containers[id].phase is Phase.EXITED)
        w.manager.kills_for_memory(id, 5)  # too late
        await w.node.background.settled()
        assert await reported(w) == ["1", "3"]
        (exit_,) = await w.store.exits()
        assert (exit_.oom.kills, exit_.oom.init, exit_.oom.limit_bytes) == (3, False, 64 << 20)


@in_loop
async def test_many_at_once_are_reported_in_a_growing_order(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        id = await w.running(WEB)
        for kills in (2, 5, 5, 3, 9):
            w.manager.kills_for_memory(id, kills)
        await w.node.background.settled()
        counts = list(map(int, await reported(w)))
        assert counts == sorted(set(counts)) and counts[-1] == 9


@in_loop
async def test_what_the_store_refuses_is_not_reported_and_comes_with_the_next_round_or_the_exit(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        id = await w.running(WEB)
        w.store.refusals = 1
        w.manager.kills_for_memory(id, 1)
        await w.node.background.settled()
        assert await reported(w) == [] and w.node.containers[id].oom_told == 0
        w.manager.kills_for_memory(id, 1)
        await w.node.background.settled()
        assert await reported(w) == ["1"]


@in_loop
async def test_the_next_daemon_does_not_report_it_again(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        id = await w.running(WEB)
        w.manager.kills_for_memory(id, 1)
        await w.node.background.settled()
    async with world(tmp_path) as w:
        (container,) = await w.store.load()
        w.node.containers[id] = container
        w.manager.kills_for_memory(id, 1)
        await w.node.background.settled()
        assert await reported(w) == ["1"]


@pytest.mark.parametrize(("own", "of_pod", "limit"), [(0, 0, 0), (5, 0, 5), (0, 7, 7), (5, 7, 5), (9, 7, 7), (7, 7, 7)])
def test_the_limit_of_a_member_is_the_tighter_one(tmp_path: Path, own: int, of_pod: int, limit: int) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            pause = await w.running(Spec(name="pod", pod=Pod(memory_bytes=of_pod)))
            id = await w.running(replace(WEB, name="member", memory_bytes=own, sandbox=pause))
            for each, expected in ((id, limit), (pause, of_pod)):
                w.manager.ends(each)
                await until(lambda: w.node.containers[each].exit is not None)  # noqa: B023
                exit_ = w.node.containers[each].exit
                assert exit_ is not None and exit_.oom.limit_bytes == expected

    asyncio.run(main())
