"""A container's scope: the unit of systemd's that its runtime asks for, and which of its limits the unit must have.

systemd gives a unit its default of processes (DefaultTasksMax=, systemd-system.conf(5)), and writes all limits of the
unit into the kernel's files again when it reads its units again (`daemon-reload`, every installation of a package). So
a limit that a runtime has only written into those files does not last, and one that it never has is systemd's. runc
(1.1 to 1.3) leaves out that there is no swap, and no limit of processes. crun (1.8 to 1.28) has a cgroup inside of the
scope, which systemd leaves alone and which has all limits, and the scope has systemd's own of processes. Both take
properties of the unit from annotations (runc: docs/systemd.md; crun.1).
"""

import errno
import os
from collections.abc import Iterable, Mapping

from supervisor.model.errors import RuntimeFailed, ShimFailed
from supervisor.runtime.oci import cgroups, slices

ANNOTATION = "org.systemd.property."
TASKS, SWAP, CPU = "TasksMax", "MemorySwapMax", "CPUQuotaPerSecUSec"


def annotate(document: dict[str, object], *, of_bundle: bool) -> bool:
    """Give config.json of a container in a scope the annotations that its runtime makes the unit's properties of;
    return whether it has not had them. What is there stays: it may be a caller's own word. `of_bundle`: a caller's, and
    containerd's; where that says nothing of processes, systemd's limit is what its runtime alone would give it."""
    linux = document.get("linux")
    path = linux.get("cgroupsPath") if isinstance(linux, dict) else None
    if not isinstance(linux, dict) or not isinstance(path, str) or not cgroups.is_scope(path):
        return False
    before = document.get("annotations")
    resources = linux.get("resources")
    says = not of_bundle or (isinstance(resources, dict) and "pids" in resources)
    wanted = {**({TASKS: slices.INFINITY} if says else {}), **_swap(resources)}
    found = {f"{ANNOTATION}{name}": f"uint64 {value}" for name, value in wanted.items()}
    own = before if isinstance(before, dict) else {}
    if found.keys() <= own.keys():
        return False
    document["annotations"] = found | own
    return True


def forget_swap(document: dict[str, object]) -> None:
    """Take away the annotation of a limit that has been changed."""
    annotations = document.get("annotations")
    if isinstance(annotations, dict):
        annotations.pop(f"{ANNOTATION}{SWAP}", None)


def changed(resources: Mapping[str, object], *, has_inner: bool) -> dict[str, int]:
    """Return the properties that the scope is to have after an update with these linux.resources. `has_inner`: the
    limits are those of a cgroup inside of it, and the runtime (crun) takes none away from the unit."""
    cpu = resources.get("cpu")
    quota = cpu.get("quota") if isinstance(cpu, Mapping) else None
    is_lifted = isinstance(quota, int) and quota < 0
    lifted = {
        **({TASKS: slices.INFINITY} if "pids" in resources else {}),
        **({CPU: slices.INFINITY} if is_lifted else {}),
    }
    return {**(lifted if has_inner else {}), **_swap(resources)}


def _swap(resources: object) -> dict[str, int]:
    """runtime-spec's swap is memory and swap together, -1 no limit; cgroup v2 and systemd have swap alone."""
    memory = resources.get("memory") if isinstance(resources, Mapping) else None
    limit, together = (memory.get(name) if isinstance(memory, Mapping) else None for name in ("limit", "swap"))
    if not isinstance(limit, int) or not isinstance(together, int):
        return {}
    return {SWAP: slices.INFINITY if limit < 0 or together < 0 else max(0, together - limit)}


def remove_misplaced(pids: Iterable[int], root: str = cgroups.ROOT, proc: str = "/proc") -> tuple[str, ...]:
    """Remove the cgroup that crun makes where its container's first process is, if that has ended before systemd has
    put it into its scope: in the cgroup of the shim, which is the keeper's, or exitd's. Return those removed. Raises
    OSError."""
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
