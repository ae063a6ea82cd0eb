"""One probe of a health check, by the owner of execs, whose processes are make-believe."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from supervisor.engine import health_checks
from supervisor.engine.health_checks import Probing
from supervisor.model.errors import (
    Busy,
    CommandNotExecutable,
    CommandNotFound,
    ExitdError,
    RuntimeFailed,
    StoreFailed,
    TimedOut,
    WrongState,
)
from supervisor.model.execs import Exec
from supervisor.model.health import OUTPUT_MAX, ProbeResult
from supervisor.model.lifecycle import Paused
from supervisor.model.values import Exited, ExitStatus, HealthSpec, Signaled, Unknown
from tests.supervisor import fakeshim
from tests.supervisor.exec_fakes import ExecWorld, at_once, running, settled
from tests.supervisor.fakes import hasty, in_loop, until
from tests.supervisor.fakeshim import FakeShim

__all__ = ["at_once", "hasty"]
pytestmark = pytest.mark.usefixtures("at_once")
CHECK = HealthSpec(("true",), 10**9, 60 * 10**9, 3)


@dataclass(slots=True)
class Rig:
    x: ExecWorld
    probing: Probing
    shim: FakeShim

    def begin(self, check: HealthSpec = CHECK) -> "asyncio.Task[ProbeResult | None]":
        return asyncio.ensure_future(self.probing.run(self.x.container, check))

    async def attached(self) -> tuple[Exec, dict[str, int]]:
        """The probe under way, and the shim's ends of its output."""
        (descriptors,) = await until(lambda: self.shim.attached, "an attach")
        (e,) = self.x.execs.of(self.x.id)
        return e, descriptors

    def ends(self, e: Exec, status: ExitStatus) -> None:
        self.shim.close("out", "err")
        self.x.ends(e.key, status)


@asynccontextmanager
async def rig(directory: Path) -> AsyncIterator[Rig]:
    home = directory / "shim"
    home.mkdir()
    async with running(directory) as x:
        x.manager.directory_of = lambda key: str(home)  # type: ignore[method-assign]  # where the shim listens
        with fakeshim.shim(home) as shim:
            yield Rig(x, Probing(x.w.node, x.execs), shim)


@in_loop
async def test_a_probe_has_a_status_and_what_it_wrote_and_leaves_no_event_and_no_row(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        probe = r.begin()
        e, output = await r.attached()
        assert (e.spec.args, e.spec.timeout_seconds, e.spec.attach) == (("true",), 60.0, True)
        os.write(output["out"], b"out")
        os.write(output["err"], b"err")
        r.ends(e, Exited(3))
        result = await probe
        assert result is not None and result.start_ns <= result.end_ns
        assert (result.status, sorted(result.output), result.timed_out) == (Exited(3), sorted(b"outerr"), False)
        await settled(r.x)
        assert [kind for kind, _ in await r.x.log()] == ["create", "start"]
        assert await r.x.w.store.exec_exit(r.x.id, e.key.exec_id) is None


@in_loop
async def test_only_the_beginning_of_much_output_is_read(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        probe = r.begin()
        e, output = await r.attached()
        os.write(output["out"], bytes(OUTPUT_MAX) + b"more")
        await until(lambda: not r.x.w.node.pending, "the loop")
        r.ends(e, Exited(0))
        result = await probe
        assert result is not None and result.output == bytes(OUTPUT_MAX)


@in_loop
async def test_a_probe_is_ended_whole_by_its_limit(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.x.manager.on_signal = lambda e, number, everyone: r.ends(e, Signaled(9))
        result = await r.begin(HealthSpec(("sleep",), 1, 20 * 10**6, 1))
        assert result is not None and (result.status, result.timed_out) == (Signaled(9), True)
        assert "signal 9 all" in r.x.manager.names()


@in_loop
async def test_a_probe_that_went_with_its_container_says_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        probe = r.begin()
        e, _ = await r.attached()
        r.x.w.manager.ending.add(r.x.id)
        r.ends(e, Signaled(9))
        assert await probe is None


@pytest.mark.parametrize(
    ("error", "status", "timed_out"),
    [
        (CommandNotFound("'nope': not found"), Exited(127), False),
        (CommandNotExecutable("'nope': no"), Exited(126), False),
        (RuntimeFailed("no more pids"), Unknown("no more pids"), False),
        (TimedOut("slow"), Unknown("slow"), True),
    ],
)
def test_one_that_the_runtime_does_not_make_has_failed_and_says_why(
    tmp_path: Path, error: ExitdError, status: ExitStatus, timed_out: bool
) -> None:
    @in_loop
    async def run() -> None:
        async with rig(tmp_path) as r:
            r.x.manager.fails["create"] = [error]
            result = await r.begin()
            assert result is not None and (result.status, result.timed_out) == (status, timed_out)
            assert result.output == str(error).encode()
            await settled(r.x)
            assert [kind for kind, _ in await r.x.log()] == ["create", "start"]

    run()


@in_loop
async def test_what_is_no_fault_of_the_container_is_no_result(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.x.w.store.refusals = 1
        with pytest.raises(StoreFailed):
            await r.begin()
        r.x.manager.fails["create"] = [Busy("no room")]
        with pytest.raises(Busy):
            await r.begin()
        await r.x.w.node.apply(r.x.id, Paused())
        with pytest.raises(WrongState):
            await r.begin()
        await settled(r.x)


@in_loop
async def test_one_that_is_not_wanted_any_more_is_ended_even_if_it_was_still_being_made(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.x.manager.on_signal = lambda e, number, everyone: r.ends(e, Signaled(9))
        gate = r.x.manager.gates["create"] = asyncio.Event()
        probe = r.begin()
        await until(lambda: "create" in r.x.manager.names(), "create")
        probe.cancel()
        gate.set()
        with suppress(asyncio.CancelledError):
            await probe
        assert probe.cancelled() and r.x.execs.of(r.x.id) == ()
        assert "signal 9 all" in r.x.manager.names()
        await settled(r.x)


@in_loop
async def test_one_under_way_at_the_daemons_end_is_left_to_its_limit(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        probe = r.begin()
        await r.attached()
        r.x.w.node.closing = True
        probe.cancel()
        with suppress(asyncio.CancelledError):
            await probe
        assert probe.cancelled() and len(await r.x.stored()) == 1
        assert not [name for name in r.x.manager.names() if name.startswith("signal")]


@in_loop
async def test_an_end_that_nobody_sees_is_a_failure_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_checks, "LATE_SECONDS", 0.05)
    monkeypatch.setattr(health_checks, "END_SECONDS", 0.05)
    async with rig(tmp_path) as r:
        result = await r.begin(HealthSpec(("stuck",), 1, 20 * 10**6, 1))
        assert result is not None and result.timed_out and isinstance(result.status, Unknown)
        (e,) = r.x.execs.of(r.x.id)
        r.ends(e, Signaled(9))
        await settled(r.x)


@in_loop
async def test_only_so_many_are_made_at_the_same_moment(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        gate = r.x.manager.gates["create"] = asyncio.Event()
        probes = [r.begin() for _ in range(health_checks.BEGUN_AT_ONCE + 2)]
        await until(lambda: len(r.x.manager.names()) == health_checks.BEGUN_AT_ONCE, "as many as may")
        r.x.manager.fails["create"] = [RuntimeFailed("no")] * len(probes)
        gate.set()
        results = await asyncio.gather(*probes)
        assert [result.status for result in results if result] == [Unknown("no")] * len(probes)
        assert r.x.manager.names().count("create") == len(probes)
