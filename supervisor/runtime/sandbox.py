"""The seam of the two designs: what a runtime family must offer, whoever waits for the process behind it.

Shim v1 (exitd-shim beside every container, exit fifo and epoll) is `supervisor/runtime/oci/native.py`; a shim v2 client
comes behind the same two roles. The names are those of the founding documents (kata's runtime-rs), kept so that a
reader finds them again; their VM-only methods do not exist here.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from supervisor.model.execs import Exec
from supervisor.model.values import Container, Process, Report, RunKey


@dataclass(frozen=True, slots=True)
class Made:
    """A run that the runtime has created: init waits for start."""

    init: Process
    shim: Process | None
    monitored_by: str
    waits_in: str = ""  # what `has_begun` compares with


class RunListener(Protocol):
    """What the families report of runs, on the event loop. Each method returns at once."""

    def exit_seen(self, key: RunKey, report: Report) -> None:
        """A run, or an exec, has ended: once for each while this process lives; the store makes that once for ever."""

    def memory_kills_seen(self, key: RunKey, kills: int) -> None:
        """Init has outlived so many memory kills in its cgroup. Perhaps more than once."""

    def silence_seen(self, key: RunKey, silent: bool) -> None:
        """A foreign shim does not answer any more, or does again."""


class Found(Enum):
    """What `connect_container` found of a run after a daemon restart."""

    LIVE = "live"  # init is there; its end will be reported
    ENDED = "ended"  # its end will be, or was, reported
    NOTHING = "nothing"  # never got as far as an init
    UNWATCHED = "unwatched"  # its row is damaged and nothing else names its init, and something of it runs
    LOST = "lost"  # the state directory was lost with all that knew of the run; what ran of it has been ended


class ContainerManager(Protocol):
    """The life of one container's processes. Every call is bounded in time and raises a named ExitdError."""

    async def create_container(self, container: Container) -> Made: ...
    async def start_process(self, container: Container) -> None: ...
    async def connect_container(self, container: Container) -> tuple[Found, Made | None]:
        """Finds a run again after a restart. Must not wait for one silent shim longer than its limit."""

    async def state_process(self, container: Container) -> str:
        """The runtime's own word: creating | created | running | paused | stopped | absent."""

    async def kill_process(self, container: Container, signal: int, *, everyone: bool = False) -> None:
        """To init, or to everyone. Of SIGKILL init dies even when it is frozen, by whomever."""

    async def pause_container(self, container: Container) -> None: ...
    async def resume_container(self, container: Container) -> None: ...
    async def is_paused(self, container: Container) -> bool:
        """Whether it is frozen now, whatever is stored. ExitdError, OSError: nobody can tell."""

    async def pids(self, container: Container) -> tuple[int, ...]: ...
    def has_begun(self, container: Container) -> bool:
        """Init is the container's own program by now, whatever came of the runtime's start. False also means that
        nobody can tell."""

    def is_unseen(self, container: Container) -> bool:
        """Nobody has seen yet that init executed its program, and somebody could."""

    def may_start_again(self, container: Container) -> bool:
        """Whether a start of which nobody knows what came may be asked for once more, if init still waits for it."""

    def sees_init(self, container: Container) -> bool:
        """Whether init's own life can be looked at: that of a process in a virtual machine cannot."""

    def is_ending(self, container: Container) -> bool:
        """Init is dead or on its way there, whether or not that has been reported."""

    async def end_rest(self, container: Container) -> int:
        """Before the exit is stored: whoever init has left behind is dead when this returns, within a limit. How many
        are not."""

    async def settle(self, container: Container) -> None:
        """After the exit is stored: what its run needs before `delete_process` is begun. Repeatable."""

    async def delete_process(self, container: Container) -> None:
        """Nothing of the run is left when this returns: shim, runtime state, cgroups, run directory; its output is
        complete, and the witnesses may forget it. Repeatable."""

    def forget(self, container: Container) -> None:
        """Closes what this process holds of the run."""


class ContainerManagers(Protocol):
    """The families of runtimes, and what is asked of all of them."""

    def of(self, container: Container) -> ContainerManager:
        """That of the container's own runtime."""

    def listen(self, listener: RunListener) -> None:
        """Once, before any run is made or found."""

    def begin_preparing(self, container: Container) -> None:
        """A hint that create_container follows: what takes the disk's time may begin. `discard` undoes it."""

    async def discard(self, container_id: str) -> None:
        """The container's files, once nothing of it runs. Repeatable."""


@dataclass(frozen=True, slots=True)
class MadeExec:
    """An exec that has begun. `oom_kills`: in its container's cgroup, by then. `init` None: or it may have, and nobody
    can tell. `unseen`: nobody has seen its program executed yet."""

    init: Process | None
    shim: Process | None
    oom_kills: int = 0
    unseen: bool = False


class NoProcess(Enum):
    """Why there is no process to name of an exec whose making nobody saw the end of."""

    NEVER_BEGAN = "never-began"  # and never will
    UNKNOWN = "unknown"  # it may have begun, and ended


class ExecManager(Protocol):
    """The life of one exec's process, likewise bounded in time. Its end is reported to the listener of
    ContainerManagers, under a key with an exec id."""

    async def create_exec(self, container: Container, e: Exec) -> MadeExec: ...
    async def begun_exec(self, container: Container, e: Exec) -> Process | NoProcess:
        """Of one whose making an earlier daemon did not see the end of: its process, which may have ended. Waits for a
        shim that is at it."""

    async def connect_exec(self, container: Container, e: Exec) -> None:
        """Finds an exec that ran when an earlier daemon ended. Its end, past or to come, will be reported."""

    async def signal_exec(self, container: Container, e: Exec, number: int, *, everyone: bool) -> None:
        """To its process; or to its session and descendants too. WrongState when it has no process."""

    async def delete_exec(self, container: Container, e: Exec) -> None:
        """Nothing of it is left when this returns: shim, directory; and if its making was broken off, the process."""

    async def delete_strays(self, container: Container, known: Collection[str]) -> None:
        """Likewise of all execs of the current run but these: a daemon that was killed has left them."""


class ExecManagers(Protocol):
    """Likewise for execs."""

    def of(self, container: Container) -> ExecManager: ...
    def kill_stopped_shim(self, key: RunKey) -> bool:
        """Its shim, if it is stopped: its zombies go to the keeper. False: there is none that is."""

    def shim_gone(self, key: RunKey) -> asyncio.Event | None:
        """Set when nobody takes its output any more."""

    async def settle_exec(self, key: RunKey) -> None: ...
    def directory_of(self, key: RunKey) -> str: ...
