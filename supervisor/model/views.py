"""What the node shows the API of itself and of containers, beyond what the store holds."""

from shim.frozen import field, frozen
from supervisor.model.execs import Exec
from supervisor.model.health import Health
from supervisor.model.pods import PodState
from supervisor.model.values import CheckKind, Container, Counters, Pod, Process


@frozen
class View:
    """A container, with what only the running daemon knows about it."""

    container: Container
    recovering: bool = False  # still being examined after a daemon start: the rest may be out of date
    monitored_by: str = ""  # shim | keeper | other | shim-v2 | unresponsive; empty: there is no run to monitor
    log_path: str = ""
    bundle_path: str = ""
    run_directory: str = ""
    restart_at_ns: int | None = None  # CLOCK_REALTIME of the next run, computed from the boot clock for each request
    streams: Counters | None = None  # only if requested, and the shim has answered
    health: Health | None = None  # only if requested: what this daemon has seen of its health check
    probes: dict[CheckKind, Health] = field(default_factory=dict)  # as `health`, of its probes
    execs: tuple[Exec, ...] = ()  # those that have not ended
    evicted: str = ""  # why its pod, or the pod that it is, was evicted
    mount_sources: tuple[str, ...] = ()  # only if requested: where what it mounts is on this machine, in their order


@frozen
class PodView:
    """A pod: its pause container, and its members in order of creation."""

    pod: Pod
    state: PodState
    pause: View
    members: tuple[View, ...] = ()


@frozen
class Setting:
    """One configuration value in force. `origin`: default, flag, or its file and line."""

    name: str
    value: str
    origin: str


@frozen
class Info:
    """The daemon and the machine it runs on."""

    version: str
    root: str
    state: str
    boot_id: str
    default_runtime: str
    cgroup: str  # v1 | hybrid | v2
    evidence: tuple[tuple[str, bool], ...]  # each source, and whether it works on this machine
    containers: int
    running: int
    pid: int
    keeper: Process | None
    pending_commits: int
    seq: int  # of the newest event
    state_file_system: str
    settings: tuple[tuple[str, str], ...] = ()
    configuration: tuple[Setting, ...] = ()


@frozen
class ContainerUsage:
    """What a container takes. `complete` is False if its layer has more than was counted."""

    id: str
    active: bool = False  # it is running or paused
    in_memory: bool = False  # its writable layer is a tmpfs
    layer_bytes: int = 0
    complete: bool = True
    log_files: int = 0  # in its own directory
    log_bytes: int = 0


@frozen
class Occupied:
    """Things of one kind, and what they take together. `active`: how many of them a container uses."""

    count: int = 0
    active: int = 0
    size_bytes: int = 0
    complete: bool = True


@frozen
class DiskUsage:
    """What containers take, and images and volumes; these only if requested."""

    containers: tuple[ContainerUsage, ...] = ()
    images: Occupied = Occupied()
    layers: Occupied = Occupied()
    volumes: Occupied = Occupied()


@frozen
class StoppedForShutdown:
    """Ids of the containers that have ended, and of those that had not when the limit had passed."""

    ended: tuple[str, ...]
    left: tuple[str, ...]


@frozen
class NetworkUse:
    """What the interfaces of a network namespace have moved, without the loopback one."""

    received_bytes: int
    sent_bytes: int


@frozen
class Stall:
    """How long processes have waited: percent of the last 10, 60 and 300 seconds, and all the time in ns."""

    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0
    total_ns: int = 0


@frozen
class Pressure:
    """The kernel's pressure stall information of one resource: at least one process waited, or all that could run."""

    some: Stall = Stall()
    full: Stall = Stall()


@frozen
class LiveUsage:
    """What a container's cgroup has counted by a moment."""

    cpu_ns: int = 0
    memory_bytes: int = 0
    memory_limit_bytes: int = 0  # the machine's memory, where there is no lower limit
    network: NetworkUse | None = None  # None: its network is exitd's own
    read_bytes: int = 0  # from block devices
    written_bytes: int = 0
    pids: int = 0  # processes and threads
    pids_limit: int = 0  # 0: none
    cpu_pressure: Pressure | None = None  # None: the kernel does not measure it
    memory_pressure: Pressure | None = None
    io_pressure: Pressure | None = None


@frozen
class UsageView:
    """`usage` is None where the container does not run, or could not be measured. `read_boot_ns`: when it was read."""

    id: str
    name: str
    usage: LiveUsage | None
    read_boot_ns: int
