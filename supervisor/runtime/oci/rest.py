"""Whoever an init leaves behind where the kernel does not end them with it, in a pid namespace that is not its own.

They die before the end is reported: core/reap.c sees to that, and this where the shim died first.
"""

import contextlib
import os

from shim import fields, names, native
from supervisor.model import errnos
from supervisor.model.errors import ShimFailed
from supervisor.monitor import epoll, procfs, rundir
from supervisor.runtime.oci import cgroups

LIMIT_MS = 500
STRANGERS = "-"  # in the mark, where they are no container's of this exitd


def mark_shared(directory: str, sharer: str = STRANGERS) -> None:
    """Note that a container, by its id, or strangers live in the cgroup of the run in this directory: while they do,
    nobody there dies with its init. Repeatable. Raises ShimFailed."""
    path = f"{directory}/{names.SHARED_CGROUP}"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="ascii") as file:
            file.write(f"{sharer}\n")
    except FileNotFoundError:  # a run that is being cleaned up
        return
    except OSError as error:
        raise ShimFailed(f"{path}: {errnos.said(error)}") from error


def sharers(directory: str) -> frozenset[str]:
    """Who has been in the cgroup of the run in this directory besides itself, by id. An earlier version has named
    nobody: that counts as strangers. Raises OSError when it cannot be read."""
    try:
        with open(f"{directory}/{names.SHARED_CGROUP}", encoding="ascii", errors="replace") as file:
            return frozenset(file.read().splitlines()) or frozenset({STRANGERS})
    except FileNotFoundError:
        return frozenset()


def to_end(directory: str, state: str) -> tuple[str, ...]:
    """The cgroup of the run in this directory, where its plan says that nobody may be left in it, and where no other
    container of the state directory lives in it, nor strangers do; else nothing. Raises OSError."""
    if any(sharer == STRANGERS or _may_live(state, sharer) for sharer in sharers(directory)):
        return ()
    try:
        with open(f"{directory}/{names.PLAN}", "rb") as file:
            plan = fields.decode(file.read(), "exitd-plan")
    except (OSError, fields.BadMessage):
        return ()
    return tuple(value for key, value in plan.pairs if key == "cgroup")


def _may_live(state: str, container: str) -> bool:
    """Asked of the run directories: after a start of exitd not every container is watched at once."""
    for id, run in rundir.runs(state):
        if id == container:
            init = rundir.created(rundir.path_of(state, id, run))
            if init is None or not procfs.is_ending(init):
                return True
    return False


def members(directories: tuple[str, ...]) -> tuple[int, ...]:
    """Everybody in these cgroups, or below them, in ascending order."""
    found = set[int]()
    for top in directories:
        for path, _, _ in os.walk(top):
            found.update(cgroups.members(path))
    return tuple(sorted(found))


def end(directories: tuple[str, ...]) -> tuple[int, ...]:
    """Kill everybody in them and wait for their end, for LIMIT_MS at most; blocks. Return who is left, those included
    who were too deep below to be reached. Raises OSError when that cannot be read."""
    with contextlib.suppress(TimeoutError):
        native.end_cgroup(directories, LIMIT_MS)
    return tuple(filter(_lives, members(directories)))


def _lives(pid: int) -> bool:
    pidfd = epoll.open_pid(pid)
    if pidfd is None:
        return False
    try:
        return not epoll.read_ready(pidfd)
    finally:
        os.close(pidfd)
