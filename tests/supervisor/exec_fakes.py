"""Execs whose processes are make-believe, on the node of `fakes`: what the owner of execs is tested against."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from pathlib import Path

import pytest

from supervisor.engine import recovery
from supervisor.engine.execlife import Execs, Live
from supervisor.model.execs import Exec, ExecSpec
from supervisor.model.values import Container, ExitStatus, Process, Report, RunKey, Source, Spec
from supervisor.runtime.sandbox import MadeExec, NoProcess
from tests.supervisor.fakes import CODE_0, World, until, world
from tests.supervisor.happenings import USER

SPEC = ExecSpec(("true",))
WEB = Spec(name="web")


class FakeExecManager:
    """ExecManagers, of one family. `fails` and `gates` as those of FakeManager; `on_connect` and `on_signal` may
    report an end."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.fails: defaultdict[str, list[Exception]] = defaultdict(list)
        self.gates: dict[str, asyncio.Event] = {}
        self.on_create: Callable[[Exec], None] = lambda e: None
        self.on_connect: Callable[[Exec], None] = lambda e: None
        self.on_signal: Callable[[Exec, int, bool], None] = lambda e, number, everyone: None
        self.shims: dict[RunKey, asyncio.Event] = {}
        self.deleted: list[Exec] = []
        self.begun: Process | NoProcess = NoProcess.NEVER_BEGAN  # what an earlier daemon's shim has made
        self.known: list[set[str]] = []  # whose directories were no leftovers

    async def _call(self, name: str, key: RunKey) -> None:
        self._note(name, key)
        if name in self.gates:
            await self.gates[name].wait()
        if self.fails[name]:
            raise self.fails[name].pop(0)

    def _note(self, name: str, key: RunKey) -> None:
        self.calls.append((name, key.exec_id))

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def of(self, container: Container) -> "FakeExecManager":
        return self

    async def create_exec(self, container: Container, e: Exec) -> MadeExec:
        self.on_create(e)
        await self._call("create", e.key)
        return MadeExec(Process(50, 5), Process(51, 5), 2)

    async def begun_exec(self, container: Container, e: Exec) -> Process | NoProcess:
        await self._call("begun", e.key)
        return self.begun

    async def connect_exec(self, container: Container, e: Exec) -> None:
        self._note("connect", e.key)
        if self.fails["connect"]:
            raise self.fails["connect"].pop(0)
        self.on_connect(e)

    async def signal_exec(self, container: Container, e: Exec, number: int, *, everyone: bool) -> None:
        await self._call(f"signal {number}{' all' if everyone else ''}", e.key)
        self.on_signal(e, number, everyone)

    def kill_stopped_shim(self, key: RunKey) -> bool:
        self._note("unstick", key)
        return True

    def shim_gone(self, key: RunKey) -> asyncio.Event | None:
        return self.shims.get(key)

    async def settle_exec(self, key: RunKey) -> None:
        await self._call("settle", key)

    async def delete_exec(self, container: Container, e: Exec) -> None:
        await self._call("delete", e.key)
        self.deleted.append(e)

    def leaked_execs(self, container: Container, known: Collection[str]) -> Sequence[str]:
        if self.fails["leaked_execs"]:
            raise self.fails["leaked_execs"].pop(0)
        return ["leaked"]

    async def delete_leaked_execs(self, container: Container, known: Collection[str]) -> None:
        self.leaked_execs(container, known)
        self.known.append(set(known))

    def directory_of(self, key: RunKey) -> str:
        return f"/state/{key.exec_id}"


class ExecWorld:
    """A node, its execs, and a container that runs."""

    def __init__(self, w: World) -> None:
        self.w = w
        self.manager = FakeExecManager()
        self.execs = Execs(w.node, self.manager)
        w.join(self.execs)
        self.id = ""

    @property
    def container(self) -> Container:
        return self.w.node.containers[self.id]

    async def begin(self, spec: ExecSpec = SPEC) -> Live:
        e = await self.execs.begin(self.container, spec, USER)
        live = self.execs.get(self.id, e.key.exec_id)
        assert live is not None
        return live

    def ends(self, key: RunKey, status: ExitStatus = CODE_0) -> None:
        listener = self.w.manager._listener
        assert listener is not None
        listener.exit_seen(key, Report(status, Source.RECORD, Process(50, 5), self.w.clock.now_ns(), 2))

    async def stored(self) -> list[Exec]:
        return list((await self.w.store.load_execs())[0])

    async def log(self) -> list[tuple[str, str]]:
        """The types of the events so far, each with its exec."""
        return [(event.type, event.exec_id) for event in await self.w.store.events_after(0, 1000)]


@contextlib.asynccontextmanager
async def exec_world(directory: Path, *, boot: str = "boot") -> AsyncIterator[ExecWorld]:
    async with world(directory, boot=boot) as w:
        yield ExecWorld(w)


@contextlib.asynccontextmanager
async def running(directory: Path) -> AsyncIterator[ExecWorld]:
    async with exec_world(directory) as made:
        made.id = await made.w.running(WEB)
        yield made


@contextlib.asynccontextmanager
async def again(directory: Path, *, boot: str = "boot") -> AsyncIterator[ExecWorld]:
    """The next daemon; nothing has been looked up yet. `looked_up` does."""
    async with exec_world(directory, boot=boot) as made:
        yield made


@pytest.fixture
def at_once(hasty: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries come at once."""
    monkeypatch.setattr(recovery, "AGAIN_SECONDS", (0.01,))


async def looked_up(made: ExecWorld) -> None:
    damaged = await recovery.load(made.w.node, "")
    await made.execs.load()
    recovery.look_up(made.w.runs, damaged)
    await made.execs.find_rest()
    (made.id,) = made.w.node.containers


async def settled(x: ExecWorld) -> None:
    """Nothing of any exec is left."""
    await until(lambda: not x.execs.keys() and not x.w.node.background, "the clean-up")
    assert x.execs._live == {}
    assert x.w.node.pending == set()
    assert await x.stored() == []
