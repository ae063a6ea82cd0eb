"""Runs under another's shim, as far as streams go: exitd's side of the fifos for real, the other by a stand-in."""

import asyncio
import contextlib
import os
import pathlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from shim import programs
from supervisor.model.values import Container, LogSpec, Phase, RunKey, Spec
from supervisor.monitor import epoll, keeper, rundir
from supervisor.runtime.foreign_shim import pumps
from supervisor.runtime.foreign_shim.pumps import Pumps
from supervisor.runtime.oci import bundle
from supervisor.runtime.oci.runplan import Place
from supervisor.streams.attach import AttachSession, AttachTarget, Dropped, Orders, WantedStreams
from tests.system import otherside
from tests.system.keepers import Keeper, Node
from tests.system.processes import end_process, open_files
from tests.system.streams import texts
from tests.system.waits import LIMIT_SECONDS

KEY = RunKey("box", 1)
SPEC = Spec(name="web", args=("sh",), rootfs="/", stdin=True)
PART_LINES = 6000


@dataclass
class Other:
    """The other's shim, from its start on."""

    process: asyncio.subprocess.Process
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def do(self, verb: str, *words: object) -> None:
        """Returns when it has done that."""
        async with self._turn:
            self.ask(verb, *words)
            await self.done()

    def ask(self, verb: str, *words: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write((" ".join([verb, *map(str, words)]) + "\n").encode())

    async def done(self) -> None:
        assert self.process.stdout is not None
        async with asyncio.timeout(LIMIT_SECONDS * 4):
            assert await self.process.stdout.readline() == b"done\n"

    async def says(self, data: bytes, name: str = "out") -> None:
        await self.do("say", name, data.hex())

    async def ended(self) -> None:
        """By itself."""
        async with asyncio.timeout(LIMIT_SECONDS * 4):
            assert await self.process.wait() == 0

    async def killed(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


class Stage:
    """One run, from its directory on."""

    def __init__(self, node: Node, key: RunKey = KEY, spec: Spec = SPEC) -> None:
        self.node = node
        self.key = key
        self.container = Container(key.container, spec, Phase.RUNNING, key.run, 0)
        self.place = Place(str(node.directory / "root"), str(node.state))
        self.path = rundir.path_of(self.place.state, key.container, key.run, key.exec_id)
        self.log_path = pathlib.Path(bundle.log_path(self.place.root, self.container) or "/dev/null")
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self.over = asyncio.Event()  # the end is stored

    def plan(self) -> bytes:
        return pumps.plan_of(self.container, self.place)

    async def begin(self, made: Pumps, plan: bytes = b"") -> pumps.Fifos:
        directory = rundir.make(self.place.state, self.key.container, self.key.run, plan or self.plan())
        return await made.begin(self.key, directory, self.container.spec)

    def find(self, made: Pumps) -> None:
        key = self.key
        made.find(key, rundir.reopen(self.place.state, key.container, key.run, key.exec_id))

    async def kill_pump(self, made: Pumps) -> None:
        """Returns when another one has come."""
        old = made.shim_of(self.key)
        assert old is not None
        end_process(old.pid)
        await until(lambda: made.shim_of(self.key) not in (None, old), "a replacement")

    async def ended(self, made: Pumps) -> None:
        """The end is known and reported; returns when all the output is in the log."""
        gone = made.gone(self.key)
        assert gone is not None
        made.end(self.key)
        self.over.set()
        await limited(gone)

    def session(self, wanted: WantedStreams | None = None, orders: Orders | None = None) -> AttachSession:
        spec = self.container.spec
        target = AttachTarget("web", self.path, spec.tty, spec.stdin, self.over.wait)
        return AttachSession(replace(target, orders=orders or Orders()), wanted or WantedStreams())

    def log(self, stream: str = "stdout") -> bytes:
        return texts(self.log_path.read_bytes(), stream)

    @property
    def left_by_itself(self) -> bool:
        return not os.path.lexists(f"{self.path}/control.sock")


@contextlib.asynccontextmanager
async def daemon(node: Node) -> AsyncIterator[Pumps]:
    """For the length of the block; then it is gone, and pumps go on."""
    watcher = epoll.Monitor()
    line = keeper.Keeper(str(node.state), str(programs.find("exitd-keeper")), lambda: None, may_start=False)
    made = Pumps(str(node.state), watcher, line)
    try:
        yield made
    finally:
        made.close()
        line.close()
        watcher.close()


@contextlib.asynccontextmanager
async def other(stage: Stage, has: Iterable[str] = ("in", "err")) -> AsyncIterator[Other]:
    command = [sys.executable, otherside.__file__, stage.path, *has]
    pipe = asyncio.subprocess.PIPE
    made = Other(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe))
    try:
        yield made
    finally:
        await made.killed()


async def until(look: Callable[[], bool], what: str) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not look():  # noqa: ASYNC110  # what is looked at tells nobody
            await asyncio.sleep(0.005)
    assert look(), what


async def limited(event: asyncio.Event, seconds: float = LIMIT_SECONDS) -> None:
    async with asyncio.timeout(seconds):
        await event.wait()


def play(node: Node, act: Callable[[Stage, Pumps], Awaitable[None]], spec: Spec = SPEC, plan: bytes = b"") -> None:
    """`act` with a run whose pump has begun. After it nothing is left of the run."""

    stage = Stage(node, spec=spec)

    async def whole() -> None:
        async with daemon(node) as made:
            await stage.begin(made, plan or stage.plan())
            await act(stage, made)
        async with daemon(node) as made:
            await made.remove(stage.key)

    asyncio.run(whole())
    assert not os.path.lexists(stage.path)


def logged(spec: LogSpec) -> Spec:
    return replace(SPEC, log=spec)


@contextlib.contextmanager
def held(node: Node) -> Iterator[Keeper]:
    """A keeper that has at the end what it had in the beginning."""
    made = node.keeper()
    before = len(open_files(made.process.pid))
    yield made
    assert made.ask("exitd-list", ("at", 0)).kind == "exitd-ok"  # behind the farewell of all its clients
    assert len(open_files(made.process.pid)) == before
    made.close()


def lines(first: int, last: int) -> bytes:
    return b"".join(b"%0*d\n" % (otherside.LINE_BYTES - 1, number) for number in range(first, last + 1))


async def collected(session: AttachSession) -> bytes:
    got = b""
    async for item in session.items():
        assert not isinstance(item, Dropped)
        got += item.data
    return got
