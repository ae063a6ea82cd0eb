"""What can happen to a container, and what a step asks to be done: the words of `supervisor/model/lifecycle.py`."""

from dataclasses import dataclass

from supervisor.model.values import Asked, BootTime, By, Exit, HealthStatus, Process, Reason, Report


@dataclass(frozen=True, slots=True)
class Made:
    """`sandbox_run`: a member's, the run of the pause container that it has joined. `waits_in`: the program that init
    is while it waits for its start."""

    init: Process
    shim: Process | None
    sandbox_run: int = 0
    waits_in: str = ""


@dataclass(frozen=True, slots=True)
class MakeFailed:
    error: str


@dataclass(frozen=True, slots=True)
class StartAsked:
    by: By
    key: str = ""  # of the request, where it may be sent again: see `taskfacts`


@dataclass(frozen=True, slots=True)
class Started:
    boot_ns: int  # CLOCK_BOOTTIME
    unseen: bool = False  # nobody has seen its program executed yet


@dataclass(frozen=True, slots=True)
class StartFailed:
    error: str


@dataclass(frozen=True, slots=True)
class Paused:
    pass


@dataclass(frozen=True, slots=True)
class Resumed:
    pass


@dataclass(frozen=True, slots=True)
class EndAsked:
    """Somebody wants the current run to end, or sent a signal that may end it."""

    asked: Asked


@dataclass(frozen=True, slots=True)
class Ended:
    """The evidence has spoken. `limit_bytes` is the container's memory limit, for the ledger. `sandbox_ended`: it lived
    in the pid namespace of its pod's pause process, and that was ending. `left_behind`: how many processes of its
    cgroup could not be killed."""

    report: Report
    limit_bytes: int
    rebooted: bool = False
    sandbox_ended: bool = False
    left_behind: int = 0


@dataclass(frozen=True, slots=True)
class OomSeen:
    """So many processes of this run were killed for memory, and init has outlived that; or nobody can see whether it
    has (not `is_init_seen`)."""

    run: int
    kills: int
    is_init_seen: bool = True


@dataclass(frozen=True, slots=True)
class HealthSeen:
    """The check of this run says another thing than before."""

    run: int
    status: HealthStatus
    failing_streak: int


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Nothing of the last run is left on the machine."""


@dataclass(frozen=True, slots=True)
class Again:
    """The next run begins: by its timer (`by` is None) or because somebody asked."""

    by: By | None


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Somebody wants a container stopped that is not running: a restart that was planned is cancelled. `reason` is
    STOP or KILL."""

    by: By
    reason: Reason = Reason.STOP


@dataclass(frozen=True, slots=True)
class Rebooted:
    """The host was booted anew since this container was last looked at, and it was not running then."""


@dataclass(frozen=True, slots=True)
class RemoveAsked:
    by: By
    key: str = ""


@dataclass(frozen=True, slots=True)
class Removed:
    pass


@dataclass(frozen=True, slots=True)
class SandboxGone:
    """A member that was to be started again has nothing to join."""


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
    | Cleaned
    | Again
    | StopAsked
    | Rebooted
    | RemoveAsked
    | Removed
    | SandboxGone
)


@dataclass(frozen=True, slots=True)
class WakeWaiters:
    exit: Exit


@dataclass(frozen=True, slots=True)
class Settle:
    """The keeper may forget the run."""


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Shim gone, runtime state, cgroups and run directory removed; then Cleaned."""


@dataclass(frozen=True, slots=True)
class ArmTimer:
    at: BootTime


@dataclass(frozen=True, slots=True)
class CancelTimer:
    pass


@dataclass(frozen=True, slots=True)
class Discard:
    """The container's files, then Removed."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Waiters for its removal wake; the id is free."""


Effect = WakeWaiters | Settle | CleanUp | ArmTimer | CancelTimer | Discard | Forget
