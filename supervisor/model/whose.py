"""Whether a process is the container that a state file says it is. Pure.

The writer of such a file can name any process in it. root is believed, for it can do anything. Other writers are
believed if the process's own cgroup has the container's name, or if the process could be the writer's: it runs as that
user, in a user namespace of that user, or in a cgroup that was delegated to that user.
"""

from collections.abc import Collection

from shim.frozen import frozen

ROOT, ANY_USER = 0, -1
LEAST_NAME = 8  # characters of a name that a cgroup does not contain by chance


@frozen
class Owners:
    """The uids that the kernel names for a process; None if it could not be asked."""

    uid: int | None = None  # the real uid
    namespace: int | None = None  # the owner of its user namespace, ioctl_ns(2)
    cgroup: int | None = None  # the owner of its cgroup's directory


def writer_of(entries: Collection[tuple[int, int]]) -> int:
    """Return who can have written the file: a uid, or ANY_USER. `entries`: uid and mode of the file and of each
    directory above it. In a directory that others may write to, any user can put another file in its place."""
    if any(mode & 0o022 for _, mode in entries):
        return ANY_USER
    others = {uid for uid, _ in entries} - {ROOT}
    return ROOT if not others else others.pop() if len(others) == 1 else ANY_USER


def doubt(id: str, writer: int, cgroup: str, owners: Owners) -> str:
    """Return why the process may be another one; empty if it is believed to be the container `id`. `cgroup`: the path
    of the process's cgroup, empty if it has none of its own."""
    if writer == ROOT or names(cgroup, id):
        return ""
    if writer == ANY_USER:
        return "any user may have named this process, and its cgroup does not have the container's name"
    if writer in (owners.uid, owners.namespace, owners.cgroup):
        return ""
    return f"uid {writer} has named this process, which is not that user's, and its cgroup does not have its name"


def names(cgroup: str, id: str) -> bool:
    """Return whether one of the two innermost parts of the path is the id, or ENGINE-ID.scope as systemd's drivers name
    it."""
    parts = [part for part in cgroup.split("/") if part][-2:]
    return len(id) >= LEAST_NAME and any(_is_of(part, id) for part in parts)


def _is_of(part: str, id: str) -> bool:
    if part == id:
        return True
    stem, dot, kind = part.rpartition(".")
    return bool(dot) and kind == "scope" and (stem == id or stem.endswith(f"-{id}"))
