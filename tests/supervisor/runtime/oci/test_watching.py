"""What the keeper knows of an end, asked by a real Watching over a real line; a thread is the keeper."""

import contextlib
import errno
import json
import os
import socket
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from shim import fields, launch
from supervisor.model import evidence
from supervisor.model.values import Container, Phase, Process, RunKey, Spec
from supervisor.monitor import epoll
from supervisor.monitor.keeper import Keeper
from supervisor.monitor.kernelword import BY_PIDFD
from supervisor.monitor.rundir import RunDirectory
from supervisor.runtime.oci import bundle, cgroups
from supervisor.runtime.oci.watching import Watching
from supervisor.runtime.sandbox import NoProcess
from supervisor.system import room
from supervisor.system.inotify import Inotify
from tests.supervisor.fakes import in_loop, until
from tests.supervisor.monitor.test_keeper import OK, Peer, Server, patient
from tests.supervisor.narrow import Narrow

__all__ = ["patient"]

KEY = RunKey("c1", 1, "e1")
INIT = Process(5, 6)


CALLS: dict[str, tuple[object, str]] = {"connect": (launch, "connect"), "send": (socket, "send_fds")}
NO_ROOM = [
    *(("connect", number) for number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)),
    *(("send", number) for number in (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS)),
]
NO_ROOM_IDS = [f"{call} {errno.errorcode[number]}" for call, number in NO_ROOM]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Knows one exec, whose end it watches."""

    def lists(peer: Peer, message: fields.Message) -> None:
        facts = [("init_pid", INIT.pid), ("init_started", INIT.started_ticks), ("doubtful", 0), ("watched", 1)]
        run = fields.encode("exitd-run", [*launch.key(KEY.container, KEY.run, KEY.exec_id), *facts])
        peer.send(OK if message.number("at") else run)

    made = Server(tmp_path, lists)
    yield made
    made.close()


@contextlib.contextmanager
def watching(state: Path) -> Iterator[Watching]:
    line = Keeper(str(state), "/nonexistent/exitd-keeper", lambda: None, may_start=False)
    watcher, changes = epoll.Monitor(), Inotify()
    made = Watching(watcher, line, changes, zombie=False, kernel=BY_PIDFD)
    try:
        yield made
    finally:
        made.close()
        line.close()
        watcher.close()
        changes.close()


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "AGAIN_SECONDS", 0.001)
    monkeypatch.setattr(evidence, "ENTRY_RETRY_SECONDS", 0.001)


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(("call", "number"), NO_ROOM, ids=NO_ROOM_IDS)
@in_loop
async def test_what_the_keeper_knows_of_an_exec_is_asked_until_there_is_room_to_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    with watching(tmp_path) as made:
        narrow = Narrow(monkeypatch, *CALLS[call], number)
        with pytest.raises(OSError, match=os.strerror(number)):
            await made.keepers_word(KEY)
        narrow.has_room = True
        assert await made.keepers_word(KEY) == INIT


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ECONNREFUSED, errno.EAGAIN], ids=["gone", "dead", "still"])
@in_loop
async def test_a_keeper_that_is_gone_or_stands_still_is_not_asked_until_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with watching(tmp_path) as made:
        Narrow(monkeypatch, *CALLS["connect"], number)
        assert await made.keepers_word(KEY) is NoProcess.UNKNOWN


@pytest.mark.parametrize(("call", "number"), NO_ROOM, ids=NO_ROOM_IDS)
@in_loop
async def test_an_entry_may_be_coming_while_there_is_no_room_to_ask_the_keeper(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    with watching(tmp_path) as made:
        narrow = Narrow(monkeypatch, *CALLS[call], number)
        assert made._entry_is_coming(KEY)
        await until(lambda: narrow.refused > 5)
        assert made._entry_is_coming(KEY)
        narrow.has_room = True
        await until(lambda: server.seen.qsize() > 2)  # it has said that it watches
        assert made._entry_is_coming(KEY)


@in_loop
async def test_no_entry_is_coming_from_a_keeper_that_refuses(server: Server, tmp_path: Path) -> None:
    def refuses(peer: Peer, message: fields.Message) -> None:
        peer.send(fields.encode("exitd-refused", [("why", "unknown request"), ("errno", errno.ENOSYS)]))

    server.script = refuses
    with watching(tmp_path) as made:
        await until(lambda: not made._entry_is_coming(KEY))


def _begin(made: Watching, container: str, cgroup: str) -> None:
    made.cgroups[container] = cgroup
    made.mark_shared(made.add(RunKey(container, 1), RunDirectory("/nowhere")))


def _end(made: Watching, container: str) -> None:
    made.drop(RunKey(container, 1))
    made.forget(container)


@in_loop
async def test_nothing_stays_of_containers_that_are_gone(tmp_path: Path) -> None:
    def live(numbers: range) -> None:
        for number in numbers:
            id = f"{number:064x}"
            _begin(made, id, f"exitd.slice:exitd:{id}")
            _end(made, id)

    with watching(tmp_path) as made:
        live(range(1000))
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            live(range(1000, 3000))
            grown = (tracemalloc.get_traced_memory()[0] - before) / 2000
        finally:
            tracemalloc.stop()
        assert grown < 100, f"{grown:.0f} bytes for each"


@in_loop
async def test_no_cgroup_of_those_that_run_is_taken_apart_again_for_a_new_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, place = list[str](), cgroups.place

    def noted(path: str) -> str:
        asked.append(path)
        return place(path)

    monkeypatch.setattr(cgroups, "place", noted)
    ids = [f"c{number}" for number in range(5)]
    with watching(tmp_path) as made:
        for id in ids:
            _begin(made, id, f"/exitd/{id}")
        assert sorted(asked) == [f"/exitd/{id}" for id in ids]
        made.cgroups["c0"] = "/exitd/another"
        _begin(made, "c5", "/exitd/c5")
        assert asked[len(ids) :] == ["/exitd/c5", "/exitd/another"]


@in_loop
async def test_a_containers_cgroup_is_read_from_its_configuration_once_until_it_is_forgotten(tmp_path: Path) -> None:
    one, other = (Container(id, Spec(id), Phase.RUNNING, 1, 0) for id in ("c1", "c2"))
    config = Path(bundle.directory_of(str(tmp_path), one.id)) / "bundle/config.json"
    config.parent.mkdir(parents=True)

    def says(path: str) -> None:
        config.write_text(json.dumps({"process": {}, "root": {"path": "/r"}, "linux": {"cgroupsPath": path}}))

    with watching(tmp_path) as made:
        assert made.cgroup_of(other, str(tmp_path)) == bundle.default_cgroup(other)  # there is no file
        says("/before")
        assert made.cgroup_of(one, str(tmp_path)) == "/before"
        says("/after")
        assert made.cgroup_of(one, str(tmp_path)) == "/before"
        made.forget(one.id)
        assert made.cgroup_of(one, str(tmp_path)) == "/after"
