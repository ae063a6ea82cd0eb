"""Requests become facts here, checked: BadRequest names the field and what is allowed. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import replace
from shim.patterns import LatePattern
from supervisor.api.checks import check_of
from supervisor.api.limits import devices_of, limits_of, sysctls_of
from supervisor.api.logspecs import LEFT_OPEN, log_of
from supervisor.api.mounts import mount_of
from supervisor.api.networks import exposed_of, more_networks_of, network_of, ports_of, wishes_of
from supervisor.api.probes import hooks_of, probes_of
from supervisor.api.resolver import resolver_of
from supervisor.api.rights import MOST_PIDS, rights_of
from supervisor.api.secrets import secrets_of, within_bounds
from supervisor.api.security import security_of
from supervisor.api.values import absolute, bad, matching, one_of
from supervisor.model import bounds, idranges, parsing, restart, storage
from supervisor.model.errors import BadRequest
from supervisor.model.storage import Storage
from supervisor.model.values import ExitPolicy, Mount, OnPauseExit, Pod, Spec
from supervisor.model.watched import FOREIGN
from supervisor.streams.logfiles import LogPlace
from supervisor.streams.logs import LogPosition, WantedLog

MIN_MEMORY_BYTES = 4 * 1024 * 1024  # below it the runtime itself does not fit into the container's cgroup
MIN_CPU_MILLI, MAX_CPU_MILLI = 10, 1_000_000  # the kernel's smallest quota is 1 ms in a period of 100 ms
MAX_NUMBER = 2**63 - 1  # what the database and the OCI spec can hold
MOST_SHUTDOWN_SECONDS = 600
MOST_DEADLINE_SECONDS = 2**31 - 1
MOST_MEMBER_NAMES = 100
MOST_FOREIGN = 8192  # characters of the id of a container that others run: it has a path in it
CONDITIONS = ("exited", "next-exit", "removed")
_PIDS = ("own", "pod", "host")
_IPCS = ("own", "host")
_NAME = LatePattern(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}")
_MARK = LatePattern(r"[-a-zA-Z0-9]{16,80}")  # so long that nothing else is like it
_POD_WORD = LatePattern(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,252}")
_ID = LatePattern(r"[0-9a-f]{64}")
_DIGEST = LatePattern(r"sha256:[0-9a-f]{64}")
_HOSTNAME = LatePattern(r"[a-zA-Z0-9]([a-zA-Z0-9.-]{0,62}[a-zA-Z0-9])?")
_USER = LatePattern(r"[^:\s/]+(:[^:\s/]+)?")


def spec_of(message: pb.ContainerSpec) -> Spec:
    """Return the checked spec. What `engine/admission.py` settles stays open: name, runtime, network, cwd and stop
    signal (0) are empty unless they are given. Raises BadRequest."""
    refuse_nul(message)
    asked = [read for descriptor, _ in message.ListFields() if (read := _SELDOM.get(descriptor.name))]
    return Spec(
        name=matching("name", message.name, _NAME, _NAME.pattern),
        args=_args(message),
        env=env_of(message.env),
        cwd=absolute("cwd", message.cwd),
        rootfs=_one_root(message).rootfs,
        bundle=message.bundle,
        runtime=_runtime(message.runtime),
        auto_remove=message.auto_remove,
        stop_signal=signal_of(message.stop_signal, "stop_signal") if message.stop_signal else 0,
        stop_timeout_seconds=message.stop_timeout_seconds if message.HasField("stop_timeout_seconds") else 10,
        network=network_of(message.network),
        publish_all=message.expose.publish_all,
        read_only=message.read_only,
        image=message.image,
        tty=message.tty,
        stdin=message.stdin,
        rights=rights_of(message.rights, of_bundle=bool(message.bundle)),
        entrypoint=tuple(message.entrypoint),
        log=log_of(message.log) if message.HasField("log") else LEFT_OPEN,
        security=security_of(message.security, of_bundle=bool(message.bundle), privileged=message.rights.privileged),
        storage=_storage(message),
        **{name: read(message) for name, read in asked},
    )


def new_name_of(text: str) -> str:
    """Return the name that a container is to get. Raises BadRequest."""
    if not text:
        raise BadRequest("name: the new name is empty", field="name")
    return matching("name", text, _NAME, _NAME.pattern)


def stop_signal_of(request: "pb.StopRequest | pb.RestartRequest") -> int:
    """Return the signal that a stop begins with; 0: the container's own. Raises BadRequest."""
    return signal_of(request.signal) if request.signal else 0


def refuse_nameless(spec: Spec) -> None:
    """Raise BadRequest for a container without the name of the one that it is to replace."""
    if not spec.name:
        raise BadRequest("replace: which container? The request has no name", field="replace")


def pod_of(message: pb.PodSpec) -> Pod:
    """Return the checked pod. Raises BadRequest."""
    return Pod(
        name=matching("pod.name", message.name, _POD_WORD, _POD_WORD.pattern),
        namespace=matching("pod.namespace", message.namespace, _POD_WORD, _POD_WORD.pattern) or "default",
        uid=matching("pod.uid", message.uid, _POD_WORD, _POD_WORD.pattern),
        attempt=message.attempt,
        on_pause_exit=OnPauseExit(one_of("pod.on_pause_exit", message.on_pause_exit or "stop", tuple(OnPauseExit))),
        exit_policy=ExitPolicy(one_of("pod.exit_policy", message.exit_policy or "continue", tuple(ExitPolicy))),
        memory_bytes=memory_of(message.memory_bytes),
        log_directory=absolute("pod.log_directory", message.log_directory),
        pids_limit=_pids(message.pids_limit),
        cpu_limit_milli=cpu_of("pod.cpu_limit_milli", message.cpu_limit_milli),
        active_deadline_seconds=_deadline(message.active_deadline_seconds),
        sidecars=_member_names("pod.sidecars", message.sidecars),
        inits=_member_names("pod.inits", message.inits),
    )


def signal_of(text: str, field: str = "signal") -> int:
    """Return a signal's number, 1 to 64, of SIGTERM, TERM, 15, RTMIN+3 or SIGRTMAX-1, in any case of letters. Raises
    BadRequest."""
    number = parsing.number_of(text)
    if number is None:
        raise bad(field, text, "a signal's name (SIGTERM, TERM, RTMIN+1) or its number, 1 to 64")
    return number


def refuse_nul(message: Message, path: str = "") -> None:
    """Raise BadRequest for a NUL byte in any string: behind it C sees another text than Python does."""
    for descriptor, value in message.ListFields():
        for text in _texts(value, f"{path}{descriptor.name}"):
            if "\0" in text[1]:
                raise BadRequest(f"{text[0]} has a NUL byte in it: not allowed anywhere", field=text[0])


def _texts(value: object, path: str) -> Iterable[tuple[str, str]]:
    """Every string in a field's value, with the field's path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Message):
        for descriptor, inner in value.ListFields():
            yield from _texts(inner, f"{path}.{descriptor.name}")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield path, str(key)
            yield from _texts(inner, path)
    elif isinstance(value, Iterable) and not isinstance(value, bytes):
        for index, inner in enumerate(value):
            yield from _texts(inner, f"{path}[{index}]")


def id_of(text: str, field: str = "id") -> str:
    """Return a container's id, its beginning or its name. Raises BadRequest for what can be none of them."""
    if not _NAME.fullmatch(text) and not _ID.fullmatch(text):
        raise bad(field, text, "a container's id, the beginning of one, or a name")
    return text


def ledger_id_of(text: str) -> str:
    """Return the id of a container in the ledger, which also has those that others run. Raises BadRequest."""
    if FOREIGN not in text:
        return id_of(text)
    if len(text) > MOST_FOREIGN or "\0" in text:
        raise bad("id", text, "a container's id as `exits` shows it")
    return text


def user_of(text: str) -> str:
    return matching("user", text, _USER, "name|uid[:group|gid]")


def _hostname(text: str) -> str:
    return matching("hostname", text, _HOSTNAME, "letters, digits, '-' and '.', at most 64")


def condition_of(text: str) -> str:
    return one_of("condition", text or "exited", CONDITIONS)


def only_exited(condition: str) -> None:
    """Raise BadRequest for a condition that cannot be waited for with an exec."""
    if condition != "exited":
        raise bad("condition", condition, "exited, for an exec")


def number_of(value: int, field: str) -> int:
    """Return a run or sequence number that the store can hold. Raises BadRequest."""
    if value > MAX_NUMBER:
        raise bad(field, str(value), f"at most {MAX_NUMBER}")
    return value


def time_of(timestamp: Timestamp, field: str) -> int:
    """Return CLOCK_REALTIME in ns. Raises BadRequest for nanos out of range and for years that no 64-bit clock can
    show."""
    total = timestamp.seconds * 1_000_000_000 + timestamp.nanos
    if not 0 <= timestamp.nanos < 1_000_000_000 or not 0 <= total <= MAX_NUMBER:
        raise bad(field, f"{timestamp.seconds}s {timestamp.nanos}ns", "a time since 1970 with nanos below 1e9")
    return total


def log_wanted(request: pb.LogsRequest, source: WantedLog) -> WantedLog:
    """Return the part of a log that the request asks for. Raises BadRequest."""
    return replace(
        source,
        tail_lines=number_of(request.tail_lines, "tail_lines") or None,
        since_ns=time_of(request.since, "since") if request.HasField("since") else None,
        until_ns=time_of(request.until, "until") if request.HasField("until") else None,
        timestamps=request.timestamps,
        positions=request.positions and request.follow,
        after=_position_of(request.after) if request.HasField("after") else None,
    )


def _position_of(message: pb.LogPosition) -> LogPosition:
    begun = {**dict.fromkeys(message.withheld, False), **dict.fromkeys(message.shown, True)}
    if unknown := begun.keys() - {"stdout", "stderr"}:
        raise BadRequest(f"after: {min(unknown)!r} is no stream", field="after")
    offset = number_of(message.offset, "after.offset")
    return LogPosition(LogPlace(message.device, message.inode, offset, message.digest), begun)


def timeout_of(request: pb.StopRequest | pb.RestartRequest | pb.StopPodRequest) -> int | None:
    """Return the grace in seconds; None: the container's own."""
    return request.timeout_seconds if request.HasField("timeout_seconds") else None


def _one_root(message: pb.ContainerSpec) -> pb.ContainerSpec:
    if [bool(message.rootfs), bool(message.bundle), bool(message.image)].count(True) != 1:
        raise BadRequest("rootfs, bundle, image: exactly one of the three must be given", field="rootfs")
    if message.image_id and not message.image:
        raise BadRequest("image_id: says which image the word in `image` means, and there is none", field="image_id")
    absolute("rootfs", message.rootfs)
    absolute("bundle", message.bundle)
    return message


def _init(message: pb.ContainerSpec) -> bool:
    if message.init and (message.bundle or message.image == "pause"):
        raise BadRequest("init: a bundle names its own first process, and pause is one; leave it out", field="init")
    return message.init


def _args(message: pb.ContainerSpec) -> tuple[str, ...]:
    words = [word for word in message.entrypoint[:1] if word] or message.args
    if message.rootfs and not (words and words[0]):
        raise BadRequest("args: a command is needed to run on a rootfs", field="args")
    within("args", bounds.size_of((*message.entrypoint, *message.args)), bounds.MOST_WORDS_BYTES)
    return tuple(message.args)


def within(field: str, size_bytes: int, most_bytes: int) -> None:
    """Raise BadRequest when the field has more than `most_bytes`."""
    if size_bytes > most_bytes:
        raise BadRequest(f"{field}: {size_bytes} bytes: at most {most_bytes} are allowed", field=field)


def env_of(env: Sequence[str]) -> tuple[str, ...]:
    for text in env:
        if text.find("=") < 1:
            raise bad("env", text, "KEY=VALUE")
    within("env", bounds.size_of(env), bounds.MOST_WORDS_BYTES)
    return tuple(env)


def shutdown_limit_of(message: pb.ShutDownNodeRequest) -> int:
    """Raises BadRequest also for a limit that is not set: an empty request stops nothing."""
    if not 1 <= message.limit_seconds <= MOST_SHUTDOWN_SECONDS:
        raise bad("limit_seconds", str(message.limit_seconds), f"1 to {MOST_SHUTDOWN_SECONDS}")
    return message.limit_seconds


def _mounts(message: pb.ContainerSpec) -> tuple[Mount, ...]:
    found = tuple(mount_of(f"mounts[{index}]", mount) for index, mount in enumerate(message.mounts))
    within_bounds(found)
    return found


def _runtime(text: str) -> str:
    return text if text.startswith("/") else matching("runtime", text, _NAME, "a plain name or an absolute path")


def memory_of(size_bytes: int) -> int:
    """Return a memory limit, 0 for none. Raises BadRequest."""
    if size_bytes and not MIN_MEMORY_BYTES <= size_bytes <= MAX_NUMBER:
        raise bad("memory_bytes", str(size_bytes), f"0 (no limit) or {MIN_MEMORY_BYTES} (4 MiB) to {MAX_NUMBER}")
    return size_bytes


def _pids(limit: int) -> int:
    if limit > MOST_PIDS:
        raise bad("pod.pids_limit", str(limit), f"1 to {MOST_PIDS}, or 0 for no limit")
    return limit


def _deadline(seconds: int) -> int:
    if seconds > MOST_DEADLINE_SECONDS:
        raise bad("pod.active_deadline_seconds", str(seconds), f"1 to {MOST_DEADLINE_SECONDS}, or 0 for none")
    return seconds


def _address_mark(text: str) -> str:
    return matching("address_mark", text, _MARK, _MARK.pattern) if text else ""


def _member_names(field: str, names: Sequence[str]) -> tuple[str, ...]:
    if len(names) > MOST_MEMBER_NAMES or len(set(names)) < len(names):
        raise BadRequest(f"{field}: at most {MOST_MEMBER_NAMES} names, each once", field=field)
    for name in names:
        if not _NAME.fullmatch(name):
            raise bad(field, name, _NAME.pattern)
    return tuple(names)


def _storage(message: pb.ContainerSpec) -> Storage:
    if message.storage and message.bundle:
        raise BadRequest("storage: a bundle brings its own root file system, and exitd no layer over it; drop one")
    try:
        return storage.parse(message.storage)
    except ValueError as error:
        raise bad("storage", message.storage, str(error)) from error


def _userns(message: pb.ContainerSpec) -> str:
    asked = message.userns.partition(":")[0]  # podman's keep-id:uid=1
    if asked in idranges.KEEPS:
        raise BadRequest(f"userns {asked}: that {idranges.NO_KEEP}", field="userns")
    word = one_of("userns", message.userns or idranges.HOST, (idranges.AUTO, idranges.HOST))
    if word == idranges.HOST:
        return word
    hindrances = (
        ("bundle", bool(message.bundle), "it says itself which namespaces there are"),
        ("pod", message.HasField("pod") or bool(message.sandbox), "the containers of a pod have the machine's users"),
        ("pid", message.pid == "host", "the machine's processes are not its own"),
        ("ipc", message.ipc == "host", "the machine's ipc namespace is not its own"),
        ("rights.privileged", message.rights.privileged, "its rights end where its own users do"),
    )
    for field, is_there, why in hindrances:
        if is_there:
            raise BadRequest(f"userns auto, {field}: {why}; drop one of them", field="userns")
    return word


def cpu_of(field: str, milli: int) -> int:
    """Return a limit of CPU time in thousandths of a CPU, 0 for none. Raises BadRequest."""
    if milli and not MIN_CPU_MILLI <= milli <= MAX_CPU_MILLI:
        raise bad(field, str(milli), f"0 (no limit) or {MIN_CPU_MILLI} to {MAX_CPU_MILLI} thousandths of a CPU")
    return milli


def _pairs(field: str, pairs: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    if "" in pairs:
        raise BadRequest(f"{field}: a key is empty", field=field)
    within(field, bounds.size_of_pairs(pairs.items()), bounds.MOST_PAIRS_BYTES)
    return tuple(sorted(pairs.items()))


# What most requests leave out, by its field there: the field of Spec, and how it is read. Left out, it is as Spec has
# it by default, and nothing of it is called.
_SELDOM: dict[str, tuple[str, Callable[[pb.ContainerSpec], Any]]] = {
    "user": ("user", lambda m: user_of(m.user)),
    "memory_bytes": ("memory_bytes", lambda m: memory_of(m.memory_bytes)),
    "annotations": ("annotations", lambda m: _pairs("annotations", m.annotations)),
    "restart": ("restart", lambda m: restart.parse(m.restart, auto_remove=m.auto_remove)),
    "restart_rules": ("restart_rules", lambda m: restart.parse_rules(m.restart_rules, auto_remove=m.auto_remove)),
    "more_networks": ("more_networks", lambda m: more_networks_of(m.network, m.more_networks)),
    "addresses": ("wishes", lambda m: wishes_of(m.addresses)),
    "ports": ("ports", lambda m: ports_of(m.ports)),
    "expose": ("expose", lambda m: exposed_of(m.expose)),
    "labels": ("labels", lambda m: _pairs("labels", m.labels)),
    "hostname": ("hostname", lambda m: _hostname(m.hostname)),
    "mounts": ("mounts", _mounts),
    "namespace": ("namespace", lambda m: matching("namespace", m.namespace, _NAME, _NAME.pattern)),
    "image_id": ("image_id", lambda m: matching("image_id", m.image_id, _DIGEST, _DIGEST.pattern)),
    "pod": ("pod", lambda m: pod_of(m.pod)),
    "sandbox": ("sandbox", lambda m: id_of(m.sandbox)),
    "pid": ("pid", lambda m: one_of("pid", m.pid, _PIDS)),
    "ipc": ("ipc", lambda m: one_of("ipc", m.ipc, _IPCS)),
    "cpu_limit_milli": ("cpu_limit_milli", lambda m: cpu_of("cpu_limit_milli", m.cpu_limit_milli)),
    "cpu_request_milli": ("cpu_request_milli", lambda m: cpu_of("cpu_request_milli", m.cpu_request_milli)),
    "health": ("health", lambda m: check_of(m.health, auto_remove=m.auto_remove)),
    "limits": ("limits", lambda m: limits_of(m.limits, m.memory_bytes, of_bundle=bool(m.bundle))),
    "devices": ("devices", lambda m: devices_of(m.devices)),
    "sysctls": ("sysctls", lambda m: sysctls_of(m.sysctls, network=m.network, ipc=m.ipc)),
    "init": ("init", _init),
    "resolver": ("resolver", lambda m: resolver_of(m.resolver, of_bundle=bool(m.bundle))),
    "probes": ("probes", probes_of),
    "hooks": ("hooks", hooks_of),
    "secrets": ("secrets", lambda m: secrets_of(m.secrets, of_bundle=bool(m.bundle))),
    "address_mark": ("address_mark", lambda m: _address_mark(m.address_mark)),
    "userns": ("userns", _userns),
}
