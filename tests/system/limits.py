"""What the kernel has in force of a container's limits."""

import pathlib

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.runtime.oci import cgroups
from tests.system.lives import cgroup

V2 = cgroups.mode() is cgroups.Mode.V2


def in_cgroup(id: str, v1: str, v2: str) -> str:
    """The file of the container's cgroup, by its name in either version. In a scope crun's has another one in it."""
    places = cgroups.paths(path := cgroup(id))
    controller = v1.partition(".")[0]
    top = places["unified"] if V2 else next(each for names, each in places.items() if controller in names.split(","))
    *_, inner = cgroups.with_inner(path, top)
    return pathlib.Path(inner, v2 if V2 else v1).read_text().strip()


def limits_of(id: str) -> dict[str, str]:
    quota = in_cgroup(id, "cpu.cfs_quota_us", "cpu.max")
    return {
        "memory": in_cgroup(id, "memory.limit_in_bytes", "memory.max"),
        "reservation": in_cgroup(id, "memory.soft_limit_in_bytes", "memory.low"),
        "cpu": quota.partition(" ")[0],
        "shares": in_cgroup(id, "cpu.shares", "cpu.weight"),
        "cpus": in_cgroup(id, "cpuset.cpus", "cpuset.cpus.effective"),
        "pids": in_cgroup(id, "pids.max", "pids.max"),
    }


def stored(container: pb.Container) -> dict[str, str]:
    """What exitd says of those that are set, as the kernel would say it."""
    spec = container.spec
    found = {
        "memory": spec.memory_bytes,
        "cpu": spec.cpu_limit_milli * 100,
        "pids": max(0, spec.rights.pids_limit),
    }
    return {name: str(value) for name, value in found.items() if value}
