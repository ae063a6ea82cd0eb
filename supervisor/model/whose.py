"""Whether a process is the container that a state file says it is. Pure.

Who may write such a file can name any process in it. root may, for it can do anything. Of other writers it is believed
where the process's own cgroup has the container's name, or where the process could be the writer's: it runs as that
user, in a user namespace of that user's, or in a cgroup that was delegated to that user.
"""

from collections.abc import Collection
from dataclasses import dataclass

ROOT, ANYBODY = 0, -1
LEAST_NAME = 8  # characters of a name that a cgroup has by more than chance


@dataclass(frozen=True, slots=True)
class Owners:
    """Uids that the kernel names for a process; None where it cannot be asked."""

    uid: int | None = None  # its real one
    namespace: int | None = None  # that of its user namespace's owner, ioctl_ns(2)
    cgroup: int | None = None  # that of its cgroup's directory


def writer_of(entries: Collection[tuple[int, int]]) -> int:
    """Who can have written what a file says, of the owners and modes of the file and the directories above it: a uid,
    or ANYBODY. In a directory that others may write in, anybody can put another file in its place."""
    if any(mode & 0o022 for _, mode in entries):
        return ANYBODY
    others = {uid for uid, _ in entries} - {ROOT}
    return ROOT if not others else others.pop() if len(others) == 1 else ANYBODY


def doubt(id: str, writer: int, cgroup: str, owners: Owners) -> str:
    """Why the process may be another's; empty where it is believed to be the container `id`. `cgroup`: the path of its
    own, empty where it has none."""
    if writer == ROOT or names(cgroup, id):
        return ""
    if writer == ANYBODY:
        return "anybody may have named this process, and its cgroup does not have the container's name"
    if writer in (owners.uid, owners.namespace, owners.cgroup):
        return ""
    return f"uid {writer} has named this process, which is not that user's, and its cgroup does not have its name"


def names(cgroup: str, id: str) -> bool:
    """Whether one of the two innermost parts of the path is the id, or ENGINE-ID.scope as systemd's drivers have it."""
    parts = [part for part in cgroup.split("/") if part][-2:]
    return len(id) >= LEAST_NAME and any(_is_of(part, id) for part in parts)


def _is_of(part: str, id: str) -> bool:
    if part == id:
        return True
    stem, dot, kind = part.rpartition(".")
    return bool(dot) and kind == "scope" and (stem == id or stem.endswith(f"-{id}"))
