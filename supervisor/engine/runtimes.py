"""Which program runs a container: settled when it is made, from the configuration of that moment, and kept with it.

A container keeps its runtime over reloads and restarts of the daemon: what one runtime has made, another could not
start or delete. So path, arguments and cgroup driver go into the stored spec, not only the name. The members of a pod
have the name from their pause container; what it means, the configuration says at their own creation.
"""

import os
from dataclasses import replace

from supervisor.config.settings import CgroupDriver, Config, Runtime
from supervisor.model.errors import BadRequest, RuntimeMissing
from supervisor.model.values import Spec
from supervisor.runtime.foreign_shim import binary
from supervisor.runtime.oci import runtime

POD_LIMITS = ("memory_bytes", "pids_limit", "cpu_limit_milli")
BOOTED_WITH_SYSTEMD = "/run/systemd/system"  # sd_booted(3)


def chosen(spec: Spec, config: Config) -> Spec:
    """The spec with its runtime. RuntimeMissing where there is none that could run it, BadRequest for a limit that its
    cgroup driver cannot set."""
    found = config.runtime(spec.runtime)
    if found.runtime_type and spec.task:
        raise RuntimeMissing(
            f"runtime {found.name} is {found.runtime_type}, a shim of its own: a task of containerd's needs an OCI "
            "runtime such as runc behind exitd's",
            runtime=found.name,
        )
    systemd = uses_systemd(config.cgroup_driver)
    limit = next((name for name in POD_LIMITS if spec.pod and getattr(spec.pod, name)), "")
    if systemd and limit:
        raise BadRequest(
            f"{limit} of a pod: with the cgroup driver systemd a pod has no cgroup of its own; limit its "
            "containers instead, or choose the cgroup driver cgroupfs in exitd's configuration"
        )
    if limit and found.runtime_type and not binary.is_of_runc(found.runtime_type):
        raise BadRequest(
            f"{limit} of a pod: {found.runtime_type} runs its containers where exitd has no cgroup around them; limit "
            "the containers instead"
        )
    return replace(
        spec,
        runtime=spec.runtime or config.default_runtime,
        runtime_path=_program(found),
        runtime_type=found.runtime_type,
        runtime_options=found.options,
        annotation_globs=_globs(spec, found),
        systemd_cgroup=systemd,
    )


def _program(found: Runtime) -> str:
    if found.runtime_type and not found.path:
        return binary.find(found.runtime_type, f"{os.environ.get('PATH', '')}:{runtime.SEARCH_PATH}")
    return runtime.resolve(found.path or found.name)


def _globs(spec: Spec, found: Runtime) -> tuple[str, ...]:
    """As CRI has it: a pod's annotations reach its members' configurations too."""
    of_a_pod = found.pod_annotations if spec.pod or spec.sandbox else ()
    return (*of_a_pod, *(found.container_annotations if not spec.pod else ()))


def uses_systemd(driver: CgroupDriver, mark: str = BOOTED_WITH_SYSTEMD) -> bool:
    """Asked of the machine for `auto`: whether systemd is its init, as sd_booted(3) finds out."""
    if driver is CgroupDriver.AUTO:
        return os.path.isdir(mark) and not os.path.islink(mark)
    return driver is CgroupDriver.SYSTEMD
