"""What this machine lets exitd do with cgroups, and the cure where it does not: a tree that is mounted read-only, and
controllers that have not been delegated.

With v2 a cgroup has the controllers that the one above it hands down, and hands down none itself while processes are in
it. exitd sees the top of the tree, or, in a cgroup namespace, a cgroup that another program has made and delegated. See
cgroups(7), cgroup_namespaces(7) and https://docs.kernel.org/admin-guide/cgroup-v2.html ("Delegation", "No Internal
Process Constraint"). `root` is a parameter so that a made-up tree can replace a kernel that is not available.
"""

import os

from shim.frozen import frozen
from supervisor.runtime.oci import cgroups

LIMITED = ("memory", "cpu", "pids")  # by the controllers with these names
DELEGATE = (
    "add it to Delegate= of the unit that exitd runs in (Delegate=yes hands down all), or to cgroup.subtree_control of "
    "every cgroup above"
)
BOOT = "boot without cgroup_disable=, with systemd.unified_cgroup_hierarchy=1, and unmount that controller of version 1"
EMPTY = (
    "begin exitd in a cgroup of its own below it (DelegateSubgroup= of systemd 254, or a script that first moves "
    "itself there)"
)
REMOUNT = "mount -o remount,rw {}, or run exitd outside of a container, or in a privileged one"


@frozen
class Obstacle:
    """What cannot be done here, and what to do about it."""

    why: str
    cure: str

    def __str__(self) -> str:
        return f"{self.why}: {self.cure}"


def unusable(root: str = cgroups.ROOT) -> Obstacle | None:
    """Return why no container can have a cgroup; None if it can. A few system calls. Raises OSError."""
    tops = cgroups.tops(root)
    if not tops:
        return Obstacle(f"no cgroups under {root}", "mount them (systemd and cgroupfs-mount do)")
    for top in tops:
        if os.statvfs(top).f_flag & os.ST_RDONLY:
            why = f"{top} is mounted read-only, and no container can have a cgroup there"
            return Obstacle(why, REMOUNT.format(top))
    return None


def lacking(root: str = cgroups.ROOT) -> dict[str, Obstacle]:
    """Return the controllers of LIMITED by which no container can be limited here.

    Reads one to three small files with v2, none with v1. Raises OSError when one cannot be read.
    """
    if cgroups.mode(root) is not cgroups.Mode.V2:
        mounted = {name for names in cgroups.hierarchies(root) for name in names.split(",")}
        return {
            name: Obstacle(
                f"the cgroup controller {name} is not mounted",
                f"mount it below {root}, or boot without cgroup_disable=",
            )
            for name in LIMITED
            if name not in mounted
        }
    offered, is_top = _words(f"{root}/cgroup.controllers"), is_whole(root)
    cure = BOOT if is_top else DELEGATE
    whose = "the kernel offers no" if is_top else f"{root} has not been delegated the"
    missing = {name: Obstacle(f"{whose} cgroup controller {name}", cure) for name in LIMITED if name not in offered}
    if is_top:
        return missing
    handed_down = _words(f"{root}/cgroup.subtree_control")
    blocked = [name for name in LIMITED if name in offered and name not in handed_down]
    if blocked and _words(f"{root}/cgroup.procs"):
        why = f"{root} hands down no cgroup controllers as long as processes are in it"
        missing |= dict.fromkeys(blocked, Obstacle(why, EMPTY))
    return missing


def is_whole(root: str = cgroups.ROOT) -> bool:
    """Return whether this is the top of the machine's tree, v2, and not a cgroup that was delegated."""
    return not os.path.exists(f"{root}/cgroup.type")  # the top alone has no such file


def _words(path: str) -> frozenset[str]:
    with open(path, encoding="ascii") as file:
        return frozenset(file.read().split())
