"""What callers ask of standard streams: to attach to them, and the small orders; of a container's run or of an exec."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext

from shim.frozen import replace
from supervisor.engine.containers import is_made, is_over
from supervisor.engine.lastwords import LastWords
from supervisor.engine.node import GONE_SECONDS, Node
from supervisor.model.errors import WrongState
from supervisor.model.values import LIVE, Container, Counters, RunKey, Winsize
from supervisor.monitor import control
from supervisor.monitor.rundir import path_of
from supervisor.streams.attach import AttachSession, AttachTarget, Orders, WantedStreams

FindExec = Callable[[Container, str], Awaitable[AttachTarget]]
OrdersOf = Callable[[RunKey], Orders]


class StreamService:
    """Implements `supervisor.api.streams.Streams`. `execs` finds an exec of a container; raises when there is none.
    `orders`: who does them for a run, or an exec; exitd-shim, unless said otherwise."""

    def __init__(
        self,
        node: Node,
        state: str,
        execs: FindExec,
        orders: OrdersOf = lambda key: Orders(),
        last_words: LastWords | None = None,
    ) -> None:
        self._node = node
        self._state = state
        self._execs = execs
        self._orders = orders
        self._last_words = last_words

    async def attach(self, id: str, exec_id: str, wanted: WantedStreams) -> AttachSession:
        """Return the attachment as a context manager. Raises WrongState when the container has ended."""
        return AttachSession(await self._target(id, exec_id), wanted)

    async def resize(self, id: str, exec_id: str, size: Winsize) -> None:
        """Set the size of the terminal. Raises NoSuchContainer, NoSuchExec; ShimFailed, TimedOut or Busy when its shim
        does not do it; WrongState where there is no terminal."""
        target = await self._target(id, exec_id)
        if not target.tty:
            raise WrongState(f"{target.name} has no terminal to resize")
        async with control.opened(target.directory) as line:
            await target.orders.resize(line, size)

    async def close_stdin(self, id: str, exec_id: str) -> None:
        """Close stdin after everything that was sent. Raises NoSuchContainer, NoSuchExec; ShimFailed, TimedOut or Busy
        when its shim does not do it; WrongState for a terminal, and for what was made without stdin."""
        target = await self._target(id, exec_id)
        if target.tty:
            raise WrongState(f"{target.name} has a terminal, whose input is not closed; send ctrl-d")
        if not target.stdin:
            raise WrongState(f"{target.name} was made without stdin, there is nothing to close")
        async with control.opened(target.directory) as line:
            await target.orders.close_stdin(line)

    async def reopen_log(self, id: str) -> None:
        """Have the shim open its log by its path again, after a program has renamed the file. Raises ShimFailed,
        TimedOut, Busy; WrongState when the container has ended."""
        async with control.opened((await self._target(id, "")).directory) as line:
            await line.reopen_log()

    async def counters(self, container: Container) -> Counters | None:
        """Return the counters of its streams; None when there is no run, or its shim does not answer at once."""
        if container.phase not in LIVE:
            return None
        return await control.counters_of(path_of(self._state, container.id, container.run))

    async def _target(self, id: str, exec_id: str) -> AttachTarget:
        container = await self._node.containers.find(id)
        await self._node.containers.until(container.id, is_made, GONE_SECONDS, "its create")
        container = self._node.containers.known(container.id)
        if exec_id:
            orders = self._orders(RunKey(container.id, container.run, exec_id))
            return replace(await self._execs(container, exec_id), orders=orders)
        if container.phase not in LIVE:
            raise WrongState(f"{id} is {container.phase.value}: it has no standard streams now", id=container.id)
        run = container.run
        return AttachTarget(
            name=container.spec.name,
            directory=path_of(self._state, container.id, run),
            tty=container.spec.tty,
            stdin=container.spec.stdin,
            over=lambda: self._node.containers.until(container.id, is_over(run), None, "its exit"),
            orders=self._orders(RunKey(container.id, run)),
            listening=lambda: self._listening(container.id),
        )

    def _listening(self, container_id: str) -> AbstractAsyncContextManager[None]:
        return nullcontext() if self._last_words is None else self._last_words.listening(container_id)
