"""The interface of a runtime family: what it must offer, whichever program waits for the process behind it.

Shim v1 (exitd-shim beside every container, exit fifo and epoll) is `supervisor/runtime/oci/native.py`; the shim v2
client in `supervisor/runtime/foreign_shim/` implements the same two roles. The names are those of kata's runtime-rs,
kept so that a reader recognises them; its methods for virtual machines do not exist here.
"""

import asyncio
from collections.abc import Collection, Sequence
from enum import Enum
from typing import Protocol

from shim.frozen import frozen
from supervisor.model.execs import Exec
from supervisor.model.values import Container, Process, Report, RunKey


@frozen
class CreatedRun:
    """A run that the runtime has created: init waits for its start."""

    init: Process
    shim: Process | None
    monitored_by: str
    waits_in: str = ""  # `has_begun` compares with it


class RunListener(Protocol):
    """What the families report of runs, on the event loop. Each method returns at once."""

    def exit_seen(self, key: RunKey, report: Report) -> None:
        """A run, or an exec, has ended: once for each while this process lives; the store makes that once for ever."""

    def memory_kills_seen(self, key: RunKey, kills: int) -> None:
        """Init has outlived so many memory kills in its cgroup. Perhaps more than once."""

    def shim_seen(self, key: RunKey, *, lost: bool) -> None:
        """The shim of a run or an exec has died before its time; or, not `lost`, another has taken its place."""

    def silence_seen(self, key: RunKey, silent: bool) -> None:
        """A foreign shim does not answer any more, or does again."""


class Found(Enum):
    """What `connect_container` found of a run after a daemon restart."""

    LIVE = "live"  # init exists; its end will be reported
    ENDED = "ended"  # its end will be, or was, reported
    NOTHING = "nothing"  # it never had an init
    UNWATCHED = "unwatched"  # its row is damaged, nothing else names its init, and some of its processes run
    LOST = "lost"  # the state directory was lost with all that was known of the run; its processes have been ended


class ContainerManager(Protocol):
    """The life of one container's processes. Every call is bounded in time and raises a named ExitdError."""

    async def create_container(self, container: Container) -> CreatedRun:
        """Create the container's current run; init waits for its start."""

    async def start_process(self, container: Container) -> None:
        """Let init execute its program. Raises CommandNotExecutable when it could not be executed."""

    async def connect_container(self, container: Container) -> tuple[Found, CreatedRun | None]:
        """Find a run again after a restart. Must not wait for a silent shim longer than its limit."""

    async def state_process(self, container: Container) -> str:
        """Return the runtime's own status: creating | created | running | paused | stopped | absent."""

    async def kill_process(self, container: Container, signal: int, *, everyone: bool = False) -> None:
        """Signal init, or every process. SIGKILL ends init even if any program has frozen it."""

    async def pause_container(self, container: Container) -> None:
        """Freeze all its processes."""

    async def resume_container(self, container: Container) -> None:
        """Let its processes go on."""

    async def is_paused(self, container: Container) -> bool:
        """Return whether it is frozen now, whatever is stored. Raises ExitdError, OSError when that is not known."""

    async def pids(self, container: Container) -> tuple[int, ...]:
        """Return the pids of all its processes."""

    async def has_begun(self, container: Container) -> bool:
        """Return whether init is the container's own program by now, whatever the runtime's start returned. False if
        that cannot be known. Raises Busy, TimedOut when it is not known now."""

    def is_unseen(self, container: Container) -> bool:
        """Return whether init has not been seen executing its program yet, though this could be seen."""

    def may_start_again(self, container: Container) -> bool:
        """Return whether a start with an unknown result may be repeated, if init still waits for it."""

    def sees_init(self, container: Container) -> bool:
        """Return whether init's own life can be observed: that of a process in a virtual machine cannot."""

    def is_ending(self, container: Container) -> bool:
        """Return whether init is dead or dying, whether or not that has been reported."""

    def leaves_nothing(self, container: Container) -> bool:
        """Return whether it is known that `end_rest` has nothing to do."""

    async def end_rest(self, container: Container) -> int:
        """Before the exit is stored: kill the processes that init has left behind, within a limit. Return how many are
        still alive."""

    async def settle(self, container: Container) -> None:
        """After the exit is stored: do what its run needs before `delete_process` begins. Repeatable."""

    async def delete_process(self, container: Container) -> None:
        """Remove everything of the run: shim, runtime state, cgroups, run directory. When this returns, its output is
        complete, and the witnesses may forget it. Repeatable."""

    def forget(self, container: Container) -> None:
        """Close what this process holds of the run."""


class ContainerManagers(Protocol):
    """The families of runtimes, and what is asked of all of them."""

    def of(self, container: Container) -> ContainerManager:
        """Return the manager for the container's own runtime."""

    def listen(self, listener: RunListener) -> None:
        """Set the listener, once, before any run is made or found."""

    def begin_preparing(self, container: Container) -> None:
        """A hint that create_container will follow: slow work on the disk may begin. `discard` undoes it."""

    async def discard(self, container_id: str, *, is_pod: bool = True) -> None:
        """Delete the container's files, once nothing of it runs. Repeatable. `is_pod`: whether it may be a pod's, which
        has a cgroup around those of its containers."""


@frozen
class MadeExec:
    """An exec that has begun. `oom_kills`: in its container's cgroup, so far. `init` is None if it is unknown whether a
    process began. `unseen`: its program has not been seen executed yet."""

    init: Process | None
    shim: Process | None
    oom_kills: int = 0
    unseen: bool = False


class NoProcess(Enum):
    """Why there is no process for an exec that was being made when its daemon ended."""

    NEVER_BEGAN = "never-began"  # and never will
    UNKNOWN = "unknown"  # it may have begun, and ended


class ExecManager(Protocol):
    """The life of one exec's process, bounded in time as well. Its end is reported to the listener of
    ContainerManagers, under a key with an exec id."""

    async def create_exec(self, container: Container, e: Exec) -> MadeExec:
        """Begin an exec. Raises CommandNotFound, CommandNotExecutable when its program could not be executed."""

    async def begun_exec(self, container: Container, e: Exec) -> Process | NoProcess:
        """Return the process, which may have ended, of an exec that was being made when an earlier daemon ended. Waits
        for a shim that is still making it."""

    async def connect_exec(self, container: Container, e: Exec) -> None:
        """Find an exec that ran when an earlier daemon ended. Its end, past or future, will be reported."""

    async def signal_exec(self, container: Container, e: Exec, number: int, *, everyone: bool) -> None:
        """Signal its process, or its session and descendants, too. Raises WrongState when it has no process."""

    async def delete_exec(self, container: Container, e: Exec) -> None:
        """Remove shim and directory of an exec; also its process, if its making was interrupted."""

    def leaked_execs(self, container: Container, known: Collection[str]) -> Sequence[str]:
        """Return the ids of all execs of the current run but the known ones. Raises OSError."""

    async def delete_leaked_execs(self, container: Container, known: Collection[str]) -> None:
        """Remove all execs of the current run but the known ones: a daemon that was killed has left them."""


class ExecManagers(Protocol):
    """The families of runtimes, for execs."""

    def of(self, container: Container) -> ExecManager: ...
    def kill_stopped_shim(self, key: RunKey) -> bool:
        """Kill its shim if it is stopped: the keeper then gets its zombies. Return False if no shim is stopped."""

    def shim_gone(self, key: RunKey) -> asyncio.Event | None:
        """Return the event that is set when no process reads its output any more."""

    async def settle_exec(self, key: RunKey) -> None: ...
    def directory_of(self, key: RunKey) -> str: ...
