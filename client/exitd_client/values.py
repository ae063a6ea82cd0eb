"""What exitd answers, as frozen values. Times are aware datetimes in UTC; `*_ns` are nanoseconds since 1970."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.json_format import MessageToDict

from exitd_client.messages import phase

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A pid alone is no name: `started_ticks` (clock ticks since boot, proc_pid_stat(5)) makes it one."""

    pid: int
    started_ticks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class By:
    """Who asked for it."""

    uid: int | None
    pid: int | None
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Oom:
    """What the kernel killed for memory. `init`: the container's first process was among it."""

    init: bool
    kills: int
    limit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What Kubernetes calls it."""

    namespace: str
    pod: str
    container: str
    image: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a run ended. `kind` is exited (then `code` is set), signaled (then `signal` is), or unknown: then `cause` is
    why, and `number` may be a number that was seen and proves nothing. exitd makes up no code, and neither does this
    client: a kind that it does not know is one without code and signal."""

    container: str
    name: str
    namespace: str
    run: int
    exec_id: str
    kind: str
    code: int | None
    signal: int | None
    core: bool
    number: int | None
    cause: str
    source: str  # which witness saw it: record | fifo | keeper | zombie | pidfd | procevents | shimv2-... | none
    reason: str  # self | stop | kill | oom | timeout | health | pause-exit | node-shutdown | evicted | unknown
    by: By | None
    oom: Oom | None
    at: datetime
    at_ns: int
    at_is_found: bool  # `at` is when it was found ended
    started_at: datetime | None
    decision: str  # ended | restart | remove
    rule: str
    init: Process | None
    left_behind: int
    unverified: str
    names: Names | None

    @property
    def is_success(self) -> bool:
        """True only for a code of 0 that was seen."""
        return self.code == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exec:
    """A further command in a container."""

    id: str
    container: str
    run: int
    args: tuple[str, ...]
    phase: str  # creating | running | exited
    init: Process | None
    started_at: datetime | None
    exit: Exit | None
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """An exec that has ended, and what it wrote; with a terminal all of it is in `stdout`."""

    id: str
    exit: Exit
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeStates:
    """How the probes of the current run are. Each of the three is starting | healthy | unhealthy; empty without it."""

    started: bool  # it runs, its startup probe has succeeded, and its hook is done
    ready: bool  # started, and its readiness probe succeeds
    startup: str
    liveness: str
    readiness: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """What a network has given a run."""

    network: str
    interface: str
    mac: str
    addresses: tuple[str, ...]  # with their prefix, as in 10.88.0.2/16
    gateways: tuple[str, ...]
    dns_servers: tuple[str, ...]
    dns_searches: tuple[str, ...]
    dns_options: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container as it is now. `spec` is its whole ContainerSpec as JSON has it, under the API's names."""

    id: str
    name: str
    namespace: str
    image: str
    args: tuple[str, ...]
    labels: Mapping[str, str]
    phase: str  # creating | created | starting | running | paused | exited | restarting | removing
    run: int
    init: Process | None
    shim: Process | None
    created_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    exit: Exit | None  # of the newest run that has ended
    restart_count: int
    restart_at: datetime | None
    recovering: bool
    error: str
    damaged: str
    monitored_by: str
    log_path: str
    bundle_path: str
    run_directory: str
    sandbox_run: int
    health: str  # starting | healthy | unhealthy; empty without a check
    probes: ProbeStates | None  # None without probes and hooks
    networks: tuple[Attachment, ...]  # of the current run; a member's are its pod's
    network_hint: str  # why it has none, or not the first, though it asked for the default
    of_containerd: bool  # a task of containerd's
    ids: tuple[int, int] | None  # the first of its own users' ids on the machine, and how many; None without
    evicted: str  # which volume of its pod has outgrown its limit, and how far; empty: none
    execs: tuple[Exec, ...]
    mount_sources: tuple[str, ...]  # of `inspect`: where each of the spec's mounts is on the machine; empty for a tmpfs
    entrypoint_words: int  # how many of `args` are the entrypoint's
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What happened. `seq` is its number: `events(since=seq + 1)` goes on behind it."""

    seq: int
    time: datetime
    type: str
    id: str
    name: str
    namespace: str
    pod_id: str
    exec_id: str
    exit: Exit | None
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image as the list of images has it. `users`: ids of containers that use it; `created`: as its maker wrote."""

    id: str
    digest: str
    names: tuple[str, ...]
    size_bytes: int
    created: str
    users: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkCounters:
    """Of all interfaces but the loopback one."""

    received_bytes: int
    sent_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """How long processes have waited: percent of the last 10, 60 and 300 seconds, and all the time."""

    avg10: float
    avg60: float
    avg300: float
    total_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """The kernel's pressure stall information: at least one process waited (`some`), or all that could run (`full`)."""

    some: Stall
    full: Stall


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What a container's cgroup has counted: two readings show what it uses in between. Not `measured`: it does not
    run, or could not be measured now, and all the numbers are 0."""

    id: str
    name: str
    measured: bool
    read_boot_ns: int  # CLOCK_BOOTTIME of the reading
    cpu_ns: int
    memory_bytes: int
    memory_limit_bytes: int  # the machine's memory, where it has no lower limit
    network: NetworkCounters | None  # None where its network is the machine's
    read_bytes: int
    written_bytes: int
    pids: int
    pids_limit: int  # 0: no limit
    cpu_pressure: Pressure | None  # None where the kernel does not measure it
    memory_pressure: Pressure | None
    io_pressure: Pressure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A configuration of CNI that exitd has found, or with an `error` a file that is none."""

    name: str
    file: str
    cni_version: str
    plugins: tuple[str, ...]
    default: bool
    publishes: bool  # one of its plugins publishes ports
    config: str
    error: str
    containers: tuple[str, ...]  # ids of those that are in it now


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """Bytes as the container wrote them, not always whole lines. `gap`: what came before was deleted while exitd was
    away, by rotation or by hand; such a part has no data."""

    data: bytes
    stream: str  # stdout | stderr
    time: datetime | None
    gap: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """Of exitd."""

    version: str
    api: str
    python: str


# Fields of the API that these values have not, by message.
LEFT: Mapping[str, tuple[str, ...]] = {
    "Container": ("streams",),
    "LogsReply": ("position", "files"),  # for `logs` itself, which goes on by them
}
# And those that they have under other names.
RENAMED: Mapping[str, Mapping[str, str]] = {
    "Exit": {"container_id": "container"},
    "Exec": {"container_id": "container"},
}


def moment(time: datetime) -> dict[str, int]:
    """Return the fields of a Timestamp. Raises TypeError for a time without a zone, which could mean two moments."""
    if time.tzinfo is None:
        raise TypeError(f"{time!r} has no time zone: write datetime.now(UTC), or astimezone()")
    since = time - _EPOCH
    return {"seconds": since.days * 86_400 + since.seconds, "nanos": since.microseconds * 1000}


def exit_of(found: Any) -> Exit:
    return Exit(
        container=found.container_id,
        name=found.name,
        namespace=found.namespace,
        run=found.run,
        exec_id=found.exec_id,
        kind=found.kind,
        code=_optional(found, "code"),
        signal=_optional(found, "signal"),
        core=found.core,
        number=_optional(found, "number"),
        cause=found.cause,
        source=found.source,
        reason=found.reason,
        by=by_of(found.by) if found.HasField("by") else None,
        oom=_oom(found.oom) if found.HasField("oom") else None,
        at=time_of(found.at),
        at_ns=found.at.seconds * SECOND_NS + found.at.nanos,
        at_is_found=found.at_is_found,
        started_at=_time_of(found, "started_at"),
        decision=found.decision,
        rule=found.rule,
        init=_process_at(found, "init"),
        left_behind=found.left_behind,
        unverified=found.unverified,
        names=_names(found.names) if found.HasField("names") else None,
    )


def container_of(found: Any) -> Container:
    spec = found.spec
    return Container(
        id=found.id,
        name=spec.name,
        namespace=spec.namespace,
        image=spec.image,
        args=tuple(spec.args),
        labels=dict(spec.labels),
        phase=phase(found.phase),
        run=found.run,
        init=_process_at(found, "init"),
        shim=_process_at(found, "shim"),
        created_at=_time_of(found, "created_at"),
        started_at=_time_of(found, "started_at"),
        finished_at=_time_of(found, "finished_at"),
        exit=_exit_of(found),
        restart_count=found.restart_count,
        restart_at=_time_of(found, "restart_at"),
        recovering=found.recovering,
        error=found.error,
        damaged=found.damaged,
        monitored_by=found.monitored_by,
        log_path=found.log_path,
        bundle_path=found.bundle_path,
        run_directory=found.run_directory,
        sandbox_run=found.sandbox_run,
        health=found.health.status,
        probes=_probes(found.probes) if found.HasField("probes") else None,
        networks=tuple(map(_attachment, found.networks)),
        network_hint=found.network_hint,
        of_containerd=found.of_containerd,
        ids=(found.ids.first, found.ids.count) if found.HasField("ids") else None,
        evicted=found.evicted,
        execs=tuple(exec_of(each) for each in found.execs),
        mount_sources=tuple(found.mount_sources),
        entrypoint_words=found.entrypoint_words,
        spec=MessageToDict(spec, preserving_proto_field_name=True),
    )


def exec_of(found: Any) -> Exec:
    return Exec(
        id=found.id,
        container=found.container_id,
        run=found.run,
        args=tuple(found.spec.args),
        phase=found.phase,
        init=_process_at(found, "init"),
        started_at=_time_of(found, "started_at"),
        exit=_exit_of(found),
        spec=MessageToDict(found.spec, preserving_proto_field_name=True),
    )


def event_of(found: Any) -> Event:
    return Event(
        seq=found.seq,
        time=time_of(found.time),
        type=found.type,
        id=found.id,
        name=found.name,
        namespace=found.namespace,
        pod_id=found.pod_id,
        exec_id=found.exec_id,
        exit=_exit_of(found),
        attributes=dict(found.attributes),
    )


def image_of(found: Any) -> Image:
    return Image(
        id=found.id,
        digest=found.digest,
        names=tuple(found.names),
        size_bytes=found.size_bytes,
        created=found.created,
        users=tuple(found.users),
    )


def stats_of(found: Any) -> Stats:
    return Stats(
        id=found.id,
        name=found.name,
        measured=found.measured,
        read_boot_ns=found.read_boot_ns,
        cpu_ns=found.cpu_ns,
        memory_bytes=found.memory_bytes,
        memory_limit_bytes=found.memory_limit_bytes,
        network=_counters(found.network) if found.HasField("network") else None,
        read_bytes=found.read_bytes,
        written_bytes=found.written_bytes,
        pids=found.pids,
        pids_limit=found.pids_limit,
        cpu_pressure=_pressure(found, "cpu_pressure"),
        memory_pressure=_pressure(found, "memory_pressure"),
        io_pressure=_pressure(found, "io_pressure"),
    )


def network_of(found: Any) -> Network:
    return Network(
        name=found.name,
        file=found.file,
        cni_version=found.cni_version,
        plugins=tuple(found.plugins),
        default=found.default,
        publishes=found.publishes,
        config=found.config,
        error=found.error,
        containers=tuple(found.containers),
    )


def log_part_of(found: Any) -> LogPart:
    return LogPart(data=found.data, stream=found.stream, time=_time_of(found, "time"))


def version_of(found: Any) -> Version:
    return Version(version=found.version, api=found.api, python=found.python)


def _exit_of(found: Any) -> Exit | None:
    return exit_of(found.exit) if found.HasField("exit") else None


def _optional(found: Any, name: str) -> int | None:
    value: int | None = getattr(found, name) if found.HasField(name) else None
    return value


def _time_of(found: Any, name: str) -> datetime | None:
    return time_of(getattr(found, name)) if found.HasField(name) else None


def time_of(stamp: Any) -> datetime:
    """Return the moment, cut to microseconds, which are a datetime's smallest part."""
    return _EPOCH + timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)


def _process_at(found: Any, name: str) -> Process | None:
    if not found.HasField(name):
        return None
    return process_of(getattr(found, name))


def process_of(found: Any) -> Process:
    return Process(pid=found.pid, started_ticks=found.started_ticks)


def by_of(found: Any) -> By:
    return By(uid=_optional(found, "uid"), pid=_optional(found, "pid"), policy=found.policy)


def _oom(found: Any) -> Oom:
    return Oom(init=found.init, kills=found.kills, limit_bytes=found.limit_bytes)


def _names(found: Any) -> Names:
    return Names(namespace=found.namespace, pod=found.pod, container=found.container, image=found.image)


def _probes(found: Any) -> ProbeStates:
    return ProbeStates(
        started=found.started,
        ready=found.ready,
        startup=found.startup.status,
        liveness=found.liveness.status,
        readiness=found.readiness.status,
    )


def _pressure(found: Any, name: str) -> Pressure | None:
    if not found.HasField(name):
        return None
    pressure = getattr(found, name)
    return Pressure(some=_stall(pressure.some), full=_stall(pressure.full))


def _stall(found: Any) -> Stall:
    return Stall(avg10=found.avg10, avg60=found.avg60, avg300=found.avg300, total_ns=found.total_ns)


def _counters(found: Any) -> NetworkCounters:
    return NetworkCounters(received_bytes=found.received_bytes, sent_bytes=found.sent_bytes)


def _attachment(found: Any) -> Attachment:
    return Attachment(
        network=found.network,
        interface=found.interface,
        mac=found.mac,
        addresses=tuple(found.addresses),
        gateways=tuple(found.gateways),
        dns_servers=tuple(found.dns_servers),
        dns_searches=tuple(found.dns_searches),
        dns_options=tuple(found.dns_options),
    )
