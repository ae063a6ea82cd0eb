"""What a container is made of: the fields of the API's ContainerSpec, under the same names.

`exitd.run("docker://busybox", ["true"], memory_bytes=64 << 20, mounts=[Mount(volume="data", destination="/data")])`
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypedDict

from exitd_client.messages import message


@dataclass(frozen=True, slots=True, kw_only=True)
class MountFile:
    """A file below a mount's destination. `mode` 0: 0644."""

    path: str
    content: bytes = field(default=b"", repr=False)  # it may be a secret
    mode: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One of `source` (of the host), `volume` (made if it is not there), `anonymous` (a volume of this container
    alone), `tmpfs`, `files` (made anew for each run, read-only), and `empty_dir` (in a pod).

    `sub_path`: of a source, a volume or an empty_dir, what is at this path in it, and no more.

    `no_copy`: a new volume stays empty. Of files: `secret` keeps them in memory and out of replies, `single` makes the
    destination the one file itself.
    """

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
    anonymous: bool = False
    no_copy: bool = False
    files: Sequence[MountFile] = ()
    secret: bool = False
    single: bool = False
    sub_path: str = ""


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
class TcpTarget:
    """A port, seen from inside its network namespace. `host` is an address; empty: its loopback."""

    port: int
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpHeader:
    """A header of a request."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTarget:
    """A page; 200 to 399 is good. With `tls` the certificate is not checked."""

    port: int
    host: str = ""
    path: str = ""
    tls: bool = False
    headers: Sequence[HttpHeader] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcTarget:
    """A server of gRPC whose health service (grpc.health.v1) says SERVING; `service` empty: of the whole server."""

    port: int
    service: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One of `args` (a command in it), `tcp`, `http` and `grpc`, tried now and then. 0: the default."""

    args: Sequence[str] = ()
    tcp: TcpTarget | None = None
    http: HttpTarget | None = None
    grpc: GrpcTarget | None = None
    initial_delay_ns: int = 0
    interval_ns: int = 0
    timeout_ns: int = 0
    successes: int = 0
    failures: int = 0
    grace_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """Three checks, instead of a Health: has it begun to work, does it work, may it be used now. The first two end a
    run that fails them."""

    startup: Probe | None = None
    liveness: Probe | None = None
    readiness: Probe | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One of `args` (a command in it), `http` and `sleep_seconds`."""

    args: Sequence[str] = ()
    http: HttpTarget | None = None
    sleep_seconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What is done at the beginning and before the end of each run, once at most."""

    post_start: Hook | None = None
    pre_stop: Hook | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What no reply has. `env` is beside the container's own; `words` has, for a word of entrypoint or args as it is
    shown, the one that is used in its place."""

    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    words: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A port of the machine that leads to one of its own. `host_port` 0: exitd chooses one, and `spec` has it then."""

    container_port: int
    host_port: int = 0
    protocol: str = ""
    host_ip: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expose:
    """Ports that it serves, as words such as 80 or 53/udp; `publish_all`: at free ports of the machine."""

    publish_all: bool = False
    ports: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressWish:
    """Addresses that a network of the container is to give; `network` empty: the first."""

    network: str = ""
    ips: Sequence[str] = ()
    mac: str = ""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSpec:
    """What makes a container the pause container of a pod. 0: no limit."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    attempt: int = 0
    on_pause_exit: str = ""  # stop (default) | keep: the members, when the pause container has ended
    exit_policy: str = ""  # continue (default) | stop: the pause container, when the last member has ended for good
    memory_bytes: int = 0  # of all containers together
    log_directory: str = ""
    pids_limit: int = 0
    cpu_limit_milli: int = 0
    active_deadline_seconds: int = 0  # so long after its first start all end
    sidecars: Sequence[str] = ()  # names of members that only serve the others
    inits: Sequence[str] = ()  # names of members that come before all others


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
    more_networks: Sequence[str]
    addresses: Sequence[AddressWish]
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
    probes: Probes
    hooks: Hooks
    secrets: Secrets
    ports: Sequence[Port]
    expose: Expose
    address_mark: str
    userns: str


class UpdateFields(TypedDict, total=False):
    """Everything that `update` changes: the limits of the run that there is and of all that follow, and the restart
    policy. What is left out stays; 0 and empty: no limit."""

    memory_bytes: int
    memory_swap_bytes: int
    memory_reservation_bytes: int
    cpu_limit_milli: int
    cpu_shares: int
    cpuset_cpus: str
    cpuset_mems: str
    pids_limit: int
    restart: str


# The value that a field takes, by the message it stands for in the API.
PARTS = {
    "Mount": Mount,
    "MountFile": MountFile,
    "Ulimit": Ulimit,
    "RightsSpec": Rights,
    "LimitsSpec": Limits,
    "SecuritySpec": Security,
    "LogSpec": Log,
    "HealthSpec": Health,
    "HostDevice": Device,
    "HostEntry": HostEntry,
    "ResolverSpec": Resolver,
    "TcpTarget": TcpTarget,
    "HttpHeader": HttpHeader,
    "HttpTarget": HttpTarget,
    "GrpcTarget": GrpcTarget,
    "ProbeSpec": Probe,
    "ProbesSpec": Probes,
    "HookSpec": Hook,
    "HooksSpec": Hooks,
    "SecretsSpec": Secrets,
    "PortMapping": Port,
    "ExposeSpec": Expose,
    "AddressWish": AddressWish,
    "PodSpec": PodSpec,
}
NAMES: Mapping[type[Any], str] = {each: name for name, each in PARTS.items()}
GIVEN_APART = ("image", "args", "pod")  # words of `run` and `create`, and of `run_pod`


def container_spec(image: str, args: Sequence[str], given: Mapping[str, Any]) -> Any:
    """Return the message. Raises TypeError for a name that is no field, or a value of another type than its field's."""
    _refuse_unknown(given, SpecFields, "a container's spec")
    if isinstance(args, str):
        raise TypeError('args: give a list of words, as ["sh", "-c", "exit 7"]')
    words = {name: _value(value) for name, value in given.items() if value is not None}
    words["env"] = _lines(given.get("env") or {})
    return message("ContainerSpec")(image=image, args=list(args), **words)


def part(value: Any) -> Any:
    """Return a part of a spec as its message."""
    return _value(value)


def update_request(container: str, given: Mapping[str, Any]) -> Any:
    """Return the message. Raises TypeError as `container_spec` does."""
    _refuse_unknown(given, UpdateFields, "what can be changed")
    return message("UpdateRequest")(id=container, **given)


def _refuse_unknown(given: Mapping[str, Any], known: Any, of: str) -> None:
    if unknown := [name for name in given if name not in known.__annotations__]:
        raise TypeError(f"{', '.join(unknown)}: no field of {of}")


def _lines(env: Mapping[str, str]) -> list[str]:
    """Return an environment as the API has it."""
    return [f"{key}={value}" for key, value in env.items()]


def _value(value: Any) -> Any:
    """Return a value as a message takes it: parts become messages, also within lists."""
    if isinstance(value, Secrets):
        return message(NAMES[Secrets])(env=_lines(value.env), words=value.words)
    if type(value) in NAMES:
        found = ((part.name, getattr(value, part.name)) for part in fields(value))
        return message(NAMES[type(value)])(**{name: _value(each) for name, each in found if each is not None})
    if isinstance(value, Mapping | str | bytes):
        return value
    return [_value(each) for each in value] if isinstance(value, Sequence) else value
