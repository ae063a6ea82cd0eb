"""A container's scope: the unit of systemd's that its runtime asks for, and which of its limits the unit must have.

systemd gives a unit its default of processes (DefaultTasksMax=, systemd-system.conf(5)), and writes all limits of the
unit into the kernel's files again when it reads its units again (`daemon-reload`, every installation of a package). So
a limit that a runtime has only written into those files does not last, and one that it never has is systemd's. runc
(1.1 to 1.3) leaves out that there is no swap, and no limit of processes. crun has a cgroup inside of the scope, which
systemd leaves alone and which has all limits; crun 1.8 gives the unit none of processes, later ones do, and 1.28 does
not take a quota of CPU time away. Both take properties of the unit from annotations (runc: docs/systemd.md; crun.1).
"""

import errno
import os
from collections.abc import Iterable, Mapping

from supervisor.model.errors import RuntimeFailed, ShimFailed
from supervisor.runtime.oci import cgroups, slices

ANNOTATION = "org.systemd.property."
TASKS, SWAP, CPU = "TasksMax", "MemorySwapMax", "CPUQuotaPerSecUSec"
# Of which limits, by their places below linux.resources, a caller's bundle may have properties.
OF_LEAVES: Mapping[tuple[str, str], str] = {
    ("pids", "limit"): TASKS,
    ("memory", "swap"): SWAP,
    ("memory", "limit"): "MemoryMax",
    ("cpu", "quota"): CPU,
}


def annotate(document: dict[str, object], *, or_none: bool) -> bool:
    """Give config.json of a container in a scope the annotations that its runtime makes the unit's properties of;
    return whether it has not had them. What is there stays: it may be a caller's own word. `or_none`: a document that
    says nothing of processes means no limit. A caller's, or containerd's, fares as with its runtime alone: the limit is
    systemd's."""
    linux = document.get("linux")
    path = linux.get("cgroupsPath") if isinstance(linux, dict) else None
    if not isinstance(linux, dict) or not isinstance(path, str) or not cgroups.is_scope(path):
        return False
    before = document.get("annotations")
    resources = linux.get("resources")
    wanted = {**({TASKS: slices.INFINITY} if or_none else {}), **_tasks(resources), **_swap(resources)}
    found = {f"{ANNOTATION}{name}": f"uint64 {value}" for name, value in wanted.items()}
    own = before if isinstance(before, dict) else {}
    if found.keys() <= own.keys():
        return False
    document["annotations"] = found | own
    return True


def forget(document: dict[str, object], leaves: Iterable[tuple[str, str]]) -> None:
    """Take away the annotations of limits, by their places below linux.resources, that an update has changed."""
    annotations = document.get("annotations")
    if isinstance(annotations, dict):
        for leaf in leaves:
            annotations.pop(f"{ANNOTATION}{OF_LEAVES.get(leaf)}", None)


def changed(resources: Mapping[str, object]) -> dict[str, int]:
    """Return the properties that the scope is to have after an update with these linux.resources, as far as a runtime
    may not have changed them."""
    cpu = resources.get("cpu")
    quota = cpu.get("quota") if isinstance(cpu, Mapping) else None
    is_lifted = isinstance(quota, int) and quota < 0
    return {**_tasks(resources), **({CPU: slices.INFINITY} if is_lifted else {}), **_swap(resources)}


def _tasks(resources: object) -> dict[str, int]:
    """0 is no word of it to runtimes (runc's libcontainer, crun), below 0 is no limit."""
    pids = resources.get("pids") if isinstance(resources, Mapping) else None
    limit = pids.get("limit") if isinstance(pids, Mapping) else None
    return {TASKS: limit if limit > 0 else slices.INFINITY} if isinstance(limit, int) and limit else {}


def _swap(resources: object) -> dict[str, int]:
    """runtime-spec's swap is memory and swap together, -1 no limit, 0 no word of it; cgroup v2 and systemd have swap
    alone."""
    memory = resources.get("memory") if isinstance(resources, Mapping) else None
    limit, together = (memory.get(name) if isinstance(memory, Mapping) else None for name in ("limit", "swap"))
    if not isinstance(limit, int) or not isinstance(together, int) or not together:
        return {}
    return {SWAP: slices.INFINITY if limit < 0 or together < 0 else max(0, together - limit)}


def remove_misplaced(pids: Iterable[int], root: str = cgroups.ROOT, proc: str = "/proc") -> tuple[str, ...]:
    """Remove the cgroup that crun makes where its container's first process is, if that has ended before systemd has
    put it into its scope: in the cgroup of the shim, which is the keeper's, or exitd's, or one that a client of
    containerd's has named and looks after. Return those removed. Raises OSError."""
    found = []
    if cgroups.mode(root) is not cgroups.Mode.V2:
        return ()
    for path in {path for pid in pids if (path := _cgroup_of(pid, proc)) not in ("", "/")}:
        misplaced = f"{root}{path}/{cgroups.CRUN_INNER}"
        try:
            os.rmdir(misplaced)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EBUSY, errno.ENOTEMPTY):
                raise
        else:
            found.append(misplaced)
    return tuple(found)


def _cgroup_of(pid: int, proc: str) -> str:
    """Return the process's cgroup of version 2, with a slash before it; empty if the process has ended."""
    try:
        with open(f"{proc}/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return next((line.removeprefix("0::") for line in lines if line.startswith("0::/")), "")


async def limit(cgroups_path: str, wanted: Mapping[str, int]) -> None:
    """Give the scope these properties. Raises RuntimeFailed when systemd refuses, TimedOut, Busy."""
    if not wanted:
        return
    unit = cgroups.inside(cgroups_path).rpartition("/")[2]
    try:
        await slices.alter(unit, wanted)
    except ShimFailed as error:
        raise RuntimeFailed(str(error)) from error
