"""One probe of a health check: an exec by policy, with a time limit and the beginning of its output."""

import asyncio
import contextlib

import structlog

from supervisor.engine.execlife import Execs, Live
from supervisor.engine.node import Node
from supervisor.model.checks import SECOND_NS, HealthSpec
from supervisor.model.errors import (
    CommandNotExecutable,
    CommandNotFound,
    ExitdError,
    NoSuchContainer,
    StoreFailed,
    TimedOut,
    WrongState,
)
from supervisor.model.execs import CONTAINER_EXIT, Exec, ExecSpec
from supervisor.model.facts import By, Container, Exit, Exited, Reason, Unknown
from supervisor.model.health import OUTPUT_MAX, Result
from supervisor.streams.attach import Output, Session, Target, Wanted
from supervisor.system.clock import Clock

HEALTH = By(policy="health")
BEGUN_AT_ONCE = 4  # runtimes that make probes at the same moment; the other probes wait
END_SECONDS = 5.0
LATE_SECONDS = 30.0  # after its own limit: for an end that nobody can witness

log = structlog.get_logger(__name__)


class Probing:
    """Runs probes by the execs' door."""

    def __init__(self, node: Node, execs: Execs) -> None:
        self._node = node
        self._execs = execs
        self._turn = asyncio.Semaphore(BEGUN_AT_ONCE)

    async def run(self, container: Container, spec: HealthSpec) -> Result | None:
        """The result; None when the container's end took the probe along. Cancelled, it ends the probe.

        WrongState, NoSuchContainer, StoreFailed, OSError: it could not be run, for no fault of the container's.
        """
        clock = self._node.clock
        start_ns = clock.now_ns()
        begun = asyncio.ensure_future(self._begin(container, spec))
        try:
            e = await asyncio.shield(begun)  # what is broken off in the middle is nobody's to end
            async with asyncio.timeout(spec.timeout_ns / SECOND_NS + LATE_SECONDS):
                exit_, output = await self._follow(container, e)
        except asyncio.CancelledError:
            if not self._node.closing:  # then its limit ends it
                await self._end(begun)
            raise
        except TimeoutError:
            await self._end(begun)
            return Result(start_ns, clock.now_ns(), Unknown("no end of the probe was seen"), timed_out=True)
        except (WrongState, NoSuchContainer, StoreFailed):
            raise
        except ExitdError as error:
            return _not_run(error, start_ns, clock)
        if exit_.by == CONTAINER_EXIT:
            return None
        timed_out = exit_.reason is Reason.TIMEOUT
        return Result(start_ns, exit_.at_ns, exit_.status, output, timed_out)

    async def _begin(self, container: Container, spec: HealthSpec) -> Exec:
        async with self._turn:
            wanted = ExecSpec(spec.args, timeout_seconds=spec.timeout_ns / SECOND_NS, attach=True)
            return await self._execs.begin(container, wanted, HEALTH)

    async def _follow(self, container: Container, e: Exec) -> tuple[Exit, bytes]:
        live = self._execs.get(e.key.container, e.key.exec_id)
        if live is None:
            if e.exit is None:
                raise WrongState(f"a probe of {container.spec.name} is gone", id=container.id)
            return e.exit, b""
        output = await self._output(live)
        return await self._execs.wait(live), output

    async def _output(self, live: Live) -> bytes:
        """Its beginning; what follows is dropped by the shim. A result without output is a result all the same."""
        name = f"a probe of {live.container.spec.name}"
        target = Target(name, self._execs.directory_of(live), tty=False, stdin=False, over=live.over.wait)
        kept = b""
        try:
            async with Session(target, Wanted(stdin=False, lossless=False)) as session:
                async with contextlib.aclosing(session.items()) as items:
                    async for item in items:
                        kept += item.data if isinstance(item, Output) else b""
                        if len(kept) >= OUTPUT_MAX:
                            break
                await live.over.wait()
        except (ExitdError, OSError) as error:
            log.debug("output of a probe lost", container=live.key.container, why=str(error))
        return kept[:OUTPUT_MAX]

    async def _end(self, begun: "asyncio.Future[Exec]") -> None:
        """A probe that nobody wants to hear of any more."""
        with contextlib.suppress(ExitdError, OSError):  # TimeoutError is one: its limit ends it then
            e = await begun
            live = self._execs.get(e.key.container, e.key.exec_id)
            if live is not None and not live.over.is_set():
                await self._execs.kill(live, 9, True, HEALTH)
                await asyncio.wait_for(live.over.wait(), END_SECONDS)


def _not_run(error: ExitdError, start_ns: int, clock: Clock) -> Result:
    words = str(error).encode("utf-8", "replace")
    match error:
        case CommandNotFound():
            status: Exited | Unknown = Exited(127)
        case CommandNotExecutable():
            status = Exited(126)
        case _:
            status = Unknown(str(error))
    return Result(start_ns, clock.now_ns(), status, words, isinstance(error, TimedOut))
