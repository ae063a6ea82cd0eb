"""Ends the processes that an init leaves behind in a pid namespace that is not its own, where the kernel does not end
them.

They die before the end is reported: core/reap.c does that, and this module if the shim died first.
"""

import contextlib
import os

from shim import fields, names, native
from supervisor.model import errnos
from supervisor.model.errors import ShimFailed
from supervisor.monitor import epoll, procfs, rundir
from supervisor.runtime.oci import cgroups

LIMIT_MS = 500
STRANGERS = "-"  # in the mark, for processes of no container of this exitd


def mark_shared(directory: str, sharer: str = STRANGERS) -> None:
    """Note that a container, given by id, or unknown processes live in the cgroup of the run in this directory: as long
    as they do, nothing there is killed with its init. Repeatable. Raises ShimFailed."""
    path = f"{directory}/{names.SHARED_CGROUP}"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="ascii") as file:
            file.write(f"{sharer}\n")
    except FileNotFoundError:  # the run is being cleaned up
        return
    except OSError as error:
        raise ShimFailed(f"{path}: {errnos.said(error)}") from error


def sharers(directory: str) -> frozenset[str]:
    """Return the ids of those that have shared the cgroup of the run in this directory. A mark of an earlier version
    names none, which counts as STRANGERS. Raises OSError when it cannot be read."""
    try:
        with open(f"{directory}/{names.SHARED_CGROUP}", encoding="ascii", errors="replace") as file:
            return frozenset(file.read().splitlines()) or frozenset({STRANGERS})
    except FileNotFoundError:
        return frozenset()


def to_end(directory: str, state: str) -> tuple[str, ...]:
    """Return the cgroup of the run in this directory, if its plan says that it must be emptied, and no other container
    of the state directory nor unknown processes live in it; otherwise nothing. Raises OSError."""
    if any(sharer == STRANGERS or _may_live(state, sharer) for sharer in sharers(directory)):
        return ()
    return _named(directory) or ()


def has_own_pids(directory: str) -> bool:
    """Return whether the run in this directory is known to have a pid namespace of its own: then its plan names no
    cgroup that must be emptied."""
    return _named(directory) == ()


def _named(directory: str) -> tuple[str, ...] | None:
    """Return the cgroups in the plan of the run; None if it cannot be read."""
    try:
        with open(f"{directory}/{names.PLAN}", "rb") as file:
            plan = fields.decode(file.read(), "exitd-plan")
    except (OSError, fields.BadMessage):
        return None
    return tuple(value for key, value in plan.pairs if key == "cgroup")


def _may_live(state: str, container: str) -> bool:
    """Ask the run directories: after a start of exitd not every container is watched at once."""
    for id, run in rundir.runs(state):
        if id == container:
            init = rundir.created(rundir.path_of(state, id, run))
            if init is None or not procfs.is_ending(init):
                return True
    return False


def members(directories: tuple[str, ...]) -> tuple[int, ...]:
    """Return all processes in these cgroups or below them, in ascending order."""
    found = set[int]()
    for top in directories:
        for path, _, _ in os.walk(top):
            found.update(cgroups.members(path))
    return tuple(sorted(found))


def end(directories: tuple[str, ...]) -> tuple[int, ...]:
    """Kill all processes in these cgroups and wait for their end, at most LIMIT_MS; blocks. Return those that are left,
    including those too deep below to be reached. Raises OSError when that cannot be read."""
    with contextlib.suppress(TimeoutError):
        native.end_cgroup(directories, LIMIT_MS)
    return tuple(filter(_lives, members(directories)))


def _lives(pid: int) -> bool:
    return epoll.lives(epoll.open_pid(pid))
