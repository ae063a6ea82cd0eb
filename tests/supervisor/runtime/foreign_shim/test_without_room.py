"""Moments without descriptors or memory: what cannot be looked at now is asked again, and nothing is made of it."""

import asyncio
import contextlib
import errno
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from shim import fields, programs
from shim.names import LOCK
from supervisor.model.errors import Busy, RuntimeFailed, ShimLost, WrongState
from supervisor.model.execs import Exec, ExecPhase, ExecSpec
from supervisor.model.values import Container, Exited, Phase, Process, RunKey, Source, Unknown
from supervisor.monitor import epoll, keeper, rundir
from supervisor.monitor.control import Control
from supervisor.monitor.kernelword import BY_PIDFD, Executions
from supervisor.runtime.foreign_shim import leaked, peer, place, pumps, watching
from supervisor.runtime.foreign_shim.connection import ShimConnection
from supervisor.runtime.foreign_shim.containers import ShimV2Containers
from supervisor.runtime.foreign_shim.execs import ShimV2Execs
from supervisor.runtime.foreign_shim.peer import Peer
from supervisor.runtime.foreign_shim.place import Contact
from supervisor.runtime.foreign_shim.pumps import Fifos, Pump, Pumps
from supervisor.runtime.foreign_shim.registry import ShimRegistry
from supervisor.runtime.foreign_shim.verdict import SHIM_LOST, ShimWord
from supervisor.runtime.foreign_shim.watching import process_of
from supervisor.runtime.oci import bundle, cgroups
from supervisor.runtime.oci.runplan import Place
from supervisor.runtime.sandbox import Found
from supervisor.system import room
from supervisor.system.aside import Aside
from supervisor.system.inotify import Inotify
from tests.supervisor import fakeshim
from tests.supervisor.descriptors import only
from tests.supervisor.fakes import in_loop, until
from tests.supervisor.happenings import container
from tests.supervisor.narrow import full, full_first
from tests.supervisor.runtime.foreign_shim.fakerig import Fakes, run
from tests.supervisor.runtime.foreign_shim.test_watching import Reports, Script, begun, looking

KEY, EXEC = RunKey("c1", 1), RunKey("c1", 1, "e1")
SLEEP = ("sleep", "1000")


def refused(*_: object, **__: object) -> Any:
    return full()


class NoStreams:
    """Pumps of runs whose streams are nobody's concern."""

    def find(self, key: RunKey, directory: rundir.RunDirectory) -> None:
        directory.close()

    async def begin(self, key: RunKey, directory: rundir.RunDirectory, wanted: object) -> Fifos:
        directory.close()
        return Fifos("", "", "")

    def end(self, key: RunKey) -> None:
        """They have none."""


class Reported(Reports):
    """A RunListener that hears of ends alone."""

    def exit_seen(self, key: RunKey, report: Any) -> None:
        self(key, report)

    def silence_seen(self, key: RunKey, silent: bool) -> None:
        """As it is."""


@dataclass
class Daemon:
    """The part of exitd that has to do with other shims, as it is at its start."""

    registry: ShimRegistry
    containers: ShimV2Containers
    execs: ShimV2Execs
    reports: Reported


@contextlib.asynccontextmanager
async def daemon(base: Path) -> AsyncIterator[Daemon]:
    watcher, changes, where, streams = epoll.Monitor(), Inotify(), Place(str(base / "r"), str(base / "s")), NoStreams()
    anything: Any = streams
    executions = Executions(BY_PIDFD)
    registry = ShimRegistry(where, watcher, changes, anything, zombie=True, kernel=BY_PIDFD, executions=executions)

    async def prepared(_: Container) -> bundle.Bundle:
        raise AssertionError("nothing is made here")

    made = Daemon(registry, ShimV2Containers(where, registry, prepared), ShimV2Execs(where, registry), Reported())
    registry.listen(made.reports)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        await registry.close()
        changes.close()
        watcher.close()


@contextlib.asynccontextmanager
async def living(f: Fakes, *args: str) -> AsyncIterator[Container]:
    """A container that an earlier exitd has started."""
    task = await f.task("c1", *args).begun()
    pid = await task.started()
    state = f.place.base / "s"
    directory = rundir.make(str(state), "c1", 1, b"")
    directory.close()
    assert task.address is not None
    os.makedirs(place.bundle_of(directory.path, "c1"))
    place.leave_contact(directory.path, Contact(f.fake.program, task.address.address, task.address.version))
    config = f.place.base / "r/c/c1/bundle/config.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"process": {"args": args, "cwd": "/", "env": []}, "root": {"path": "/"}}))
    made = container(Phase.RUNNING)
    spec = replace(made.spec, runtime_type="io.containerd.fake.v2", runtime_path=f.fake.program)
    yield replace(made, spec=spec, init=process_of(pid), shim=None)
    with contextlib.suppress(ShimLost):
        with contextlib.suppress(WrongState):
            await task.to.kill("c1", signal.SIGKILL)
        await task.exit()
        await task.to.delete("c1")
        await task.to.shutdown("c1")
    await task.swept()
    f.dead_sockets_removed()


@pytest.mark.parametrize("what", ["contact", "configuration"])
def test_a_living_container_is_found_once_its_files_can_be_read(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And watched as a whole then: the first attempt has left nothing half done."""

    @run
    async def test(f: Fakes) -> None:
        go = f.place.base / "go"
        os.mkfifo(go)
        async with living(f, "sh", "-c", f"read x < {go}; exit 7") as c, daemon(f.place.base) as d:
            with contextlib.ExitStack() as stack:
                if what == "contact":
                    stack.enter_context(only(0))
                else:
                    stack.enter_context(monkeypatch.context()).setattr(bundle, "executes", refused)
                with pytest.raises(OSError, match="Too many open files"):
                    await d.containers.connect_container(c)
            assert (await d.containers.connect_container(c))[0] is Found.LIVE
            go.write_text("go\n")
            report = await d.reports.one()
            assert (report.status, report.source) == (Exited(7), Source.SHIMV2_WAIT)

    test()


def test_before_a_lost_shim_is_deleted_its_count_of_memory_kills_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    @run
    async def test(f: Fakes) -> None:
        async with living(f, *SLEEP) as c, daemon(f.place.base) as d:
            assert (await d.containers.connect_container(c))[0] is Found.LIVE
            run, counted = d.registry.get(KEY), cgroups.oom_kills
            assert run is not None
            link = await run.peer.link()
            shim_pid = (await link.connect("c1")).shim_pid
            monkeypatch.setattr(cgroups, "oom_kills", full_first(2, counted))
            os.kill(shim_pid, signal.SIGUSR1)
            report = await d.reports.one()
            assert (report.status, report.source) == (Unknown(SHIM_LOST, 137), Source.SHIMV2_DELETE)

    test()


@pytest.mark.parametrize("short", ["note", "count"])
def test_an_exec_that_runs_has_not_failed_for_want_of_a_descriptor(short: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be killed as one that was never made."""

    @run
    async def test(f: Fakes) -> None:
        async with living(f, *SLEEP) as c, daemon(f.place.base) as d:
            await d.containers.connect_container(c)
            if short == "note":
                monkeypatch.setattr(place, "prepare", SimpleNamespace(write_new=refused))
            else:
                monkeypatch.setattr(cgroups, "oom_kills", full_first(1, cgroups.oom_kills))
            process = json.dumps({"args": ["sh", "-c", "exit 3"], "cwd": "/", "env": ["PATH=/usr/bin:/bin"]})
            spec = ExecSpec(("sh", "-c", "exit 3"), process=process)
            made = await d.execs.create_exec(c, Exec(EXEC, spec, ExecPhase.CREATING, "web", "default", "boot"))
            assert made.init is not None and made.init.pid > 0
            assert (await d.reports.one(EXEC)).status == Exited(3)

    test()


# -- who else needs a shim


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[tuple[ShimRegistry, str]]:
    """Two runs under one shim, and the directory of the first. No more of the registry is reached."""
    contact = Contact("/bin/shim", "unix:///run/s", 2)
    for id in ("c1", "c2"):
        rundir.make(str(tmp_path), id, 1, b"").close()
        place.leave_contact(rundir.path_of(str(tmp_path), id, 1), contact)
    registry = ShimRegistry.__new__(ShimRegistry)
    registry.place, registry._runs = Place(str(tmp_path), str(tmp_path)), {}
    yield registry, rundir.path_of(str(tmp_path), "c1", 1)


def test_a_shim_is_not_taken_for_one_runs_alone_where_the_others_cannot_be_read(
    pod: tuple[ShimRegistry, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be killed, and with it the others."""
    registry, path = pod
    assert not registry.is_alone(path, "unix:///run/s") and registry.is_alone(path, "unix:///run/other")
    with only(0), pytest.raises(OSError, match="Too many open files"):
        registry.is_alone(path, "unix:///run/s")
    monkeypatch.setattr(place, "open", refused, raising=False)
    with pytest.raises(OSError, match="Too many open files"):
        registry.is_alone(path, "unix:///run/s")


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EIO])
def test_a_bundle_or_a_contact_that_cannot_be_seen_is_not_taken_for_absent(
    number: int, pod: tuple[ShimRegistry, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> Any:
        raise OSError(number, os.strerror(number))

    _, path = pod
    assert not place.laid_out(path, "c1")
    os.makedirs(place.bundle_of(path, "c1"))
    assert place.laid_out(path, "c1")
    monkeypatch.setattr(place, "open", refused, raising=False)
    with pytest.raises(OSError, match=os.strerror(number)):
        place.read_contact(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", refused)
        with pytest.raises(OSError, match=os.strerror(number)):
            place.laid_out(path, "c1")


def test_the_address_of_a_leaked_shim_that_cannot_be_read_now_is_not_taken_for_none(tmp_path: Path) -> None:
    """Its shim may be a pod's."""
    assert leaked.address_in(str(tmp_path)) is None
    address = tmp_path / leaked.NAME
    address.write_text("unix:///run/s")
    for count in (0, 1):
        with only(count), pytest.raises(OSError, match="Too many open files"):
            leaked.address_in(str(tmp_path))
    found = leaked.address_in(str(tmp_path))
    assert found is not None and found.address == "unix:///run/s"
    address.unlink()
    for never in (address.mkdir, address.rmdir, lambda: address.symlink_to("/none"), address.unlink):
        never()
        assert leaked.address_in(str(tmp_path)) is None


@in_loop
async def test_a_shim_is_checked_again_after_a_moment_in_which_it_cannot_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "REST_SECONDS", 0.001)
    silences: list[bool] = []
    asked = Peer("c1", Contact("/bin/shim", f"unix://{tmp_path}/s", 2), silences.append, lambda: 1.0, Aside())
    monkeypatch.setattr(ShimConnection, "open", full_first(2, ShimConnection.open))
    async with asyncio.timeout(10):
        await asked.keep()
    assert asked.lost.is_set() and silences == []


# -- an end is looked at


@pytest.mark.parametrize("number, warnings", [(errno.EMFILE, "an end cannot"), (errno.EIO, "memory kills cannot")])
@in_loop
async def test_an_end_that_cannot_be_looked_at_is_said_once_and_a_count_that_never_can_keeps_none_back(
    number: int, warnings: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "BLIND_SECONDS", 0.001)
    left = [OSError(number, os.strerror(number))] * 3
    reports, nobody = Reports(), SimpleNamespace(is_plain=False, lost=asyncio.Event())

    def kills(_: RunKey) -> int:
        if left:
            raise left.pop()
        return 2

    found = watching.ShimWatching(reports, kills, zombie=True, kernel=BY_PIDFD, executions=Executions(BY_PIDFD))
    watched = found.add(KEY, nobody)  # type: ignore[arg-type]
    with structlog.testing.capture_logs() as logs:
        found.never_started(watched)
        report = await reports.one()
    assert report.oom_kills == (2 if number == errno.EMFILE else 0)
    (line,) = [each for each in logs if each["log_level"] == "warning"]
    assert line["event"].startswith(warnings)
    found.close()


class Short(Script):
    """Every second time there is no room for a connection to it: for what is asked after a refused Wait."""

    links = 0

    async def link(self) -> Script:
        self.links += 1
        return full() if self.links % 2 == 0 else await super().link()


@in_loop
async def test_a_shim_that_refuses_a_wait_and_cannot_be_asked_for_its_state_now_is_not_taken_for_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "AGAIN_SECONDS", 0.001)
    with looking() as (found, reports):
        begun(found, Short([*(RuntimeFailed("no") for _ in range(watching.ANSWERS)), ShimWord(7, 5_000)]))
        assert (await reports.one()).status == Exited(7)


# -- pumps


@contextlib.contextmanager
def pumped(state: Path) -> Iterator[tuple[Pumps, rundir.RunDirectory]]:
    """No keeper answers here."""
    watcher = epoll.Monitor()
    line = keeper.Keeper(str(state), str(programs.find("exitd-keeper")), lambda: None, may_start=False)
    made = Pumps(str(state), watcher, line)
    try:
        yield made, rundir.make(str(state), "c1", 1, b"")
    finally:
        made.close()
        line.close()
        watcher.close()


def sign_lock(path: str) -> Process:
    """As the pump of this run."""
    me = process_of(os.getpid())
    assert me is not None
    signed = fields.encode("exitd-lock", [("pid", me.pid), ("started", me.started_ticks)])
    Path(path, LOCK).write_bytes(signed)
    return me


@in_loop
async def test_a_pump_that_cannot_be_told_of_the_end_now_is_told_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not killed over it, with the last of its output."""
    monkeypatch.setattr(room, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(pumps, "END_AGAIN_SECONDS", 0.001)
    opened, tries = Control.open, list[str]()

    async def noted(directory: str) -> Control:
        tries.append(directory)
        return await opened(directory)

    monkeypatch.setattr(Control, "open", noted)
    with pumped(tmp_path) as (made, directory), fakeshim.shim(Path(directory.path)) as fake:
        pump = made._pumps[KEY] = Pump(KEY, directory, made._senses, has_one_output=True, begun=True)
        with only(0):
            made.end(KEY)
            await until(lambda: len(tries) > 1 or made._goodbyes[KEY].done())
        await until(lambda: fake.asked == [("end",)])
        pump.over.set()
        pump.shim_gone.set()
        await made._goodbyes[KEY]


@in_loop
async def test_an_unwatched_pump_that_cannot_be_told_of_the_end_is_not_killed_for_its_runs_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(directory: str) -> Control:
        raise Busy("out of descriptors")

    monkeypatch.setattr(Control, "open", refused)
    with pumped(tmp_path) as (made, directory), pytest.raises(Busy):
        directory.close()
        await made.leave(KEY)


@in_loop
async def test_a_pump_that_cannot_be_looked_for_now_is_found_later(tmp_path: Path) -> None:
    with pumped(tmp_path) as (made, directory):
        with only(0), pytest.raises(OSError, match="Too many open files"):
            made.find(KEY, directory)
        assert made.gone(KEY) is None
        me = sign_lock(directory.path)
        made.find(KEY, rundir.reopen(str(tmp_path), "c1", 1))
        assert made.shim_of(KEY) == me
