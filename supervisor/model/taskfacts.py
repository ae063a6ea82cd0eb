"""What containerd's clients ask of a task, as it is stored. A task is a container of exitd's in containerd's namespace.

The key of a request is `RELAY/CONNECTION/STREAM`. A repeated request has the same key, which shows that it is the one
that made, started or deleted something. Empty: its sender does not repeat it.
"""

from shim.frozen import frozen

CLEANED_UP = "cleanup"  # the key of a deletion without a Delete: containerd reports that end to its clients itself


@frozen
class RootMount:
    """One mount of a root file system. `target` is below it; empty: the root itself."""

    type: str
    source: str
    target: str = ""
    options: tuple[str, ...] = ()


@frozen
class Stdio:
    """The client's paths, returned to it unchanged."""

    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    terminal: bool = False


@frozen
class Task:
    """Stored with the container's first commit, and never changed. The task's id is the container's name."""

    bundle: str
    rootfs: tuple[RootMount, ...] = ()
    stdio: Stdio = Stdio()
    relay: str = ""  # the relay process through which it was made
    address: str = ""  # where containerd receives its events, over ttrpc
    create_key: str = ""
    oom_score_adj: int = 0  # of the relay process: init's value unless its configuration sets one
    courier: str = ""  # the process that sends its events to containerd, as PID/START; empty: exitd itself
    socket: str = ""  # of that process, as the bundle names it: it is left behind where the process is killed


@frozen
class TaskExec:
    """An exec of a task, from Exec to Delete. `run_as` is exitd's exec that the last Start began; empty if there was
    none."""

    container: str
    name: str  # containerd's id of the exec
    process: str  # JSON of runtime-spec's process
    stdio: Stdio = Stdio()
    add_key: str = ""
    start_key: str = ""
    run_as: str = ""
    error: str = ""  # why the start has failed


@frozen
class Tombstone:
    """The answer of a Delete, kept until its client has received it. `made_boot_ns`: CLOCK_BOOTTIME in ns."""

    namespace: str
    task: str
    exec: str  # empty: the task's init
    key: str
    pid: int
    status: int
    at_ns: int  # 0: it never ran
    boot_id: str
    made_boot_ns: int


@frozen
class Notice:
    """What containerd is sent for an event, beside what all clients get: the address, and the values that only it
    receives."""

    address: str
    pid: int = 0
    exec_name: str = ""  # containerd's id of the exec; empty: the event is about the task
    made: Task | None = None  # for the event of its creation
    status: int = 0  # for the event of its deletion, like `at_ns`
    at_ns: int = 0
    silent: bool = False  # containerd reports it itself
    courier: str = ""  # the process that sends it
