"""The configuration in force, and where each value comes from. Pure.

A value comes from a flag, a variable, or a line of the file; without any of them it is the default. A flag overrides a
variable, which overrides the file.
"""

import json
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, cast

from shim.frozen import field, fields_of, frozen
from shim.patterns import LatePattern
from supervisor.config.tomllines import Path
from supervisor.model.idranges import COUNT
from supervisor.model.storage import StorageKind
from supervisor.model.values import LogDriver
from supervisor.model.views import Setting

DEFAULT, FLAG = "default", "flag"
LOG_BYTES = 10 << 20  # with five files, as much as a kubelet keeps
SHIM_V2_PROGRAM = re.compile(r"containerd-shim-(?P<name>[A-Za-z0-9_-]+)-(?P<version>v[0-9]+)")
SHIM_V2 = re.compile(r"io\.containerd\.[a-z0-9-]+\.v[0-9]+")

_CREATE_FACTOR = 4  # a create may boot a virtual machine
_BARE = LatePattern(r"[A-Za-z0-9_-]+")


class CgroupDriver(StrEnum):
    """What makes the cgroups of containers."""

    AUTO = "auto"
    SYSTEMD = "systemd"
    CGROUPFS = "cgroupfs"


class KernelWitness(StrEnum):
    """Which way the kernel reports an end that no other witness has seen."""

    AUTO = "auto"
    PIDFD = "pidfd"
    PROCEVENTS = "procevents"
    NONE = "none"


@frozen
class Limits:
    """Limits of time and size."""

    runtime_seconds: float = 30.0  # a runtime command
    create_seconds: float = 120.0  # a runtime's create; default: four times runtime_seconds
    reconcile_seconds: float = 30.0  # between two rounds
    restart_max_seconds: float = 60.0  # before a restart; the delay begins with 0.1 and doubles each time
    restart_reset_seconds: float = 10.0  # after a run of this length it begins anew
    ring_flush_seconds: float = (
        0.005  # so long the event loop waits for the flush of an end; 0: ends wait for the database
    )
    scratch_mib: int = 512  # what one container may write on top of its image, if it does so on a tmpfs
    scratch_files: int = 262_144
    image_gib: int = 64  # unpacked size of one image
    image_files: int = 1_000_000


@frozen
class Retention:
    """What is kept: the rows within both the number and the age."""

    events: int = 50_000
    events_days: float = 7.0
    exits: int = 100_000
    exits_days: float = 90.0
    exit_seconds: float = 300.0  # how long the exit of a container that removed itself can be found by name
    series: int = 10_000  # counters of single containers, of each kind
    series_days: float = 7.0  # since one of them has counted anything


@frozen
class Metrics:
    """What is shown to Prometheus, and where. See `listen`."""

    listen: str = ""  # HOST:PORT of this machine alone, or unix:PATH; empty: nowhere
    containers: bool = False  # with series for each container


@frozen
class NetworkSettings:
    """Where configurations and plugins of networks (CNI) are, and which network is that of containers that name none:
    auto (the first one that is configured, else none), none, host, or a network's name."""

    conf_dir: str = "/etc/cni/net.d"
    plugin_dirs: tuple[str, ...] = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")
    default: str = "auto"


@frozen
class UsernsSettings:
    """From which ids containers with --userns auto get their ranges: `count` of them from `base` on."""

    base: int = 0  # 0: none
    count: int = 1024 * COUNT


@frozen
class RuntimeEntry:
    """A runtime by name. Without a path it is searched on PATH; with a runtime_type it is a shim v2 binary."""

    name: str
    path: str = ""
    runtime_type: str = ""
    options: tuple[str, ...] = ()  # arguments before the runtime's command
    pod_annotations: tuple[str, ...] = ()  # globs: which annotations of pause containers and members it gets
    container_annotations: tuple[str, ...] = ()  # globs: which annotations of members and single containers it gets
    handlers: tuple[str, ...] = ()  # other names for it


@frozen
class Config:
    """Every value in force."""

    root: str = "/var/lib/exitd"
    state: str = "/run/exitd"
    default_runtime: str = "runc"
    cgroup_driver: CgroupDriver = CgroupDriver.AUTO
    kernel_witness: KernelWitness = KernelWitness.AUTO
    watch_node: bool = False  # watch all that this machine's other engines run
    log_driver: LogDriver = LogDriver.CRI  # for containers that name none; so are the next two
    log_max_size: int = LOG_BYTES  # a log file is rotated before it grows larger; 0: never
    log_max_files: int = 5  # kept when rotating, with the current one
    storage: StorageKind = StorageKind.DISK  # for writable layers of containers that name none
    limits: Limits = field(default_factory=Limits)
    retention: Retention = field(default_factory=Retention)
    metrics: Metrics = field(default_factory=Metrics)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    userns: UsernsSettings = field(default_factory=UsernsSettings)
    runtimes: tuple[RuntimeEntry, ...] = ()

    def runtime(self, name: str) -> RuntimeEntry:
        """Return the runtime with this name or handler; the default one for an empty name. A name without an entry is a
        plain runtime of that name, or at that path."""
        wanted = name or self.default_runtime
        for each in self.runtimes:
            if wanted == each.name or wanted in each.handlers:
                return each
        if "/" in wanted:
            return RuntimeEntry(wanted, path=wanted, runtime_type=type_at(wanted))
        return RuntimeEntry(wanted, runtime_type=_type_by(wanted))


def _type_by(name: str) -> str:
    """A name of this form is a type itself."""
    return name if SHIM_V2.fullmatch(name) else ""


def type_at(path: str) -> str:
    """Return the type of the shim v2 binary at a path, by its file name; empty for an OCI runtime."""
    found = SHIM_V2_PROGRAM.fullmatch(path.rpartition("/")[2])
    return f"io.containerd.{found['name']}.{found['version']}" if found is not None else ""


@frozen
class Given:
    """One value and its origin: `flag`, `default`, a variable's name, or file:line."""

    value: object
    origin: str


Values = dict[Path, Given]

TABLES = {
    "limits": Limits,
    "retention": Retention,
    "metrics": Metrics,
    "network": NetworkSettings,
    "userns": UsernsSettings,
}
PLAIN: tuple[Path, ...] = (  # everything but the runtimes
    *((name,) for name in fields_of(Config) if name not in (*TABLES, "runtimes")),
    *((table, name) for table, kind in TABLES.items() for name in fields_of(kind)),
)
FIXED = frozenset(  # cannot change while exitd runs
    {
        *(("root",), ("state",), ("kernel_witness",), ("limits", "image_gib"), ("limits", "image_files")),
        *(("metrics", "listen"), ("watch_node",)),
    }
)


# -- from values to the configuration in force


def in_force(*layers: Mapping[Path, Given]) -> Values:
    """Return for each key the value of the first layer that has one, else its default."""
    found: Values = {}
    for layer in layers:
        for path, given in layer.items():
            found.setdefault(path, given)
    runtime_seconds = found.get(("limits", "runtime_seconds"))
    if runtime_seconds is not None:
        create_seconds = _CREATE_FACTOR * cast(float, runtime_seconds.value)
        found.setdefault(("limits", "create_seconds"), Given(create_seconds, runtime_seconds.origin))
    for path in PLAIN:
        found.setdefault(path, Given(default_of(path), DEFAULT))
    return found


def default_of(path: Path) -> object:
    value: object = Config()
    for name in path:
        value = getattr(value, name)
    return value


def held(running: Values, new: Values) -> tuple[Values, tuple[str, ...]]:
    """Return the new values, with those unchanged that cannot change while exitd runs, and a sentence for each of
    these."""
    kept, words = dict(new), []
    for path in (path for path in PLAIN if path in FIXED):
        if new[path].value != running[path].value:
            words.append(
                f"{new[path].origin}: {shown_path(path)} cannot change while exitd runs, {shown(running[path].value)} "
                f"stays in force; restart exitd for {shown(new[path].value)}"
            )
            kept[path] = running[path]
    return kept, tuple(words)


def config_of(values: Values) -> Config:
    """Build the configuration. `values` has every key, as `in_force` returns them."""
    plain = {path: values[path].value for path in PLAIN}
    top: dict[str, Any] = {path[0]: value for path, value in plain.items() if len(path) == 1}
    return Config(
        **top,
        limits=Limits(**_part("limits", plain)),
        retention=Retention(**_part("retention", plain)),
        metrics=Metrics(**_part("metrics", plain)),
        network=NetworkSettings(**_part("network", plain)),
        userns=UsernsSettings(**_part("userns", plain)),
        runtimes=tuple(_runtimes(values)),
    )


def _part(table: str, plain: Mapping[Path, object]) -> dict[str, Any]:
    return {path[1]: value for path, value in plain.items() if len(path) == 2 and path[0] == table}


def _runtimes(values: Values) -> Iterator[RuntimeEntry]:
    for name in sorted({path[1] for path in values if path[0] == "runtimes"}):
        given: dict[str, Any] = {path[2]: values[path].value for path in values if path[:2] == ("runtimes", name)}
        kind = type_at(given["path"]) if "path" in given else _type_by(name)
        yield RuntimeEntry(name, **{"runtime_type": kind} | given)


def settings(values: Values) -> tuple[Setting, ...]:
    """Return the settings for display: plain keys in the order of the table above, then the runtimes'."""
    runtimes = sorted(path for path in values if path[0] == "runtimes")
    return tuple(_setting(path, values[path]) for path in (*PLAIN, *runtimes))


def _setting(path: Path, given: Given) -> Setting:
    return Setting(shown_path(path), shown(given.value), given.origin)


def shown(value: object) -> str:
    if isinstance(value, tuple):
        return json.dumps(list(value), ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def shown_path(path: Path) -> str:
    """Return the key as TOML writes it."""
    return ".".join(part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False) for part in path)


def changed(before: Values, after: Values) -> list[str]:
    """Return the names of the keys whose values differ."""
    paths = [*before, *(path for path in after if path not in before)]
    return [shown_path(path) for path in paths if _value(before, path) != _value(after, path)]


def _value(values: Values, path: Path) -> object:
    return values[path].value if path in values else None
