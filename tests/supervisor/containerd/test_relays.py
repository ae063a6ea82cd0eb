"""What relays leave that outlive their tasks: their sockets, when they are killed."""

import asyncio
import dataclasses
import errno
import fcntl
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from supervisor.containerd import making, sockets
from supervisor.containerd.relays import Relays, process_of
from supervisor.model.taskfacts import Task
from supervisor.model.values import Container, Phase, Process, Spec
from supervisor.system import background
from supervisor.system.background import Background
from tests.supervisor.children import child, descriptors, name_of
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.fakes import in_loop, until

LISTENING = """
import socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
print("y", end="", flush=True)
while True:
    listening.accept()
"""


class Place:
    """A directory of sockets, and a state directory."""

    def __init__(self, base: Path) -> None:
        self.sockets, self.state = base / "s", base / "state"
        self.sockets.mkdir()
        self.state.mkdir()
        self.notes = self.state / "shimv2" / "relays"

    def bound(self, name: str, *, listens: bool = False) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.bind(str(self.sockets / name))
        if listens:
            made.listen()
        return made

    def names(self) -> list[str]:
        return sorted(path.name for path in self.sockets.iterdir())

    def noted(self) -> list[str]:
        return sorted(path.name for path in self.notes.iterdir()) if self.notes.exists() else []

    def task(self, name: str, relay: Process | str) -> Container:
        courier = relay if isinstance(relay, str) else f"{relay.pid}/{relay.started_ticks}"
        task = Task(bundle="/b/box", courier=courier, socket=str(self.sockets / name))
        return Container("c1", Spec("box", bundle="/b/box", task=task), Phase.EXITED, 1, 1)

    @asynccontextmanager
    async def relays(self) -> AsyncIterator[Relays]:
        spawned, asides = Background(), making.Asides()
        made = Relays(spawned.spawn, str(self.state), asides)
        made.begin()
        yield made
        await spawned.close()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path)
    monkeypatch.setattr(sockets, "SOCKETS", str(made.sockets))
    return made


@in_loop
async def test_the_socket_of_a_relay_that_is_killed_after_its_task_was_removed_goes_with_it(place: Place) -> None:
    before = held_now()
    place.bound("abc").close()
    with child() as relay:
        async with place.relays() as relays:
            task = place.task("abc", name_of(relay))
            await relays.task_removed(task)
            await relays.task_removed(task)
            assert (place.names(), place.noted()) == (["abc"], ["abc"])
            assert stat.S_IMODE((place.notes / "abc").stat().st_mode) == 0o600
            relay.kill()
            await until(lambda: not place.noted())
            assert place.names() == []
    assert not opened_since(before)


@in_loop
async def test_a_relay_that_has_removed_its_socket_is_forgotten(place: Place) -> None:
    with child() as relay:
        async with place.relays() as relays:
            await relays.task_removed(place.task("abc", name_of(relay)))
            relay.kill()
            await until(lambda: not place.noted())


@contextmanager
def listening(path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A relay as far as it listens there; one that is killed leaves its socket."""
    with subprocess.Popen([sys.executable, "-c", LISTENING, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.read(1) == b"y"
            yield process
        finally:
            process.kill()


@in_loop
async def test_a_relay_that_is_known_by_its_socket_alone_is_awaited(place: Place) -> None:
    """Of a task that exitd has never had, or of which an earlier exitd has left its note."""
    before = held_now()
    with listening(place.sockets / "abc") as relay, listening(place.sockets / "noted") as noted:
        place.notes.mkdir(parents=True)
        (place.notes / "noted").write_text(f"{noted.pid}/1")  # as exitd wrote them once
        async with place.relays() as relays:
            await relays.given_up(str(place.sockets / "abc"))
        async with place.relays():  # the next exitd
            await asyncio.sleep(0.05)
            assert (place.names(), place.noted()) == (["abc", "noted"], ["abc", "noted"])
            relay.kill()
            await until(lambda: place.noted() == ["noted"])
            assert place.names() == ["noted"]
            noted.kill()
            await until(lambda: not place.noted())
            assert place.names() == []
    assert not opened_since(before)


@in_loop
async def test_the_next_relay_at_the_path_is_awaited_too(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of the same name has the same path; also a pod's tasks have one relay."""
    remove_stale, found = sockets.remove_stale, list[Process | None]()

    def looks(path: str) -> Process | None:
        found.append(remove_stale(path))
        return found[-1]

    monkeypatch.setattr(sockets, "remove_stale", looks)
    with child() as first, listening(place.sockets / "abc") as second:
        async with place.relays() as relays:
            named = (name_of(first), name_of(second), name_of(second))
            await asyncio.gather(*(relays.task_removed(place.task("abc", relay)) for relay in named))
            assert found == []  # before the first has ended
            first.kill()
            await until(lambda: found)
            assert found == [name_of(second)]
            assert (place.names(), place.noted()) == (["abc"], ["abc"])
            second.kill()
            await until(lambda: not place.noted())
            assert place.names() == []


@in_loop
async def test_a_relay_that_is_named_while_the_note_about_an_earlier_one_goes_keeps_its_note(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_stale, meanwhile = sockets.remove_stale, threading.Event()
    looked = threading.Event()

    def looks(path: str) -> Process | None:
        found = remove_stale(path)
        looked.set()
        assert meanwhile.wait(30)
        return found

    monkeypatch.setattr(sockets, "remove_stale", looks)
    async with place.relays() as relays:
        await relays.given_up(str(place.sockets / "abc"))  # there is none any more
        await asyncio.to_thread(looked.wait, 30)
        with listening(place.sockets / "abc") as relay:
            await relays.task_removed(place.task("abc", name_of(relay)))
            looked.clear()
            meanwhile.set()
            await asyncio.to_thread(looked.wait, 30)
            assert (place.names(), place.noted()) == (["abc"], ["abc"])
            relay.kill()
            await until(lambda: not place.noted())
            assert place.names() == []


@in_loop
async def test_a_removal_that_fails_is_tried_again_and_the_note_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "RETRY_SECONDS", (0.0,))
    monkeypatch.setattr(sockets, "LOCK_SECONDS", 0.0)
    place.bound("abc").close()
    lock_fd = os.open(place.sockets, os.O_RDONLY)
    fcntl.flock(lock_fd, fcntl.LOCK_EX)
    with structlog.testing.capture_logs() as logged:
        async with place.relays() as relays:
            await relays.given_up(str(place.sockets / "abc"))
            await until(lambda: len(logged) > 2)
            assert (place.names(), place.noted()) == (["abc"], ["abc"])
            os.close(lock_fd)
            await until(lambda: not place.noted())
            assert place.names() == []
    assert {line["event"] for line in logged} == {f"removing {place.sockets}/abc failed, trying again"}


@in_loop
async def test_without_room_for_a_look_or_a_watch_both_are_tried_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "RETRY_SECONDS", (0.0,))
    loop, connect = asyncio.get_running_loop(), socket.socket
    refused = [OSError(errno.EMFILE, "descriptors"), OSError(errno.ENOSPC, "watches")]

    def opened(*kind: Any) -> socket.socket:
        if len(refused) == 2:
            raise refused.pop(0)
        return connect(*kind)

    def add_reader(fd: int, call: Any) -> None:
        if refused:
            raise refused.pop(0)
        type(loop).add_reader(loop, fd, call)

    with listening(place.sockets / "abc") as relay:
        before = descriptors()
        async with place.relays() as relays:
            monkeypatch.setattr(socket, "socket", opened)
            monkeypatch.setattr(loop, "add_reader", add_reader)
            await relays.given_up(str(place.sockets / "abc"))
            await until(lambda: not refused and len(descriptors() - before) == 1)  # the relay's pidfd
            assert (place.names(), place.noted()) == (["abc"], ["abc"])
            relay.kill()
            await until(lambda: not place.noted())
            assert place.names() == []


@pytest.mark.parametrize("courier", ["", "1", "1/", "/1", "x/1", "-1/1", "4194305/1", "1" * 5000 + "/1"])
def test_what_names_no_process_is_none(courier: str) -> None:
    assert process_of(courier) is None


@in_loop
async def test_tasks_without_a_relay_or_a_socket_leave_nothing(place: Place) -> None:
    async with place.relays() as relays:
        native = place.task("abc", "1/1")
        for spec in (
            dataclasses.replace(native.spec, task=None),
            dataclasses.replace(native.spec, task=dataclasses.replace(native.spec.task or Task(""), socket="")),
        ):
            await relays.task_removed(dataclasses.replace(native, spec=spec))
    assert place.noted() == []


@in_loop
async def test_without_room_for_a_note_the_socket_is_looked_after_all_the_same(place: Place) -> None:
    place.bound("abc").close()
    (place.state / "shimv2").write_text("in the way")
    with child() as relay:
        async with place.relays() as relays:
            await relays.task_removed(place.task("abc", name_of(relay)))
            relay.kill()
            await until(lambda: not place.names())
