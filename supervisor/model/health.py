"""The health of one run, by one check of it, as a pure function: when the next probe is due, what its result means, and
what follows.

    starting ── the last of `successes` in a row ──▶ healthy ◀── the same ── unhealthy
        │                                               │                       ▲
        └──────────────── the last of `retries` failures in a row ──────────────┘

A probe has failed when it ended with anything but 0, was ended by its time limit, or could not be run for a
reason of the container's. A failure of a probe that began in the start period, while there was no success yet, does not
count. One that this machine had no room for says nothing. No probe is under way, and none
is due, while the container is paused.

docker's check and Kubernetes' three are the same machine. `wanted` says which of them a container has at a moment.
"""

from shim.frozen import frozen, replace
from supervisor.model import lifecycle
from supervisor.model.errors import WrongState
from supervisor.model.values import (
    CheckKind,
    Container,
    Exited,
    ExitStatus,
    HealthSpec,
    HealthStatus,
    HookStage,
    OnUnhealthy,
    Phase,
    Reason,
)

LOG_MAX = 5  # results kept, as docker does
OUTPUT_MAX = 4096  # bytes kept of a probe's output


@frozen
class ProbeAnswer:
    """What came of a probe over the network: no process has ended, so there is no code."""

    good: bool


@frozen
class ProbeResult:
    """The result of one probe. Times are CLOCK_REALTIME in ns."""

    start_ns: int
    end_ns: int
    status: ExitStatus | ProbeAnswer
    output: bytes = b""  # its beginning; or why the probe could not be run
    timed_out: bool = False

    @property
    def failed(self) -> bool:
        return self.timed_out or self.status not in (Exited(0), ProbeAnswer(True))


@frozen
class Health:
    """The state of a run's health check. Times are CLOCK_BOOTTIME in ns."""

    spec: HealthSpec
    began_ns: int  # the run's start
    due_ns: int  # the next probe
    status: HealthStatus = HealthStatus.STARTING
    failing_streak: int = 0
    good_streak: int = 0
    log: tuple[ProbeResult, ...] = ()  # the newest last
    probing_since_ns: int | None = None
    paused: bool = False


@frozen
class Tick:
    """Time has passed."""


@frozen
class Probed:
    """The probe under way has this result."""

    result: ProbeResult


@frozen
class Skipped:
    """The probe under way gave no result that says anything about the container; the next one may."""


@frozen
class Froze:
    """The container was paused."""


@frozen
class Thawed:
    """The container was resumed."""


Happening = Tick | Probed | Skipped | Froze | Thawed


@frozen
class Probe:
    """Effect: begin a probe."""


@frozen
class DropProbe:
    """Effect: end the probe under way; its result does not count."""


Action = Probe | DropProbe | OnUnhealthy


@frozen
class HealthStep:
    """The result of one step: the new state, and what to do."""

    health: Health
    action: Action | None = None


def begin(spec: HealthSpec, began_ns: int, now_ns: int, status: HealthStatus = HealthStatus.STARTING) -> Health:
    """Return the state at a run's start, or at a daemon's start which finds the run with this status."""
    due_ns = now_ns + spec.interval_ns if spec.first_ns is None else max(now_ns, began_ns + spec.first_ns)
    return Health(spec, began_ns, due_ns, status)


def wanted(container: Container) -> dict[CheckKind, HealthSpec]:
    """Return the checks that are made of the container now, if it runs: while its startup probe has had no success,
    that one alone; while it is being ended, none that would end it."""
    spec = container.spec
    if spec.health is not None:
        return {CheckKind.CHECK: spec.health}
    if is_being_ended(container):
        return {CheckKind.READINESS: spec.probes.readiness} if spec.probes.readiness is not None else {}
    startup = spec.probes.startup
    if startup is not None and container.probes.startup is not HealthStatus.HEALTHY:
        return {CheckKind.STARTUP: startup}
    others = {CheckKind.LIVENESS: spec.probes.liveness, CheckKind.READINESS: spec.probes.readiness}
    return {kind: each for kind, each in others.items() if each is not None}


def is_being_ended(container: Container) -> bool:
    """Return whether the run was asked to end, by a caller or a policy. Of a caller's signals only SIGKILL is: another
    one has no grace behind it, so that a program which ignores it would go on unwatched."""
    asked = container.asked
    if container.ending is not None or asked is None:
        return container.ending is not None
    return asked.reason is not Reason.KILL or lifecycle.asked_kill(asked)


def has_started(container: Container) -> bool:
    """Return whether it runs and has begun to work, as far as its startup probe and its hook say."""
    if container.phase not in (Phase.RUNNING, Phase.PAUSED):
        return False
    probed = container.spec.probes.startup is None or container.probes.startup is HealthStatus.HEALTHY
    return probed and (container.spec.hooks.post_start is None or container.post_start is HookStage.DONE)


def is_ready(container: Container) -> bool:
    """Return whether it may be used now."""
    readiness = container.spec.probes.readiness
    good = readiness is None or container.probes.readiness is HealthStatus.HEALTHY
    return has_started(container) and good and not is_being_ended(container)


def step(health: Health, happening: Happening, now_ns: int) -> HealthStep:
    """Return what follows from an input; the one table of transitions. Raises WrongState."""
    match happening:
        case Tick():
            if health.paused or health.probing_since_ns is not None or now_ns < health.due_ns:
                return HealthStep(health)
            return HealthStep(replace(health, probing_since_ns=now_ns), Probe())
        case Probed(result) if health.probing_since_ns is not None:
            return _probed(health, result, now_ns)
        case Skipped() if health.probing_since_ns is not None:
            return HealthStep(replace(health, probing_since_ns=None, due_ns=now_ns + health.spec.interval_ns))
        case Froze() if not health.paused:
            dropped = DropProbe() if health.probing_since_ns is not None else None
            return HealthStep(replace(health, paused=True, probing_since_ns=None), dropped)
        case Thawed() if health.paused:
            return HealthStep(replace(health, paused=False, due_ns=now_ns + health.spec.interval_ns))
    raise WrongState(f"{type(happening).__name__} while the check is {'paused' if health.paused else 'waiting'}")


def _probed(health: Health, result: ProbeResult, now_ns: int) -> HealthStep:
    spec = health.spec
    result = replace(result, output=result.output[:OUTPUT_MAX])
    failed = result.failed
    streak, status = health.failing_streak, health.status
    good = 0 if failed else health.good_streak + 1
    if not failed:
        streak, status = 0, HealthStatus.HEALTHY if good >= spec.successes else status
    elif not _is_forgiven(health):
        streak += 1
        status = HealthStatus.UNHEALTHY if streak >= spec.retries else status
    after = replace(
        health,
        status=status,
        failing_streak=streak,
        good_streak=good,
        log=(*health.log, result)[-LOG_MAX:],
        probing_since_ns=None,
        due_ns=now_ns + spec.interval_ns,
    )
    follows = failed and streak >= spec.retries and spec.on_failure is not OnUnhealthy.NONE
    return HealthStep(after, spec.on_failure if follows else None)


def _is_forgiven(health: Health) -> bool:
    since = health.probing_since_ns
    in_time = since is not None and since < health.began_ns + health.spec.start_period_ns
    return in_time and health.status is HealthStatus.STARTING
