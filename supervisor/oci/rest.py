"""Whoever an init leaves behind where the kernel does not end them with it, in a pid namespace that is not its own.

They die before the end is reported: core/reap.c sees to that, and this where the shim died first.
"""

import contextlib
import os

from shim import fields, names, native
from supervisor import errnos, monitor
from supervisor.errors import ShimFailed
from supervisor.oci import cgroups

LIMIT_MS = 500


def mark_shared(directory: str) -> None:
    """Others live in the cgroup of the run in this directory: they do not die with its init. Repeatable. ShimFailed."""
    path = f"{directory}/{names.SHARED_CGROUP}"
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except FileNotFoundError:  # a run that is being cleaned up
        return
    except OSError as error:
        raise ShimFailed(f"{path}: {errnos.said(error)}") from error


def to_end(directory: str) -> tuple[str, ...]:
    """The cgroup of the run in this directory, where its plan says that nobody may be left in it; else nothing."""
    if os.path.exists(f"{directory}/{names.SHARED_CGROUP}"):
        return ()
    try:
        with open(f"{directory}/{names.PLAN}", "rb") as file:
            plan = fields.decode(file.read(), "exitd-plan")
    except (OSError, fields.BadMessage):
        return ()
    return tuple(value for key, value in plan.pairs if key == "cgroup")


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
    pidfd = monitor.open_pid(pid)
    if pidfd is None:
        return False
    try:
        return not monitor.read_ready(pidfd)
    finally:
        os.close(pidfd)
