"""Tasks of another boot: containerd knows nothing of them, so exitd removes them, however they had ended."""

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import socket
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from shim import fields
from supervisor.containerd import ends as module
from supervisor.containerd import making, sockets
from supervisor.containerd.callers import Turns
from supervisor.containerd.ends import Ends
from supervisor.containerd.publish import Publisher
from supervisor.containerd.relays import Relays
from supervisor.engine.recovery import recover
from supervisor.model.errors import StoreFailed
from supervisor.model.lifecycle import RemoveAsked
from supervisor.model.taskfacts import Task
from supervisor.model.values import By, Container, Exited, Phase, Spec
from supervisor.store.database import Transaction
from supervisor.system import background, regular
from supervisor.system.inotify import Inotify
from tests.supervisor.containerd.test_relays import listening
from tests.supervisor.fakes import World, hasty, in_loop, until, world

__all__ = ["hasty"]
ASIDES = making.Asides()

pytestmark = pytest.mark.usefixtures("hasty")


@dataclass
class Service:
    """Removes what it is asked to, as the real one does of what has ended."""

    world: World
    removed: list[str] = field(default_factory=list)

    async def remove(self, c: Container, by: By, key: str) -> None:
        self.removed.append(c.spec.name)
        await self.world.node.apply(c.id, RemoveAsked(by, key))


async def ended(w: World, directory: Path, name: str) -> str:
    """A task that has ended, its bundle as it was when it began. Its container's id."""
    (bundle := directory / f"b-{name}").mkdir(exist_ok=True)
    id = await w.running(Spec(name=name, task=Task(str(bundle))))
    await making.leave_word(w.node.containers[id], "/state", ASIDES)
    w.manager.ends(id, status=Exited(7))
    await until(lambda: w.node.containers[id].phase is Phase.EXITED and w.node.containers[id].clean)
    return id


@contextlib.asynccontextmanager
async def ends(w: World, service: Any, directory: Path) -> AsyncIterator[Ends]:
    publisher = Publisher(w.events, str(directory), w.clock.boot_id())
    relays = Relays(w.node.spawn, str(directory), ASIDES)
    relays.begin()
    try:
        yield Ends(w.node, service, Turns(), publisher, str(directory), ASIDES, relays)
    finally:
        await publisher.close()


async def removed(w: World, directory: Path) -> list[str]:
    service: Any = Service(w)
    changes = Inotify()
    changes.start()
    try:
        async with ends(w, service, directory) as made:
            made.begin(changes)
            await w.node.background.settled()
    finally:
        changes.close()
    return list(service.removed)


@in_loop
async def test_a_task_that_had_ended_before_a_reboot_is_removed_after_it_and_its_name_is_free(tmp_path: Path) -> None:
    async with world(tmp_path, boot="one") as w:
        await ended(w, tmp_path, "web")
        assert await removed(w, tmp_path) == []
    async with world(tmp_path, boot="two") as w:
        await recover(w.runs, "")
        assert await removed(w, tmp_path) == ["web"]
        await until(lambda: w.node.containers == {})
        await ended(w, tmp_path, "web")


def stale_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a relay that was killed, in a directory that stands for containerd's."""
    (directory := tmp_path / "s").mkdir()
    monkeypatch.setattr(sockets, "SOCKETS", str(directory))
    with socket.socket(socket.AF_UNIX) as relay:
        relay.bind(str(directory / "abc"))
    return directory / "abc"


@contextlib.asynccontextmanager
async def ended_behind(path: Path, directory: Path) -> AsyncIterator[tuple[World, Any, Ends]]:
    """A task `web` that has ended, and whose bundle names this socket."""
    async with world(directory) as w:
        await ended(w, directory, "web")
        (directory / "b-web" / "address").write_text(f"unix://{path}")
        service: Any = Service(w)
        async with ends(w, service, directory) as made:
            yield w, service, made


@in_loop
async def test_the_socket_of_its_dead_relay_goes_with_a_task_that_containerd_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stale_socket(tmp_path, monkeypatch)
    async with ended_behind(path, tmp_path) as (w, service, made):
        await made.clean_up("default", "web", str(tmp_path / "b-web"))
        await w.node.background.settled()
    assert service.removed == ["web"] and not path.exists()


@in_loop
async def test_so_it_does_where_the_bundle_goes_while_the_tasks_turn_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`delete` was killed while it waited for exitd's answer, and containerd went on without it."""
    path = stale_socket(tmp_path, monkeypatch)
    async with ended_behind(path, tmp_path) as (w, _, made):
        go = asyncio.Event()
        other = asyncio.create_task(made._turns.run("", ("default", "web", ""), go.wait))
        cleaning = asyncio.create_task(made.clean_up("default", "web", str(tmp_path / "b-web")))
        await until(lambda: len(made._turns._at) == 2, "the cleaning in its turn")
        shutil.rmtree(tmp_path / "b-web")
        go.set()
        await asyncio.gather(other, cleaning)
        await w.node.background.settled()
    assert not path.exists()


@in_loop
async def test_so_it_does_with_a_task_whose_bundle_has_gone_by_the_word_of_the_delete_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stale_socket(tmp_path, monkeypatch)
    said = [("namespace", "default"), ("id", "web"), ("bundle", str(tmp_path / "b-web")), ("socket", str(path))]
    (gone := tmp_path / "shimv2" / "gone").mkdir(parents=True)
    (gone / "word").write_bytes(fields.encode("gone", said))
    async with world(tmp_path) as w:
        await ended(w, tmp_path, "web")
        shutil.rmtree(tmp_path / "b-web")
        await removed(w, tmp_path)
        assert not path.exists()


@in_loop
async def test_that_of_a_relay_which_stands_still_then_goes_when_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`delete` leaves a socket at which somebody listens; of such a task exitd may never have heard."""
    path = stale_socket(tmp_path, monkeypatch)
    path.unlink()
    with listening(path) as relay:
        relay.send_signal(signal.SIGSTOP)
        async with ended_behind(path, tmp_path) as (w, _, made):
            await made.clean_up("default", "another", str(tmp_path / "b-web"))
            assert path.exists()
            relay.kill()
            await until(lambda: not path.exists())
            await w.node.background.settled()


@in_loop
async def test_exitd_may_be_started_twice_after_the_reboot_before_it_removes_the_task(tmp_path: Path) -> None:
    async with world(tmp_path, boot="one") as w:
        await ended(w, tmp_path, "web")
    async with world(tmp_path, boot="two") as w:
        await recover(w.runs, "")
        await w.node.background.settled()
        assert [c.phase for c in w.node.containers.values()] == [Phase.EXITED]
    async with world(tmp_path, boot="two") as w:
        await recover(w.runs, "")
        assert await removed(w, tmp_path) == ["web"]


async def stamped(w: World, id: str, boot: str) -> None:
    """As an exitd of commit 6e7571d left what had ended: with the boot under which it last looked."""
    c = replace(w.node.containers[id], boot_id=boot)
    await w.node.store.commit(Transaction(containers=(c,)))


@in_loop
async def test_a_task_stamped_with_the_new_boot_by_an_earlier_exitd_goes_once_its_bundle_has_gone(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, boot="one") as w:
        await stamped(w, await ended(w, tmp_path, "web"), "two")
    async with world(tmp_path, boot="two") as w:
        await recover(w.runs, "")
        assert await removed(w, tmp_path) == []  # containerd may still ask for it
    shutil.rmtree(tmp_path / "b-web")
    async with world(tmp_path, boot="two") as w:
        await recover(w.runs, "")
        assert await removed(w, tmp_path) == ["web"]


@in_loop
async def test_containerd_has_forgotten_a_task_whose_bundle_it_has_made_anew(tmp_path: Path) -> None:
    bundle = tmp_path / "b-web"
    async with world(tmp_path) as w:
        id = await ended(w, tmp_path, "web")
        c = w.node.containers[id]
        assert not await making.is_forgotten(c, ASIDES, str(bundle))
        assert not await making.is_forgotten(replace(c, phase=Phase.RUNNING), ASIDES, str(bundle))
        (bundle / making.WORD).unlink()
        assert await making.is_forgotten(c, ASIDES, str(bundle))
        assert not await making.is_forgotten(c, ASIDES)  # exitd may have been killed before it left word
        assert not await making.is_forgotten(c, ASIDES, "/b/another")
        await making.leave_word(replace(c, id="another"), "/state", ASIDES)
        assert await making.is_forgotten(c, ASIDES)
        (bundle / making.WORD).write_bytes(b"no word")
        assert not await making.is_forgotten(c, ASIDES, str(bundle))


@in_loop
async def test_a_bundle_that_is_gone_with_all_around_it_proves_nothing_when_exitd_starts(
    tmp_path: Path,
) -> None:
    (bundles := tmp_path / "bundles").mkdir()
    async with world(tmp_path) as w:
        await ended(w, bundles, "web")
        bundles.rename(away := tmp_path / "away")
        assert await removed(w, tmp_path) == []
        (c,) = w.node.containers.values()
        assert await making.is_forgotten(c, ASIDES, str(bundles / "b-web"))  # containerd asks for it anew
        assert not await making.is_forgotten(c, ASIDES, "/b/another")
        shutil.rmtree(away / "b-web")
        away.rename(bundles)
        assert await removed(w, tmp_path) == ["web"]


@in_loop
async def test_a_bundle_that_cannot_be_looked_at_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: str) -> None:
        raise OSError(errno.ESTALE, path)

    async with world(tmp_path) as w:
        c = w.node.containers[await ended(w, tmp_path, "web")]
        (tmp_path / "b-web" / making.WORD).unlink()
        with monkeypatch.context() as patched:
            patched.setattr(os, "stat", refused)
            assert not await making.is_forgotten(c, ASIDES)


@in_loop
async def test_a_bundle_that_hangs_is_compared_by_its_name_alone_until_it_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another containerd's may have that name, or this one's a link: what is given up is looked for in a thread."""
    hung, realpath, dropped = threading.Event(), os.path.realpath, list[str]()

    def hangs(path: str, **more: Any) -> str:
        if str(path).startswith(str(tmp_path)):
            assert threading.current_thread() is not threading.main_thread()
            hung.wait()
        return realpath(path, **more)

    monkeypatch.setattr(Publisher, "drop", lambda self, container: dropped.append(container.spec.name))
    async with world(tmp_path) as w:
        await ended(w, tmp_path, "web")
        (tmp_path / "link").symlink_to(tmp_path / "b-web")
        service: Any = Service(w)
        async with ends(w, service, tmp_path) as made:
            monkeypatch.setattr(os.path, "realpath", hangs)
            cleaning = asyncio.create_task(made.clean_up("default", "web", str(tmp_path / "link")))
            await until(lambda: ASIDES.bundles._turns, "the look at the link")
            assert dropped == []
            hung.set()
            await cleaning
            assert "web" in dropped and service.removed == ["web"]


@in_loop
async def test_a_note_that_could_not_be_read_for_want_of_a_descriptor_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither that one nor those behind it wait for another note."""
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.01)
    full, read, iterdir = [True, True], module._read, Path.iterdir

    def refused(path: Path) -> Any:
        if full:
            full.pop()
            raise OSError(errno.EMFILE, "Too many open files")
        return read(path) if path.is_file() else iterdir(path)

    async with world(tmp_path) as w:
        for name in ("web", "db"):
            await ended(w, tmp_path, name)
        service: Any = Service(w)
        changes = Inotify()
        changes.start()
        async with ends(w, service, tmp_path) as made:
            made.begin(changes)
            monkeypatch.setattr(module, "_read", refused)
            monkeypatch.setattr(Path, "iterdir", refused)
            for name in ("web", "db"):
                said = [("namespace", "default"), ("id", name), ("bundle", str(tmp_path / f"b-{name}"))]
                made._place("default", name).write_bytes(fields.encode("gone", said))
            made._look()
            await until(lambda: sorted(service.removed) == ["db", "web"])
        changes.close()


@in_loop
async def test_a_task_of_another_boot_is_removed_though_the_store_refuses_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "RETRY_SECONDS", (0.01,))
    async with world(tmp_path, boot="one") as w:
        await ended(w, tmp_path, "web")
    async with world(tmp_path, boot="two") as w:
        await recover(w.runs, "")
        refused = [StoreFailed("full")] * 2
        remove = Service.remove

        async def refusing(self: Service, c: Container, by: By, key: str) -> None:
            if refused:
                raise refused.pop()
            await remove(self, c, by, key)

        monkeypatch.setattr(Service, "remove", refusing)
        assert await removed(w, tmp_path) == ["web"]


@in_loop
async def test_the_end_in_a_bundle_is_waited_for_while_there_is_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, read = [OSError(errno.EMFILE, "Too many open files")], regular.read

    def reading(path: str, **words: Any) -> bytes:
        if refused:
            raise refused.pop()
        return read(path, **words)

    async with world(tmp_path) as w:
        id = await ended(w, tmp_path, "web")
        await making.leave_end(w.node.containers[id], "/state", ASIDES)
        monkeypatch.setattr(regular, "read", reading)
        seen = await making.read_end(str(tmp_path / "b-web"), "default", "web", ASIDES)
        assert not refused and seen is not None and seen.code == 7
