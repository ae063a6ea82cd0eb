"""Whoever asks for the exit of a container that has removed itself gets it for a while, by name as by id."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.config.settings import Config, Retention
from supervisor.model.errors import AmbiguousId, NoSuchContainer
from supervisor.model.values import Exit, Exited, Spec
from tests.supervisor.engine.callers import services_of
from tests.supervisor.engine.test_operations import Admits
from tests.supervisor.fakes import World, hasty, in_loop, until, world
from tests.supervisor.happenings import USER

__all__ = ["hasty"]
pytestmark = pytest.mark.usefixtures("hasty")

SHORT = Spec(name="web", runtime="", auto_remove=True)


class Serving:
    """Operations with a retention that can be changed while they serve."""

    def __init__(self, w: World) -> None:
        self.world = w
        self.seconds = 300.0
        self.ask = services_of(w, Admits(), config=self._config).containers

    def _config(self) -> Config:
        return Config(retention=Retention(exit_seconds=self.seconds))

    async def gone(self, code: int, spec: Spec = SHORT, id: str = "") -> str:
        """A container that ran, ended and is no more."""
        if id:
            await self.world.node.add(spec, id)
            await self.world.runs.make(id)
            await self.world.runs.launch(id)
        else:
            id = await self.world.running(spec)
        self.world.manager.ends(id, status=Exited(code))
        await until(lambda: id not in self.world.node.containers or not spec.auto_remove)
        return id

    async def code(self, reference: str, run: int = 0, condition: str = "exited") -> int:
        exit_ = await self.ask.wait(reference, condition, run)
        assert exit_ is not None and isinstance(exit_.status, Exited)
        return exit_.status.code

    async def listed(self, reference: str) -> list[Exit]:
        return [each async for each in self.ask.exits(None, False, reference)]


@contextlib.asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[Serving]:
    async with world(directory) as w:
        yield Serving(w)


@in_loop
async def test_by_name_by_id_and_by_its_beginning_whatever_is_waited_for(tmp_path: Path) -> None:
    async with serving(tmp_path) as s:
        id = await s.gone(7)
        for reference in ("web", id, id[:12], id[:3]):
            for condition in ("exited", "removed", "next-exit"):
                assert await s.code(reference, condition=condition) == 7
            assert [each.key.container for each in await s.listed(reference)] == [id]


@in_loop
async def test_who_asked_for_a_run_gets_that_run_and_none_that_never_was(tmp_path: Path) -> None:
    async with serving(tmp_path) as s:
        await s.gone(7)
        assert await s.code("web", run=1) == 7
        assert await s.ask.wait("web", "exited", 2) is None


@in_loop
async def test_the_next_holder_of_the_name_is_meant_as_soon_as_there_is_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as s:
        await s.gone(7)
        second = await s.world.running(SHORT)
        waiting = asyncio.create_task(s.code("web"))
        await until(lambda: len(s.world.node.containers.changes))
        s.world.manager.ends(second, status=Exited(8))
        assert await waiting == 8
        await until(lambda: not s.world.node.containers)
        assert await s.code("web") == 8  # the newest of the two that are gone


@in_loop
async def test_after_the_retention_only_the_full_id_is_left(tmp_path: Path) -> None:
    async with serving(tmp_path) as s:
        id = await s.gone(7)
        s.seconds = 0.0
        for reference in ("web", id[:12]):
            with pytest.raises(NoSuchContainer, match=reference):
                await s.code(reference)
        assert await s.code(id) == 7


@in_loop
async def test_a_container_that_was_removed_by_somebody_is_nobody_by_name(tmp_path: Path) -> None:
    async with serving(tmp_path) as s:
        id = await s.gone(7, replace(SHORT, auto_remove=False))
        await s.ask.remove(id, True, USER)
        with pytest.raises(NoSuchContainer):
            await s.code("web")
        assert await s.code(id) == 7


@in_loop
async def test_a_beginning_that_several_share_is_ambiguous_and_a_name_goes_before_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as s:
        await s.gone(1, replace(SHORT, name="one"), id="ab" + "0" * 62)
        await s.gone(2, replace(SHORT, name="two"), id="ab" + "1" * 62)
        with pytest.raises(AmbiguousId, match="2 ids"):
            await s.code("ab")
        assert (await s.code("ab0"), await s.code("ab1")) == (1, 2)
        await s.gone(3, replace(SHORT, name="ab"), id="cd" + "0" * 62)
        assert await s.code("ab") == 3


@in_loop
async def test_a_name_of_another_namespace_is_not_meant(tmp_path: Path) -> None:
    async with serving(tmp_path) as s:
        id = await s.gone(7, replace(SHORT, namespace="other"))
        with pytest.raises(NoSuchContainer):
            await s.code("web")
        assert await s.code(id[:12]) == 7


@in_loop
async def test_the_next_daemon_knows_them_too_and_the_next_boot_of_the_host_does_not(tmp_path: Path) -> None:
    async with serving(tmp_path) as s:
        id = await s.gone(7)
    async with serving(tmp_path) as s:
        assert await s.code("web") == 7
    async with world(tmp_path, boot="another") as w:
        s = Serving(w)
        with pytest.raises(NoSuchContainer):
            await s.code("web")
        assert await s.code(id) == 7


@in_loop
async def test_a_create_that_failed_leaves_no_name_behind(tmp_path: Path) -> None:
    async with serving(tmp_path) as s:
        s.world.manager.fails["create"].append(OSError(28, "no space"))
        with pytest.raises(OSError, match="no space"):
            await s.ask.create(SHORT, USER)
        with pytest.raises(NoSuchContainer):
            await s.code("web")
