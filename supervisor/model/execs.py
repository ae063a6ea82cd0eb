"""The life of one exec, another command in a running container, as a pure function.

    creating ── Made ──▶ running ── Ended ──▶ exited ── Cleaned ──▶ (gone)
        └───── MakeFailed ───────────────────────▲

An exec that a policy runs (a health check) leaves no event and no row in the ledger: the policy reports what counts.

An exec runs as soon as it is made; it has no separate start. Its row is stored before its shim begins and is deleted in
the transaction that puts its end into the ledger. After that only the clean-up is left.
"""

from enum import StrEnum

from shim.frozen import field, frozen, replace
from supervisor.model import notices, values
from supervisor.model.errors import WrongState
from supervisor.model.lifecycle import ENDING_SIGNALS, SIGKILL, Moment
from supervisor.model.values import (
    START_UNCONFIRMED,
    Asked,
    BootTime,
    By,
    Container,
    Event,
    Exit,
    ForeignStreams,
    Oom,
    Process,
    Reason,
    Report,
    RunKey,
    Signaled,
    Unknown,
    Winsize,
    is_death_by,
    is_own_doing,
)

TIMEOUT = By(policy="timeout")
CONTAINER_EXIT = By(policy="container-exit")  # its container ended, and the exec with it


class ExecPhase(StrEnum):
    """The phases of an exec."""

    CREATING = "creating"
    RUNNING = "running"
    EXITED = "exited"


@frozen
class ExecSpec:
    """What the caller asked for. Empty fields take the value of the container's own process."""

    args: tuple[str, ...]
    env: tuple[str, ...] = ()  # K=V, added to the container's
    cwd: str = ""
    user: str = ""
    tty: bool = False
    stdin: bool = False
    timeout_seconds: float = 0.0  # 0: no limit
    attach: bool = False  # its output waits for the first client that attaches
    size: Winsize | None = None  # the terminal's initial size
    foreign: ForeignStreams = field(default_factory=ForeignStreams)
    process: str = ""  # JSON of a whole process (runtime-spec): nothing is taken from the container's
    name: str = ""  # the name that a foreign client gave it


@frozen
class Exec:
    """One exec as the store holds it. `step` returns its successor."""

    key: RunKey
    spec: ExecSpec
    phase: ExecPhase
    name: str  # the container's, for the ledger
    namespace: str
    boot_id: str  # the boot under which it began
    pod: str = ""  # the container's, for events
    address: str = ""  # where containerd receives the events of its task; empty: not a task of containerd's
    courier: str = ""  # the process that sends those events
    init: Process | None = None
    shim: Process | None = None
    started_ns: int | None = None
    deadline: BootTime | None = None
    exit: Exit | None = None
    asked: Asked | None = None
    by: By = field(default_factory=By)  # the caller that began it
    oom_before: int = 0  # memory kills in the container's cgroup before it began
    error: str = ""
    start_unseen: bool = False  # its program had not been seen executed when the exec counted as made


@frozen
class ExecMade:
    """The exec has begun. `oom_kills`: memory kills in the container's cgroup so far. `init` is None if it is unknown
    whether a process began; the end that follows is then unknown, too. `unseen`: its program has not been seen executed
    yet."""

    init: Process | None
    shim: Process | None
    oom_kills: int = 0
    unseen: bool = False


@frozen
class ExecMakeFailed:
    """The exec could not be begun. `error`: why, for people."""

    error: str


@frozen
class ExecEndAsked:
    """A caller or the time limit wants the exec to end, or a signal is sent that may end it."""

    asked: Asked


@frozen
class ExecEnded:
    """The process has ended, as the evidence proves. `with_container`: the container was ending at that moment."""

    report: Report
    with_container: bool = False


@frozen
class ExecCleaned:
    """Nothing of the exec is left on the machine."""


ExecHappening = ExecMade | ExecMakeFailed | ExecEndAsked | ExecEnded | ExecCleaned


@frozen
class ExecStep:
    """The result of one step: the exec (None: removed), and what is stored in one transaction before any client learns
    of it."""

    exec: Exec | None
    exits: tuple[Exit, ...] = ()
    events: tuple[Event, ...] = ()


def born(container: Container, exec_id: str, spec: ExecSpec, by: By, moment: Moment) -> Exec:
    """Return an exec of the container's current run that is about to be made. Pure."""
    key, of = RunKey(container.id, container.run, exec_id), container.spec
    pod, boot_id = container.id if of.pod else of.sandbox, moment.boot.boot_id
    address, courier = (of.task.address, of.task.courier) if of.task is not None else ("", "")
    return Exec(key, spec, ExecPhase.CREATING, of.name, of.namespace, boot_id, pod, address, courier, by=by)


def step(e: Exec, happening: ExecHappening, moment: Moment) -> ExecStep:
    """Return what follows from an input; the one table of transitions. Raises WrongState."""
    match e.phase, happening:
        case ExecPhase.CREATING, ExecMade(init, shim, oom_kills, unseen):
            made = replace(
                e,
                phase=ExecPhase.RUNNING,
                init=init,
                shim=shim,
                oom_before=oom_kills,
                start_unseen=unseen,
                started_ns=moment.now_ns,
                deadline=_deadline(e.spec, moment),
            )
            return ExecStep(made, events=_with_notices(made, _events(made, moment, "exec")))
        case ExecPhase.CREATING, ExecMakeFailed(error):
            failed = replace(e, phase=ExecPhase.EXITED, error=error)
            return ExecStep(failed, events=_events(e, moment, "failed", error=error))
        case ExecPhase.RUNNING, ExecEndAsked(asked):
            logged = _events(e, moment, asked.reason.value, signal=str(asked.signal))
            return ExecStep(replace(e, asked=_weightier(e.asked, asked)), events=logged)
        case ExecPhase.RUNNING, ExecEnded():
            exit_ = _exit_of(e, replace(happening, report=_without_start(e, happening.report)))
            logged = tuple(replace(event, exit=exit_) for event in _events(e, moment, "exit", run=str(e.key.run)))
            logged = _with_notices(e, logged)
            ledger = (exit_,) if not e.by.policy else ()
            return ExecStep(replace(e, phase=ExecPhase.EXITED, exit=exit_, deadline=None), ledger, logged)
        case ExecPhase.EXITED, ExecCleaned():
            return ExecStep(None)
    text = f"{type(happening).__name__} while exec {e.key.exec_id} of {e.name} is {e.phase.value}"
    raise WrongState(text, id=e.key.container, exec=e.key.exec_id, phase=e.phase.value)


def seconds_left(e: Exec, now: BootTime) -> float | None:
    """Return the seconds until its limit, 0 if that has passed; None if it has no limit."""
    return e.deadline.seconds_after(now) if e.deadline is not None else None


def _deadline(spec: ExecSpec, moment: Moment) -> BootTime | None:
    if not spec.timeout_seconds:
        return None
    return moment.boot.later(round(spec.timeout_seconds * 1e9))


def _events(e: Exec, moment: Moment, kind: str, **attributes: str) -> tuple[Event, ...]:
    if e.by.policy:
        return ()
    if e.spec.name:
        attributes["exec_name"] = e.spec.name
    pairs, container, id = tuple(sorted(attributes.items())), e.key.container, e.key.exec_id
    return (Event(kind, container, e.name, e.namespace, moment.now_ns, attributes=pairs, pod_id=e.pod, exec_id=id),)


def _with_notices(e: Exec, events: tuple[Event, ...]) -> tuple[Event, ...]:
    """Add the notices for containerd, if the exec belongs to one of its tasks."""
    notice = notices.of_exec(e.address, e.courier, e.spec.name, e.init)
    return tuple(replace(event, task=notice) for event in events) if notice is not None else events


def _weightier(old: Asked | None, new: Asked) -> Asked:
    """Return the newest request that is meant to end it; SIGKILL stays, and other signals give way to it."""
    if old is None or (old.signal != SIGKILL and (_ends(new) or not _ends(old))):
        return new
    return old


def _ends(asked: Asked) -> bool:
    return asked.reason is not Reason.KILL or asked.signal in ENDING_SIGNALS


def _without_start(e: Exec, report: Report) -> Report:
    """Return the report without a number that may be that of the runtime's init."""
    if e.start_unseen and report.unseen and not isinstance(report.status, Unknown):
        return replace(report, status=Unknown(START_UNCONFIRMED))
    return report


def _exit_of(e: Exec, ended: ExecEnded) -> Exit:
    report = ended.report
    asked_kill = e.asked is not None and e.asked.signal == SIGKILL
    by_oom = report.oom_kills > e.oom_before and not asked_kill and report.status == Signaled(SIGKILL)
    reason, by = _reason(e, ended, by_oom)
    return Exit(
        key=e.key,
        name=e.name,
        namespace=e.namespace,
        status=report.status,
        source=report.source,
        reason=reason,
        by=by,
        oom=Oom(by_oom, max(0, report.oom_kills - e.oom_before)),
        at_ns=report.at_ns,
        started_ns=values.no_later_than(e.started_ns, report.at_ns),
        init=report.init or e.init,
        decision="ended",
        at_is_found=report.at_is_found,
    )


def _reason(e: Exec, ended: ExecEnded, by_oom: bool) -> tuple[Reason, By]:
    status = ended.report.status
    if by_oom:
        return Reason.OOM, By()
    if e.asked is not None and (_ends(e.asked) or is_death_by(e.asked.signal, status)):
        return e.asked.reason, e.asked.by
    if ended.with_container and status == Signaled(SIGKILL):
        return Reason.KILL, CONTAINER_EXIT
    return (Reason.SELF if is_own_doing(status) else Reason.UNKNOWN), By()
