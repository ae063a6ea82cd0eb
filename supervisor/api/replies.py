"""Facts become protobuf messages here. Pure, but for the log of what no message can hold."""

from collections.abc import Iterable, Iterator

import structlog

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.checks import check_message, health_message
from supervisor.api.limits import devices_message, limits_message
from supervisor.api.logspecs import log_message
from supervisor.api.mounts import mount_message
from supervisor.api.networks import attachment_message, expose_message, ports_message, wishes_message
from supervisor.api.probes import hooks_message, probes_message, states_message
from supervisor.api.resolver import resolver_message
from supervisor.api.rights import rights_message
from supervisor.api.secrets import secrets_message
from supervisor.api.security import security_message
from supervisor.api.values import clean, timestamp
from supervisor.images.facts import Image
from supervisor.model import parsing, restart
from supervisor.model.execs import Exec, ExecSpec
from supervisor.model.idranges import IdRange
from supervisor.model.ownaddress import as_run
from supervisor.model.pods import PodState
from supervisor.model.remembered import Remembered
from supervisor.model.values import (
    NO_NAMES,
    ROW_DAMAGED,
    By,
    Container,
    Counters,
    Event,
    Exit,
    Exited,
    Names,
    Pod,
    Process,
    Reason,
    Signaled,
    Source,
    Spec,
    Unknown,
)
from supervisor.model.views import DiskUsage, Info, LiveUsage, Occupied, PodView, Pressure, Stall, UsageView, View
from supervisor.model.volumes import Volume
from supervisor.store import events
from supervisor.streams import logline
from supervisor.streams.logs import LogPosition

log = structlog.get_logger(__name__)

MOST_COUNT = 2**64 - 1  # that a field can hold
MOST_READY = 64  # messages of exits
_ready: dict[int, tuple[Exit, pb.Exit]] = {}  # by the exit's identity; oldest first
POD_STATES = {PodState.READY: "SANDBOX_READY", PodState.NOT_READY: "SANDBOX_NOTREADY"}


def spec_message(spec: Spec) -> pb.ContainerSpec:
    """Return the message of a spec, as `requests.spec_of` reads it."""
    return pb.ContainerSpec(
        name=spec.name,
        args=spec.args,
        env=spec.env,
        cwd=spec.cwd,
        user=spec.user,
        rootfs=spec.rootfs,
        bundle=spec.bundle,
        runtime=spec.runtime,
        memory_bytes=spec.memory_bytes,
        annotations=dict(spec.annotations),
        restart=restart.format(spec.restart),
        auto_remove=spec.auto_remove,
        stop_signal=parsing.name_of(spec.stop_signal),
        stop_timeout_seconds=spec.stop_timeout_seconds,
        network=spec.network,
        more_networks=spec.more_networks,
        addresses=wishes_message(spec.wishes),
        ports=ports_message(spec.ports),
        expose=expose_message(spec.expose, publish_all=spec.publish_all),
        labels=dict(spec.labels),
        hostname=spec.hostname,
        read_only=spec.read_only,
        mounts=[mount_message(mount) for mount in spec.mounts],
        namespace=spec.namespace,
        image=spec.image,
        image_id=spec.image_id,
        pod=pod_spec_message(spec.pod) if spec.pod else None,
        sandbox=spec.sandbox,
        pid=spec.pid,
        restart_rules=[restart.format_rule(rule) for rule in spec.restart_rules],
        tty=spec.tty,
        stdin=spec.stdin,
        cpu_limit_milli=spec.cpu_limit_milli,
        cpu_request_milli=spec.cpu_request_milli,
        rights=rights_message(spec.rights),
        log=log_message(spec.log),
        health=check_message(spec.health),
        security=security_message(spec.security),
        limits=limits_message(spec.limits),
        devices=devices_message(spec.devices),
        sysctls=dict(spec.sysctls),
        resolver=resolver_message(spec.resolver),
        ipc=spec.ipc,
        init=spec.init,
        storage="" if spec.bundle else str(spec.storage),
        probes=probes_message(spec.probes),
        hooks=hooks_message(spec.hooks),
        secrets=secrets_message(spec.secrets),
        address_mark=spec.address_mark,
        userns=spec.userns,
    )


def _encoded(spec: Spec) -> bytes:
    return spec_message(spec).SerializeToString()


SPECS_BYTES = 8 << 20  # of some ten thousand containers: a list needs those of all
ENCODED_SPECS = Remembered(_encoded, len, SPECS_BYTES)


def volume_message(volume: Volume, users: Iterable[str] = ()) -> pb.Volume:
    """Return the message of a volume; `users`: the ids of the containers that mount it."""
    return pb.Volume(
        name=volume.name,
        created_at=timestamp(volume.made_ns),
        path=volume.path,
        containers=users,
        anonymous=volume.anonymous,
    )


def pod_spec_message(pod: Pod) -> pb.PodSpec:
    """Return the message of a pod's spec, as `requests.pod_of` reads it."""
    return pb.PodSpec(
        name=pod.name,
        namespace=pod.namespace,
        uid=pod.uid,
        attempt=pod.attempt,
        on_pause_exit=str(pod.on_pause_exit),
        exit_policy=str(pod.exit_policy),
        memory_bytes=pod.memory_bytes,
        log_directory=pod.log_directory,
        pids_limit=pod.pids_limit,
        cpu_limit_milli=pod.cpu_limit_milli,
        active_deadline_seconds=pod.active_deadline_seconds,
        sidecars=pod.sidecars,
        inits=pod.inits,
    )


def pod_message(view: PodView) -> pb.Pod:
    return pb.Pod(
        id=view.pause.container.id,
        spec=pod_spec_message(view.pod),
        state=POD_STATES[view.state],
        pause=container_message(view.pause),
        members=[container_message(member) for member in view.members],
    )


def container_message(view: View) -> pb.Container:
    """Return the message of a container. What an earlier version stored and no message can hold leaves out this
    container's details, and spoils no list."""
    try:
        return _container_message(view)
    except (ValueError, TypeError, OverflowError) as error:  # UnicodeError is a ValueError
        container = view.container
        return pb.Container(
            id=container.id,
            spec=pb.ContainerSpec(name=clean(container.spec.name), namespace=clean(container.spec.namespace)),
            phase=f"PHASE_{container.phase.name}",
            run=container.run,
            recovering=view.recovering,
            damaged=clean(container.damaged),
            error=clean(f"what is stored of it cannot be shown ({error}); remove it, and make it again"),
        )


def _spec_message_of(container: Container) -> pb.ContainerSpec:
    """Return the message of its spec as its run has it; while there is no run its address is empty. One with an address
    put into it is a new value each time: to remember that would only push others out."""
    if container.spec.address_mark:
        return spec_message(as_run(container))
    return pb.ContainerSpec.FromString(ENCODED_SPECS.of(container.spec))


def _container_message(view: View) -> pb.Container:
    container = view.container
    return pb.Container(
        id=container.id,
        spec=_spec_message_of(container),
        phase=f"PHASE_{container.phase.name}",
        run=container.run,
        init=_process(container.init),
        shim=_process(container.shim),
        created_at=timestamp(container.created_ns or None),
        started_at=timestamp(container.started_ns),
        finished_at=timestamp(container.exit.at_ns) if container.exit else None,
        exit=exit_message(container.exit) if container.exit else None,
        restart_count=container.restart_count,
        restart_at=timestamp(view.restart_at_ns),
        recovering=view.recovering,
        error=clean(container.error),
        damaged=clean(container.damaged),
        networks=[attachment_message(each) for each in container.networks],
        network_hint=clean(container.spec.network_hint),
        monitored_by=view.monitored_by,
        log_path=clean(view.log_path),
        bundle_path=clean(view.bundle_path),
        run_directory=clean(view.run_directory),
        execs=map(exec_message, view.execs),
        sandbox_run=container.sandbox_run,
        health=health_message(container.health, view.health),
        probes=states_message(container, view.probes),
        streams=_counters(view.streams) if view.streams else None,
        of_containerd=container.spec.task is not None,
        evicted=clean(view.evicted),
        ids=_ids_message(container.spec.ids),
        mount_sources=map(clean, view.mount_sources),
        entrypoint_words=container.spec.entrypoint_words,
    )


def _ids_message(ids: IdRange | None) -> pb.IdRange | None:
    return None if ids is None else pb.IdRange(first=ids.first, count=ids.count)


def exec_message(e: Exec) -> pb.Exec:
    return pb.Exec(
        id=e.key.exec_id,
        container_id=e.key.container,
        run=e.key.run,
        spec=exec_spec_message(e.spec),
        phase=e.phase.value,
        init=_process(e.init),
        started_at=timestamp(e.started_ns),
        exit=exit_message(e.exit) if e.exit else None,
    )


def exec_spec_message(spec: ExecSpec) -> pb.ExecSpec:
    """Return the message of an exec's spec, as `execrequests.spec_of` reads it."""
    return pb.ExecSpec(
        args=spec.args,
        env=spec.env,
        cwd=spec.cwd,
        user=spec.user,
        tty=spec.tty,
        stdin=spec.stdin,
        timeout_seconds=spec.timeout_seconds,
        attach=spec.attach,
        size=pb.Winsize(rows=spec.size.rows, cols=spec.size.cols) if spec.size else None,
    )


def make_ready(exit: Exit) -> None:
    """Build the message of an exit while it is on its way to the disk: once it may be sent, clients wait for it."""
    while len(_ready) >= MOST_READY:
        del _ready[next(iter(_ready))]
    _ready[id(exit)] = exit, _built(exit)


def exit_message(exit: Exit) -> pb.Exit:
    """Return the message of an exit, which is not to be changed. As in `container_message`, a line of the ledger that
    no message can hold spoils no list."""
    ready = _ready.get(id(exit))
    return ready[1] if ready is not None and ready[0] is exit else _built(exit)


def _built(exit: Exit) -> pb.Exit:
    try:
        return _exit_message(exit)
    except (ValueError, TypeError, OverflowError) as error:
        key = exit.key
        where = {"container": clean(key.container), "run": key.run, "exec": clean(key.exec_id)}
        log.error("an exit that cannot be shown", **where, why=clean(str(error)))
        return pb.Exit(
            container_id=clean(key.container),
            run=max(0, key.run),
            exec_id=clean(key.exec_id),
            name=clean(exit.name),
            namespace=clean(exit.namespace),
            source=str(Source.NONE),
            reason=str(Reason.UNKNOWN),
            kind="unknown",
            cause=ROW_DAMAGED,
        )


def _names(names: Names) -> pb.Names | None:
    if names == NO_NAMES:
        return None
    words = (clean(word) for word in (names.namespace, names.pod, names.container, names.image))
    return pb.Names(**dict(zip(("namespace", "pod", "container", "image"), words, strict=True)))


def _exit_message(exit: Exit) -> pb.Exit:
    message = pb.Exit(
        container_id=exit.key.container,
        run=exit.key.run,
        exec_id=exit.key.exec_id,
        source=str(exit.source),
        reason=str(exit.reason),
        by=by_message(exit.by),
        oom=pb.Oom(init=exit.oom.init, kills=exit.oom.kills, limit_bytes=exit.oom.limit_bytes),
        at=timestamp(exit.at_ns),
        started_at=timestamp(exit.started_ns),
        name=exit.name,
        namespace=exit.namespace,
        decision=exit.decision,
        rule=exit.rule,
        init=_process(exit.init),
        at_is_found=exit.at_is_found,
        left_behind=exit.left_behind,
        unverified=clean(exit.doubt),
        names=_names(exit.names),
    )
    match exit.status:
        case Exited(code):
            message.MergeFrom(pb.Exit(kind="exited", code=code))
        case Signaled(number, core):
            message.MergeFrom(pb.Exit(kind="signaled", signal=number, core=core))
        case Unknown(cause, beside):
            message.MergeFrom(pb.Exit(kind="unknown", cause=clean(cause), number=beside))
    return message


def event_message(event: Event) -> pb.Event:
    """Return the message of an event. As in `container_message`, one that no message can hold leaves no hole in the
    numbers."""
    try:
        return _event_message(event)
    except (ValueError, TypeError, OverflowError) as error:
        log.error("an event that cannot be shown", seq=event.seq, why=clean(str(error)))
        why = {"why": clean(f"it cannot be shown ({error})")}
        return pb.Event(seq=event.seq, type=clean(event.type), id=clean(event.id), attributes=why)


def _event_message(event: Event) -> pb.Event:
    return pb.Event(
        seq=event.seq,
        time=timestamp(event.time_ns),
        type=event.type,
        id=event.id,
        name=event.name,
        namespace=event.namespace,
        pod_id=event.pod_id,
        exec_id=event.exec_id,
        exit=exit_message(event.exit) if event.exit else None,
        attributes={clean(key): clean(value) for key, value in event.attributes},
    )


def events_message(item: events.Item) -> pb.EventsReply:
    match item:
        case Event():
            return pb.EventsReply(event=event_message(item))
        case events.Bookmark(seq):
            return pb.EventsReply(bookmark=seq)
        case events.Lost(first, last):
            return pb.EventsReply(lost=_lost(first, last))


def _lost(first: int, last: int) -> pb.Lost:
    message = pb.Lost(to=last)
    setattr(message, "from", first)  # a keyword of Python
    return message


def log_messages(items: Iterable[logline.Item], size_bytes: int) -> Iterator[pb.LogsReply]:
    """Yield output for the wire: neighbours of one stream together, up to `size_bytes` and at most one entry beyond.

    A reply has the time of its first entry. Lines that are not of the log's format are left out.
    """
    reply: pb.LogsReply | None = None
    for item in items:
        if isinstance(item, logline.Malformed):
            continue
        if reply is not None and (reply.stream != item.stream or len(reply.data) >= size_bytes):
            yield reply
            reply = None
        if reply is None:
            reply = pb.LogsReply(data=item.data, stream=item.stream, time=timestamp(item.time_ns))
        else:
            reply.data += item.data
    if reply is not None:
        yield reply


def position_message(position: LogPosition, run: int) -> pb.LogsReply:
    """Return the reply that says how far a log was sent."""
    begun = {kind: sorted(name for name, shown in position.begun.items() if shown is kind) for kind in (True, False)}
    place = position.place
    message = pb.LogPosition(
        device=place.device,
        inode=place.inode,
        offset=place.offset,
        digest=place.digest,
        shown=begun[True],
        withheld=begun[False],
        run=run,
    )
    return pb.LogsReply(position=message, gap=position.gap, files=position.files)


def image_message(image: Image, users: Iterable[str] = ()) -> pb.Image:
    return pb.Image(
        id=image.id,
        digest=image.digest,
        names=image.names,
        size_bytes=image.size_bytes,
        created=clean(image.created),
        users=users,
    )


def info_message(info: Info) -> pb.InfoReply:
    return pb.InfoReply(
        version=info.version,
        root=clean(info.root),
        state=clean(info.state),
        boot_id=info.boot_id,
        default_runtime=clean(info.default_runtime),
        cgroup=info.cgroup,
        evidence=dict(info.evidence),
        containers=info.containers,
        running=info.running,
        pid=info.pid,
        keeper=_process(info.keeper),
        pending_commits=info.pending_commits,
        seq=info.seq,
        state_file_system=info.state_file_system,
        settings={clean(key): clean(value) for key, value in info.settings},
        configuration=[
            pb.Setting(name=each.name, value=clean(each.value), origin=clean(each.origin))
            for each in info.configuration
        ],
    )


def usage_message(usage: DiskUsage) -> pb.DiskUsageReply:
    return pb.DiskUsageReply(
        containers=[
            pb.ContainerUsage(
                id=each.id,
                active=each.active,
                in_memory=each.in_memory,
                layer_bytes=each.layer_bytes,
                complete=each.complete,
                log_files=each.log_files,
                log_bytes=each.log_bytes,
            )
            for each in usage.containers
        ],
        images=_occupied(usage.images),
        layers=_occupied(usage.layers),
        volumes=_occupied(usage.volumes),
    )


def _occupied(found: Occupied) -> pb.Occupied:
    return pb.Occupied(count=found.count, active=found.active, bytes=found.size_bytes, complete=found.complete)


def _process(process: Process | None) -> pb.Process | None:
    return pb.Process(pid=process.pid, started_ticks=process.started_ticks) if process else None


def _counters(found: Counters) -> pb.StreamCounters:
    return pb.StreamCounters(
        stdout_bytes=found.stdout_bytes,
        stderr_bytes=found.stderr_bytes,
        stdin_bytes=found.stdin_bytes,
        lost_bytes=found.lost_bytes,
        dropped_bytes=found.dropped_bytes,
    )


def by_message(by: By) -> pb.By:
    return pb.By(uid=by.uid, pid=by.pid, policy=by.policy)


def stats_message(view: UsageView) -> pb.ContainerStats:
    """Return what a container uses; what does not run, or was not measured, has no numbers."""
    message = pb.ContainerStats(id=view.id, name=clean(view.name), measured=view.usage is not None)
    usage = view.usage or LiveUsage()
    if view.usage is not None:
        message.read_boot_ns = view.read_boot_ns
    for name in ("cpu_ns", "memory_bytes", "memory_limit_bytes", "read_bytes", "written_bytes", "pids", "pids_limit"):
        setattr(message, name, min(getattr(usage, name), MOST_COUNT))
    if usage.network is not None:
        message.network.received_bytes = min(usage.network.received_bytes, MOST_COUNT)
        message.network.sent_bytes = min(usage.network.sent_bytes, MOST_COUNT)
    for name in ("cpu_pressure", "memory_pressure", "io_pressure"):
        if (pressure := getattr(usage, name)) is not None:
            getattr(message, name).CopyFrom(pressure_message(pressure))
    return message


def pressure_message(pressure: Pressure) -> pb.Pressure:
    return pb.Pressure(some=_stall_message(pressure.some), full=_stall_message(pressure.full))


def _stall_message(stall: Stall) -> pb.Stall:
    total_ns = min(stall.total_ns, MOST_COUNT)
    return pb.Stall(avg10=stall.avg10, avg60=stall.avg60, avg300=stall.avg300, total_ns=total_ns)
