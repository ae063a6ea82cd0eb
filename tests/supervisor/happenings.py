"""One of each happening, and containers to meet them, for the tests of the life of a container."""

from dataclasses import replace

from supervisor.model import lifecycle as life
from supervisor.model import restart
from supervisor.model.lifecycle import Happening, Moment
from supervisor.model.limits import Change
from supervisor.model.values import (
    LIVE,
    Asked,
    BootTime,
    By,
    Container,
    Exit,
    Exited,
    ExitStatus,
    HealthStatus,
    HookKind,
    HookStage,
    Oom,
    Phase,
    Process,
    Reason,
    Report,
    RunKey,
    Signaled,
    Source,
    Spec,
)

MS = 10**6
SECOND = 10**9
INIT, SHIM = Process(40, 4), Process(41, 4)
USER = By(uid=1000, pid=7)
POLICY = By(policy="start-failed")
STOP = Asked(Reason.STOP, USER, 15)
KILL = Asked(Reason.KILL, USER, 9)


def moment(seconds: int = 100, boot_id: str = "boot") -> Moment:
    return Moment(5_000 * SECOND + seconds * SECOND, BootTime(boot_id, seconds * SECOND))


def report(status: ExitStatus = Exited(0), source: Source = Source.RECORD, oom_kills: int = 0) -> Report:  # noqa: B008  (frozen)
    return Report(status, source, INIT, 99 * SECOND, oom_kills)


def ended(status: ExitStatus = Exited(0), oom_kills: int = 0, *, rebooted: bool = False) -> life.Ended:  # noqa: B008  (frozen)
    return life.Ended(report(status, oom_kills=oom_kills), 64 << 20, rebooted)


def asked(reason: Reason, signal: int, by: By = USER) -> life.EndAsked:
    return life.EndAsked(Asked(reason, by, signal))


CHANGE = Change(pids_limit=5, memory_bytes=0, restart="always")
ALL: tuple[Happening, ...] = (
    life.Made(INIT, SHIM),
    life.MakeFailed("no such file"),
    life.MakeFailed("the host goes down", put_off=True),
    life.SandboxGone(),
    life.Overgrown(1, "cache", 2, 1),
    life.StartAsked(USER),
    life.Started(100 * SECOND),
    life.StartFailed("broken"),
    life.Paused(),
    life.Resumed(),
    life.EndAsked(STOP),
    ended(),
    life.OomSeen(1, 1),
    life.HealthSeen(1, HealthStatus.UNHEALTHY, 3),
    life.HookMoved(1, HookKind.POST_START, HookStage.BEGUN),
    life.Cleaned(),
    life.Again(None),
    life.Again(USER),
    life.StopAsked(USER),
    life.Rebooted(),
    life.RemoveAsked(USER),
    life.Removed(),
    life.Renamed("other", USER),
    life.ChangeAsked(CHANGE),
    life.ChangeMade(CHANGE, 1, USER),
    life.ChangeGivenUp(),
)


def container(
    phase: Phase = Phase.RUNNING, *, policy: str = "no", auto_remove: bool = False, run: int = 1
) -> Container:
    """A container as the phase has it; clean where that is possible. An update of it is under way."""
    spec = Spec(name="web", restart=restart.parse(policy), auto_remove=auto_remove)
    made = replace(life.born("c1", spec, moment(0)), phase=phase, run=run, change=CHANGE)
    if phase in LIVE:
        made = replace(made, init=INIT, shim=SHIM)
    if phase in (Phase.RUNNING, Phase.PAUSED):
        made = replace(made, started_ns=moment(90).now_ns, started_boot_ns=90 * SECOND)
    if phase in (Phase.EXITED, Phase.RESTARTING, Phase.REMOVING):
        made = replace(made, clean=True, exit=exit_of(run))
    if phase is Phase.RESTARTING:
        made = replace(made, restart_at=BootTime("boot", 101 * SECOND), delay_ns=SECOND)
    return made


def exit_of(run: int, status: ExitStatus = Exited(3)) -> Exit:  # noqa: B008  (frozen)
    key = RunKey("c1", run)
    return Exit(key, "web", "default", status, Source.RECORD, Reason.SELF, By(), Oom(), 5, 4, INIT, "ended")


def after(c: Container, *happenings: Happening, at: Moment | None = None) -> Container:
    """The container after these; it must still be there."""
    for happening in happenings:
        stepped = life.step(c, happening, at or moment()).container
        assert stepped is not None
        c = stepped
    return c


KILLED = Signaled(9)
