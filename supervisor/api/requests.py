"""Requests become facts here, checked: BadRequest names the field and what is allowed. Pure."""

import re
from collections.abc import Iterable, Mapping

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor import restart
from supervisor.api import signals
from supervisor.errors import BadRequest
from supervisor.facts import Mount, Spec

MIN_MEMORY_BYTES = 4 * 1024 * 1024  # below it the runtime itself does not fit into the container's cgroup
MAX_NUMBER = 2**63 - 1  # what the database and the OCI spec can hold
CONDITIONS = ("exited", "next-exit", "removed")
_NETWORKS = ("none", "host")
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}")
_ID = re.compile(r"[0-9a-f]{64}")
_HOSTNAME = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9.-]{0,62}[a-zA-Z0-9])?")
_USER = re.compile(r"[^:\s/]+(:[^:\s/]+)?")


def spec_of(message: pb.ContainerSpec) -> Spec:
    """The checked spec. An empty name and an empty runtime stay empty: the node gives them. Raises BadRequest."""
    refuse_nul(message)
    return Spec(
        name=_matching("name", message.name, _NAME, _NAME.pattern),
        args=_args(message),
        env=_env(message.env),
        cwd=_absolute("cwd", message.cwd) or "/",
        user=_matching("user", message.user, _USER, "name|uid[:group|gid]"),
        rootfs=_one_root(message).rootfs,
        bundle=message.bundle,
        runtime=_runtime(message.runtime),
        memory_bytes=_memory(message.memory_bytes),
        annotations=_pairs("annotations", message.annotations),
        restart=restart.parse(message.restart, auto_remove=message.auto_remove),
        auto_remove=message.auto_remove,
        stop_signal=signal_of(message.stop_signal or "SIGTERM", "stop_signal"),
        stop_timeout_seconds=message.stop_timeout_seconds if message.HasField("stop_timeout_seconds") else 10,
        network=_one_of("network", message.network or "none", _NETWORKS),
        labels=_pairs("labels", message.labels),
        hostname=_matching("hostname", message.hostname, _HOSTNAME, "letters, digits, '-' and '.', at most 64"),
        read_only=message.read_only,
        mounts=tuple(_mount(index, mount) for index, mount in enumerate(message.mounts)),
        namespace=_matching("namespace", message.namespace, _NAME, _NAME.pattern) or "default",
    )


def signal_of(text: str, field: str = "signal") -> int:
    """1 to 64 from SIGTERM, TERM, 15, RTMIN+3 or SIGRTMAX-1, in any case of letters. Raises BadRequest."""
    number = signals.number_of(text)
    if number is None:
        raise _bad(field, text, "a signal's name (SIGTERM, TERM, RTMIN+1) or its number, 1 to 64")
    return number


def refuse_nul(message: Message, path: str = "") -> None:
    """Raises BadRequest for a NUL byte in any string: behind it C sees another text than Python does."""
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


def id_of(text: str) -> str:
    """A container's id, its beginning or its name. Raises BadRequest for what can be none of them."""
    if not _NAME.fullmatch(text) and not _ID.fullmatch(text):
        raise _bad("id", text, "a container's id, the beginning of one, or a name")
    return text


def condition_of(text: str) -> str:
    return _one_of("condition", text or "exited", CONDITIONS)


def number_of(value: int, field: str) -> int:
    """A run or sequence number that the store can hold. Raises BadRequest."""
    if value > MAX_NUMBER:
        raise _bad(field, str(value), f"at most {MAX_NUMBER}")
    return value


def time_of(timestamp: Timestamp, field: str) -> int:
    """CLOCK_REALTIME in ns. Raises BadRequest for nanos out of range and for years that no 64-bit clock can tell."""
    total = timestamp.seconds * 1_000_000_000 + timestamp.nanos
    if not 0 <= timestamp.nanos < 1_000_000_000 or not 0 <= total <= MAX_NUMBER:
        raise _bad(field, f"{timestamp.seconds}s {timestamp.nanos}ns", "a time since 1970 with nanos below 1e9")
    return total


def timeout_of(request: pb.StopRequest | pb.RestartRequest) -> int | None:
    """Grace in seconds; None: the container's own."""
    return request.timeout_seconds if request.HasField("timeout_seconds") else None


def _bad(field: str, value: str, allowed: str) -> BadRequest:
    return BadRequest(f"{field} {value[:100]!r}: allowed is {allowed}", field=field)


def _matching(field: str, value: str, pattern: re.Pattern[str], allowed: str) -> str:
    if value and not pattern.fullmatch(value):
        raise _bad(field, value, allowed)
    return value


def _one_of(field: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise _bad(field, value, " or ".join(allowed))
    return value


def _absolute(field: str, value: str) -> str:
    if value and not value.startswith("/"):
        raise _bad(field, value, "an absolute path")
    return value


def _one_root(message: pb.ContainerSpec) -> pb.ContainerSpec:
    if bool(message.rootfs) == bool(message.bundle):
        raise BadRequest("rootfs, bundle: exactly one of the two must be given", field="rootfs")
    _absolute("rootfs", message.rootfs)
    _absolute("bundle", message.bundle)
    return message


def _args(message: pb.ContainerSpec) -> tuple[str, ...]:
    if message.rootfs and not (message.args and message.args[0]):
        raise BadRequest("args: a command is needed to run on a rootfs", field="args")
    return tuple(message.args)


def _env(env: Iterable[str]) -> tuple[str, ...]:
    for text in env:
        if text.find("=") < 1:
            raise _bad("env", text, "KEY=VALUE")
    return tuple(env)


def _runtime(text: str) -> str:
    return text if text.startswith("/") else _matching("runtime", text, _NAME, "a plain name or an absolute path")


def _memory(size_bytes: int) -> int:
    if size_bytes and not MIN_MEMORY_BYTES <= size_bytes <= MAX_NUMBER:
        raise _bad("memory_bytes", str(size_bytes), f"0 (no limit) or {MIN_MEMORY_BYTES} (4 MiB) to {MAX_NUMBER}")
    return size_bytes


def _pairs(field: str, pairs: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    if "" in pairs:
        raise BadRequest(f"{field}: a key is empty", field=field)
    return tuple(sorted(pairs.items()))


def _mount(index: int, mount: pb.Mount) -> Mount:
    for field, value in (("source", mount.source), ("destination", mount.destination)):
        if not value.startswith("/"):
            raise _bad(f"mounts[{index}].{field}", value, "an absolute path")
    return Mount(mount.source, mount.destination, mount.read_only)
