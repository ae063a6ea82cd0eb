"""What an exec has come to whose shim nobody has heard of."""

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from supervisor.model.execs import Exec, ExecPhase, ExecSpec
from supervisor.model.values import Container, Phase, RunKey, Spec
from supervisor.monitor import rundir
from supervisor.runtime.oci.execs import NativeExecs
from supervisor.runtime.sandbox import NoProcess
from tests.supervisor.fakes import in_loop

KEY = RunKey("c1", 1, "e1")


class Watching:
    """Knows of no shim."""

    def __init__(self) -> None:
        self.shims = SimpleNamespace(locked=self._locked)

    async def learn(self, container: Container, place: object) -> None:
        pass

    @contextlib.asynccontextmanager
    async def _locked(self, path: str) -> AsyncIterator[None]:
        with rundir.locked(path) as free:
            assert free
            yield


@pytest.mark.parametrize("is_there", [True, False], ids=["with a directory", "without"])
@in_loop
async def test_an_exec_that_no_shim_has_taken_up_is_given_up_so_that_a_later_one_runs_nothing(
    tmp_path: Path, is_there: bool
) -> None:
    """A keeper that stood still begins a shim late, after exitd has said that the exec failed."""
    rundir.make(str(tmp_path), "c1", 1, b"plan").close()
    path = rundir.path_of(str(tmp_path), "c1", 1, "e1")
    if is_there:
        rundir.make_in(path, b"plan").close()
    execs = NativeExecs(cast(Any, SimpleNamespace(state=str(tmp_path), create_seconds=0.1)), cast(Any, Watching()))
    e = Exec(KEY, ExecSpec(args=("true",)), ExecPhase.CREATING, "box", "default", "boot")
    container = Container("c1", Spec("box"), Phase.RUNNING, 1, 1)
    for _ in range(2):
        assert await execs.begun_exec(container, e) is NoProcess.NEVER_BEGAN
        with contextlib.suppress(FileNotFoundError):  # where there is no directory
            assert "plan" not in os.listdir(path)  # without it a shim ends: tests/system/test_shim.py
