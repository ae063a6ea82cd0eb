"""What a container is made of: the fields of the API's ContainerSpec, under the same names.

`exitd.run("docker://busybox", ["true"], memory_bytes=64 << 20, mounts=[Mount(volume="data", destination="/data")])`
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from exitd_client.messages import message


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One of `source` (of the host), `volume` (made if it is not there), `tmpfs`, and `empty_dir` (in a pod)."""

    destination: str
    source: str = ""
    volume: str = ""
    tmpfs: bool = False
    empty_dir: str = ""
    read_only: bool = False
    group: int | None = None
    size_bytes: int = 0
    mode: int | None = None
    options: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ulimit:
    """A limit of setrlimit(2), by its name without RLIMIT_ in small letters."""

    name: str
    soft: int
    hard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What its processes may do."""

    privileged: bool = False
    cap_add: Sequence[str] = ()
    cap_drop: Sequence[str] = ()
    ulimits: Sequence[Ulimit] = ()
    pids_limit: int | None = None
    groups: Sequence[int] = ()
    not_root: bool = False
    image_groups: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What it may use of the machine, besides memory_bytes and cpu_limit_milli."""

    memory_reservation_bytes: int = 0
    memory_swap_bytes: int | None = None
    cpu_shares: int = 0
    cpuset_cpus: str = ""
    cpuset_mems: str = ""
    oom_score_adj: int | None = None
    shm_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """What holds it back besides its capabilities."""

    seccomp: str = ""
    no_new_privileges: bool | None = None
    apparmor: str = ""
    selinux: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Where its output is kept."""

    driver: str = ""
    path: str = ""
    max_bytes: int | None = None
    max_files: int = 0
    mode: str = ""
    buffer_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A command that is run in it now and then. 0 and empty: as its image has it, else the default."""

    args: Sequence[str] = ()
    interval_ns: int = 0
    timeout_ns: int = 0
    retries: int = 0
    start_period_ns: int = 0
    on_failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device node of the host."""

    source: str
    path: str = ""
    access: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEntry:
    """A line of its /etc/hosts."""

    name: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolver:
    """Its /etc/resolv.conf and /etc/hosts."""

    servers: Sequence[str] = ()
    searches: Sequence[str] = ()
    options: Sequence[str] = ()
    hosts: Sequence[HostEntry] = ()
    of_image: bool = False


class SpecFields(TypedDict, total=False):
    """Everything that `run` and `create` take besides image and args. What is left out is exitd's choice."""

    name: str
    env: Mapping[str, str]
    cwd: str
    user: str
    rootfs: str
    bundle: str
    runtime: str
    memory_bytes: int
    annotations: Mapping[str, str]
    restart: str
    auto_remove: bool
    stop_signal: str
    stop_timeout_seconds: int
    network: str
    labels: Mapping[str, str]
    hostname: str
    read_only: bool
    mounts: Sequence[Mount]
    namespace: str
    image_id: str
    sandbox: str
    pid: str
    restart_rules: Sequence[str]
    tty: bool
    stdin: bool
    cpu_limit_milli: int
    cpu_request_milli: int
    rights: Rights
    entrypoint: Sequence[str]
    log: Log
    health: Health
    security: Security
    limits: Limits
    devices: Sequence[Device]
    sysctls: Mapping[str, str]
    resolver: Resolver
    init: bool
    storage: str
    ipc: str


# The value that a field takes, by the message it stands for in the API.
PARTS = {
    "Mount": Mount,
    "Ulimit": Ulimit,
    "RightsSpec": Rights,
    "LimitsSpec": Limits,
    "SecuritySpec": Security,
    "LogSpec": Log,
    "HealthSpec": Health,
    "HostDevice": Device,
    "HostEntry": HostEntry,
    "ResolverSpec": Resolver,
}
NAMES: Mapping[type[Any], str] = {each: name for name, each in PARTS.items()}
GIVEN_APART = ("image", "args")  # words of `run` and `create`
LEFT = ("pod",)  # pods are made by exitctl, or over the API itself


def container_spec(image: str, args: Sequence[str], given: Mapping[str, Any]) -> Any:
    """Return the message. Raises TypeError for a name that is no field, or a value of another type than its field's."""
    if unknown := [name for name in given if name not in SpecFields.__annotations__]:
        raise TypeError(f"{', '.join(unknown)}: no field of a container's spec")
    if isinstance(args, str):
        raise TypeError('args: give a list of words, as ["sh", "-c", "exit 7"]')
    words = {name: _value(value) for name, value in given.items() if value is not None}
    words["env"] = [f"{key}={value}" for key, value in (given.get("env") or {}).items()]
    return message("ContainerSpec")(image=image, args=list(args), **words)


def _value(value: Any) -> Any:
    """Return a value as a message takes it: parts become messages, also within lists."""
    if type(value) in NAMES:
        found = ((field.name, getattr(value, field.name)) for field in fields(value))
        return message(NAMES[type(value)])(**{name: _value(each) for name, each in found if each is not None})
    if isinstance(value, Mapping | str | bytes):
        return value
    return [_value(each) for each in value] if isinstance(value, Sequence) else value
