"""Tasks of another boot: containerd knows nothing of them, so exitd removes them, however they had ended."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from supervisor.facts import By, Container, Exited, Phase, Spec
from supervisor.inotify import Inotify
from supervisor.lifecycle import RemoveAsked
from supervisor.recovery import recover
from supervisor.shimv2.callers import Turns
from supervisor.shimv2.ends import Ends
from supervisor.taskfacts import Task
from tests.supervisor.fakes import World, hasty, in_loop, until, world

__all__ = ["hasty"]
pytestmark = pytest.mark.usefixtures("hasty")


@dataclass
class Service:
    """Removes what it is asked to, as the real one does of what has ended."""

    world: World
    removed: list[str] = field(default_factory=list)

    async def remove(self, c: Container, by: By, key: str) -> None:
        self.removed.append(c.spec.name)
        await self.world.node.apply(c.id, RemoveAsked(by, key))


async def ended(w: World, name: str) -> None:
    id = await w.running(Spec(name=name, task=Task(f"/b/{name}")))
    w.manager.ends(id, status=Exited(7))
    await until(lambda: w.node.containers[id].phase is Phase.EXITED and w.node.containers[id].clean)


async def removed(w: World, directory: Path) -> list[str]:
    service: Any = Service(w)
    changes = Inotify()
    changes.start()
    try:
        Ends(w.node, service, Turns(), str(directory)).begin(changes)
        await w.node.background.settled()
    finally:
        changes.close()
    return list(service.removed)


@in_loop
async def test_a_task_that_had_ended_before_a_reboot_is_removed_after_it_and_its_name_is_free(tmp_path: Path) -> None:
    async with world(tmp_path, boot="one") as w:
        await ended(w, "web")
        assert await removed(w, tmp_path) == []
    async with world(tmp_path, boot="two") as w:
        await recover(w.node)
        assert await removed(w, tmp_path) == ["web"]
        await until(lambda: w.node.containers == {})
        await ended(w, "web")


@in_loop
async def test_exitd_may_be_started_twice_after_the_reboot_before_it_removes_the_task(tmp_path: Path) -> None:
    async with world(tmp_path, boot="one") as w:
        await ended(w, "web")
    async with world(tmp_path, boot="two") as w:
        await recover(w.node)
        await w.node.background.settled()
        assert [c.phase for c in w.node.containers.values()] == [Phase.EXITED]
    async with world(tmp_path, boot="two") as w:
        await recover(w.node)
        assert await removed(w, tmp_path) == ["web"]
