"""Whoever an init leaves behind where the kernel does not end them with it, in a pid namespace that is not its own.

They die before the end is reported: core/reap.c sees to that, and this where the shim died first.
"""

import errno
import os

from shim import fields, names, native
from supervisor.errors import ShimFailed

LIMIT_MS = 500


def mark_shared(directory: str) -> None:
    """Others live in the cgroup of the run in this directory: they do not die with its init. Repeatable. ShimFailed."""
    path = f"{directory}/{names.SHARED_CGROUP}"
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except FileNotFoundError:  # a run that is being cleaned up
        return
    except OSError as error:
        raise ShimFailed(f"{path}: {error.strerror}; is the state directory full?") from error


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
            found.update(_members(path))
    return tuple(sorted(found))


def end(directories: tuple[str, ...]) -> tuple[int, ...]:
    """Kills everybody in them and waits for their end. Blocks for half a second at most. Who is left."""
    try:
        native.end_cgroup(directories, LIMIT_MS)
    except TimeoutError:
        return members(directories)
    return ()


def _members(path: str) -> list[int]:
    """ENODEV: the cgroup was removed in between. One that cannot be read says nothing."""
    try:
        with open(f"{path}/cgroup.procs", encoding="ascii") as file:
            return [int(line) for line in file.read().split() if line != "0"]
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV):
            return []
        raise
