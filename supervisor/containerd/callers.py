"""The callers: a relay, for one connection of containerd's. And the order of requests that change something."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar, cast
from weakref import WeakValueDictionary

import structlog

from shim import fields
from shim.frozen import frozen
from supervisor.model.errors import BadRequest, ShuttingDown
from supervisor.model.values import By

T = TypeVar("T")
Name = tuple[str, str, str]  # namespace, task, exec

log = structlog.get_logger(__name__)


@frozen
class Hello:
    """What a relay sends first on each connection. `live`: the numbers of the connections that containerd has open."""

    relay: str
    connection: int
    live: tuple[int, ...]
    pid: int
    namespace: str
    address: str
    started: int = 0  # of `pid`, in clock ticks since the boot
    courier: str = ""  # its process, PID/START, if it sends events to containerd; older relays do not


@frozen
class Caller:
    """One request. `attempt` above 0: it was sent before, perhaps to a daemon that has ended."""

    hello: Hello
    key: str
    attempt: int
    by: By

    @property
    def namespace(self) -> str:
        return self.hello.namespace


def read_hello(data: bytes) -> Hello:
    """Raises BadRequest."""
    try:
        message = fields.decode(data, "relay-hello")
        live = tuple(int(word) for word in message.get("live").split(",") if word)
        pid, started = message.number("pid"), message.number("started")
        return Hello(
            relay=message.get("relay"),
            connection=message.number("connection"),
            live=live,
            pid=pid,
            namespace=message.get("namespace"),
            address=message.get("address"),
            started=started,
            courier=f"{pid}/{started}" if message.get("courier") == "1" else "",
        )
    except ValueError as error:
        raise BadRequest(f"the relay's hello is not understood: {error}") from error


def key_of(hello: Hello, stream: int) -> str:
    return f"{hello.relay}/{hello.connection}/{stream}"


class Turns:
    """Requests that change one process of a task are executed in the order in which they came, and completely, even if
    the caller is gone: a repeated request with the same key gets the same result."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Name, asyncio.Lock] = WeakValueDictionary()
        self._at: dict[object, asyncio.Task[object]] = {}
        self._closing = False

    async def run(self, key: str, name: Name, work: Callable[[], Coroutine[object, object, T]]) -> T:
        """Execute `work` in its turn. Raises ShuttingDown after `close`."""
        task = self._at.get(key)
        if task is None:
            if self._closing:
                raise ShuttingDown("exitd is stopping; ask the next one")
            lock = self._locks.get(name) or self._locks.setdefault(name, asyncio.Lock())
            task = asyncio.get_running_loop().create_task(_after(lock, work))
            place = key or task
            self._at[place] = task
            task.add_done_callback(lambda done: self._over(place, done))
        return cast(T, await asyncio.shield(task))

    def _over(self, place: object, task: "asyncio.Task[object]") -> None:
        del self._at[place]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("refused", key=str(place), why=str(error) or repr(error))

    async def close(self, seconds: float) -> None:
        """Begin no more requests; interrupt, after `seconds`, those in progress, as a crash would."""
        self._closing = True
        if tasks := list(self._at.values()):
            _, left = await asyncio.wait(tasks, timeout=seconds)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)


async def _after(lock: asyncio.Lock, work: Callable[[], Awaitable[T]]) -> T:
    async with lock:
        return await work()
