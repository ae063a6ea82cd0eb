"""A node whose containers are make-believe: a runtime family that does what it is told, and everything else real."""

import asyncio
import contextlib
import functools
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest

from supervisor.engine import exits, node, runs
from supervisor.engine.exits import Exits
from supervisor.engine.node import Node
from supervisor.engine.participants import Participant
from supervisor.engine.runs import Runs
from supervisor.model.errors import StoreFailed
from supervisor.model.values import Container, Event, Exited, ExitStatus, Phase, Process, Report, RunKey, Source, Spec
from supervisor.runtime.sandbox import CreatedRun, Found, RunListener
from supervisor.store.database import Store, Transaction
from supervisor.store.events import EventLog
from supervisor.system import background
from supervisor.system.waitlimit import WaitLimit

T = TypeVar("T")
P = ParamSpec("P")
LIMIT_SECONDS = 20.0
CODE_0 = Exited(0)


class FakeClock:
    """Real time, since timers run in it; a boot of one's own."""

    def __init__(self, boot: str = "boot") -> None:
        self.boot = boot

    def now_ns(self) -> int:
        return time.time_ns()

    def boottime_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def boot_id(self) -> str:
        return self.boot


class FakeManager:
    """ContainerManagers, of one family. `discarded` are the containers whose files are gone. `fails` holds what a call
    raises, first come first served; a call named in `gates` waits."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, int]] = []
        self.fails: defaultdict[str, list[Exception]] = defaultdict(list)
        self.gates: dict[str, asyncio.Event] = {}
        self.found: dict[str, Found] = {}
        self.states: dict[str, str] = {}
        self.on_start: Callable[[Container], None] = lambda container: None
        self.on_kill: Callable[[Container, int], None] = lambda container, signal: None
        self.on_connect: Callable[[Container], None] = lambda container: None
        self._listener: RunListener | None = None
        self.discarded: list[str] = []
        self.rest_asked: list[str] = []
        self.left_behind = 0  # what end_rest returns
        self.begun: set[str] = set()
        self.ending: set[str] = set()  # whose init is on its way out
        self.hidden: set[str] = set()  # whose init is in a virtual machine
        self.discard_fails: list[Exception] = []
        self.frozen: dict[str, bool] = {}  # where it is not what is stored

    def of(self, container: Container) -> "FakeManager":
        return self

    def begin_preparing(self, container: Container) -> None:
        pass

    async def discard(self, container_id: str, *, is_pod: bool = True) -> None:
        if self.discard_fails:
            raise self.discard_fails.pop()
        self.discarded.append(container_id)

    def listen(self, listener: RunListener) -> None:
        self._listener = listener

    def kills_for_memory(self, container: str, kills: int, run: int = 1) -> None:
        """Others than init."""
        assert self._listener is not None
        self._listener.memory_kills_seen(RunKey(container, run), kills)

    def ends(self, container: str, run: int = 1, status: ExitStatus = CODE_0, source: Source = Source.RECORD) -> None:
        assert self._listener is not None
        self._listener.exit_seen(RunKey(container, run), Report(status, source, Process(40, 4), time.time_ns()))

    async def _call(self, name: str, container: Container) -> None:
        self.calls.append((name, container.id, container.run))
        if name in self.gates:
            await self.gates[name].wait()
        if self.fails[name]:
            raise self.fails[name].pop(0)

    def count(self, name: str) -> int:
        return sum(call[0] == name for call in self.calls)

    async def create_container(self, container: Container) -> CreatedRun:
        await self._call("create", container)
        return CreatedRun(Process(40, 4), Process(41, 4), "shim")

    async def start_process(self, container: Container) -> None:
        self.on_start(container)
        await self._call("start", container)

    async def connect_container(self, container: Container) -> tuple[Found, CreatedRun | None]:
        self.on_connect(container)
        await self._call("connect", container)
        return self.found.get(container.id, Found.LIVE), None

    async def state_process(self, container: Container) -> str:
        await self._call("state", container)
        return self.states.get(container.id, "created")

    async def kill_process(self, container: Container, signal: int, *, everyone: bool = False) -> None:
        await self._call("kill", container)
        self.on_kill(container, signal)

    async def pause_container(self, container: Container) -> None:
        await self._call("pause", container)

    async def is_paused(self, container: Container) -> bool:
        if self.fails["is_paused"]:
            raise self.fails["is_paused"].pop(0)
        return self.frozen.get(container.id, container.phase is Phase.PAUSED)

    async def resume_container(self, container: Container) -> None:
        await self._call("resume", container)

    async def has_begun(self, container: Container) -> bool:
        return container.id in self.begun

    def is_unseen(self, container: Container) -> bool:
        return False

    def may_start_again(self, container: Container) -> bool:
        return container.id not in self.hidden

    def sees_init(self, container: Container) -> bool:
        return container.id not in self.hidden

    def is_ending(self, container: Container) -> bool:
        return container.id in self.ending

    async def pids(self, container: Container) -> tuple[int, ...]:
        return ()

    def leaves_nothing(self, container: Container) -> bool:
        return not (self.left_behind or "end_rest" in self.gates or self.fails["end_rest"])

    async def end_rest(self, container: Container) -> int:
        self.rest_asked.append(container.id)
        if "end_rest" in self.gates:
            await self.gates["end_rest"].wait()
        if self.fails["end_rest"]:
            raise self.fails["end_rest"].pop(0)
        return self.left_behind

    async def settle(self, container: Container) -> None:
        await self._call("settle", container)

    async def delete_process(self, container: Container) -> None:
        await self._call("delete", container)

    def monitored_by(self, key: RunKey) -> str:
        return "shim"

    def shim_of(self, key: RunKey) -> Process | None:
        return None

    def shim_gone(self, key: RunKey) -> asyncio.Event | None:
        return None

    def forget(self, container: Container) -> None:
        self.calls.append(("forget", container.id, container.run))


class StubbornStore(Store):
    """A real store whose disk refuses on demand; `late`: says it refused, and has stored all the same."""

    refusals = 0
    late = 0

    def __init__(self, path: Path) -> None:
        super().__init__(path, slow_seconds=lambda: 60.0)
        self.changes: list[Transaction] = []

    @contextlib.contextmanager
    def slow(self) -> Iterator[None]:
        """What is committed in the block is queued, and on the disk only after it: for who has a limit, too late."""
        gate, limit = threading.Event(), self._limit
        self._writer.submit(lambda connection: gate.wait(LIMIT_SECONDS), lambda result: None)
        self._limit = WaitLimit(0.01)
        try:
            yield
        finally:
            self._limit = limit
            gate.set()

    async def commit(self, change: Transaction, *, patient: bool = False) -> tuple[Event, ...]:
        if self.refusals > 0:
            self.refusals -= 1
            raise StoreFailed("the disk is full")
        numbered = await super().commit(change, patient=patient)
        self.changes.append(change)
        if self.late > 0:
            self.late -= 1
            raise StoreFailed("the disk did not answer in time")
        return numbered


class World:
    """A node on a real store."""

    def __init__(self, directory: Path, *, boot: str = "boot") -> None:
        self.store = StubbornStore(directory / "exitd.db")
        self.clock = FakeClock(boot)
        self.events = EventLog(self.store, self.clock)
        self.manager = FakeManager()
        self.health: list[bool] = []
        self.node = Node(self.store, self.events, self.manager, self.clock, report_health=self.health.append)
        self.exits = Exits(self.node)
        self.runs = Runs(self.node, self.exits)
        self.join()

    def join(self, *parts: Participant) -> None:
        """As the daemon does, with these parts beside the node's own."""
        self.node.join(self.runs, *parts)

    async def running(self, spec: Spec) -> str:
        """The id of a container that was added, made and launched."""
        container = await self.node.add(spec)
        await self.runs.make(container.id)
        await self.runs.launch(container.id)
        return container.id

    async def event_types(self) -> list[str]:
        return [event.type for event in await self.store.events_after(0, 1000)]

    async def close(self) -> None:
        await self.node.close()
        self.events.close()
        assert await self.store.close(60)


@contextlib.asynccontextmanager
async def world(directory: Path, *, boot: str = "boot") -> AsyncIterator[World]:
    """Quick to try again, so that a refused commit costs a test milliseconds."""
    made = World(directory, boot=boot)
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries come at once."""
    monkeypatch.setattr(node, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(background, "RETRY_SECONDS", (0.01,))
    for each in (exits, runs):
        monkeypatch.setattr(each, "END_SEEN_SECONDS", 0.05)


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that is a coroutine, in an event loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def let_pass(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """From now on the running loop's clock is so much later: what waits for that long is due, and no test waits."""
    loop = asyncio.get_running_loop()
    before = loop.time
    monkeypatch.setattr(loop, "time", lambda: before() + seconds)


async def until(look: Callable[[], T], what: str = "it") -> T:
    """The first true answer; other tasks run in between."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not (answer := look()):
        assert time.monotonic() < deadline, f"{what} does not come"
        await asyncio.sleep(0.001)
    return answer
