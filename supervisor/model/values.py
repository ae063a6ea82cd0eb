"""The values that exitd works with, frozen, each with one meaning. "Not known" is a value, too."""

from enum import StrEnum
from signal import SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGPIPE, SIGSEGV, SIGSYS, SIGTRAP, SIGXCPU, SIGXFSZ

from shim.frozen import field, frozen
from supervisor.model.idranges import HOST, IdRange
from supervisor.model.limits import Change, ContainerLimits, HostDevice
from supervisor.model.networks import AddressWish, Attached, PublishedPort
from supervisor.model.resolver import Resolver
from supervisor.model.rights import Rights
from supervisor.model.secrets import MountedFile, SecretWords
from supervisor.model.status import UNKNOWN_NUMBER as UNKNOWN_NUMBER
from supervisor.model.status import Exited as Exited
from supervisor.model.status import ExitStatus as ExitStatus
from supervisor.model.status import Signaled as Signaled
from supervisor.model.status import Unknown as Unknown
from supervisor.model.status import fold as fold
from supervisor.model.storage import Storage
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
    """What happens to a container that is unhealthy.

    kill: SIGKILL, then the restart policy decides. stop: as if a user had stopped it; it stays stopped. restart: stop,
    then the next run regardless of the policy, with the policy's back-off. end: stop, then the restart policy decides;
    of probes alone.
    """

    NONE = "none"
    KILL = "kill"
    RESTART = "restart"
    STOP = "stop"
    END = "end"


class HealthStatus(StrEnum):
    STARTING = "starting"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


class CheckKind(StrEnum):
    """The checks of a container: docker's, or Kubernetes' three."""

    CHECK = "check"
    STARTUP = "startup"
    LIVENESS = "liveness"
    READINESS = "readiness"


@frozen
class TcpTarget:
    """Good: the connection is accepted. `host` is an address; empty: the loopback of the container's network."""

    host: str
    port: int


@frozen
class HttpTarget:
    """Good: the answer is 200 to 399. `host` as of TcpTarget; with `tls` no certificate is checked."""

    host: str
    port: int
    path: str = "/"
    tls: bool = False
    headers: tuple[tuple[str, str], ...] = ()


@frozen
class GrpcTarget:
    """Good: the gRPC health service at this port of the container's loopback says that `service` is SERVING; empty: of
    the server as a whole."""

    port: int
    service: str = ""
    host: str = ""  # as of TcpTarget


@frozen
class HealthSpec:
    """A health check: a command, or instead of it `tcp`, `http` or `grpc`. In a container every field has a value. In a
    request, no args mean the image's check, one empty word no check at all, and 0 the image's value, or else the
    default."""

    args: tuple[str, ...] = ()
    interval_ns: int = 0  # from the container's start, or the end of a probe, to the next probe
    timeout_ns: int = 0  # a probe that takes longer is ended and counts as failed
    retries: int = 0  # this many failures in a row make it unhealthy
    start_period_ns: int = 0  # failures do not count before the first success, or until this long after the start
    on_failure: OnUnhealthy = OnUnhealthy.NONE
    tcp: TcpTarget | None = None
    http: HttpTarget | None = None
    successes: int = 1  # this many in a row make it healthy
    first_ns: int | None = None  # from the container's start to the first probe; None: `interval_ns`, from now
    grace_seconds: int | None = None  # for an end that follows; None: the container's own
    grpc: GrpcTarget | None = None

    @property
    def is_off(self) -> bool:
        return self.args == ("",)


@frozen
class Probes:
    """Kubernetes' checks. The first one's success has the other two begin."""

    startup: HealthSpec | None = None
    liveness: HealthSpec | None = None
    readiness: HealthSpec | None = None


NO_PROBES = Probes()


@frozen
class ProbeMarks:
    """What the probes of a run have found, as it is stored."""

    startup: HealthStatus = HealthStatus.STARTING
    liveness: HealthStatus = HealthStatus.STARTING
    readiness: HealthStatus = HealthStatus.STARTING


# -- hooks


@frozen
class HookAction:
    """What a hook does: one of the three."""

    args: tuple[str, ...] = ()
    http: HttpTarget | None = None
    sleep_seconds: int = 0


@frozen
class Hooks:
    """What is done once at most in each run: after its start, and before its stop signal."""

    post_start: HookAction | None = None
    pre_stop: HookAction | None = None


NO_HOOKS = Hooks()


class HookKind(StrEnum):
    POST_START = "post-start"
    PRE_STOP = "pre-stop"


class HookStage(StrEnum):
    """How far a hook of a run has come. One that an exitd has begun is never begun again."""

    NOT_YET = "not-yet"
    BEGUN = "begun"
    DONE = "done"


# -- output


class LogDriver(StrEnum):
    """Where a container's output goes, apart from the clients that are attached."""

    CRI = "cri"
    JSON_FILE = "json-file"
    JOURNALD = "journald"
    NONE = "none"


class LogMode(StrEnum):
    """What happens when a sink of the output is too slow: the container blocks, or the sink misses a part."""

    BLOCKING = "blocking"
    NON_BLOCKING = "non-blocking"


@frozen
class LogSpec:
    """Where a container's output is kept. In a request, None means the daemon's configuration."""

    driver: LogDriver | None = LogDriver.CRI
    path: str = ""  # the file; empty: in the container's own directory. In a request, relative to the pod's directory
    max_bytes: int | None = 0  # the file is rotated before it grows larger; 0: never
    max_files: int = 0  # files kept when rotating, with the current one; in a request, 0: the daemon's configuration
    mode: LogMode = LogMode.BLOCKING
    buffer_bytes: int = 0  # for each sink that is too slow; 0: the shim's default

    @property
    def to_file(self) -> bool:
        """Whether the log is a file of lines, and not the journal or nothing."""
        return self.driver in (LogDriver.CRI, LogDriver.JSON_FILE)


@frozen
class ForeignStreams:
    """Where a foreign client has the streams of a process, beside the log and attached clients. The shim opens the
    paths each time it begins: a fifo for reading and writing, a file for appending. All empty: there is no such client.
    """

    out: str = ""  # a fifo, or an existing file
    err: str = ""
    stdin: str = ""  # a fifo
    logger: tuple[str, ...] = ()  # a program that receives the output, instead of `out` and `err`
    logger_env: tuple[str, ...] = ()  # NAME=value, its whole environment
    uid: int = 0  # the owner of the pipes that the process writes to and reads from
    gid: int = 0


# -- confinement, beside capabilities


BUILTIN = "builtin"  # exitd's own seccomp profile
UNCONFINED = "unconfined"
OWN_PROFILE = "exitd-default"  # exitd's own AppArmor profile: systemd/apparmor.d/exitd-default


@frozen
class Security:
    """The confinement that was asked for. Without any: exitd's defaults, or what the bundle says."""

    seccomp: str = ""  # builtin | unconfined | a profile, JSON as docker reads it
    no_new_privileges: bool | None = None  # None: true, or as the bundle has it
    apparmor: str = ""  # a profile that the kernel has loaded
    selinux: str = ""  # the label of its processes


# -- containers and their ends


START_SECONDS = 10  # the longest time that a start may take
NEVER_STARTED = "never-started"  # the cause of an end whose program was never executed: no number is its code
START_UNCONFIRMED = "start-unconfirmed"  # as above, if it is not known whether it was executed
ROW_DAMAGED = "row-damaged"  # the cause of an end that was only in a row which cannot be read


@frozen
class Process:
    """A process by a name that no other process can get: pid and start time (proc(5) stat field 22, clock ticks)."""

    pid: int
    started_ticks: int


def no_later_than(started_ns: int | None, end_ns: int) -> int | None:
    """Return the start, moved to `end_ns` if it is slightly later: the start is noted when the runtime's start has
    returned, when a quick init has already ended. A start much later than the end is returned unchanged: the clock was
    set back."""
    quick = started_ns is not None and 0 < started_ns - end_ns < START_SECONDS * 10**9
    return end_ns if quick else started_ns


# Signals that a program causes itself (signal(7)); other processes send the rest.
FAULTS = frozenset(map(int, (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS, SIGPIPE, SIGXCPU, SIGXFSZ)))


def is_own_doing(status: ExitStatus) -> bool:
    """Return whether the program ended by itself, as far as its status shows."""
    return isinstance(status, Exited) or (isinstance(status, Signaled) and status.signal in FAULTS)


def is_death_by(signal: int, status: ExitStatus) -> bool:
    """Return whether this signal ended it, with or without a core dump."""
    return isinstance(status, Signaled) and status.signal == signal


class Source(StrEnum):
    """The witness of the end, in order of trust."""

    RECORD = "record"
    FIFO = "fifo"
    KEEPER = "keeper"
    ZOMBIE = "zombie"
    PIDFD = "pidfd"
    PROCEVENTS = "procevents"
    SHIMV2_WAIT = "shimv2-wait"  # a foreign shim's answer to Wait; the next two are from foreign shims as well
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
    EVICTED = "evicted"
    UNKNOWN = "unknown"


@frozen
class By:
    """The caller behind a request (uid and pid from the kernel), or the policy. All empty: not known."""

    uid: int | None = None
    pid: int | None = None
    policy: str = ""


@frozen
class Oom:
    """Memory kills in the container's cgroup during the run."""

    init: bool = False
    kills: int = 0
    limit_bytes: int = 0


@frozen
class Names:
    """What Kubernetes, or another maker of a container through an engine, calls it. All empty: it was given no such
    name. A pod's own sandbox has a pod and no container."""

    namespace: str = ""
    pod: str = ""
    container: str = ""
    image: str = ""


NO_NAMES = Names()


@frozen
class RunKey:
    """The key of every value about an exit. `exec_id` is empty for the container's init."""

    container: str
    run: int
    exec_id: str = ""

    @property
    def of_container(self) -> tuple[str, int]:
        return self.container, self.run


@frozen
class Report:
    """What the evidence says about one end, before requests to end it are taken into account."""

    status: ExitStatus
    source: Source
    init: Process | None
    at_ns: int  # CLOCK_REALTIME of the end, or of its discovery if no witness saw it
    oom_kills: int = 0
    at_is_found: bool = False  # at_ns is the discovery: the process may have ended long before
    counted: bool = True  # False: the counter may have been gone already, and the true count may be higher
    began: bool | None = None  # the program had been executed by then; None: no witness knows
    unseen: bool = False  # exitd did not see it executed either: the number may be that of the runtime's init


@frozen
class Exit:
    """The end of one run: a row of the ledger."""

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
    rule: str = ""  # the text of the restart rule that decided; empty: the policy decided
    at_is_found: bool = False  # as in Report
    left_behind: int = 0  # processes in its cgroup that outlived init and half a second of SIGKILL
    doubt: str = ""  # for a process that was only watched: why this may be the end of another one
    names: Names = NO_NAMES  # for a container that has such, and for none of its execs


@frozen
class MemoryKills:
    """So many processes of a run have been killed for memory until now, in all."""

    key: RunKey
    kills: int
    names: Names
    at_ns: int  # CLOCK_REALTIME


class Policy(StrEnum):
    """When a container is restarted; the names are docker's. `restart.py` has the rules."""

    NO = "no"
    ALWAYS = "always"
    ON_FAILURE = "on-failure"
    UNLESS_STOPPED = "unless-stopped"


@frozen
class RestartPolicy:
    """docker's words; `max_retries` is for on-failure only, 0 means no limit."""

    policy: Policy = Policy.NO
    max_retries: int = 0


class Action(StrEnum):
    """What a restart rule decides."""

    NO = "no"
    RESTART = "restart"


@frozen
class RestartRule:
    """Comes before the restart policy: what follows an exit whose folded number is (not) among `numbers`."""

    numbers: tuple[int, ...]
    action: Action
    negated: bool = False


@frozen
class Mount:
    """A bind mount. With `empty_dir` instead of a source: a directory of this name that lives as long as the pod, owned
    by `group` if set. With `tmpfs`: a file system in memory; an `empty_dir` with it is one that its pod shares. With
    `files`: a directory of these, or the one file itself."""

    source: str
    destination: str
    read_only: bool = False
    empty_dir: str = ""
    group: int | None = None
    tmpfs: bool = False
    size_bytes: int = 0  # of a tmpfs; 0: the kernel's limit. Of an `empty_dir` on disk: more ends the pod; 0: no limit
    mode: int | None = None  # of a tmpfs's root
    options: tuple[str, ...] = ()  # of mount(8), beside ro and rw
    volume: str = ""  # instead of a source: the name of a volume
    anonymous: bool = False  # that volume was made for this container; its name is settled at the admission
    no_copy: bool = False  # that volume gets nothing of the image's
    files: tuple[MountedFile, ...] = ()
    secret: bool = False  # of files: no reply shows them, and they are in memory
    single: bool = False  # of one file: the destination is that file
    sub_path: str = ""  # of a source, an empty directory or a volume: what is at this path in it, and no more


class OnPauseExit(StrEnum):
    """What happens to the members when the pause container has ended."""

    STOP = "stop"
    KEEP = "keep"


class ExitPolicy(StrEnum):
    """What happens to the pause container when the last member has ended for good."""

    CONTINUE = "continue"
    STOP = "stop"


@frozen
class Pod:
    """The properties of a pod, kept in its pause container; the names are those of CRI's PodSandboxMetadata."""

    name: str = ""
    namespace: str = "default"
    uid: str = ""
    attempt: int = 0
    on_pause_exit: OnPauseExit = OnPauseExit.STOP
    exit_policy: ExitPolicy = ExitPolicy.CONTINUE
    memory_bytes: int = 0  # limit for all its containers together
    log_directory: str = ""
    pids_limit: int = 0  # processes and threads of all its containers together; 0: no limit
    cpu_limit_milli: int = 0  # limit of CPU time for all its containers together, thousandths of a CPU
    active_deadline_seconds: int = 0  # from its first start until its members are ended for good; 0: never
    sidecars: tuple[str, ...] = ()  # names of members that serve the others, in the order of their start
    inits: tuple[str, ...] = ()  # names of members that come before the others


@frozen
class Spec:
    """What the caller asked for; never changed after the creation. Exactly one of rootfs, bundle and image is set."""

    __slots__ = ("__weakref__",)  # what is made of it is remembered as long as it lives

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
    image: str = ""  # the image's name as the caller wrote it
    image_id: str = ""  # the image that the store keeps for this container; empty: none
    layers: tuple[str, ...] = ()  # overlay's lower directories of the image, topmost first
    annotation_globs: tuple[str, ...] = ()  # which annotations the runtime gets to see
    runtime_path: str = ""  # the program that `runtime` stands for; empty: it is looked up each time
    runtime_options: tuple[str, ...] = ()  # arguments before each command; for a shim v2, its configuration file
    runtime_type: str = ""  # io.containerd.NAME.vN: `runtime_path` is a shim v2 binary; empty: an OCI runtime
    systemd_cgroup: bool = False  # its cgroup is a systemd scope
    pod: Pod | None = None  # this is a pod's pause container
    sandbox: str = ""  # a member: the id of its pod, which is the id of the pause container
    pid: str = "own"  # pid namespace: own | pod | host
    restart_rules: tuple[RestartRule, ...] = ()
    tty: bool = False
    stdin: bool = False
    cpu_limit_milli: int = 0  # thousandths of a CPU; 0: no limit
    cpu_request_milli: int = 0  # weight among others under load; 0: the kernel's default
    rights: Rights = field(default_factory=Rights)
    entrypoint: tuple[str, ...] = ()  # comes before args, instead of the image's; empty after it was put there
    entrypoint_words: int = 0  # how many of args are its entrypoint's, from the image or the request
    log: LogSpec = field(default_factory=LogSpec)
    health: HealthSpec | None = None
    foreign: ForeignStreams = field(default_factory=ForeignStreams)
    create_options: tuple[str, ...] = ()  # arguments for the create command of its runtime
    runtime_root: str = ""  # where the runtime keeps its state; empty: in each run's directory
    shim_cgroup: str = ""  # below the cgroup hierarchies: where its shim and its relay belong; empty: where they are
    task: Task | None = None  # set if containerd created it
    security: Security = field(default_factory=Security)
    names: Names = NO_NAMES  # of a task of containerd's, as its bundle has them; others are named by their pods
    limits: ContainerLimits = field(default_factory=ContainerLimits)
    devices: tuple[HostDevice, ...] = ()
    sysctls: tuple[tuple[str, str], ...] = ()
    resolver: Resolver = field(default_factory=Resolver)
    init: bool = False  # its command is begun by exitd's init program
    ipc: str = "own"  # ipc namespace: own, which is a pod's for its members, or host, for all of a pod or none
    probes: Probes = NO_PROBES
    hooks: Hooks = NO_HOOKS
    secrets: SecretWords = field(default_factory=SecretWords)
    storage: Storage = field(default_factory=Storage)  # of its writable layer; without meaning for a bundle
    ports: tuple[PublishedPort, ...] = ()
    publish_all: bool = False  # also the ports that its image names, and `expose`
    expose: tuple[tuple[int, str], ...] = ()  # port and protocol
    network_hint: str = ""  # why it has none, or another than the first, though it asked for the default
    more_networks: tuple[str, ...] = ()  # eth1 and so on; `network` is eth0
    wishes: tuple[AddressWish, ...] = ()
    address_mark: str = ""  # stands for the address that a run has, wherever it is in its words, variables and files
    userns: str = HOST  # user namespace: host, the machine's, or auto, its own
    ids: IdRange | None = None  # those of its own user namespace; settled when it is made

    @property
    def networks(self) -> tuple[str, ...]:
        """All that it has, in the order of its interfaces; or one word that stands for none."""
        return (self.network, *self.more_networks)


class Phase(StrEnum):
    """The phases of a container; `lifecycle.py` has the transitions."""

    CREATING = "creating"
    CREATED = "created"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    EXITED = "exited"
    RESTARTING = "restarting"
    REMOVING = "removing"


LIVE = frozenset({Phase.CREATED, Phase.STARTING, Phase.RUNNING, Phase.PAUSED})  # an init exists, or did a moment ago


@frozen
class BootTime:
    """A time that survives the daemon but not the host: boot id and CLOCK_BOOTTIME in ns. Never wall clock."""

    boot_id: str
    ns: int

    def later(self, ns: int) -> "BootTime":
        """Return the time `ns` nanoseconds after this one, in the same boot; before it, if `ns` is negative."""
        return BootTime(self.boot_id, self.ns + ns)

    def seconds_after(self, now: "BootTime") -> float:
        """Return the seconds from `now` to this time; 0 if it has passed or was in another boot."""
        return max(0.0, (self.ns - now.ns) / 1e9) if self.boot_id == now.boot_id else 0.0


@frozen
class TimeLimit:
    """A moment that outlives exitd, and by the wall clock the host. `at` is of the boot in which it was last set."""

    at: BootTime
    wall_ns: int  # CLOCK_REALTIME

    def is_over(self, now: BootTime) -> bool:
        """Return whether it has passed. False if it was last set in another boot: see `in_boot`."""
        return self.at.boot_id == now.boot_id and now.ns >= self.at.ns

    def in_boot(self, now: BootTime, now_ns: int) -> "TimeLimit":
        """Return the same moment by the clock of this boot."""
        if self.at.boot_id == now.boot_id:
            return self
        return TimeLimit(now.later(max(0, self.wall_ns - now_ns)), self.wall_ns)


@frozen
class Termination:
    """An end of `run` that has been begun and is to be completed, by the next exitd where this one dies: the stop
    signal once the hook is done, SIGKILL at `until`."""

    run: int
    until: BootTime
    pre_stop: HookStage = HookStage.NOT_YET


@frozen
class Asked:
    """A request to end the current run; the exit will carry its reason."""

    reason: Reason
    by: By
    signal: int


@frozen
class Container:
    """One container as the store holds it; `lifecycle.step` returns its successor."""

    id: str
    spec: Spec
    phase: Phase
    run: int
    created_ns: int
    init: Process | None = None
    shim: Process | None = None
    started_ns: int | None = None
    started_boot_ns: int | None = None  # CLOCK_BOOTTIME of the start, to measure the length of the run
    exit: Exit | None = None  # of the newest run that has ended
    asked: Asked | None = None
    stopped_by_user: bool = False
    restart_count: int = 0
    failures: int = 0  # consecutive, for on-failure:n
    delay_ns: int = 0  # the last back-off
    restart_at: BootTime | None = None
    clean: bool = True  # nothing of an earlier run is left on the machine
    boot_id: str = ""  # the boot in which the current run began, or in which the policy last examined it
    error: str = ""
    waits_in: str = ""  # the program of init before its start: device and inode of /proc/PID/exe
    sandbox_run: int = 0  # a member: the run of the pause container whose namespaces the current run has joined
    oom_told: int = 0  # memory kills of the current run reported while init lived, so it was not among the victims
    health: HealthStatus | None = None  # of the newest run that was started with a check
    start_key: str = ""  # a task: the keys of the requests that started and removed it
    delete_key: str = ""
    damaged: str = ""  # why its row could not be read; the other fields are what `salvage` recovered
    start_unseen: bool = False  # its program had not been seen executed when its start counted
    change: Change | None = None  # an update that is under way: not in `spec`, and perhaps in the cgroup
    changed: tuple[str, ...] = ()  # limits that updates have set: they hold, cleared or not, whatever a bundle says
    drops_volumes: bool = False  # it is removed together with its anonymous volumes
    probes: ProbeMarks = ProbeMarks()  # of the current run
    post_start: HookStage = HookStage.NOT_YET  # of the current run
    ending: Termination | None = None
    deadline: TimeLimit | None = None  # a pod's, from its first start on
    evicted: str = ""  # a pod: which of its volumes has outgrown its limit, and how far; its members are ended for that
    networks: tuple[Attached, ...] = ()  # what the current run has of its network, or a member of its pod's


@frozen
class Winsize:
    """The size of a terminal, in characters."""

    rows: int
    cols: int


@frozen
class Counters:
    """The bytes that the current shim of a run has moved."""

    stdout_bytes: int
    stderr_bytes: int
    stdin_bytes: int
    lost_bytes: int  # of the log: could not be written
    dropped_bytes: int  # not sent to clients that were too slow
    session_bytes: int = 0  # input that came over the connection that asks
    missed_bytes: int = 0  # the part of the dropped bytes that was for that connection


@frozen
class Retained:
    """A container that removed itself: for some time its exit can still be found by name."""

    container: str
    namespace: str
    name: str
    at: BootTime


@frozen
class Event:
    """One row of the event log. `seq` is 0 until the store has assigned a number."""

    type: str
    id: str
    name: str
    namespace: str
    time_ns: int
    exit: Exit | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    pod_id: str = ""
    seq: int = 0
    exec_id: str = ""  # empty: about the container itself
    task: Notice | None = None  # for an event of a containerd task that containerd receives
