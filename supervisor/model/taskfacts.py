"""What containerd's clients ask of a task, as it is stored. A task is a container of ours in containerd's namespace.

The key of a request is `RELAY/CONNECTION/STREAM`: it tells whether a request that is sent again is the one that made,
started or deleted something. Empty: nobody sends it again.
"""

from dataclasses import dataclass

CLEANED_UP = "cleanup"  # the key of a deletion that no Delete asked for: containerd tells its clients of the end itself


@dataclass(frozen=True, slots=True)
class RootMount:
    """One mount of a root file system; `target` is below it."""

    type: str
    source: str
    target: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stdio:
    """A client's words, as it gets them back."""

    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    terminal: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """Stored with the container's first commit, never changed. Its id is the container's name."""

    bundle: str
    rootfs: tuple[RootMount, ...] = ()
    stdio: Stdio = Stdio()
    relay: str = ""  # the relay process it was made through
    address: str = ""  # where containerd takes its events, over ttrpc
    create_key: str = ""
    oom_score_adj: int = 0  # of that process: what init has unless its configuration says otherwise
    courier: str = ""  # the process that brings its events to containerd, as PID/START; empty: exitd tells it itself


@dataclass(frozen=True, slots=True)
class TaskExec:
    """From Exec to Delete. `run_as` is the exec that the newest Start has begun; empty: none."""

    container: str
    name: str  # containerd's id of it
    process: str  # JSON of runtime-spec's process
    stdio: Stdio = Stdio()
    add_key: str = ""
    start_key: str = ""
    run_as: str = ""
    error: str = ""  # why that has failed


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What a Delete was answered, until its client has the answer. `made_boot_ns`: CLOCK_BOOTTIME."""

    namespace: str
    task: str
    exec: str  # empty: the task's init
    key: str
    pid: int
    status: int
    at_ns: int  # 0: it never ran
    boot_id: str
    made_boot_ns: int


@dataclass(frozen=True, slots=True)
class Notice:
    """What an event is to containerd, beside what it is to everybody: where it is told, and what is told only there."""

    address: str
    pid: int = 0
    exec_name: str = ""  # containerd's id of the exec; empty: of the task itself
    made: Task | None = None  # of its making
    status: int = 0  # of its deletion, as `at_ns`
    at_ns: int = 0
    silent: bool = False  # containerd tells it itself
    courier: str = ""  # who brings it there
