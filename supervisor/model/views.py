"""What the node tells the API of itself and of a container, beyond what the store holds."""

from dataclasses import dataclass

from supervisor.model.execs import Exec
from supervisor.model.health import Health
from supervisor.model.pods import PodState
from supervisor.model.values import Container, Counters, Pod, Process


@dataclass(frozen=True, slots=True)
class View:
    """A container with what only the running daemon knows of it."""

    container: Container
    recovering: bool = False  # still being looked up after a daemon start: the rest may be out of date
    monitored_by: str = ""  # shim | keeper | other | shim-v2 | unresponsive; empty: nobody, there is no run
    log_path: str = ""
    bundle_path: str = ""
    run_directory: str = ""
    restart_at_ns: int | None = None  # CLOCK_REALTIME of the next run, computed from the boot clock when asked
    streams: Counters | None = None  # only where they were asked for, and the shim told
    health: Health | None = None  # the same: what this daemon has seen of its check
    execs: tuple[Exec, ...] = ()  # that have not ended


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod: its pause container, and its members in the order of their creation."""

    pod: Pod
    state: PodState
    pause: View
    members: tuple[View, ...] = ()


@dataclass(frozen=True, slots=True)
class Setting:
    """One value that is in force. `origin`: default, flag, or the file and line it is from."""

    name: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class Info:
    """The daemon and the machine it stands on."""

    version: str
    root: str
    state: str
    boot_id: str
    default_runtime: str
    cgroup: str  # v1 | hybrid | v2
    evidence: tuple[tuple[str, bool], ...]  # source, does it work here
    containers: int
    running: int
    pid: int
    keeper: Process | None
    pending_commits: int
    seq: int  # the newest event
    state_file_system: str
    settings: tuple[tuple[str, str], ...] = ()
    configuration: tuple[Setting, ...] = ()
