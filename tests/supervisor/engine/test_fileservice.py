"""The service for files of containers: when it freezes one, for how long, and what becomes of works beside a removal.

On the node of `fakes`, with a real store of images."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from supervisor.engine import fileservice
from supervisor.engine.fileservice import FROZEN, FileService
from supervisor.engine.imageservice import COMMITS, LOADS, ImageService
from supervisor.engine.operations import PAUSE_TRIES, Settings
from supervisor.images import changes
from supervisor.images.facts import Image
from supervisor.images.instructions import CommitWords
from supervisor.images.store import Images
from supervisor.model.errors import RuntimeFailed, TimedOut, WrongState
from supervisor.model.values import By, Container, Phase, Spec
from supervisor.runtime.oci import view
from tests.supervisor.engine.callers import services_of
from tests.supervisor.fakes import World, in_loop, let_pass, until, world
from tests.supervisor.images.building import write_layout
from tests.supervisor.images.stores import PLAIN

pytestmark = pytest.mark.root("layers need root")

BY = By(uid=0)


class ServiceRig:
    """With one container that runs on an image of the store, and has written a file."""

    def __init__(self, w: World, images: ImageService, root: Path, id: str) -> None:
        self.w, self.images, self.id = w, images, id
        services = services_of(w, None)
        self.files = FileService(w.node, services.containers, images, Settings(str(root), "/state"))
        self.directory = root / "c" / id
        (self.directory / "rootfs/merged").mkdir(parents=True)
        (self.directory / "rootfs/layer/upper").mkdir(parents=True)
        for place in ("merged", "layer/upper"):
            (self.directory / "rootfs" / place / "file").write_bytes(bytes(20 << 20))

    def commit(self, name: str = "") -> "asyncio.Task[Image]":
        words = CommitWords((), "", "")
        return asyncio.create_task(self.files.commit(self.id, words, name, pause=True, by=BY))

    def freezes(self) -> list[str]:
        return [name for name, _, _ in self.w.manager.calls if name in ("pause", "resume")]

    async def until_thawed(self) -> None:
        await until(lambda: not (self.directory / FROZEN).exists(), "the mark's end")
        assert self.w.node.containers[self.id].phase is Phase.RUNNING

    async def names(self) -> set[str]:
        return {name for image, _ in await self.images.list_images() for name in image.names}


@contextlib.asynccontextmanager
async def service(tmp_path: Path) -> AsyncIterator[ServiceRig]:
    images = ImageService(Images(str(tmp_path / "r")))
    try:
        async with world(tmp_path) as w:
            (image,) = await images.load_image(str(write_layout(tmp_path / "box", {"plain": PLAIN})), "")
            found = await images.look_up(Spec("c", image="box:plain"))
            assert found is not None
            id = await w.running(Spec("c", image="box:plain", image_id=image.id, layers=found.lower))
            yield ServiceRig(w, images, tmp_path / "r", id)
    finally:
        await images.close()


@in_loop
async def test_a_container_is_frozen_while_a_thread_reads_it_and_not_while_others_are_at_work(tmp_path: Path) -> None:
    async with service(tmp_path) as d:
        over = threading.Event()
        try:
            for _ in range(LOADS):
                d.images._begin(d.images._loads, over.wait)
            assert (await d.commit()).layers, "loads are in nobody's way"
            for _ in range(COMMITS):
                d.images._begin(d.images._commits, over.wait)
            one, other = d.commit(), d.commit()
            await until(lambda: d.images._commits._work_queue.qsize() == 1, "one that waits for its turn")
            assert d.freezes() == ["pause", "resume"], "of the first commit"
        finally:
            over.set()
        await asyncio.gather(one, other)
        assert d.freezes() == ["pause", "resume"] * 3, "none is thawed while another reads it"
        await d.until_thawed()


@in_loop
async def test_a_client_that_leaves_while_its_container_is_being_frozen_leaves_nothing_frozen(tmp_path: Path) -> None:
    async with service(tmp_path) as d:
        gate = d.w.manager.gates["pause"] = asyncio.Event()
        left = d.commit("left:1")
        await until(lambda: d.freezes() == ["pause"])
        left.cancel()
        await asyncio.wait((left,))
        assert (d.directory / FROZEN).exists(), "the freeze is still to come"
        gate.set()
        await d.until_thawed()
        assert d.freezes() == ["pause", "resume"]
        assert (await d.commit("next:1")).names == ("next:1",)
        assert "left:1" not in await d.names()


@in_loop
async def test_a_freeze_that_worked_and_said_that_it_failed_is_undone(tmp_path: Path) -> None:
    async with service(tmp_path) as d:
        d.w.manager.frozen[d.id] = True
        for call in ("pause", "is_paused"):
            d.w.manager.fails[call] += [RuntimeFailed("no word")] * PAUSE_TRIES
        with pytest.raises(RuntimeFailed):
            await d.commit()
        await d.until_thawed()
        assert d.freezes() == [*["pause"] * PAUSE_TRIES, "resume"]


@in_loop
async def test_a_layer_that_takes_too_long_is_not_read_on_when_its_container_is_thawed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on, closed = threading.Event(), threading.Event(), threading.Event()

    def slow(*_: object) -> fileservice.Parts:
        begun.set()
        try:
            yield b""
            goes_on.wait()
            yield bytes(1024)
        finally:
            closed.set()

    monkeypatch.setattr(changes, "layer_tar", slow)
    async with service(tmp_path) as d:
        try:
            late = d.commit("late:1")
            await until(begun.is_set)
            let_pass(monkeypatch, fileservice.FROZEN_SECONDS)
            with pytest.raises(TimedOut, match="--no-pause has no such limit"):
                await late
            await d.until_thawed()
        finally:
            goes_on.set()
        await until(closed.is_set)
        await until(lambda: not d.images._under_way, "the end of its thread")
        assert "late:1" not in await d.names()
        assert not d.files._users


@in_loop
async def test_a_reader_that_takes_nothing_does_not_hold_up_a_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fileservice, "LAST_SECONDS", 0.05)
    async with service(tmp_path) as d:
        parts = d.files.export(d.id)
        assert await anext(parts)
        await d.files.removing(d.id)
        with pytest.raises(WrongState, match="c is being removed"):
            async for _ in parts:
                pass


@in_loop
async def test_files_and_the_ids_that_are_taken_off_their_owners_are_those_of_one_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another may get the name meanwhile, so it is looked up once."""
    looked_up: list[str] = []
    async with service(tmp_path) as d:
        find = d.files._containers.find

        async def finding(id: str) -> Container:
            looked_up.append(id)
            return await find(id)

        monkeypatch.setattr(d.files._containers, "find", finding)
        monkeypatch.setattr(d.files, "_way", d.files._root_way)
        for parts in (d.files.export("c"), d.files.copy_from("c", "/file", follow=False, name="")):
            async with contextlib.aclosing(parts):
                assert await anext(parts)
        assert looked_up == ["c", "c"]


@in_loop
async def test_the_mount_of_a_resting_root_is_a_use_until_its_thread_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounting, goes_on = threading.Event(), threading.Event()

    def mounted_root(*_: object) -> str:
        mounting.set()
        goes_on.wait()
        return str(tmp_path)

    monkeypatch.setattr(view, "mounted_root", mounted_root)
    async with service(tmp_path) as d:
        d.w.manager.ends(d.id)
        await until(lambda: d.w.node.containers[d.id].phase is Phase.EXITED)
        left = asyncio.create_task(d.files.stat_path(d.id, "/", follow=False))
        try:
            await until(mounting.is_set)
            left.cancel()
            await asyncio.wait((left,))
            beside = [asyncio.create_task(d.files.removing(d.id)), asyncio.create_task(d.files.before_make(d.id))]
            done, _ = await asyncio.wait(beside, timeout=0.05)
            assert not done, "neither a removal nor a run begins beside it"
        finally:
            goes_on.set()
        await asyncio.gather(*beside)
