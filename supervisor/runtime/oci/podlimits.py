"""Sets a pod's own limits, on the cgroup around those of its containers."""

from supervisor.model.values import Container
from supervisor.runtime.oci import bundle, cgroups


def set_limits(container: Container) -> None:
    """Set the limits of a pause container's pod before that container is made, so that nothing in the pod ever runs
    without them. Raises ShimFailed."""
    pod, cgroup = container.spec.pod, bundle.pod_cgroup(container.id)
    if pod is not None and pod.memory_bytes:
        cgroups.limit_memory(cgroup, pod.memory_bytes)
    if pod is not None and pod.pids_limit:
        cgroups.limit_pids(cgroup, pod.pids_limit)
    if pod is not None and pod.cpu_limit_milli:
        cgroups.limit_cpu(cgroup, pod.cpu_limit_milli)
