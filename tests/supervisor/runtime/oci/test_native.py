"""What exitd keeps of a container that it refuses, and when one of containerd's is called clean."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from shim import native
from supervisor.model.errors import RuntimeFailed, TimedOut
from supervisor.model.idranges import IdRange
from supervisor.model.taskfacts import Task
from supervisor.model.values import BUILTIN, Container, Mount, Phase, Security, Spec
from supervisor.monitor import rundir
from supervisor.monitor.ownership import Owner
from supervisor.runtime.oci import bundle, cgroups, rest, rootfs
from supervisor.runtime.oci.native import BUSY_CGROUP_SECONDS, NativeContainers
from supervisor.runtime.oci.runplan import SOURCES_AT_ONCE, Place
from supervisor.runtime.oci.watching import Watching
from supervisor.system.aside import MOST_AT_ONCE
from tests.supervisor.fakes import in_loop, until
from tests.supervisor.happenings import container
from tests.supervisor.runtime.oci.kept import watching

SHARED = "/pods/one"  # no cgroup of exitd's own
LISTED = 1  # a process that is in the cgroup, and stays


def made(tmp_path: Path, watches: Watching) -> NativeContainers:
    return NativeContainers(Place(str(tmp_path), str(tmp_path)), watches, Owner("0" * 32))


@in_loop
async def test_the_cgroup_of_a_container_that_is_refused_is_neither_read_nor_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be read from a disk, on the loop, and an entry would outlive the container."""
    (deaf := tmp_path / "crun").write_text("#!/bin/sh\necho crun version 1\n")
    deaf.chmod(0o755)
    born = container(Phase.CREATING)
    spec = replace(born.spec, runtime_path=str(deaf), security=Security(seccomp=BUILTIN))

    def prepared(*_: object) -> bundle.Bundle:
        return bundle.Bundle(str(tmp_path), SHARED, {"process": {}})

    with watching() as (watches, _):
        monkeypatch.setattr(bundle, "prepare", prepared)
        with pytest.raises(RuntimeFailed, match="built without seccomp"):
            await made(tmp_path, watches).create_container(replace(born, spec=spec))
        assert watches.cgroups == {}


@in_loop
async def test_first_fills_that_take_long_hold_up_no_container_without_a_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = threading.Event()

    def prepared(wanted: Container, *_: object) -> bundle.Bundle:
        if wanted.spec.mounts:
            filled.wait()
        return bundle.Bundle(wanted.id, SHARED, {"process": {}})

    def asked(number: int, *volumes: str) -> Container:
        born = container(Phase.CREATING)
        mounts = tuple(Mount("", f"/{name}", volume=name) for name in volumes)
        return replace(born, id=f"c{number}", spec=replace(born.spec, mounts=mounts))

    with watching() as (watches, _):
        monkeypatch.setattr(bundle, "prepare", prepared)
        containers = made(tmp_path, watches)
        waiting = [asked(number, "one") for number in range(MOST_AT_ONCE + 1)]
        for each in waiting:
            containers.begin_preparing(each)
        assert (await containers.prepared(asked(100))).path == "c100"
        other = asyncio.create_task(containers.prepared(asked(101, "other")))
        await until(lambda: containers._place.filling._places._value == MOST_AT_ONCE - 2, "one place for each volume")
        filled.set()
        assert (await other).path == "c101"
        assert [(await containers.prepared(each)).path for each in waiting] == [each.id for each in waiting]


@in_loop
async def test_a_source_that_hangs_takes_no_place_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = threading.Event()

    def asked(number: int, source: str) -> Container:
        mounts = (Mount(source, "/m", options=("exec",)),)
        spec = Spec(name="c", rootfs="/r", args=("x",), mounts=mounts, ids=IdRange(1 << 20))
        return replace(container(Phase.CREATING), id=f"c{number}", spec=spec)

    def look(path: str) -> SimpleNamespace:
        if path == "/dead":
            hangs.wait()
        return SimpleNamespace(f_flag=os.ST_NODEV | os.ST_NOEXEC if path == "/lives" else 0)

    with watching() as (watches, _):
        monkeypatch.setattr(rootfs, "prepare", lambda spec, directory, limits, apart: "/merged")
        monkeypatch.setattr(cgroups, "let_pass", lambda path: None)
        monkeypatch.setattr(os, "statvfs", look)
        containers = made(tmp_path, watches)
        waiting = [asyncio.create_task(containers.prepared(asked(n, "/dead"))) for n in range(SOURCES_AT_ONCE)]
        try:
            await until(lambda: containers._place.sources._places._value < SOURCES_AT_ONCE, "a look that hangs")
            lives = (await containers.prepared(asked(100, "/lives"))).document["mounts"]
        finally:
            hangs.set()
        assert lives[-1]["options"] == ["rbind", "rprivate", "rw", "nodev", "noexec"]  # type: ignore[index]  # JSON
        assert [await each for each in waiting]


@in_loop
async def test_nothing_has_a_containers_ids_before_its_row_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[str] = []

    def prepare(wanted: Container, *_: object) -> bundle.Bundle:
        prepared.append(wanted.id)
        return bundle.Bundle(wanted.id, SHARED, {"process": {}})

    born = container(Phase.CREATING)
    own = replace(born, id="own", spec=replace(born.spec, ids=IdRange(1 << 20)))
    with watching() as (watches, _):
        monkeypatch.setattr(bundle, "prepare", prepare)
        containers = made(tmp_path, watches)
        for each in (own, born):
            containers.begin_preparing(each)
        await until(lambda: bool(prepared), "the preparation")
        assert (await containers.prepared(born)).path == born.id and prepared == [born.id]
        assert (await containers.prepared(own)).path == "own"


def ended_task(tmp_path: Path, seconds_ago: float) -> Container:
    """A task of containerd's, in a cgroup that exitd has not made, with its run directory."""
    ended = container(Phase.EXITED)
    assert ended.exit is not None
    at_ns = time.time_ns() - int(seconds_ago * 10**9)
    rundir.make(str(tmp_path), ended.id, ended.run, b"").close()
    return replace(ended, spec=replace(ended.spec, task=Task("/b")), exit=replace(ended.exit, at_ns=at_ns))


@pytest.fixture
def busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up cgroup with a process in it: a directory that cannot be removed."""
    (tree := tmp_path / "cgroup").mkdir()
    (tree / "cgroup.procs").write_text(f"{LISTED}\n")
    monkeypatch.setattr(cgroups, "paths", lambda *_: {"unified": str(tree)})
    assert cgroups.pids(SHARED) == (LISTED,)
    return tree


@in_loop
async def test_a_task_that_has_just_ended_is_not_clean_while_its_cgroup_is_busy(tmp_path: Path, busy: Path) -> None:
    """Its last process may be about to end; containerd would find the cgroup left behind."""
    task = ended_task(tmp_path, BUSY_CGROUP_SECONDS / 2)
    with watching() as (watches, _):
        watches.cgroups[task.id] = SHARED
        containers = made(tmp_path, watches)
        for _ in range(2):  # the try again finds all that it needs
            with pytest.raises(TimedOut, match="still busy"):
                await containers.delete_process(task)
            assert rundir.runs(str(tmp_path)) == [(task.id, task.run)] and task.id in watches.cgroups
        (busy / "cgroup.procs").unlink()
        await containers.delete_process(task)
        assert rundir.runs(str(tmp_path)) == [] and watches.cgroups == {} and not cgroups.existing(SHARED)


@pytest.mark.parametrize("is_shared", [False, True])
@in_loop
async def test_it_is_clean_when_a_minute_has_passed_or_the_cgroup_is_others_too(
    tmp_path: Path, busy: Path, is_shared: bool
) -> None:
    task = ended_task(tmp_path, BUSY_CGROUP_SECONDS / 2 if is_shared else BUSY_CGROUP_SECONDS + 1)
    if is_shared:
        rest.mark_shared(rundir.path_of(str(tmp_path), task.id, task.run))
    with watching() as (watches, _):
        watches.cgroups[task.id] = SHARED
        await made(tmp_path, watches).delete_process(task)
        assert rundir.runs(str(tmp_path)) == [] and watches.cgroups == {} and cgroups.existing(SHARED)


@pytest.fixture
def left_root(tmp_path: Path) -> Iterator[None]:
    """Mounted, and nothing leads to it."""
    merged = Path(bundle.apart_of(str(tmp_path), "c1"), "merged")
    merged.mkdir(parents=True)
    native.mount("none", str(merged), "tmpfs", 0, "")
    (merged / "file").touch()
    yield
    rootfs.unmount_all(str(tmp_path))


@pytest.mark.root("mounts need root")
@pytest.mark.usefixtures("left_root")
@in_loop
async def test_a_root_to_which_nothing_leads_is_released_and_processes_of_strangers_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watching() as (watches, _):
        containers = made(tmp_path, watches)
        await containers.discard_root("c1")
        await containers.discard_root("c1")
        assert os.listdir(f"{tmp_path}/roots") == []
        lives = {bundle.scope("c1"): (LISTED,)}
        monkeypatch.setattr(cgroups, "pids", lambda path: lives.get(path, ()))
        assert [await containers.runs_on(id) for id in ("c1", "c2")] == [True, False]


class Marks(Owner):
    """Marks by directory, as they are read; "own" is this exitd's."""

    def __init__(self, marks: dict[str, str]) -> None:
        super().__init__("own")
        self._marks = marks
        self.read: list[str] = []

    def owns(self, directory: str) -> bool:
        return self._marks.get(directory) == "own"

    def is_anothers(self, directory: str) -> bool:
        self.read.append(directory)
        return self._marks.get(directory, "own") != "own"


@in_loop
async def test_only_its_own_cgroups_are_swept_and_anothers_are_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One with marks of both, in two hierarchies, is nobody's to clear: whose it is cannot be known."""
    marks = Marks({"/own/v1": "own", "/both/v1": "own", "/both/v2": "another", "/another/v1": "another"})
    paths, cleared = ["/own", "/both", "/another", "/unmarked", "/known"], list[str]()

    def existing(path: str) -> tuple[str, ...]:
        return (f"{path}/v1", f"{path}/v2")

    async def clear(_: NativeContainers, path: str) -> None:
        cleared.append(path)

    monkeypatch.setattr(bundle, "all_cgroups", lambda: tuple(paths))
    monkeypatch.setattr(cgroups, "existing", existing)
    monkeypatch.setattr(NativeContainers, "_clear_cgroup", clear)
    with watching() as (watches, _):
        containers = NativeContainers(Place(str(tmp_path), str(tmp_path)), watches, marks)
        for _ in range(3):
            await containers.sweep_cgroups({"known"})
        assert cleared == ["/own"] * 3
        assert (marks.read.count("/another/v1"), marks.read.count("/both/v2")) == (1, 1)
        paths.remove("/another")
        await containers.sweep_cgroups(set())
        paths.append("/another")  # it may be somebody's else by now
        await containers.sweep_cgroups(set())
        assert marks.read.count("/another/v1") == 2
