"""Converts messages to the documents that `inspect`, `events`, `ps` and `exits` print: docker's shape, plus what it
lacks.

docker's shape demands a number for every end: `State.ExitCode` has it (128 + signal; for unknown 255 in JSON, while a
template prints `unknown`). `Exit` says what is known: Code only for exited, Signal only for signaled, Number only for
unknown, null otherwise.
"""

from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.answers import status_of
from supervisor.model.status import UNKNOWN_NUMBER, Unknown, fold

Document = dict[str, object]

NEVER = "0001-01-01T00:00:00Z"  # Go's zero time: docker's value for what has not happened
DEFAULT_STOP_TIMEOUT = 10
DEFAULT_SHM = 64 << 20  # of a container without a pod

PHASES = {
    pb.PHASE_CREATING: "created",
    pb.PHASE_CREATED: "created",
    pb.PHASE_STARTING: "created",
    pb.PHASE_RUNNING: "running",
    pb.PHASE_PAUSED: "paused",
    pb.PHASE_EXITED: "exited",
    pb.PHASE_RESTARTING: "restarting",
    pb.PHASE_REMOVING: "removing",
}
# docker also calls a container that waits for its next run running: its clients rely on it.
RUNNING = frozenset({pb.PHASE_RUNNING, pb.PHASE_PAUSED, pb.PHASE_RESTARTING})


def number_of(exit_: pb.Exit | None) -> int:
    """Return the number for a shell: the code, 128 + signal, or 255."""
    return UNKNOWN_NUMBER if exit_ is None else fold(status_of(exit_))


class UnknownNumber(int):
    """The number that stands in JSON for an end that was not seen. As a text it is no number."""

    def __str__(self) -> str:
        return "unknown"


def shown_number(exit_: pb.Exit) -> int:
    """Return the same for a document: people and scripts read `unknown` there, and not 255."""
    number = number_of(exit_)
    return UnknownNumber(number) if isinstance(status_of(exit_), Unknown) else number


def time_text(moment: Timestamp) -> str:
    """Return RFC 3339 in UTC, with up to nine digits as needed, as Go's RFC3339Nano prints it."""
    whole = datetime.fromtimestamp(moment.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f".{moment.nanos:09d}".rstrip("0") if moment.nanos else ""
    return f"{whole}{fraction}Z"


def exit_document(exit_: pb.Exit) -> Document:
    return {
        "Run": exit_.run,
        "Kind": exit_.kind,
        "Code": exit_.code if exit_.kind == "exited" and exit_.HasField("code") else None,
        "Signal": exit_.signal if exit_.kind == "signaled" and exit_.HasField("signal") else None,
        "Number": exit_.number if exit_.kind == "unknown" and exit_.HasField("number") else None,
        "Core": exit_.core,
        "Source": exit_.source,
        "Cause": exit_.cause,
        "Reason": exit_.reason,
        "By": _by(exit_),
        "OOM": {"Init": exit_.oom.init, "Kills": exit_.oom.kills},
        "At": _time_or_null(exit_, "at"),
        "LeftBehind": exit_.left_behind,
        **({"Unverified": exit_.unverified} if exit_.unverified else {}),
    }


def container_document(container: pb.Container) -> Document:
    """Return what `inspect` prints of one container."""
    spec = container.spec
    return {
        "Id": container.id,
        "Name": spec.name,
        "Image": spec.image_id,
        "Created": _time_or_never(container, "created_at"),
        "Path": next(iter(spec.args), ""),
        "Args": list(spec.args[1:]),
        "State": _state(container),
        "Config": _config(container),
        "HostConfig": _host_config(spec),
        "Mounts": _mounts(container),
        "NetworkSettings": _network_settings(container),
        "RestartCount": container.restart_count,
        "LogPath": container.log_path,
        "Exit": exit_document(container.exit) if container.HasField("exit") else None,
        "Exitd": _own(container),
    }


def event_document(event: pb.Event) -> Document:
    """Return one line of `events --format jsonl`; only exits have `Exit`."""
    document: Document = {
        "Seq": event.seq,
        "Time": time_text(event.time),
        "Type": event.type,
        "ID": event.id,
        "Name": event.name,
        "Namespace": event.namespace,
        "PodID": event.pod_id,
        "Attributes": dict(event.attributes),
    }
    if event.HasField("exit"):
        document["Exit"] = exit_document(event.exit)
    return document


def lost_document(lost: pb.Lost) -> Document:
    """Report that the numbers From to To were not delivered; the log may still have them."""
    return {"Type": "lost", "From": getattr(lost, "from"), "To": lost.to}


def ledger_document(exit_: pb.Exit) -> Document:
    """Return one line of `exits --format jsonl`."""
    return {
        "ID": exit_.container_id,
        "Name": exit_.name,
        "Namespace": exit_.namespace,
        "ExecID": exit_.exec_id,
        "StartedAt": _time_or_null(exit_, "started_at"),
        "Decision": exit_.decision,
        "Rule": exit_.rule,
        "PodNamespace": exit_.names.namespace,
        "PodName": exit_.names.pod,
        "ContainerName": exit_.names.container,
        "Image": exit_.names.image,
        "Exit": exit_document(exit_),
    }


def _state(container: pb.Container) -> Document:
    phase = container.phase
    over = phase in (pb.PHASE_EXITED, pb.PHASE_RESTARTING, pb.PHASE_REMOVING)
    exit_ = container.exit if container.HasField("exit") and over else None
    cause = exit_.cause if exit_ is not None and isinstance(status_of(exit_), Unknown) else ""
    return {
        "Status": "recovering" if container.recovering else PHASES.get(phase, "unknown"),
        "Running": phase in RUNNING,
        "Paused": phase == pb.PHASE_PAUSED,
        "Restarting": phase == pb.PHASE_RESTARTING,
        "OOMKilled": exit_ is not None and exit_.oom.init,
        "Pid": 0 if over else container.init.pid,
        "ExitCode": 0 if exit_ is None else shown_number(exit_),
        "Error": cause or container.damaged or container.error or container.evicted,
        "StartedAt": _time_or_never(container, "started_at"),
        "FinishedAt": _time_or_never(container, "finished_at"),
        "Health": _health(container.health) if container.HasField("health") else None,
        **({"Probes": _probes(container.probes)} if container.HasField("probes") else {}),
    }


def _probes(states: pb.ProbeStates) -> Document:
    """Return what Kubernetes' probes have found; null for one that there is not."""
    names = ("startup", "liveness", "readiness")
    found = {each.title(): _health(getattr(states, each)) if states.HasField(each) else None for each in names}
    return {"Started": states.started, "Ready": states.ready, **found}


def _health(health: pb.Health) -> Document:
    return {"Status": health.status, "FailingStreak": health.failing_streak, "Log": list(map(_result, health.log))}


def _result(result: pb.HealthResult) -> Document:
    """Return docker's fields, and in Exit and TimedOut what is known."""
    code, signal = (getattr(result, name) if result.HasField(name) else None for name in ("code", "signal"))
    return {
        "Start": time_text(result.start),
        "End": time_text(result.end),
        "ExitCode": _number(result, code, signal),
        "Output": result.output.decode("utf-8", "replace"),
        "Exit": {"Kind": result.kind, "Code": code, "Signal": signal, "Cause": result.cause},
        "TimedOut": result.timed_out,
    }


def _number(result: pb.HealthResult, code: int | None, signal: int | None) -> int:
    """A probe over the network has no code: as docker's tools read it, 0 is good and 1 is not."""
    if result.kind in ("passed", "failed"):
        return 0 if result.kind == "passed" else 1
    return shown_number(pb.Exit(kind=result.kind, code=code, signal=signal))


def _mounts(container: pb.Container) -> list[Document]:
    """Return what docker's `.Mounts` has: all that was put into its root, with where it is on this machine, as far as
    the reply says that."""
    from supervisor.cli.mountwords import mode_of, propagation_of  # `inspect` alone needs them

    spec = container.spec
    sources = container.mount_sources or [mount.source for mount in spec.mounts]
    return [
        {
            "Type": "tmpfs" if not source and mount.tmpfs else "volume" if mount.volume or mount.anonymous else "bind",
            **({"Name": mount.volume, "Driver": "local"} if mount.volume else {}),
            "Source": source,
            "Destination": mount.destination,
            "Mode": mode_of(mount),
            "RW": not (mount.read_only or mount.files),
            "Propagation": propagation_of(mount),
        }
        for mount, source in zip(spec.mounts, sources, strict=True)
    ]


def _config(container: pb.Container) -> Document:
    spec, words = container.spec, container.entrypoint_words
    return {
        "Hostname": spec.hostname,
        "User": spec.user,
        "Env": list(spec.env),
        "Cmd": list(spec.args[words:]),
        "Entrypoint": list(spec.args[:words]),
        "Image": spec.image,
        "WorkingDir": spec.cwd,
        "Labels": dict(spec.labels),
        "StopSignal": spec.stop_signal or "SIGTERM",
        "Tty": spec.tty,
        "OpenStdin": spec.stdin,
        "StopTimeout": spec.stop_timeout_seconds if spec.HasField("stop_timeout_seconds") else DEFAULT_STOP_TIMEOUT,
        "Healthcheck": _check(spec.health) if spec.HasField("health") else None,
    }


def _check(health: pb.HealthSpec) -> Document:
    return {
        "Test": ["CMD", *health.args],
        "Interval": health.interval_ns,
        "Timeout": health.timeout_ns,
        "StartPeriod": health.start_period_ns,
        "Retries": health.retries,
        "OnFailure": health.on_failure,
    }


def _files(spec: pb.ContainerSpec) -> Document:
    """Return the names of the files that are made for it, by where they are."""
    return {mount.destination: [file.path for file in mount.files] for mount in spec.mounts if mount.files}


def _host_config(spec: pb.ContainerSpec) -> Document:
    # `inspect` alone needs them.
    from supervisor.cli.limitwords import device_word
    from supervisor.cli.logwords import log_options
    from supervisor.cli.mountwords import bind_word, tmpfs_options
    from supervisor.cli.namewords import host_word
    from supervisor.cli.rightswords import ulimit_words
    from supervisor.cli.securitywords import security_options

    policy, _, retries = (spec.restart or "no").partition(":")
    return {
        "Runtime": spec.runtime,
        "Memory": spec.memory_bytes,
        "NetworkMode": spec.network or "none",
        "PublishAllPorts": spec.expose.publish_all,
        "RestartPolicy": {"Name": policy, "MaximumRetryCount": int(retries) if retries.isdecimal() else 0},
        "AutoRemove": spec.auto_remove,
        "ReadonlyRootfs": spec.read_only,
        "Binds": [bind_word(mount) for mount in spec.mounts if not (mount.tmpfs or mount.files)],
        **({"Files": files} if (files := _files(spec)) else {}),
        "Tmpfs": {mount.destination: tmpfs_options(mount) for mount in spec.mounts if mount.tmpfs},
        "MemoryReservation": spec.limits.memory_reservation_bytes,
        "MemorySwap": spec.limits.memory_swap_bytes or spec.memory_bytes,
        "CpuShares": spec.limits.cpu_shares,
        "CpusetCpus": spec.limits.cpuset_cpus,
        "CpusetMems": spec.limits.cpuset_mems,
        "OomScoreAdj": spec.limits.oom_score_adj,
        "ShmSize": spec.limits.shm_bytes or DEFAULT_SHM,
        "Devices": [device_word(device) for device in spec.devices],
        "Sysctls": dict(spec.sysctls),
        "Dns": list(spec.resolver.servers),
        "DnsSearch": list(spec.resolver.searches),
        "DnsOptions": list(spec.resolver.options),
        "ExtraHosts": [host_word(entry) for entry in spec.resolver.hosts],
        "Init": spec.init,
        "IpcMode": "host" if spec.ipc == "host" else "private",
        "PidMode": {"host": "host", "pod": f"container:{spec.sandbox}"}.get(spec.pid, ""),
        "NanoCpus": spec.cpu_limit_milli * 1_000_000,
        "PidsLimit": spec.rights.pids_limit,
        "Ulimits": ulimit_words(spec.rights.ulimits),
        "Privileged": spec.rights.privileged,
        "CapAdd": list(spec.rights.cap_add),
        "CapDrop": list(spec.rights.cap_drop),
        "GroupAdd": [str(group) for group in spec.rights.groups],
        "Annotations": dict(spec.annotations),
        "LogConfig": {"Type": spec.log.driver, "Config": log_options(spec.log)},
        "SecurityOpt": security_options(spec.security),
        "Storage": spec.storage,
        "UsernsMode": "" if spec.userns == "host" else spec.userns,
    }


def _network_settings(container: pb.Container) -> Document:
    from supervisor.cli.portwords import by_port

    found = {each.network: _network(each) for each in container.networks}
    first = next(iter(found.values()), _network(pb.Attachment()))
    kept = (
        "IPAddress",
        "IPPrefixLen",
        "Gateway",
        "MacAddress",
        "GlobalIPv6Address",
        "GlobalIPv6PrefixLen",
        "IPv6Gateway",
    )
    return {"Networks": found, "Ports": by_port(container.spec.ports), **{name: first[name] for name in kept}}


def _network(attached: pb.Attachment) -> Document:
    """Return docker's fields: the first address of each family. `Addresses` has all of them."""
    four = next((each for each in attached.addresses if ":" not in each), "")
    six = next((each for each in attached.addresses if ":" in each), "")
    return {
        "IPAddress": four.partition("/")[0],
        "IPPrefixLen": int(four.partition("/")[2] or 0),
        "Gateway": next((each for each in attached.gateways if ":" not in each), ""),
        "MacAddress": attached.mac,
        "GlobalIPv6Address": six.partition("/")[0],
        "GlobalIPv6PrefixLen": int(six.partition("/")[2] or 0),
        "IPv6Gateway": next((each for each in attached.gateways if ":" in each), ""),
        "Interface": attached.interface,
        "Addresses": list(attached.addresses),
        "DNSServers": list(attached.dns_servers),
    }


def _own(container: pb.Container) -> Document:
    """Return what docker has no place for."""
    return {
        "Namespace": container.spec.namespace,
        "PodID": container.id if container.spec.HasField("pod") else container.spec.sandbox,
        "SandboxRun": container.sandbox_run,
        "RestartRules": list(container.spec.restart_rules),
        "Rootfs": container.spec.rootfs,
        "Bundle": container.bundle_path or container.spec.bundle,
        "Run": container.run,
        "RunDirectory": container.run_directory,
        "RestartAt": _time_or_null(container, "restart_at"),
        "MonitoredBy": container.monitored_by,
        "Recovering": container.recovering,
        "Damaged": container.damaged,
        "Shim": _process(container, "shim"),
        "Init": _process(container, "init"),
        "Streams": _streams(container.streams) if container.HasField("streams") else None,
        **({"IDMappings": _id_mappings(container.ids)} if container.HasField("ids") else {}),
    }


def _id_mappings(ids: pb.IdRange) -> Document:
    """As podman has them: inside, outside, how many."""
    return {name: [f"0:{ids.first}:{ids.count}"] for name in ("UidMap", "GidMap")}


def _streams(moved: pb.StreamCounters) -> Document:
    """In bytes, by the current shim."""
    return {
        "Stdout": moved.stdout_bytes,
        "Stderr": moved.stderr_bytes,
        "Stdin": moved.stdin_bytes,
        "Lost": moved.lost_bytes,
        "Dropped": moved.dropped_bytes,
    }


def _by(exit_: pb.Exit) -> Document | None:
    by = exit_.by
    uid = by.uid if by.HasField("uid") else None
    pid = by.pid if by.HasField("pid") else None
    if uid is None and pid is None and not by.policy:
        return None
    return {"Uid": uid, "Pid": pid, "Policy": by.policy}


def _process(container: pb.Container, field: str) -> Document | None:
    if not container.HasField(field):
        return None
    process: pb.Process = getattr(container, field)
    return {"Pid": process.pid, "StartedTicks": process.started_ticks} if process.pid else None


def _time_or_null(message: pb.Container | pb.Exit, field: str) -> str | None:
    return time_text(getattr(message, field)) if message.HasField(field) else None


def _time_or_never(message: pb.Container, field: str) -> str:
    return _time_or_null(message, field) or NEVER
