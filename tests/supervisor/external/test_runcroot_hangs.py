"""A runtime's directory whose file system hangs: the loop goes on, and what is in it is found when it comes back."""

import asyncio
import json
import os
import threading
from pathlib import Path

import pytest

from supervisor.external import runcroot
from supervisor.external.enginenames import EngineNames
from supervisor.external.runcroot import RuncRoot
from supervisor.model.values import By, Names
from supervisor.model.watched import FoundProcess, Kind, Target
from supervisor.system.aside import LIMIT_SECONDS
from supervisor.system.inotify import Inotify
from tests.supervisor.fakes import in_loop, until


@in_loop
async def test_a_directory_that_hangs_is_not_looked_at_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung, on_loop, real = threading.Event(), list[str](), {name: getattr(os, name) for name in ("lstat", "stat")}

    def hangs(name: str, path: str) -> os.stat_result:
        if str(path).startswith(str(tmp_path)) and threading.current_thread() is threading.main_thread():
            on_loop.append(name)
        elif str(path).startswith(str(tmp_path)):
            hung.wait()
        found: os.stat_result = real[name](path)
        return found

    async def nothing(found: FoundProcess) -> None: ...

    changes = Inotify()
    changes.start()
    monkeypatch.setattr(runcroot, "READ_SECONDS", 0.05)
    root = RuncRoot(Target(Kind.RUNC_ROOT, str(tmp_path), 1, By()), changes, nothing, nothing)
    with monkeypatch.context() as patched:
        patched.setattr(os, "lstat", lambda path: hangs("lstat", path))
        patched.setattr(os, "stat", lambda path, **more: hangs("stat", path))
        await root._turn()
        assert on_loop == [] and changes._watches == {}
        assert root.trouble.startswith(f"looking at {tmp_path} took more than")
    hung.set()
    monkeypatch.setattr(root._aside, "_limit_seconds", LIMIT_SECONDS)
    await root._turn()
    assert root.trouble == "" and changes._watches != {}
    await root.close()
    await asyncio.sleep(0)
    changes.close()


@in_loop
async def test_a_bundle_that_hangs_holds_up_no_look_at_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung, named = threading.Event(), dict[str, Names]()
    real = EngineNames.of_bundle

    def hangs(self: EngineNames, bundle: str, id: str, writer: int) -> Names:
        if id == "hangs":
            hung.wait()
        return real(self, bundle, id, writer)

    found = list[str]()

    async def observe(each: FoundProcess) -> None:
        found.append(each.name)

    async def name(container: str, names: Names) -> None:
        named[container.partition("@")[0]] = names

    for id in ("hangs", "web"):
        (tmp_path / "root" / id).mkdir(parents=True)
        (tmp_path / "bundle" / id).mkdir(parents=True)
        state = {
            "init_process_pid": 1,
            "init_process_start": 1,
            "config": {"labels": [f"bundle={tmp_path}/bundle/{id}"]},
        }
        (tmp_path / "root" / id / "state.json").write_text(json.dumps(state))
        labels = {"io.kubernetes.pod.name": id, "io.kubernetes.container.name": "app"}
        crio = {"io.kubernetes.cri-o.ContainerType": "container", "io.kubernetes.cri-o.Labels": json.dumps(labels)}
        (tmp_path / "bundle" / id / "config.json").write_text(json.dumps({"annotations": crio}))
    monkeypatch.setattr(EngineNames, "of_bundle", hangs)
    changes = Inotify()
    changes.start()
    target = Target(Kind.RUNC_ROOT, f"{tmp_path}/root", 1, By())
    root = RuncRoot(target, changes, observe, observe, lambda container: True, name)
    await root._turn()
    assert sorted(found) == ["hangs", "web"]
    await until(lambda: named, "the names of the other")
    assert named == {"web": Names("", "web", "app", "")}
    hung.set()
    await until(lambda: "hangs" in named, "its names, late")
    await root.close()
    changes.close()
