"""The values exitd deals in, frozen, each meaning one thing. Not knowing is a value too."""

from dataclasses import dataclass, field
from enum import StrEnum
from signal import SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGPIPE, SIGSEGV, SIGSYS, SIGTRAP, SIGXCPU, SIGXFSZ

from supervisor.model.rights import Rights
from supervisor.model.taskfacts import Notice, Task

# -- health checks
#
# The fields, their defaults and what they mean are docker's (Dockerfile reference, HEALTHCHECK); what follows is
# podman's (podman-run(1), --health-on-failure).


SECOND_NS = 10**9
INTERVAL_NS, TIMEOUT_NS, RETRIES = 30 * SECOND_NS, 30 * SECOND_NS, 3
MIN_NS, MAX_NS = 10**6, 86_400 * SECOND_NS  # of every time of a check: a millisecond to a day
RETRIES_MAX = 2**31 - 1
SHELL = ("/bin/sh", "-c")  # what runs a check that is a line of shell


class OnUnhealthy(StrEnum):
    """What becomes of a container that is unhealthy.

    kill: SIGKILL, then the restart policy has its say. stop: as a user's stop, it stays stopped. restart: stop, then
    the next run whatever the policy says, with the policy's back-off.
    """

    NONE = "none"
    KILL = "kill"
    RESTART = "restart"
    STOP = "stop"


class HealthStatus(StrEnum):
    STARTING = "starting"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True, slots=True)
class HealthSpec:
    """In a request no args mean the image's check, one empty word no check at all, and 0 what the image says, or else
    the default. In a container everything is filled in."""

    args: tuple[str, ...] = ()
    interval_ns: int = 0  # from the container's start, or the end of a probe, to the next probe
    timeout_ns: int = 0  # a probe that takes longer is ended and has failed
    retries: int = 0  # this many failures in a row make it unhealthy
    start_period_ns: int = 0  # failures do not count before the first success, or until this long after the start
    on_failure: OnUnhealthy = OnUnhealthy.NONE

    @property
    def is_off(self) -> bool:
        return self.args == ("",)


# -- output


class LogDriver(StrEnum):
    """What becomes of a container's output beside those who are attached."""

    CRI = "cri"
    JSON_FILE = "json-file"
    JOURNALD = "journald"
    NONE = "none"


class LogMode(StrEnum):
    """What a sink that does not keep up does to the container: holds its output up, or misses a part of it."""

    BLOCKING = "blocking"
    NON_BLOCKING = "non-blocking"


@dataclass(frozen=True, slots=True)
class LogSpec:
    """Where a container's output is kept. None, in a request only: as the daemon's configuration has it."""

    driver: LogDriver | None = LogDriver.CRI
    path: str = ""  # of the file; empty: in the container's own directory. In a request, relative to the pod's
    max_bytes: int | None = 0  # a file that would grow beyond is rotated first; 0: never
    max_files: int = 0  # kept then, the current one included; 0, in a request: as the configuration has it
    mode: LogMode = LogMode.BLOCKING
    buffer_bytes: int = 0  # for each sink that does not keep up; 0: as the shim has it

    @property
    def to_file(self) -> bool:
        return self.driver in (LogDriver.CRI, LogDriver.JSON_FILE)


@dataclass(frozen=True, slots=True)
class ForeignStreams:
    """Where a foreign client has a process's streams, beside the log and those who attach. The paths are the shim's to
    open, whenever one begins: of a fifo both ends, of a file its end. Empty: there is no such client."""

    out: str = ""  # a fifo, or a file that is there
    err: str = ""
    stdin: str = ""  # a fifo
    logger: tuple[str, ...] = ()  # a program that gets the output, instead of `out` and `err`
    logger_env: tuple[str, ...] = ()  # NAME=value, all that it gets
    uid: int = 0  # whose the pipes are that the process writes to and reads from
    gid: int = 0


# -- what holds a container back, beside its capabilities


BUILTIN = "builtin"  # exitd's own seccomp profile
UNCONFINED = "unconfined"


@dataclass(frozen=True, slots=True)
class Security:
    """What was asked for. Nothing: what exitd gave before it could be asked, and what a bundle says by itself."""

    seccomp: str = ""  # builtin | unconfined | a profile, JSON as docker reads it
    no_new_privileges: bool | None = None  # None: true, or as the bundle has it
    apparmor: str = ""  # a profile that the kernel has loaded
    selinux: str = ""  # the label of its processes


# -- containers and their ends


START_SECONDS = 10  # what a start may take at most
NEVER_STARTED = "never-started"  # the cause of an end whose program was never executed: no number is its code
START_UNCONFIRMED = "start-unconfirmed"  # likewise, where nobody saw whether it was executed
ROW_DAMAGED = "row-damaged"  # the cause of an end that only a row knew which cannot be read
UNKNOWN_NUMBER = 255  # what foreign protocols get where they insist on a number and nobody knows one


@dataclass(frozen=True, slots=True)
class Process:
    """A process by a name that cannot become another's: pid and start time (proc(5) stat field 22, clock ticks)."""

    pid: int
    started_ticks: int


@dataclass(frozen=True, slots=True)
class Exited:
    """The process ended by itself with `code`, 0 to 255."""

    code: int


@dataclass(frozen=True, slots=True)
class Signaled:
    """A signal ended the process; `core` says that it dumped core."""

    signal: int
    core: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody observed how it ended. `number` is what was seen beside it and proves nothing."""

    cause: str
    number: int | None = None


ExitStatus = Exited | Signaled | Unknown


def fold(status: ExitStatus) -> int:
    """The one number foreign protocols demand: the code, 128 + signal, or 255 for unknown."""
    match status:
        case Exited(code):
            return code
        case Signaled(signal, _):
            return 128 + signal
        case Unknown():
            return UNKNOWN_NUMBER


def no_later_than(started_ns: int | None, end_ns: int) -> int | None:
    """The start of what ended at `end_ns`. A start is noted when the runtime's start has returned; a quick init has
    ended by then. One that was noted much later than the end is left alone: the clock was set back meanwhile."""
    quick = started_ns is not None and 0 < started_ns - end_ns < START_SECONDS * 10**9
    return end_ns if quick else started_ns


# What a program brings upon itself (signal(7)); other signals are sent by somebody.
FAULTS = frozenset(map(int, (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS, SIGPIPE, SIGXCPU, SIGXFSZ)))


def is_own_doing(status: ExitStatus) -> bool:
    """The program ended by itself, as far as its status can tell."""
    return isinstance(status, Exited) or (isinstance(status, Signaled) and status.signal in FAULTS)


def is_death_by(signal: int, status: ExitStatus) -> bool:
    """That signal ended it, with a core or without."""
    return isinstance(status, Signaled) and status.signal == signal


class Source(StrEnum):
    """Who observed the end, in order of trust."""

    RECORD = "record"
    FIFO = "fifo"
    KEEPER = "keeper"
    ZOMBIE = "zombie"
    PIDFD = "pidfd"
    PROCEVENTS = "procevents"
    SHIMV2_WAIT = "shimv2-wait"  # a foreign shim's answer to Wait; the other two are its words, too
    SHIMV2_EVENT = "shimv2-event"
    SHIMV2_DELETE = "shimv2-delete"
    NONE = "none"


class Reason(StrEnum):
    """Who or what asked for the end."""

    SELF = "self"
    STOP = "stop"
    KILL = "kill"
    OOM = "oom"
    TIMEOUT = "timeout"
    HEALTH = "health"
    PAUSE_EXIT = "pause-exit"
    NODE_SHUTDOWN = "node-shutdown"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class By:
    """The caller (uid and pid as the kernel told them) or the policy behind a request. All empty: not known."""

    uid: int | None = None
    pid: int | None = None
    policy: str = ""


@dataclass(frozen=True, slots=True)
class Oom:
    """Memory kills in the container's cgroup during the run."""

    init: bool = False
    kills: int = 0
    limit_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RunKey:
    """What every fact about an exit is keyed by. `exec_id` is empty for the container's init."""

    container: str
    run: int
    exec_id: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What the evidence says about one end, before anybody's intentions are weighed in."""

    status: ExitStatus
    source: Source
    init: Process | None
    at_ns: int  # CLOCK_REALTIME of the end, or of its discovery when nobody saw it
    oom_kills: int = 0
    at_is_found: bool = False  # at_ns is when it was found ended: it may have ended long before
    counted: bool = True  # False: the counter may have been gone by then, and there may have been more
    began: bool | None = None  # the program had been executed by then; None: no witness knows
    unseen: bool = False  # nor did exitd see it, of a program that is executed: a number may be the runtime's init's


@dataclass(frozen=True, slots=True)
class Exit:
    """One end of one run: a row of the ledger."""

    key: RunKey
    name: str
    namespace: str
    status: ExitStatus
    source: Source
    reason: Reason
    by: By
    oom: Oom
    at_ns: int
    started_ns: int | None
    init: Process | None
    decision: str = ""  # ended | restart | remove
    rule: str = ""  # the restart rule that decided, as it is written; empty: the policy did
    at_is_found: bool = False  # as the report's
    left_behind: int = 0  # processes in its cgroup that outlived init, and SIGKILL for half a second
    doubt: str = ""  # of what was only watched: why it may be another process's end than the name says


class Policy(StrEnum):
    NO = "no"
    ALWAYS = "always"
    ON_FAILURE = "on-failure"
    UNLESS_STOPPED = "unless-stopped"


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """docker's words; `max_retries` counts for on-failure only, 0 means no limit."""

    policy: Policy = Policy.NO
    max_retries: int = 0


class Action(StrEnum):
    NO = "no"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class RestartRule:
    """Stands before the restart policy: what follows an exit whose folded number is (not) among `numbers`."""

    numbers: tuple[int, ...]
    action: Action
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Mount:
    """A bind mount. `empty_dir` instead of a source: a directory of this name that lives as long as the pod, of this
    `group` if there is one."""

    source: str
    destination: str
    read_only: bool = False
    empty_dir: str = ""
    group: int | None = None


class OnPauseExit(StrEnum):
    """What becomes of the members when the pause container has ended."""

    STOP = "stop"
    KEEP = "keep"


class ExitPolicy(StrEnum):
    """What becomes of the pause container when the last member has ended for good."""

    CONTINUE = "continue"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Pod:
    """What makes a container the pause container of a pod; the words are those of CRI's PodSandboxMetadata."""

    name: str = ""
    namespace: str = "default"
    uid: str = ""
    attempt: int = 0
    on_pause_exit: OnPauseExit = OnPauseExit.STOP
    exit_policy: ExitPolicy = ExitPolicy.CONTINUE
    memory_bytes: int = 0  # limit of all its containers together
    log_directory: str = ""
    pids_limit: int = 0  # processes and threads of all its containers together; 0: no limit
    cpu_limit_milli: int = 0  # likewise of CPU time, thousandths of a CPU


@dataclass(frozen=True, slots=True)
class Spec:
    """What the caller asked for; never changed after create. Exactly one of rootfs, bundle and image is set."""

    name: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()  # K=V
    cwd: str = "/"
    user: str = ""
    rootfs: str = ""
    bundle: str = ""
    runtime: str = "runc"
    memory_bytes: int = 0
    annotations: tuple[tuple[str, str], ...] = ()
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    auto_remove: bool = False
    stop_signal: int = 15
    stop_timeout_seconds: int = 10
    network: str = "none"
    labels: tuple[tuple[str, str], ...] = ()
    hostname: str = ""
    read_only: bool = False
    mounts: tuple[Mount, ...] = ()
    namespace: str = "default"
    image: str = ""  # the word as it was asked for
    image_id: str = ""  # what the store holds for this container; empty where there is nothing to hold
    layers: tuple[str, ...] = ()  # overlay's lower directories, topmost first: what `image` was resolved to
    annotation_globs: tuple[str, ...] = ()  # which annotations its runtime gets to see
    runtime_path: str = ""  # what `runtime` was resolved to; empty: it is looked for whenever it is needed
    runtime_options: tuple[str, ...] = ()  # its arguments before every command; a shim's: its configuration file
    runtime_type: str = ""  # io.containerd.NAME.vN: `runtime_path` is a shim v2 binary; empty: an OCI runtime
    systemd_cgroup: bool = False  # its cgroup is a scope of systemd's
    pod: Pod | None = None  # this is a pod's pause container
    sandbox: str = ""  # this is a member: the id of its pod, which is the id of the pause container
    pid: str = "own"  # pid namespace: own | pod | host
    restart_rules: tuple[RestartRule, ...] = ()
    tty: bool = False
    stdin: bool = False
    cpu_limit_milli: int = 0  # thousandths of a CPU; 0: no limit
    cpu_request_milli: int = 0  # weight among others under load; 0: the kernel's default
    rights: Rights = field(default_factory=Rights)
    entrypoint: tuple[str, ...] = ()  # stands before args instead of the image's; empty once it has been put there
    log: LogSpec = field(default_factory=LogSpec)
    health: HealthSpec | None = None
    foreign: ForeignStreams = field(default_factory=ForeignStreams)
    create_options: tuple[str, ...] = ()  # arguments of its runtime's create
    runtime_root: str = ""  # where its runtime keeps its state, by the container's name; empty: in each run's directory
    shim_cgroup: str = ""  # below the cgroup hierarchies: where its shim and its relay belong; empty: where they are
    task: Task | None = None  # containerd has asked for it
    security: Security = field(default_factory=Security)


class Phase(StrEnum):
    CREATING = "creating"
    CREATED = "created"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    EXITED = "exited"
    RESTARTING = "restarting"
    REMOVING = "removing"


LIVE = frozenset({Phase.CREATED, Phase.STARTING, Phase.RUNNING, Phase.PAUSED})  # there is, or was a moment ago, an init


@dataclass(frozen=True, slots=True)
class BootTime:
    """A moment that survives the daemon but not the host: boot id and CLOCK_BOOTTIME in ns. Never wall clock."""

    boot_id: str
    ns: int

    def later(self, ns: int) -> "BootTime":
        return BootTime(self.boot_id, self.ns + ns)

    def seconds_after(self, now: "BootTime") -> float:
        """Until then; 0 when it has passed, or was in another boot."""
        return max(0.0, (self.ns - now.ns) / 1e9) if self.boot_id == now.boot_id else 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    """Somebody asked for the end of the current run: the reason the exit will carry."""

    reason: Reason
    by: By
    signal: int


@dataclass(frozen=True, slots=True)
class Container:
    """One container as the store holds it; `lifecycle.step` makes the next one."""

    id: str
    spec: Spec
    phase: Phase
    run: int
    created_ns: int
    init: Process | None = None
    shim: Process | None = None
    started_ns: int | None = None
    started_boot_ns: int | None = None  # CLOCK_BOOTTIME at start: run lengths are measured with it
    exit: Exit | None = None  # of the newest run that ended
    asked: Asked | None = None
    stopped_by_user: bool = False
    restart_count: int = 0
    failures: int = 0  # consecutive, for on-failure:n
    delay_ns: int = 0  # the back-off used last
    restart_at: BootTime | None = None
    clean: bool = True  # nothing of an earlier run is left on the machine
    boot_id: str = ""  # the boot under which the current run began, or the policy last looked
    error: str = ""
    waits_in: str = ""  # which program init was before its start: device and inode of /proc/PID/exe
    sandbox_run: int = 0  # a member's: the run of the pause container whose namespaces the current run has joined
    oom_told: int = 0  # memory kills of the current run that were told while init lived: it was none of their victims
    health: HealthStatus | None = None  # of the newest run that was started with a check
    start_key: str = ""  # a task's: the requests that have started and removed it
    delete_key: str = ""
    damaged: str = ""  # why its row could not be read: the rest is what `salvage` made of it
    start_unseen: bool = False  # its start counted, and by then nobody had seen its program executed


@dataclass(frozen=True, slots=True)
class Winsize:
    """Of a terminal, in characters."""

    rows: int
    cols: int


@dataclass(frozen=True, slots=True)
class Counters:
    """What the current shim of a run has moved, in bytes."""

    stdout_bytes: int
    stderr_bytes: int
    stdin_bytes: int
    lost_bytes: int  # of the log: could not be written
    dropped_bytes: int  # not given to clients that were too slow
    session_bytes: int = 0  # of the input that came over the connection that asks
    missed_bytes: int = 0  # of the dropped ones, those that were for that connection


@dataclass(frozen=True, slots=True)
class Retained:
    """A container that removed itself: for a while late waiters find its exit by name, too."""

    container: str
    namespace: str
    name: str
    at: BootTime


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the event log. `seq` is 0 until the store has numbered it."""

    type: str
    id: str
    name: str
    namespace: str
    time_ns: int
    exit: Exit | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    pod_id: str = ""
    seq: int = 0
    exec_id: str = ""  # empty: of the container itself
    task: Notice | None = None  # of a task of containerd's, and containerd is told of it
