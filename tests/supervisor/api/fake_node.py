"""A node that keeps its word in memory: what the API is tested against."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from supervisor.model.errors import NoSuchContainer
from supervisor.model.health import ProbeResult
from supervisor.model.values import (
    By,
    Container,
    Event,
    Exit,
    Exited,
    HealthStatus,
    Oom,
    Phase,
    Reason,
    RunKey,
    Source,
    Spec,
)
from supervisor.model.views import Info, View
from supervisor.store import events
from supervisor.streams.logs import LogSource, WantedLog

AT_NS = 1_795_176_000_000_000_001


def ended(id: str, code: int = 7) -> Exit:
    key = RunKey(id, 1)
    return Exit(key, "web", "default", Exited(code), Source.RECORD, Reason.SELF, By(), Oom(), AT_NS, None, None)


class FakeNode:
    """Every call is noted. `failure` is raised by every call; `gate` holds changes back; `exit_now` answers waits."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.finished: list[str] = []
        self.failure: BaseException | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.entered = asyncio.Event()
        self.exit_now = asyncio.Event()
        self.waiting = 0
        self.most_waiting = 0
        self.containers: dict[str, Container] = {}
        self.log = (WantedLog(""), asyncio.Event())
        self.run_directory = ""
        self.streams_open = 0
        self.streams_closed = asyncio.Event()

    def note(self, *call: object) -> None:
        self.asked.append(call)
        if self.failure is not None:
            raise self.failure

    async def _change(self, *call: object) -> Container:
        self.note(*call)
        self.entered.set()
        await self.gate.wait()
        self.finished.append(str(call[0]))
        return self._find(str(call[1]))

    def _find(self, id: str) -> Container:
        try:
            return self.containers[id]
        except KeyError:
            raise NoSuchContainer(f"no container {id}", id=id) from None

    async def create(self, spec: Spec, by: By, *, replaces: bool = False) -> Container:
        self.note("create", spec, by, *(("replaces",) if replaces else ()))
        container = Container("c1", spec, Phase.CREATED, 1, AT_NS)
        self.containers["c1"] = container
        return container

    async def start(self, id: str, by: By, prepare: bool = False) -> Container:
        container = await self._change("start", id, prepare, by)
        self.containers[id] = replace(container, phase=Phase.RUNNING)
        return self.containers[id]

    async def stop(self, id: str, timeout_seconds: int | None, by: By, signal: int = 0) -> Container:
        return await self._change("stop", id, timeout_seconds, signal, by)

    async def kill(self, id: str, signal: int, everyone: bool, by: By) -> None:
        await self._change("kill", id, signal, everyone, by)

    async def restart(self, id: str, timeout_seconds: int | None, by: By, signal: int = 0) -> Container:
        return await self._change("restart", id, timeout_seconds, signal, by)

    async def pause(self, id: str, by: By) -> None:
        await self._change("pause", id, by)

    async def resume(self, id: str, by: By) -> None:
        await self._change("resume", id, by)

    async def remove(self, id: str, force: bool, by: By, *, volumes: bool = False) -> None:
        await self._change("remove", id, force, by, *(("volumes",) if volumes else ()))

    def listing(self, all: bool, filters: tuple[str, ...]) -> tuple[list[View], int]:
        self.note("listing", all, filters)
        return [View(container) for container in self.containers.values()], 17

    async def inspect(self, id: str) -> View:
        self.note("inspect", id)
        return View(self._find(id), monitored_by="shim")

    async def run_check(self, id: str) -> tuple[ProbeResult, HealthStatus]:
        self.note("run_check", id)
        return ProbeResult(AT_NS, AT_NS, Exited(3), b"no"), HealthStatus.UNHEALTHY

    async def pids(self, id: str) -> tuple[int, ...]:
        self.note("pids", id)
        return (1, 2)

    async def wait(self, id: str, condition: str, run: int) -> Exit | None:
        self.note("wait", id, condition, run)
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        self.entered.set()
        try:
            await self.exit_now.wait()
        finally:
            self.waiting -= 1
        return None if condition == "removed" else ended(id)

    async def subscribe(
        self,
        from_seq: int | None,
        since_ns: int | None,
        until_ns: int | None,
        filters: tuple[str, ...],
        follow: bool,
    ) -> AsyncIterator[events.Item]:
        self.note("subscribe", from_seq, since_ns, until_ns, filters, follow)
        self.streams_open += 1
        try:
            yield Event("exit", "c1", "web", "default", AT_NS, ended("c1"), seq=5)
            yield events.Bookmark(6)
            yield events.Lost(7, 9)
            if follow:
                await self.exit_now.wait()
        finally:
            self.streams_open -= 1
            self.streams_closed.set()

    async def exits(self, since_ns: int | None, unknown: bool, id: str) -> AsyncIterator[Exit]:
        self.note("exits", since_ns, unknown, id)
        for code in range(3):
            yield ended("c1", code)

    async def log_source(self, id: str) -> LogSource:
        self.note("log_source", id)
        whole, complete = self.log

        async def done(run: int) -> None:
            self.asked.append(("done", run))
            await complete.wait()

        async def settled(run: int) -> None:
            self.asked.append(("settled", run))

        return LogSource(whole, done, settled, 1)

    def info(self) -> Info:
        self.note("info")
        return Info("0.1", "/r", "/s", "boot", "runc", "v2", (), len(self.containers), 0, 1, None, 0, 17, "tmpfs")

    async def metrics(self) -> str:
        self.note("metrics")
        return "# HELP exitd_ready Ready.\n"


async def until(condition: Callable[[], bool]) -> None:
    """Lets the loop turn until something that nobody announces is so. Its test has a limit."""
    while not condition():  # noqa: ASYNC110  # a socket's peer noticing its end sets no event
        await asyncio.sleep(0)
