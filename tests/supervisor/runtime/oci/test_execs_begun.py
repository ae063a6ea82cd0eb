"""What an exec has come to whose shim nobody has heard of."""

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shim import fields, launch
from supervisor.model.errors import Busy, ExitdError, ShimFailed
from supervisor.model.execs import Exec, ExecPhase, ExecSpec
from supervisor.model.values import Container, Phase, Process, RunKey, Spec
from supervisor.monitor import rundir
from supervisor.runtime.oci.execs import NativeExecs
from supervisor.runtime.sandbox import NoProcess
from tests.supervisor.children import child, name_of
from tests.supervisor.fakes import in_loop

EXEC = Exec(RunKey("c1", 1, "e1"), ExecSpec(args=("true",)), ExecPhase.CREATING, "box", "default", "boot")
CONTAINER = Container("c1", Spec("box"), Phase.RUNNING, 1, 1)


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
    for _ in range(2):
        assert await execs.begun_exec(CONTAINER, EXEC) is NoProcess.NEVER_BEGAN
        with contextlib.suppress(FileNotFoundError):  # where there is no directory
            assert "plan" not in os.listdir(path)  # without it a shim ends: tests/system/test_shim.py


REFUSALS = (
    Busy("no room"),
    ShimFailed("no program"),
    launch.Failed("slots", 24, 0, ""),
    launch.Failed("lock", 28, 0, ""),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=["busy", "no shim", "no slots", "unsigned"])
@in_loop
async def test_where_no_shim_could_sign_one_that_comes_later_runs_nothing_or_goes_on(
    tmp_path: Path, refusal: ExitdError | launch.Failed
) -> None:
    """The keeper did not answer, exitd could not begin a shim itself, and the keeper's comes after all."""
    rundir.make(str(tmp_path), "c1", 1, b"plan").close()
    path = rundir.path_of(str(tmp_path), "c1", 1, "e1")
    rundir.make_in(path, b"plan").close()
    execs = NativeExecs(cast(Any, SimpleNamespace(state=str(tmp_path), create_seconds=0.1)), cast(Any, Watching()))
    watch = cast(Any, SimpleNamespace(shim=Process(2**22 - 1, 1)))
    with child() as late:
        if isinstance(refusal, launch.Failed):  # by then a late one has signed, and has begun it
            _signed(path, "lock", name_of(late))
            _signed(path, "created", Process(5, 6))
            assert await execs._begun_without_word(CONTAINER, EXEC, watch, refusal) == Process(5, 6)
            for name in ("lock", "created"):
                (Path(path) / name).write_bytes(b"")
    assert await execs._begun_without_word(CONTAINER, EXEC, watch, refusal) is NoProcess.NEVER_BEGAN
    assert "plan" not in os.listdir(path)


@in_loop
async def test_a_lock_that_is_taken_and_not_signed_yet_is_looked_at_again(tmp_path: Path) -> None:
    """Otherwise an exec would be reported as failed whose shim is just about to begin it."""
    rundir.make(str(tmp_path), "c1", 1, b"plan").close()
    path = rundir.path_of(str(tmp_path), "c1", 1, "e1")
    rundir.make_in(path, b"plan").close()
    taken = ["not signed"] * 3

    class Taken(Watching):
        @contextlib.asynccontextmanager
        async def _locked(self, path: str) -> AsyncIterator[None]:
            if taken:
                raise ShimFailed(taken.pop())
            async with super()._locked(path):
                yield

    execs = NativeExecs(cast(Any, SimpleNamespace(state=str(tmp_path), create_seconds=0.1)), cast(Any, Taken()))
    watch = cast(Any, SimpleNamespace(shim=None))
    assert await execs._certainly_begun(CONTAINER, EXEC, watch, Busy("no room")) is NoProcess.NEVER_BEGAN
    assert taken == []


@pytest.mark.parametrize("asked_in_vain", [True, False])
@in_loop
async def test_a_refusal_is_looked_into_only_where_a_silent_keeper_may_begin_a_shim_yet(asked_in_vain: bool) -> None:
    """A look takes descriptors, for the lack of which most are refused: it would last as long as that."""

    async def begin(*_: object, **__: object) -> None:
        raise Busy("no room")

    place = SimpleNamespace(create_seconds=0.1)
    execs = NativeExecs(cast(Any, place), cast(Any, SimpleNamespace(shims=SimpleNamespace(begin=begin))))
    asked = execs._shims_word(cast(Any, SimpleNamespace(asked_in_vain=asked_in_vain)), EXEC, (0, 0))
    if asked_in_vain:
        assert isinstance(await asked, Busy)
    else:
        with pytest.raises(Busy):
            await asked


@in_loop
async def test_a_shim_that_has_signed_and_then_failed_bars_any_other(tmp_path: Path) -> None:
    """tests/system/test_shim.py shows that another finds the lock signed; nothing is looked for."""
    rundir.make(str(tmp_path), "c1", 1, b"plan").close()
    path = rundir.path_of(str(tmp_path), "c1", 1, "e1")
    rundir.make_in(path, b"plan").close()
    execs = NativeExecs(cast(Any, SimpleNamespace(state=str(tmp_path), create_seconds=0.1)), cast(Any, None))
    dead = Process(2**22 - 1, 1)
    _signed(path, "lock", dead)
    failed, watch = launch.Failed("runtime", 0, 256, ""), cast(Any, SimpleNamespace(shim=dead))
    assert await execs._begun_without_word(CONTAINER, EXEC, watch, failed) is NoProcess.NEVER_BEGAN


def _signed(path: str, name: str, process: Process) -> None:
    """As a shim does it."""
    pairs = [("pid", process.pid), ("started", process.started_ticks)]
    (Path(path) / name).write_bytes(fields.encode(f"exitd-{name}", pairs))
