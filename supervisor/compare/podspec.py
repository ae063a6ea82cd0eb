"""The configurations of a pod's containers, the same for every way: a pause program, and members in its namespaces."""

import json
import os
import pathlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from shim import programs
from shim.frozen import frozen
from supervisor.compare.machine import CGROUP, Scratch, Work
from supervisor.compare.way import WayContainer, WayPod

SHARED = ("net", "ipc", "uts")
NAMESPACE_TYPES = {"net": "network", "ipc": "ipc", "uts": "uts"}
SANDBOX_ID = "io.kubernetes.cri.sandbox-id"  # containerd's shim puts containers that share it under one process
KIND = "io.kubernetes.cri.container-type"
PAUSE = Work(args=("/pause",))

Spec = dict[str, Any]


@frozen
class PodSpecs:
    """Configurations by the containers' ids: the pause container's, then its members'."""

    id: str
    containers: Mapping[str, Spec]


def pause_root(scratch: Scratch) -> str:
    """Return a directory with exitd's pause program and nothing else."""
    place = scratch.root_place("pause")
    if not os.path.exists(f"{place}/pause"):
        shutil.copy(programs.find("exitd-pause"), f"{place}/pause")
        os.chmod(place, 0o755)
    return place


def pause_spec(scratch: Scratch, id: str, annotations: dict[str, str]) -> Spec:
    spec = member_spec(scratch, id, PAUSE, annotations)
    spec["root"]["path"] = pause_root(scratch)
    spec["mounts"] = [mount for mount in spec["mounts"] if mount["type"] != "bind"]  # it needs none of the host's files
    return spec


def member_spec(scratch: Scratch, id: str, work: Work, annotations: dict[str, str]) -> Spec:
    """Return a member's configuration, which is not in the pause container's namespaces yet."""
    spec = scratch.spec(f"{CGROUP}/{id}", work)
    spec["annotations"] = annotations
    return spec


def pod_specs(scratch: Scratch, id: str, works: Sequence[Work], *, cri: bool = False) -> PodSpecs:
    """Return the configurations of a pod with a member for each work. `cri`: with the annotations that containerd's CRI
    plugin gives."""
    names = [f"{id}-{number}" for number in range(len(works) + 1)]
    sandbox, container = ({SANDBOX_ID: names[0], KIND: kind} if cri else {} for kind in ("sandbox", "container"))
    pause = {names[0]: pause_spec(scratch, names[0], sandbox)}
    members = zip(names[1:], works, strict=True)
    return PodSpecs(id, {**pause, **{name: member_spec(scratch, name, work, container) for name, work in members}})


def start(specs: PodSpecs, begin: Callable[[str, Spec], WayContainer]) -> WayPod:
    """Start the pause container, and then each member in its namespaces."""
    found: list[WayContainer] = []
    for name, spec in specs.containers.items():
        if found:
            join(spec, found[0].pid)
        found.append(begin(name, spec))
    return WayPod(specs.id, found[0], tuple(found[1:]))


def join(spec: Spec, pid: int) -> None:
    """Put the configuration into the namespaces of this pause process."""
    spec["linux"]["namespaces"] = list(_joined(spec["linux"]["namespaces"], pid))


def write(spec: Spec, place: str) -> str:
    """Write the configuration as a bundle. Return its directory."""
    os.makedirs(place, mode=0o700, exist_ok=True)
    pathlib.Path(f"{place}/config.json").write_text(json.dumps(spec))
    return place


def _joined(namespaces: Iterable[dict[str, str]], pid: int) -> Iterator[dict[str, str]]:
    shared = {NAMESPACE_TYPES[kind]: kind for kind in SHARED}
    for one in namespaces:
        kind = shared.get(one["type"])
        yield {**one, "path": f"/proc/{pid}/ns/{kind}"} if kind else one
