"""Finds what a runtime that was killed during its exec has begun nevertheless: one of its container's processes.

The runtime's child belongs to the shim or, if that is dead, to the next subreaper. So its parent is not in the
container, it is not older than the shim, and it is in no shim's session, where the runtimes and their helpers are: it
leads its own under runc; under crun (1.8) a process in between has led it, which has ended. The kernel says whether it
has executed its program (PF_FORKNOEXEC): before that it runs the runtime's code, and may end without doing so.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from shim.frozen import frozen
from supervisor.model.values import Process
from supervisor.monitor import procfs

STATE, PARENT, SESSION, FLAGS, STARTED = 0, 1, 3, 6, 19  # of proc_pid_stat(5), counted from behind the name
PF_FORKNOEXEC = 0x40  # include/linux/sched.h; kept until the process is reaped


@frozen
class CgroupMember:
    """One process. `parent_inside`: its parent is in another pid namespace than this daemon, so in a container.
    `session`: its leader's pid. `is_led`: that is another process, which has not ended."""

    parent: int
    parent_inside: bool
    session: int
    is_led: bool
    started_ticks: int
    began: bool
    dead: bool


@frozen
class BegunProcess:
    """`process`: the first that has begun. `undecided`: a process is alive that may still begin."""

    process: Process | None = None
    undecided: bool = False


def find(
    members: Mapping[int, CgroupMember], since_ticks: int, known: Collection[int], shims: Collection[int]
) -> BegunProcess:
    """`known`: pids that belong to known processes. `shims`: pids of the container's shims, also of dead ones."""
    strangers = {
        pid: each
        for pid, each in members.items()
        if pid not in known
        and each.parent not in members
        and not each.parent_inside
        and each.started_ticks >= since_ticks
    }
    begun = sorted(
        (each.started_ticks, pid)
        for pid, each in strangers.items()
        if each.began and not each.is_led and each.session not in shims
    )
    undecided = any(not each.began and not each.dead for each in strangers.values())
    return BegunProcess(Process(begun[0][1], begun[0][0]) if begun else None, undecided)


def look(pids: Iterable[int]) -> dict[int, CgroupMember]:
    """Return those that exist."""
    found, own = dict[int, CgroupMember](), _pid_namespace("self")
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = _fields(pid)
            parent, dead = int(fields[PARENT]), fields[STATE] in "ZX"
            began = not int(fields[FLAGS]) & PF_FORKNOEXEC
            inside = _pid_namespace(str(parent)) not in (own, "")
            session, started = int(fields[SESSION]), int(fields[STARTED])
            led = procfs.is_led(pid, session, started)
            found[pid] = CgroupMember(parent, inside, session, led, started, began, dead)
    return found


def in_session(session: int) -> list[int]:
    """Return the living processes of a session. The runtime and its helpers are in the shim's, until they have made the
    process."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                fields = _fields(int(name))
                if int(fields[SESSION]) == session and fields[STATE] not in "ZX":
                    found.append(int(name))
    return found


def _fields(pid: int) -> list[str]:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def _pid_namespace(pid: str) -> str:
    """Empty if it has ended."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""
