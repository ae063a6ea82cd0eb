"""The last output of a container that removes itself: who is waited for, and for how long."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from supervisor.engine import lastwords
from supervisor.engine.containers import Containers
from supervisor.engine.lastwords import LastWords
from supervisor.model.values import Container, Phase, Spec
from tests.supervisor.fakes import in_loop, until

ID = "c1"


class Removed:
    """One that removes itself, and the daemon that has it."""

    def __init__(self, base: Path, *, auto_remove: bool = True) -> None:
        self.containers = Containers()
        self.containers[ID] = Container(ID, Spec("x", auto_remove=auto_remove), Phase.REMOVING, 1, 1)
        self.tasks: list[asyncio.Task[object]] = []
        self.base = base
        self.mark = base / "c" / ID / lastwords.MARK
        self.mark.parent.mkdir(parents=True, exist_ok=True)
        self.words = LastWords(self.containers, str(base), self._spawn)

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def settled(self) -> None:
        await asyncio.gather(*self.tasks)

    async def is_held_up(self, removing: "asyncio.Task[None]") -> bool:
        for _ in range(5):
            await asyncio.sleep(0)
        return not removing.done()


@in_loop
async def test_a_listener_is_waited_for_and_leaves_no_mark(tmp_path: Path) -> None:
    removed = Removed(tmp_path)
    async with removed.words.listening(ID), removed.words.listening(ID):
        assert removed.mark.exists()
        removing = asyncio.create_task(removed.words.removing(ID))
        assert await removed.is_held_up(removing)
    await removing
    await removed.settled()
    assert not removed.mark.exists()


@in_loop
async def test_who_listened_before_exitd_was_killed_is_waited_for_and_nobody_else(tmp_path: Path) -> None:
    removed = Removed(tmp_path)
    await removed.words.before_find(ID)
    await removed.words.removing(ID)  # nobody has listened
    removed.mark.touch()
    await removed.words.before_find(ID)
    removing = asyncio.create_task(removed.words.removing(ID))
    assert await removed.is_held_up(removing)
    async with removed.words.listening(ID):
        pass
    await removing
    await removed.settled()
    assert not removed.mark.exists()


@in_loop
async def test_the_wait_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lastwords, "AWAITED_SECONDS", 0.01)
    monkeypatch.setattr(lastwords, "LISTENER_SECONDS", 0.01)
    removed = Removed(tmp_path)
    removed.mark.touch()
    await removed.words.before_find(ID)
    await removed.words.removing(ID)
    async with removed.words.listening(ID):
        await removed.words.removing(ID)


@in_loop
async def test_a_daemon_that_stops_leaves_the_mark_for_the_next_one(tmp_path: Path) -> None:
    removed = Removed(tmp_path)
    async with removed.words.listening(ID):
        removed.words.stop()
    await removed.settled()
    assert removed.mark.exists()


@in_loop
async def test_one_that_stays_has_no_mark_and_a_mark_that_cannot_be_made_is_no_refusal(tmp_path: Path) -> None:
    stays = Removed(tmp_path, auto_remove=False)
    async with stays.words.listening(ID):
        assert not stays.mark.exists()
        await stays.words.removing(ID)
    goes = Removed(tmp_path / "other")
    goes.mark.parent.rmdir()
    async with goes.words.listening(ID):
        pass
    await until(lambda: all(task.done() for task in goes.tasks))
    await goes.settled()
