"""exitd's part in the test's own hands: shims started, their events taken, and a count of what they leave behind."""

import asyncio
import contextlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from google.protobuf.message import Message

from supervisor.runtime.foreign_shim import process
from supervisor.runtime.foreign_shim.binary import Address, Deleted, Shim
from supervisor.runtime.foreign_shim.connection import ShimConnection
from supervisor.runtime.foreign_shim.forwarding import Forwarding, Happened
from supervisor.runtime.foreign_shim.logfifo import LogFifo
from supervisor.runtime.foreign_shim.verdict import ShimWord
from supervisor.system.aside import Aside

LIMIT_SECONDS = 30.0


@dataclass
class Place:
    """Where the shims of one test have everything they make."""

    base: pathlib.Path
    happened: list[Happened] = field(default_factory=list)
    addresses: list[Address] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def events(self) -> str:
        return f"{self.base}/events"

    @property
    def namespace(self) -> str:
        """A name of our own where others have theirs; the rule for names is narrower than mkdtemp's."""
        return self.base.name.replace("_", "0")

    def shim(self, binary: str, id: str) -> Shim:
        return Shim(binary, self.namespace, id, f"{self.base}/sock", self.events)

    def bundle(self, id: str) -> pathlib.Path:
        """An empty one."""
        path = self.base / "b" / id
        path.mkdir(parents=True)
        return path

    def heard(self, one: Happened) -> None:
        self.happened.append(one)
        self._changed.set()

    def of(self, id: str) -> list[Message]:
        return [one.event for one in self.happened if getattr(one.event, "container_id", "") == id]

    def topics(self, id: str) -> list[str]:
        return [one.topic for one in self.happened if getattr(one.event, "container_id", "") == id]

    async def until(self, look: Callable[[], bool]) -> None:
        """An event later, and another one, until it is so."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while not look():
                self._changed.clear()
                await self._changed.wait()


@dataclass
class Task:
    """One container, as exitd has it under a shim of another's making."""

    place: Place
    shim: Shim
    bundle: str
    log: LogFifo
    address: Address | None = None
    link: ShimConnection | None = None
    waiting: asyncio.Task[ShimWord] | None = None

    @property
    def id(self) -> str:
        return self.shim.id

    @property
    def to(self) -> ShimConnection:
        assert self.link is not None
        return self.link

    async def begun(self, options: bytes = b"") -> "Task":
        self.address = await process.start(self.shim, self.bundle, options, Aside())
        self.place.addresses.append(self.address)
        return await self.linked()

    async def linked(self) -> "Task":
        assert self.address is not None
        self.link = await ShimConnection.open(self.address, Aside())
        return self

    async def started(self) -> int:
        """Created, waited for, and started; its pid."""
        await self.to.create(self.id, self.bundle)
        self.waiting = asyncio.create_task(self.to.wait(self.id))
        return await self.to.start(self.id)

    async def exit(self) -> ShimWord:
        assert self.waiting is not None
        return await asyncio.wait_for(asyncio.shield(self.waiting), LIMIT_SECONDS)

    async def ended(self) -> Deleted:
        """Deleted, its shim gone."""
        deleted = await self.to.delete(self.id)
        await self.to.shutdown(self.id)
        await asyncio.wait_for(self.to.closed.wait(), LIMIT_SECONDS)
        await self.swept()
        return deleted

    async def swept(self) -> Deleted | None:
        """What is done last, whatever has happened."""
        if self.waiting is not None:
            self.waiting.cancel()
            await asyncio.gather(self.waiting, return_exceptions=True)
        if self.link is not None:
            self.link.close()
        try:
            return await process.delete(self.shim, self.bundle, seconds=LIMIT_SECONDS)
        finally:
            self.log.close()


def task(place: Place, binary: str, id: str, bundle: pathlib.Path) -> Task:
    return Task(place, place.shim(binary, id), str(bundle), LogFifo(str(bundle), id))


@contextlib.asynccontextmanager
async def place() -> AsyncIterator[Place]:
    # Not pytest's own directory: the path of a unix socket has 107 bytes.
    made = Place(pathlib.Path(tempfile.mkdtemp(prefix="exitd-")))
    forwarding = Forwarding(made.heard)
    try:
        await forwarding.start(made.events)
        yield made
    finally:
        await forwarding.stop()
        shutil.rmtree(made.base)


def descriptors() -> set[str]:
    """What this process has open, without the event loop's own."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
    return found
