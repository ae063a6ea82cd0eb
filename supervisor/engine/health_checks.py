"""Health checks, kept: a probe now and then in every running container that has a check, and what follows from it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog

from shim.frozen import mutable, replace
from supervisor.engine import netprobes
from supervisor.engine.execlife import Execs, Live
from supervisor.engine.node import Node
from supervisor.engine.participants import Participant
from supervisor.model import health, lifecycle
from supervisor.model.errors import (
    Busy,
    CommandNotExecutable,
    CommandNotFound,
    ExitdError,
    NoSuchContainer,
    StoreFailed,
    TimedOut,
    WrongState,
)
from supervisor.model.execs import CONTAINER_EXIT, Exec, ExecSpec
from supervisor.model.health import (
    OUTPUT_MAX,
    DropProbe,
    Froze,
    Happening,
    Health,
    Probe,
    ProbeAnswer,
    Probed,
    ProbeResult,
    Skipped,
    Thawed,
    Tick,
)
from supervisor.model.values import (
    NO_PROBES,
    SECOND_NS,
    By,
    CheckKind,
    Container,
    Exit,
    Exited,
    HealthSpec,
    HealthStatus,
    OnUnhealthy,
    Phase,
    Reason,
    Unknown,
)
from supervisor.streams.attach import AttachSession, AttachTarget, Output, WantedStreams
from supervisor.system.clock import Clock

# -- one probe


HEALTH = By(policy="health")
BEGUN_AT_ONCE = 4  # runtimes that make probes at the same moment; the other probes wait
END_SECONDS = 5.0
LATE_SECONDS = 30.0  # after its own limit: for an end that no process can witness

log = structlog.get_logger(__name__)


class Probing:
    """Runs probes: as execs in their containers, or over the network from inside of them."""

    def __init__(self, node: Node, execs: Execs) -> None:
        self._node = node
        self._execs = execs
        self._turn = asyncio.Semaphore(BEGUN_AT_ONCE)

    async def run(self, container: Container, spec: HealthSpec) -> ProbeResult | None:
        """Run one probe. Return its result; None when the container's end took the probe along. Cancelled, it ends the
        probe.

        Raises Busy, WrongState, NoSuchContainer, StoreFailed, OSError: it could not be run, for no fault of the
        container's.
        """
        clock = self._node.clock
        start_ns = clock.now_ns()
        if (target := spec.tcp or spec.http or spec.grpc) is not None:
            return await self._over_network(container, target, spec)
        begun = asyncio.ensure_future(self._begin(container, spec))
        try:
            e = await asyncio.shield(begun)  # what is broken off in the middle would never be ended
            async with asyncio.timeout(spec.timeout_ns / SECOND_NS + LATE_SECONDS):
                exit_, output = await self._follow(container, e)
        except asyncio.CancelledError:
            if not self._node.closing:  # then its limit ends it
                await self._end(begun)
            raise
        except TimeoutError:
            await self._end(begun)
            return ProbeResult(start_ns, clock.now_ns(), Unknown("no end of the probe was seen"), timed_out=True)
        except (Busy, WrongState, NoSuchContainer, StoreFailed):
            raise
        except ExitdError as error:
            return _not_run(error, start_ns, clock)
        if exit_.by == CONTAINER_EXIT:
            return None
        timed_out = exit_.reason is Reason.TIMEOUT
        return ProbeResult(start_ns, exit_.at_ns, exit_.status, output, timed_out)

    async def _over_network(
        self, container: Container, target: netprobes.NetTarget, spec: HealthSpec
    ) -> ProbeResult | None:
        clock = self._node.clock
        start_ns = clock.now_ns()
        if container.init is None:
            raise WrongState(f"{container.spec.name} has no process", id=container.id)
        try:
            async with asyncio.timeout(spec.timeout_ns / SECOND_NS):
                answer, words = await netprobes.answer_of(container.init, target)
        except TimeoutError:
            said = b"no answer within its limit"
            return ProbeResult(start_ns, clock.now_ns(), ProbeAnswer(False), said, timed_out=True)
        return ProbeResult(start_ns, clock.now_ns(), answer, words.encode("utf-8", "replace"))

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
        target = AttachTarget(name, self._execs.directory_of(live), tty=False, stdin=False, over=live.over.wait)
        kept = b""
        try:
            async with AttachSession(target, WantedStreams(stdin=False, lossless=False)) as session:
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
        """A probe whose result is not needed any more."""
        with contextlib.suppress(ExitdError, OSError):  # TimeoutError is one: its limit ends it then
            e = await begun
            live = self._execs.get(e.key.container, e.key.exec_id)
            if live is not None and not live.over.is_set():
                await self._execs.kill(live, 9, True, HEALTH)
                await asyncio.wait_for(live.over.wait(), END_SECONDS)


def _not_run(error: ExitdError, start_ns: int, clock: Clock) -> ProbeResult:
    words = str(error).encode("utf-8", "replace")
    match error:
        case CommandNotFound():
            status: Exited | Unknown = Exited(127)
        case CommandNotExecutable():
            status = Exited(126)
        case _:
            status = Unknown(str(error))
    return ProbeResult(start_ns, clock.now_ns(), status, words, isinstance(error, TimedOut))


# -- all of them
#
# What follows is `health.step`'s to say. The status is stored with the container, and published as an event when it
# becomes another one; results are kept here, and begin anew with the daemon.


REST_SECONDS = 5.0  # what a pause waits for the end of a probe

RunProbe = Callable[[Container, HealthSpec], Awaitable[ProbeResult | None]]
End = Callable[[str, Reason, By, float | None, int], Awaitable[None]]


@mutable
class _Check:
    """Of one run. Over, it only keeps what was seen."""

    run: int
    kind: CheckKind
    health: Health
    timer: asyncio.TimerHandle | None = None
    probing: asyncio.Task[None] | None = None
    resting: bool = False  # its container is about to be paused
    acting: bool = False  # its container is being ended: it needs no probe
    over: bool = False


class Prober(Participant):
    """Belongs to the node's event loop."""

    def __init__(self, node: Node, run_probe: RunProbe, end: End) -> None:
        """`run_probe` runs one to its end, or to its time limit; cancelled, it ends the probe. None: it says nothing of
        the container. `end` ends that run of a container within a grace period, None being the container's own."""
        self._node = node
        self._run_probe = run_probe
        self._end = end
        self._checks: dict[str, dict[CheckKind, _Check]] = {}

    def seen(self, container_id: str) -> Health | None:
        """Return the health of the newest run with a check; None if there was no probe since the daemon's start."""
        return self.seen_all(container_id).get(CheckKind.CHECK)

    def seen_all(self, container_id: str) -> dict[CheckKind, Health]:
        """As `seen`, of all checks of the newest run that had some."""
        return {kind: check.health for kind, check in self._checks.get(container_id, {}).items()}

    async def probe_now(self, container: Container) -> tuple[ProbeResult, HealthStatus]:
        """Run its check now, or join the probe that is under way; its result counts as any other's. Return it, and the
        status with it. Raises WrongState when there is none to be had: the container is being paused or ended."""
        check = self._checks.get(container.id, {}).get(CheckKind.CHECK)
        if check is None or check.run != container.run or check.over:
            raise WrongState(f"{container.spec.name} is not running", id=container.id)
        before = check.health.log
        if check.probing is None and not (check.resting or check.acting):
            check.health = replace(check.health, due_ns=self._node.clock.boottime_ns())
            self._hear(container.id, check, Tick())
        if check.probing is not None:
            await asyncio.wait([check.probing])  # within its own limit
        if check.health.log == before:
            raise WrongState(f"{container.spec.name}: its check has no result, it is being paused or ended")
        return check.health.log[-1], check.health.status

    @contextlib.asynccontextmanager
    async def resting(self, container_id: str) -> AsyncIterator[None]:
        """No probe is under way and none begins for the length of the block, so that none is frozen in the middle: it
        could not be ended then. Goes on afterwards if the container runs."""
        checks = [each for each in self._checks.get(container_id, {}).values() if not (each.over or each.health.paused)]
        probing = [check.probing for check in checks if check.probing is not None]
        for check in checks:
            check.resting = True
            self._hear(container_id, check, Froze())
        try:
            if probing:
                await asyncio.wait(probing, timeout=REST_SECONDS)
            yield
        finally:
            for check in checks:
                check.resting = False
            container = self._node.containers.get(container_id)
            if container is not None:
                self.changed(container)

    def close(self) -> None:
        """Probes under way come to their own end, which is not reported."""
        for checks in self._checks.values():
            for check in checks.values():
                _rest(check)

    def changed(self, container: Container) -> None:
        if container.spec.health is None and container.spec.probes == NO_PROBES:
            return
        if container.id in self._node.containers.recovering or self._node.closing:
            return
        checks = self._checks.setdefault(container.id, {})
        is_up = container.phase in (Phase.RUNNING, Phase.PAUSED)
        asked = health.wanted(container) if is_up else {}
        for kind, check in list(checks.items()):
            if check.run != container.run:
                _rest(checks.pop(kind))
            elif kind not in asked:
                _rest(check)
        for kind, spec in asked.items():
            if kind not in checks:
                self._begin(container, kind, spec)
            else:
                self._pause_or_go_on(container, checks[kind])
        if container.phase is Phase.REMOVING:
            self._checks.pop(container.id, None)

    def _pause_or_go_on(self, container: Container, check: _Check) -> None:
        is_paused = container.phase is Phase.PAUSED
        if check.health.paused and not is_paused and not check.resting:
            self._hear(container.id, check, Thawed())
        elif is_paused and not check.health.paused:
            self._hear(container.id, check, Froze())

    def _begin(self, container: Container, kind: CheckKind, spec: HealthSpec) -> None:
        now_ns = self._node.clock.boottime_ns()
        status = lifecycle.health_of(container, kind) or HealthStatus.STARTING
        begun = health.begin(spec, container.started_boot_ns or now_ns, now_ns, status)
        check = self._checks[container.id][kind] = _Check(container.run, kind, begun)
        if container.phase is Phase.PAUSED:
            self._hear(container.id, check, Froze())
        self._arm(container.id, check)

    def _hear(self, container_id: str, check: _Check, happening: Happening) -> None:
        step = health.step(check.health, happening, self._node.clock.boottime_ns())
        log.debug("health", container=container_id, happening=happening, action=step.action)
        check.health = step.health
        match step.action:
            case Probe():
                check.probing = asyncio.get_running_loop().create_task(self._probe(container_id, check))
            case DropProbe() if check.probing is not None:
                check.probing.cancel()
                check.probing = None
            case OnUnhealthy() as action:
                check.acting = True
                self._node.spawn(self._act(container_id, check, action))
        self._arm(container_id, check)

    def _arm(self, container_id: str, check: _Check) -> None:
        """The next tick, if there is something for it to begin."""
        if check.timer is not None:
            check.timer.cancel()
            check.timer = None
        waits = check.health.paused or check.health.probing_since_ns is not None
        if not (waits or check.acting or check.over):
            seconds = max(0.0, (check.health.due_ns - self._node.clock.boottime_ns()) / 1e9)
            loop = asyncio.get_running_loop()
            check.timer = loop.call_later(seconds, self._hear, container_id, check, Tick())

    async def _probe(self, container_id: str, check: _Check) -> None:
        happening: Happening = Skipped()
        try:
            container = self._node.containers.known(container_id)
            result = await self._run_probe(container, check.health.spec)
            # What an end has taken along says nothing of health.
            if result is not None and not self._node.is_ending(container):
                happening = Probed(result)
        except (Busy, WrongState, NoSuchContainer, StoreFailed, OSError) as error:
            log.debug("probe skipped", container=container_id, why=str(error))
        except Exception:  # a bug, and no reason never to probe again
            log.exception("probe failed", container=container_id)
        if check.probing is asyncio.current_task():  # and not dropped just now
            check.probing = None
            self._hear(container_id, check, happening)
            await self._report(container_id, check)

    async def _report(self, container_id: str, check: _Check) -> None:
        """Store and publish the status, if it is another one. What cannot be stored now is stored after the next
        probe."""
        seen, container = check.health, self._node.containers.get(container_id)
        if container is None or container.run != check.run:
            return
        if lifecycle.health_of(container, check.kind) is seen.status:
            return
        with contextlib.suppress(WrongState, NoSuchContainer, StoreFailed):
            happening = lifecycle.HealthSeen(check.run, seen.status, seen.failing_streak, check.kind)
            await self._node.apply(container_id, happening, patient=True)
            what = {"status": seen.status.value, "failing_streak": seen.failing_streak}
            log.info("health", container=container_id, check=check.kind.value, **what)

    async def _act(self, container_id: str, check: _Check, action: OnUnhealthy) -> None:
        await self._report(container_id, check)  # before its consequence
        now = self._node.containers.get(container_id)
        if now is not None and now.run == check.run and now.phase is Phase.RUNNING and not health.is_being_ended(now):
            log.info("unhealthy", container=container_id, check=check.kind.value, action=action.value)
            by = HEALTH if check.kind is CheckKind.CHECK else By(policy=f"{check.kind}-probe")
            grace = 0.0 if action is OnUnhealthy.KILL else check.health.spec.grace_seconds
            try:
                await self._end(container_id, Reason.HEALTH, by, grace, check.run)
            except (ExitdError, OSError) as error:
                log.warning("unhealthy, and not ended", container=container_id, why=str(error))
        check.acting = False
        self._arm(container_id, check)


def _rest(check: _Check) -> None:
    check.over = True
    if check.timer is not None:
        check.timer.cancel()
    if check.probing is not None:
        check.probing.cancel()
    check.timer = check.probing = None
