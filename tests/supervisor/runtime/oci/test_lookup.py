"""A look-up of what an earlier daemon has begun that fails halfway: it is tried again, and keeps no descriptor."""

import asyncio
import errno
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.model.errors import TimedOut
from supervisor.model.values import Container, Phase, Process, RunKey, Spec
from supervisor.monitor import rundir
from supervisor.runtime.oci import rootfs, watching
from supervisor.runtime.oci.execs import NativeExecs
from supervisor.runtime.oci.native import NativeContainers
from supervisor.runtime.oci.runplan import Place
from supervisor.system.aside import Aside
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.fakes import in_loop, world


class Watching:
    """Takes the directory over, and then finds no room."""

    def __init__(self) -> None:
        self.taken: list[rundir.RunDirectory] = []

    async def learn(self, *_: object) -> None: ...

    def executes_of(self, *_: object) -> bool:
        return True

    def cgroup_of(self, *_: object) -> str:
        return "/exitd-test/none"

    def find(self, key: RunKey, directory: rundir.RunDirectory, init: Process, *, executes: bool, tty: bool) -> None:
        self.taken.append(directory)
        raise OSError(errno.EMFILE, "full")

    def drop(self, key: RunKey) -> None:
        for directory in self.taken:
            directory.close()


@in_loop
async def test_a_look_up_that_fails_keeps_no_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str) -> None:
        raise OSError(errno.EMFILE, "full")

    place, watching = Place(str(tmp_path), str(tmp_path)), Watching()
    containers, execs = (kind(place, watching, *more) for kind, more in KINDS)
    async with world(tmp_path) as w:
        container = w.node.containers[await w.running(Spec(name="web", args=("true",)))]
        rundir.make(str(tmp_path), container.id, container.run, b"").close()
        key = RunKey(container.id, container.run, "e1")
        rundir.make_in(execs.directory_of(key), b"").close()
        before = held_now()
        with pytest.raises(OSError, match="full"):
            await containers.connect_container(container)
        with pytest.raises(OSError, match="full"):
            execs._find(container, key, Process(1, 1))
        assert not opened_since(before) and len(watching.taken) == 2
        unnamed = w.node.containers[container.id]
        monkeypatch.setattr(rundir, "created", refused)
        with pytest.raises(OSError, match="full"):
            await containers.connect_container(replace(unnamed, init=None))
        assert not opened_since(before)


KINDS: tuple[tuple[Any, tuple[Any, ...]], ...] = ((NativeContainers, (None,)), (NativeExecs, ()))


class Learned(watching.Watching):
    """Without anything else that is watched."""

    def __init__(self) -> None:
        self.cgroups, self.executes, self.own_pids, self.shim_cgroups, self._places = {}, {}, {}, {}, {}


@in_loop
async def test_what_an_adopted_container_is_made_of_is_read_once_and_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bundle is its caller's: where that hangs, the loop and the threads that all share go on."""
    begun, hung, readers = threading.Event(), threading.Event(), list[str]()
    text = b'{"process": {}, "root": {"path": "/r"}, "linux": {"cgroupsPath": "/mine/c"}}'

    def read_bundle(bundle: str) -> tuple[bytes, str]:
        readers.append(threading.current_thread().name)
        begun.set()
        hung.wait()
        return text, "config.json"

    monkeypatch.setattr(rootfs, "read_bundle", read_bundle)
    places, known = (str(tmp_path), str(tmp_path)), Learned()
    adopted = Container("mine", Spec(name="mine", bundle="/hung/b", runtime="runc"), Phase.RUNNING, 1, 1)
    with pytest.raises(TimedOut, match=r"reading /hung/b/config\.json took more than"):
        await known.learn(adopted, Place(*places, looking=Aside(limit_seconds=0.05)))
    assert await asyncio.to_thread(begun.wait, 30)
    hung.set()
    await known.learn(adopted, Place(*places))
    assert known.cgroup_of(adopted, str(tmp_path)) == "/mine/c" and known.executes_of(adopted)
    await known.learn(adopted, Place(*places))
    assert readers == ["aside"] * 2  # the one that was given up, and the one that was not
    known.forget("mine")
    await known.learn(adopted, Place(*places))
    assert readers == ["aside"] * 3
