"""What relays leave that outlive their tasks: their sockets, when they are killed."""

import dataclasses
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from supervisor.containerd import making, sockets
from supervisor.containerd.relays import Relays
from supervisor.model.taskfacts import Task
from supervisor.model.values import Container, Phase, Process, Spec
from supervisor.system.background import Background
from tests.supervisor.children import child, descriptors, name_of
from tests.supervisor.fakes import in_loop, until


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
        background, asides = Background(), making.Asides()
        made = Relays(background.spawn, str(self.state), asides)
        made.begin()
        yield made
        await background.close()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path)
    monkeypatch.setattr(sockets, "SOCKETS", str(made.sockets))
    return made


@in_loop
async def test_the_socket_of_a_relay_that_is_killed_after_its_task_was_removed_goes_with_it(place: Place) -> None:
    before = descriptors()
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
    assert descriptors() == before


@in_loop
async def test_a_relay_that_has_removed_its_socket_is_forgotten(place: Place) -> None:
    with child() as relay:
        async with place.relays() as relays:
            await relays.task_removed(place.task("abc", name_of(relay)))
            relay.kill()
            await until(lambda: not place.noted())


@in_loop
async def test_the_next_exitd_goes_on_with_the_note(place: Place) -> None:
    place.bound("abc").close()
    with child() as relay:
        async with place.relays() as relays:
            await relays.task_removed(place.task("abc", name_of(relay)))
        async with place.relays():
            assert (place.names(), place.noted()) == (["abc"], ["abc"])
            relay.kill()
            await until(lambda: not place.noted())
            assert place.names() == []


@pytest.mark.parametrize("what", ["dead", "another", "unfinished", "garbage"])
@in_loop
async def test_a_relay_that_is_dead_or_not_named_leaves_no_socket_unless_somebody_listens(
    place: Place, what: str
) -> None:
    place.notes.mkdir(parents=True)
    with child() as relay, place.bound("served", listens=True), place.bound("left"):
        own = name_of(relay)
        if what == "dead":
            relay.kill()
            relay.wait()
        note = {"another": f"{own.pid}/{own.started_ticks + 1}", "unfinished": "", "garbage": "x/\0"}
        for name in ("served", "left"):
            (place.notes / name).write_text(note.get(what, f"{own.pid}/{own.started_ticks}"))
        async with place.relays():
            await until(lambda: not place.noted())
            assert place.names() == ["served"]


@in_loop
async def test_tasks_without_a_relay_or_a_socket_leave_nothing(place: Place) -> None:
    async with place.relays() as relays:
        native = place.task("abc", "1/1")
        for spec in (
            dataclasses.replace(native.spec, task=None),
            dataclasses.replace(native.spec, task=dataclasses.replace(native.spec.task or Task(""), socket="")),
            dataclasses.replace(native.spec, task=dataclasses.replace(native.spec.task or Task(""), courier="")),
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
