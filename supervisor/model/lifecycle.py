"""The life of one container as a pure function: no clock, no descriptor, no signal is touched here.

    creating ── Made ──▶ created ── StartAsked ──▶ starting ── Started ──▶ running ◀── Paused/Resumed ──▶ paused
        │                   │                         │                      │
        └─ MakeFailed       └────────── Ended ────────┴──────────────────────┴──▶ exited | restarting | removing
                                                                                      │        │           │
    creating ◀── Again (next run) ────────────────────────────────────────────────────┴────────┘       Removed

What an event may not do in a phase raises WrongState. The container, its exit and its events are committed together;
the effects of the step come after that, in their order. So clients only ever learn what is stored.
"""

from typing import Any

from shim.frozen import field, frozen, replace
from shim.mark import EXITDS_OWN_ID
from supervisor.model import changes, evidence, notices, restart, values
from supervisor.model.errors import WrongState
from supervisor.model.limits import Change
from supervisor.model.networks import Attached
from supervisor.model.restart import Backoff
from supervisor.model.taskfacts import Tombstone
from supervisor.model.values import (
    NEVER_STARTED,
    NO_NAMES,
    START_UNCONFIRMED,
    Asked,
    BootTime,
    By,
    CheckKind,
    Container,
    Event,
    Exit,
    Exited,
    ExitStatus,
    HealthStatus,
    HookKind,
    HookStage,
    MemoryKills,
    Names,
    OnUnhealthy,
    Oom,
    Phase,
    ProbeMarks,
    Process,
    Reason,
    Report,
    RestartRule,
    Retained,
    RunKey,
    Signaled,
    Source,
    Spec,
    Termination,
    TimeLimit,
    Unknown,
    is_death_by,
    is_own_doing,
)

# -- the inputs of a step, and its effects


@frozen
class Made:
    """The runtime has created the container. `sandbox_run`: for a pod's member, the run of the pause container that it
    joined. `waits_in`: the program that init runs while it waits for its start (device and inode)."""

    init: Process
    shim: Process | None
    sandbox_run: int = 0
    waits_in: str = ""
    networks: tuple[Attached, ...] = ()  # what its network has given it


@frozen
class MakeFailed:
    """The runtime could not create the run. `error`: why, for people."""

    error: str
    put_off: bool = False  # the host goes down and takes no new run: of a later run, that is no failure


@frozen
class StartAsked:
    """A caller asks for the start of a run that has been made. Stored before the runtime is asked."""

    by: By
    key: str = ""  # of the request, if its sender may repeat it: see `taskfacts`


@frozen
class Started:
    """The runtime has started the run."""

    boot_ns: int  # CLOCK_BOOTTIME
    unseen: bool = False  # its program has not been seen executed yet


@frozen
class StartFailed:
    """The run could not be started; init may be there still. `error`: why, for people."""

    error: str


@frozen
class Paused:
    """All processes are frozen."""


@frozen
class Resumed:
    """The processes go on."""


@frozen
class EndAsked:
    """A caller or a policy wants the current run to end, or sent a signal that may end it. `run`: that run and no
    other; 0: the one that there is. `until`: exitd is to go on, and after a crash the next one, until SIGKILL at this
    moment. `final`: no policy begins another run after it."""

    asked: Asked
    run: int = 0
    until: BootTime | None = None
    final: bool = False


@frozen
class Ended:
    """The run has ended, as the evidence proves. `limit_bytes`: the container's memory limit, for the ledger.
    `sandbox_ended`: it lived in the pid namespace of its pod's pause process, which was ending. `left_behind`: the
    number of processes in its cgroup that could not be killed. `names`: under which the end is counted."""

    report: Report
    limit_bytes: int
    rebooted: bool = False
    sandbox_ended: bool = False
    left_behind: int = 0
    run: int = 0  # whose end it is; 0: of the run that there is
    names: Names = NO_NAMES


@frozen
class OomSeen:
    """`kills` processes of this run were killed for memory so far, and init has survived; if not `is_init_seen`, it is
    not known whether it has. `names`: under which they are counted."""

    run: int
    kills: int
    is_init_seen: bool = True
    names: Names = NO_NAMES


@frozen
class HealthSeen:
    """The run's health check, or one of its probes, has a new status."""

    run: int
    status: HealthStatus
    failing_streak: int
    kind: CheckKind = CheckKind.CHECK


@frozen
class HookMoved:
    """A hook of the run is about to begin, or is done."""

    run: int
    hook: HookKind
    stage: HookStage


@frozen
class Cleaned:
    """Nothing of the last run is left on the machine."""


@frozen
class Again:
    """The next run begins: by its timer (`by` is None), or because a caller asked for it."""

    by: By | None


@frozen
class StopAsked:
    """A caller stops a container that is not running, which cancels a planned restart. `reason` is STOP or KILL."""

    by: By
    reason: Reason = Reason.STOP


@frozen
class Rebooted:
    """The host was rebooted since this container was last examined, and it was not running then."""


@frozen
class RemoveAsked:
    """A caller wants a container removed of which nothing runs. `key`: as in StartAsked. `volumes`: with its anonymous
    volumes."""

    by: By
    key: str = ""
    volumes: bool = False


@frozen
class Removed:
    """Nothing of the container is left on the machine."""


@frozen
class SandboxGone:
    """The sandbox of a member that was to be restarted is gone, so the member has nothing to join."""


@frozen
class Overgrown:
    """An empty directory of the pod takes more of the disk than it may: all that is of the pod is to be ended."""

    run: int
    volume: str
    size_bytes: int
    limit_bytes: int


@frozen
class Renamed:
    """A caller gives it another name, which no other container has."""

    name: str
    by: By


@frozen
class ChangeAsked:
    """A caller wants other limits or another policy. Stored first: an exitd that is killed amid the work has it done
    at its next start."""

    change: Change


@frozen
class ChangeMade:
    """The limits are those of run `run` by now, if there is a run; they are stored for all that follow."""

    change: Change
    run: int
    by: By


@frozen
class ChangeGivenUp:
    """The change was refused, and the run has its old limits."""


Happening = (
    Made
    | MakeFailed
    | StartAsked
    | Started
    | StartFailed
    | Paused
    | Resumed
    | EndAsked
    | Ended
    | OomSeen
    | HealthSeen
    | HookMoved
    | Cleaned
    | Again
    | StopAsked
    | Rebooted
    | RemoveAsked
    | Removed
    | SandboxGone
    | Overgrown
    | Renamed
    | ChangeAsked
    | ChangeMade
    | ChangeGivenUp
)


@frozen
class LogExit:
    """Log the exit, after every client that waits for it has been woken."""

    exit: Exit


@frozen
class CleanUp:
    """Remove shim, runtime state, cgroups and run directory; the next input is Cleaned."""


@frozen
class ArmTimer:
    """Begin the next run at this time."""

    at: BootTime


@frozen
class CancelTimer:
    """Begin no next run by the timer."""


@frozen
class Discard:
    """Delete the container's files; the next input is Removed."""


Effect = LogExit | CleanUp | ArmTimer | CancelTimer | Discard


# -- the step


SIGKILL = 9
MOST_SIGNAL = 64
NOT_KNOWN = "unknown"
OF_ANY_PROGRAM = frozenset({Source.FIFO, Source.PIDFD, Source.PROCEVENTS, Source.NONE})  # also of the runtime's init
ENDING_SIGNALS = frozenset({1, 2, 3, 6, 9, 15})  # HUP INT QUIT ABRT KILL TERM: sent to end, not to inform


@frozen
class Moment:
    """The time of a step: wall time for people, boot time for timers; and the back-off of restarts that holds at this
    time."""

    now_ns: int
    boot: BootTime
    backoff: Backoff = field(default_factory=Backoff)


@frozen
class Step:
    """The result of one step. `container` is None when it has been removed. All but the effects is one transaction.

    `ahead`: the step only records an intention, which no client learns of before a later step. It must survive a crash
    of exitd, not one of the host, so it is not flushed.
    """

    container: Container | None
    exits: tuple[Exit, ...] = ()
    events: tuple[Event, ...] = ()
    effects: tuple[Effect, ...] = ()
    retained: tuple[Retained, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    ahead: bool = False
    memory_kills: tuple[MemoryKills, ...] = ()  # of a run that goes on


def born(container_id: str, spec: Spec, moment: Moment) -> Container:
    """Return a new container, with its first run being created."""
    return Container(container_id, spec, Phase.CREATING, 1, moment.now_ns, clean=False, boot_id=moment.boot.boot_id)


def step(c: Container, happening: Happening, moment: Moment) -> Step:
    """Return what follows from an input; the one table of transitions. Raises WrongState."""
    if isinstance(happening, StartAsked | Again):
        refuse_damaged(c)
    match c.phase, happening:
        case Phase.CREATING, Made(init, shim, sandbox_run, waits_in, networks):
            made = replace(
                c,
                phase=Phase.CREATED,
                init=init,
                shim=shim,
                error="",
                sandbox_run=sandbox_run,
                waits_in=waits_in,
                networks=networks,
            )
            return Step(made, events=events(made, moment, "create") if c.run == 1 else ())
        case Phase.CREATING, MakeFailed(error, put_off):
            return (put_off and _put_off(c, error, moment)) or _make_failed(c, error, moment)
        case Phase.CREATED, StartAsked(_, key):
            return Step(replace(c, phase=Phase.STARTING, start_key=key), ahead=True)
        case Phase.STARTING, Started(boot_ns, unseen):
            running = replace(
                c,
                phase=Phase.RUNNING,
                started_ns=moment.now_ns,
                started_boot_ns=boot_ns,
                start_unseen=unseen,
                health=HealthStatus.STARTING if c.spec.health else None,
                deadline=_deadline(c, moment),
            )
            return Step(running, events=events(c, moment, "start", run=str(c.run)))
        case Phase.STARTING, StartFailed(error):
            return Step(replace(c, error=error), events=events(c, moment, "failed", error=error))
        case Phase.RUNNING, Paused():
            return Step(replace(c, phase=Phase.PAUSED), events=events(c, moment, "pause"))
        case Phase.PAUSED, Resumed():
            return Step(replace(c, phase=Phase.RUNNING), events=events(c, moment, "resume"))
        case Phase.CREATED | Phase.STARTING | Phase.RUNNING | Phase.PAUSED, EndAsked(run=run) if run in (0, c.run):
            return _end_asked(c, happening, moment)
        case Phase.RUNNING | Phase.PAUSED, HookMoved(run, hook, stage) if run == c.run:
            return _hook_moved(c, hook, stage, moment)
        case Phase.CREATED | Phase.STARTING | Phase.RUNNING | Phase.PAUSED, Ended(run=run) if run in (0, c.run):
            return _ended(c, happening, moment)
        case Phase.RUNNING | Phase.PAUSED, OomSeen(run, kills, is_init_seen, names) if (
            run == c.run and kills > c.oom_told
        ):
            logged = _oom(c, moment, kills, "false" if is_init_seen else NOT_KNOWN)
            counted = MemoryKills(RunKey(c.id, c.run), kills, names, moment.now_ns)
            return Step(replace(c, oom_told=kills), events=logged, memory_kills=(counted,))
        case Phase.RUNNING, HealthSeen(run, status, _, kind) if run == c.run and status is not health_of(c, kind):
            return _health_seen(c, happening, moment)
        case Phase.EXITED | Phase.RESTARTING | Phase.REMOVING, Cleaned():
            return _cleaned(c)
        case Phase.RESTARTING, Again(by) if c.clean:
            return _again(c, by, moment)
        case Phase.EXITED, Again(by) if c.clean and by is not None:  # with by None: a timer that fired after a stop
            return _again(c, by, moment)
        case Phase.RESTARTING, StopAsked(_, reason):
            stopped = replace(c, phase=Phase.EXITED, stopped_by_user=True, restart_at=None)
            logged = events(c, moment, reason.value, cancelled="restart")
            return Step(stopped, events=logged, effects=(CancelTimer(),))
        case Phase.RESTARTING, SandboxGone():
            return Step(replace(c, phase=Phase.EXITED, restart_at=None), effects=(CancelTimer(),))
        case Phase.EXITED | Phase.RESTARTING, Rebooted():
            return _rebooted(c, moment)
        case Phase.EXITED, StopAsked():
            return Step(replace(c, stopped_by_user=True))
        case Phase.EXITED | Phase.RESTARTING, RemoveAsked(_, key, drops):
            removing = replace(c, phase=Phase.REMOVING, restart_at=None, delete_key=key, drops_volumes=drops)
            # Its files are deleted before any client learns of the removal; a container of containerd's has no files
            # there.
            effects = (CancelTimer(), *((Discard(),) if c.clean else ()))
            return Step(removing, effects=effects, ahead=c.spec.task is not None)
        case Phase.RUNNING | Phase.PAUSED, Overgrown(run=run) if run == c.run and c.spec.pod and not c.evicted:
            return _overgrown(c, happening, moment)
        case _, Renamed(name) if c.phase is not Phase.REMOVING:
            renamed = replace(c, spec=replace(c.spec, name=name))
            return Step(renamed, events=events(renamed, moment, "rename", old_name=c.spec.name))
        case _, ChangeAsked(change) if c.phase is not Phase.REMOVING:
            return Step(replace(c, change=change), ahead=True)
        case _, ChangeMade(change, run) if c.change == change and _is_made_for(c, run):
            return _changed(c, change, moment)
        case _, ChangeGivenUp() if c.phase is not Phase.REMOVING:
            return Step(replace(c, change=None), ahead=True)
        case Phase.REMOVING, Removed():
            logged = events(c, moment, "remove")
            return Step(None, (), logged, (), _retained(c, moment), _tombstones(c, moment))
    raise WrongState(f"{type(happening).__name__} while {c.spec.name} is {c.phase.value}", id=c.id, phase=c.phase.value)


def _is_made_for(c: Container, run: int) -> bool:
    """Return whether limits that were set in this run's cgroup are all that has to be set now."""
    if c.phase in (Phase.EXITED, Phase.RESTARTING):
        return True
    return c.phase in values.LIVE and c.run == run


def _changed(c: Container, change: Change, moment: Moment) -> Step:
    limits = changes.limits_in(change)
    spec = changes.applied(c.spec, change)
    own = () if spec.pod is not None else limits  # a pod's are not in its pause container's config.json
    after = replace(c, spec=spec, change=None, changed=tuple(dict.fromkeys((*c.changed, *own))))
    shown = {name: str(value) for name in (*limits, changes.RESTART) if (value := getattr(change, name)) is not None}
    return Step(after, events=events(after, moment, "update", **shown))


def refuse_damaged(c: Container) -> None:
    """Refuse an operation that would act on guessed values. Raises WrongState."""
    if c.damaged:
        raise WrongState(f"{c.spec.name} is damaged: {c.damaged}; `exitctl rm -f {c.id[:12]}` removes it", id=c.id)


def _retained(c: Container, moment: Moment) -> tuple[Retained, ...]:
    """Keep the exit of a container that removed itself findable by name; one that a caller removed is not kept."""
    kept = c.spec.auto_remove and c.exit is not None
    return (Retained(c.id, c.spec.namespace, c.spec.name, moment.boot),) if kept else ()


def _tombstones(c: Container, moment: Moment) -> tuple[Tombstone, ...]:
    """Keep the answer for the client that asked for the removal: it repeats the request if the answer was lost."""
    if not c.delete_key or c.exit is None:
        return ()
    at, pid = c.exit.at_ns, c.exit.init.pid if c.exit.init is not None else 0
    number, boot = values.fold(c.exit.status), moment.boot
    return (Tombstone(c.spec.namespace, c.spec.name, "", c.delete_key, pid, number, at, boot.boot_id, boot.ns),)


def events(c: Container, moment: Moment, kind: str, **attributes: str) -> tuple[Event, ...]:
    """Return the event of type `kind` about the container, as a tuple of one."""
    pod = c.id if c.spec.pod else c.spec.sandbox
    pairs = tuple(sorted(attributes.items()))
    task = notices.of_container(c, kind, attributes.get("exec_name", ""))
    return (Event(kind, c.id, c.spec.name, c.spec.namespace, moment.now_ns, attributes=pairs, pod_id=pod, task=task),)


def _oom(c: Container, moment: Moment, kills: int, init: str) -> tuple[Event, ...]:
    """Return the event for a new count of memory kills; the exit has the last count. `init`: true | false | unknown
    (killed)."""
    return events(c, moment, "oom", kills=str(kills), init=init)


def _make_failed(c: Container, error: str, moment: Moment) -> Step:
    """In the first run, report the error to the caller and keep nothing. In a later run, count a failure for the
    policy."""
    failed = events(c, moment, "failed", error=error)
    if c.run == 1:
        gone = replace(c, phase=Phase.REMOVING, error=error)
        return Step(gone, events=failed, effects=(CleanUp(),))
    decision = restart.decide(c, Unknown(error), moment.boot, None, moment.backoff)
    after = replace(c, error=error, clean=False, boot_id=moment.boot.boot_id, **_decided(decision))
    return Step(after, events=failed, effects=(CleanUp(),))


def _put_off(c: Container, error: str, moment: Moment) -> Step | None:
    """Plan the run anew, as if it had not been tried: the next boot makes it, or this one if the host stays up. None
    where no policy had planned it."""
    decision = restart.put_off(c, moment.boot, moment.backoff)
    if decision is None:
        return None
    after = replace(c, error=error, clean=False, boot_id=moment.boot.boot_id, restart_count=c.restart_count - 1)
    return Step(replace(after, **_decided(decision)), effects=(CleanUp(),))


def health_of(c: Container, kind: CheckKind) -> HealthStatus | None:
    """Return what this check of the current run has found, as it is stored."""
    match kind:
        case CheckKind.STARTUP:
            return c.probes.startup
        case CheckKind.LIVENESS:
            return c.probes.liveness
        case CheckKind.READINESS:
            return c.probes.readiness
    return c.health


def _health_seen(c: Container, seen: HealthSeen, moment: Moment) -> Step:
    of_probe = {} if seen.kind is CheckKind.CHECK else {"probe": seen.kind.value}
    streak = str(seen.failing_streak)
    logged = events(c, moment, "health_status", health=seen.status.value, failing_streak=streak, **of_probe)
    match seen.kind:
        case CheckKind.STARTUP:
            return Step(replace(c, probes=replace(c.probes, startup=seen.status)), events=logged)
        case CheckKind.LIVENESS:
            return Step(replace(c, probes=replace(c.probes, liveness=seen.status)), events=logged)
        case CheckKind.READINESS:
            return Step(replace(c, probes=replace(c.probes, readiness=seen.status)), events=logged)
    return Step(replace(c, health=seen.status), events=logged)


def _hook_moved(c: Container, hook: HookKind, stage: HookStage, moment: Moment) -> Step:
    """A hook goes on and never back, so that none is begun twice. That it has begun is only an intention."""
    before = c.post_start if hook is HookKind.POST_START else c.ending.pre_stop if c.ending is not None else None
    order = list(HookStage)
    if before is None or order.index(stage) <= order.index(before):
        raise WrongState(f"the hook {hook} of {c.spec.name} is {before or 'not asked for'}", id=c.id)
    logged = events(c, moment, "hook", hook=hook.value, run=str(c.run)) if stage is HookStage.DONE else ()
    ahead = stage is HookStage.BEGUN
    if hook is HookKind.POST_START:
        return Step(replace(c, post_start=stage), events=logged, ahead=ahead)
    assert c.ending is not None
    return Step(replace(c, ending=replace(c.ending, pre_stop=stage)), events=logged, ahead=ahead)


def _deadline(c: Container, moment: Moment) -> TimeLimit | None:
    """Return when the pod's time is over: counted from its first start, whatever has become of its sandbox since."""
    if c.spec.pod is None or not c.spec.pod.active_deadline_seconds:
        return None
    if c.deadline is not None:
        return c.deadline.in_boot(moment.boot, moment.now_ns)
    long_ns = c.spec.pod.active_deadline_seconds * values.SECOND_NS
    return TimeLimit(moment.boot.later(long_ns), moment.now_ns + long_ns)


def _overgrown(c: Container, found: Overgrown, moment: Moment) -> Step:
    why = f"volume {found.volume} took {found.size_bytes} bytes, {found.limit_bytes} is its limit"
    sizes = {"volume": found.volume, "size_bytes": str(found.size_bytes), "limit_bytes": str(found.limit_bytes)}
    return Step(replace(c, evicted=why), events=events(c, moment, "evict", **sizes))


def _end_asked(c: Container, happening: EndAsked, moment: Moment) -> Step:
    asked = happening.asked
    by_user = asked.reason in (Reason.STOP, Reason.KILL) and asked.by.policy == ""
    stop = c.stopped_by_user or (by_user and (asked.reason is Reason.STOP or stops(c.spec, asked.signal)))
    stop |= asked.reason is Reason.HEALTH and c.spec.health is not None and c.spec.health.on_failure is OnUnhealthy.STOP
    changed = replace(c, asked=_weightier(c, asked), stopped_by_user=stop or happening.final)
    if happening.until is not None:
        changed = replace(changed, ending=_termination(c, happening.until))
    return Step(changed, events=events(c, moment, asked.reason.value, signal=str(asked.signal)))


def _termination(c: Container, until: BootTime) -> Termination:
    """A second one may only bring SIGKILL nearer; the hook is the run's, whichever request or policy ends it."""
    old = c.ending
    if old is None or old.run != c.run:
        return Termination(c.run, until)
    return replace(old, until=until if until.ns < old.until.ns else old.until)


def stops(spec: Spec, signal: int) -> bool:
    """Return whether the container is not restarted after a user has sent this signal."""
    return signal in (SIGKILL, spec.stop_signal)


def _weightier(c: Container, new: Asked) -> Asked:
    """Keep the first reason: SIGKILL after a stop's grace period is still a stop. A signal that does not end gives
    way."""
    old = c.asked
    if old is None or (old.reason is Reason.KILL and old.signal != SIGKILL and (_ends(c, new) or not _ends(c, old))):
        return new
    return replace(old, signal=SIGKILL) if new.signal == SIGKILL else old


def _ends(c: Container, asked: Asked) -> bool:
    return asked.reason is not Reason.KILL or asked.signal in ENDING_SIGNALS | {c.spec.stop_signal}


def had_begun(c: Container, report: Report) -> bool:
    """Return whether an end that came before the start was confirmed is the end of the container's program.

    A witness that does not know is believed in two cases: the runtime runs the program without executing it, and the
    witness saw that; or the witness is a foreign shim, and the number cannot be that of the runtime's init.
    """
    if report.unseen:
        return False
    if report.began is None and report.source in OF_ANY_PROGRAM:
        return bool(c.spec.runtime_type)
    return report.began is not False


def _without_start(c: Container, report: Report) -> Report:
    """Return the report without a number that may be that of the runtime's init.

    What was created and never started has not executed its program, also where no witness is left. An adopted
    container may be started by other programs, which exitd does not notice. A running container was seen executing its
    program, unless `start_unseen`.
    """
    is_witnessless = isinstance(report.status, Unknown) and report.status.cause in evidence.WITNESSLESS
    if isinstance(report.status, Unknown) and not is_witnessless:
        return report
    is_ours = EXITDS_OWN_ID.fullmatch(c.id) and (is_witnessless or report.unseen or not c.spec.runtime_type)
    if c.phase is Phase.CREATED and report.began is None and is_ours:
        return replace(report, status=Unknown(NEVER_STARTED))
    if is_witnessless:
        return report
    is_confirmed = c.phase in (Phase.RUNNING, Phase.PAUSED) and not c.start_unseen
    if not is_confirmed and (report.unseen or (c.phase is Phase.STARTING and not had_begun(c, report))):
        return replace(report, status=Unknown(START_UNCONFIRMED))
    return report


def _ended(c: Container, ended: Ended, moment: Moment) -> Step:
    report = _without_start(c, ended.report)
    started_ns = values.no_later_than(c.started_ns, report.at_ns)
    exit_ = _exit_of(c, ended, report, started_ns)
    decision, rule = _next(c, exit_, ended.rebooted, moment)
    exit_ = replace(exit_, decision=_word(decision), rule=restart.format_rule(rule) if rule else "")
    changes: dict[str, Any] = {"exit": exit_, "started_ns": started_ns, "clean": False, "boot_id": moment.boot.boot_id}
    after = replace(c, **changes, init=None, shim=None, asked=None, ending=None, **_decided(decision))
    by_rule = {"rule": exit_.rule} if rule else {}
    logged = [replace(events(c, moment, "exit", run=str(c.run), **by_rule)[0], exit=exit_)]
    if exit_.oom.kills > c.oom_told:
        init = NOT_KNOWN if isinstance(exit_.status, Unknown) else str(exit_.oom.init).lower()
        logged.insert(0, *_oom(c, moment, exit_.oom.kills, init))
    return Step(after, (exit_,), tuple(logged), (LogExit(exit_), CleanUp()))


def _next(c: Container, exit_: Exit, rebooted: bool, moment: Moment) -> tuple[restart.Decision, RestartRule | None]:
    """Return what follows this end, and the restart rule that decided, if any."""
    if exit_.reason is Reason.PAUSE_EXIT or (rebooted and c.spec.sandbox):
        return restart.no_more(c), None  # there is nothing to join; the next sandbox brings it back
    if rebooted:
        return restart.after_reboot(c, moment.boot, moment.backoff), None
    if exit_.reason is Reason.NODE_SHUTDOWN:
        return restart.no_more(c), None  # the next boot takes its policy up again
    if c.started_ns is None and not c.restart_count:
        return restart.no_more(c), None
    ran_ns = None if c.started_boot_ns is None else moment.boot.ns - c.started_boot_ns
    if exit_.reason is Reason.HEALTH and (by_check := restart.by_health(c, moment.boot, ran_ns, moment.backoff)):
        return by_check, None
    decision = restart.decide(c, exit_.status, moment.boot, ran_ns, moment.backoff)
    return decision, None if c.stopped_by_user else restart.rule_for(c.spec.restart_rules, exit_.status)


def _rebooted(c: Container, moment: Moment) -> Step:
    """Plan a planned restart anew; the policy may also bring back a container that a user had stopped."""
    decision = restart.no_more(c) if c.spec.sandbox else restart.after_reboot(c, moment.boot, moment.backoff)
    boot_id = moment.boot.boot_id if c.spec.task is None else c.boot_id  # a task runs once, and not in this boot
    after = replace(c, boot_id=boot_id, **_decided(decision))
    return Step(after, effects=(CleanUp(),) if not after.clean else _cleaned(after).effects)


def _decided(decision: restart.Decision) -> dict[str, Any]:
    """Return the fields of the container that it changes."""
    match decision:
        case restart.RestartAt(at, delay_ns, failures):
            return {"phase": Phase.RESTARTING, "restart_at": at, "delay_ns": delay_ns, "failures": failures}
        case restart.RemoveNow():
            return {"phase": Phase.REMOVING, "restart_at": None}
    return {"phase": Phase.EXITED, "restart_at": None}


def _word(decision: restart.Decision) -> str:
    match decision:
        case restart.RestartAt():
            return "restart"
        case restart.RemoveNow():
            return "remove"
    return "ended"


def asked_kill(asked: Asked | None) -> bool:
    """Return whether a caller had SIGKILL sent: then no other cause is looked for."""
    return asked is not None and asked.signal == SIGKILL


def _exit_of(c: Container, ended: Ended, report: Report, started_ns: int | None) -> Exit:
    """`report` and `started_ns`: as the rules of starts have left them."""
    out_of_memory = report.oom_kills > c.oom_told and not asked_kill(c.asked)
    seen = replace(report, status=_of_program(c, report.status))
    by_oom = out_of_memory and seen.status == Signaled(SIGKILL)
    reason, by = _reason(c, seen, by_oom or (out_of_memory and _may_be_sigkill(report)))
    if ended.sandbox_ended and c.asked is None and report.status in (Signaled(SIGKILL), Unknown(NEVER_STARTED)):
        reason, by = Reason.PAUSE_EXIT, By(policy=str(Reason.PAUSE_EXIT))
    return Exit(
        key=RunKey(c.id, c.run),
        name=c.spec.name,
        namespace=c.spec.namespace,
        status=report.status,
        source=report.source,
        reason=reason,
        by=by,
        oom=Oom(by_oom, max(report.oom_kills, c.oom_told), ended.limit_bytes),
        at_ns=report.at_ns,
        started_ns=started_ns,
        init=report.init or c.init,
        at_is_found=report.at_is_found,
        left_behind=ended.left_behind,
        names=ended.names,
    )


def _of_program(c: Container, status: ExitStatus) -> ExitStatus:
    """Return how the command may have ended: exitd's init program, its parent, ends with 128 + n for signal n."""
    if c.spec.init and isinstance(status, Exited) and 128 < status.code <= 128 + MOST_SIGNAL:
        return Signaled(status.code - 128)
    return status


def _may_be_sigkill(report: Report) -> bool:
    """Return whether the witness saw a number that SIGKILL has, too. What a shim's `delete` prints is no
    observation."""
    number = report.status.number if isinstance(report.status, Unknown) else None
    return number == 128 + SIGKILL and report.source is not Source.SHIMV2_DELETE


def _reason(c: Container, report: Report, by_oom: bool) -> tuple[Reason, By]:
    """Return who asked for the end. A signal that a caller sent counts if it is the one that killed, or one meant to
    end. The sender of any other signal is unknown."""
    if by_oom:
        return Reason.OOM, By()
    if c.asked is not None and (_ends(c, c.asked) or is_death_by(c.asked.signal, report.status)):
        return c.asked.reason, c.asked.by
    return (Reason.SELF if is_own_doing(report.status) else Reason.UNKNOWN), By()


def _cleaned(c: Container) -> Step:
    cleaned = replace(c, clean=True, networks=())
    match c.phase:
        case Phase.RESTARTING:
            assert c.restart_at is not None
            return Step(cleaned, effects=(ArmTimer(c.restart_at),), ahead=True)
        case Phase.REMOVING:
            return Step(cleaned, effects=(Discard(),), ahead=True)
    return Step(cleaned, ahead=True)


def _again(c: Container, by: By | None, moment: Moment) -> Step:
    """Begin the next run. A start by a caller clears the counts of the policy."""
    fresh = replace(
        c,
        phase=Phase.CREATING,
        run=c.run + 1,
        init=None,
        shim=None,
        started_ns=None,
        started_boot_ns=None,
        asked=None,
        restart_at=None,
        clean=False,
        error="",
        stopped_by_user=False,
        boot_id=moment.boot.boot_id,
        oom_told=0,
        health=None,
        start_unseen=False,
        probes=ProbeMarks(),
        post_start=HookStage.NOT_YET,
        ending=None,
        deadline=c.deadline if by is None or by.policy else None,
        evicted=c.evicted if by is None or by.policy else "",
    )
    if by is None:
        return Step(replace(fresh, restart_count=c.restart_count + 1), ahead=True)
    return Step(replace(fresh, restart_count=0, failures=0, delay_ns=0), effects=(CancelTimer(),), ahead=True)
