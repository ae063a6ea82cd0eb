"""A runtime's directory whose file system hangs: the loop goes on, and what is in it is found when it comes back."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from supervisor.external import runcroot
from supervisor.external.runcroot import RuncRoot
from supervisor.model.values import By
from supervisor.model.watched import FoundProcess, Kind, Target
from supervisor.system.aside import LIMIT_SECONDS
from supervisor.system.inotify import Inotify
from tests.supervisor.fakes import in_loop


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
