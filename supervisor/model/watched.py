"""What exitd watches but does not run: the targets that callers named, and the processes found there."""

from enum import StrEnum

from shim.frozen import field, frozen
from supervisor.model.values import NO_NAMES, By, Names, Process, RunKey

FOREIGN = "@"  # in the id of every container of another engine, and in no id of exitd's own


class Kind(StrEnum):
    """What a watch points at."""

    PID = "pid"
    CONTAINERD = "containerd"
    RUNC_ROOT = "runc-root"
    NODE = "node"  # every source of the two kinds above that this machine has


NODE = "node"  # where the watch of the whole machine is, and what it is called


@frozen
class Target:
    """One watch, as the caller asked for it. `where`: a pid, a socket's path, a directory, or NODE; unique among the
    watches. `found_by`: the watch that has found it, which it ends with; empty: a caller named it."""

    kind: Kind
    where: str
    since_ns: int = 0
    by: By = field(default_factory=By)
    found_by: str = ""


@frozen
class FoundProcess:
    """A process that an engine calls a container. `started_ticks` is None if the engine does not know it."""

    container: str  # ID@WHERE
    name: str
    namespace: str
    pid: int
    started_ticks: int | None
    target: str
    writer: int = 0  # the uid that named this process, see `whose`; 0: root or the kernel
    names: Names = NO_NAMES  # that the engine's files have for it


@frozen
class Observed:
    """A process that is watched until its end. Memory kills are counts of its cgroup."""

    process: Process
    boot_id: str
    container: str
    run: int
    name: str
    namespace: str
    target: str
    cgroup: str = ""  # as exitd sees it; empty: it has none of its own
    started_ns: int | None = None
    limit_bytes: int = 0
    kills_before: int = 0  # at the beginning of the watch
    kills_outlived: int = 0  # kills since then that the process has survived
    doubt: str = ""  # why it may be another process than its name says; empty: no doubt
    names: Names = NO_NAMES  # of a task whose containerd has said them

    @property
    def key(self) -> RunKey:
        return RunKey(self.container, self.run)


@frozen
class WatchView:
    """A watch as it is listed."""

    target: Target
    processes: int  # watched now
    exits: int  # reported since this exitd started
    trouble: str  # why it does not see everything; empty if it does
