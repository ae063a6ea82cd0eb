"""Sets a pod's own limits, on the cgroup around those of its containers."""

import asyncio
from collections.abc import Collection

from supervisor.model.errors import BadRequest, ShimFailed
from supervisor.model.values import Container, Pod
from supervisor.runtime.oci import bundle, cgroups, delegation, slices


async def set_limits(container: Container) -> None:
    """Set the limits of a pause container's pod before that container is made, so that nothing in the pod ever runs
    without them. Raises BadRequest for a limit that cannot be set on this machine, ShimFailed when the kernel or
    systemd refuses one, TimedOut, Busy."""
    pod = container.spec.pod
    if pod is None or not (pod.memory_bytes or pod.pids_limit or pod.cpu_limit_milli):
        return
    _refuse(pod)
    if container.spec.systemd_cgroup:
        return await slices.limit(container.id, slices.properties(pod))
    cgroup = bundle.pod_cgroup(container.id)
    if pod.memory_bytes:
        cgroups.limit_memory(cgroup, pod.memory_bytes)
    if pod.pids_limit:
        cgroups.limit_pids(cgroup, pod.pids_limit)
    if pod.cpu_limit_milli:
        cgroups.limit_cpu(cgroup, pod.cpu_limit_milli)


async def change_limits(container: Container, names: Collection[str]) -> None:
    """Give the pod of this pause container these of its limits, cleared ones too. Raises as `set_limits`."""
    pod = container.spec.pod
    assert pod is not None
    _refuse(pod)
    if container.spec.systemd_cgroup:
        return await slices.limit(container.id, slices.explicit(pod, names))
    await asyncio.to_thread(_write, bundle.pod_cgroup(container.id), pod, names)


def _write(cgroup: str, pod: Pod, names: Collection[str]) -> None:
    set_by = {
        "memory_bytes": ("memory", cgroups.limit_memory),
        "cpu_limit_milli": ("cpu", cgroups.limit_cpu),
        "pids_limit": ("pids", cgroups.limit_pids),
    }
    for name, (controller, limit) in set_by.items():
        if name in names and (value := getattr(pod, name)):
            limit(cgroup, value)
        elif name in names:
            _lift(cgroup, controller)


def _lift(cgroup: str, controller: str) -> None:
    try:
        cgroups.lift(cgroup, controller)
    except OSError as error:
        raise ShimFailed(f"cgroup {cgroup}: its limit of {controller} stays: {error.strerror}") from error


def _refuse(pod: Pod) -> None:
    try:
        lacking = delegation.lacking()
    except OSError as error:
        raise ShimFailed(f"{error.filename}: {error.strerror}; the pod's limits are not set") from error
    asked = (("memory_bytes", "memory"), ("pids_limit", "pids"), ("cpu_limit_milli", "cpu"))
    for field, controller in asked:
        if getattr(pod, field) and controller in lacking:
            raise BadRequest(f"pod.{field}: {lacking[controller]}; or ask for no limit")
