"""The configurations of a pod's containers, the same for every way: a pause program, and members in its namespaces."""

import json
import os
import pathlib
import shutil
from collections.abc import Iterable, Iterator
from typing import Any

from shim import programs
from supervisor.compare.machine import CGROUP, Scratch, Work

SHARED = ("net", "ipc", "uts")
NAMESPACE_TYPES = {"net": "network", "ipc": "ipc", "uts": "uts"}
SANDBOX_ID = "io.kubernetes.cri.sandbox-id"  # containerd's shim puts containers that share it under one process
KIND = "io.kubernetes.cri.container-type"
PAUSE = Work(args=("/pause",))

Spec = dict[str, Any]


def pause_root(scratch: Scratch) -> str:
    """A directory with exitd's pause program and nothing else."""
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
    """Not in the pause container's namespaces yet."""
    spec = scratch.spec(f"{CGROUP}/{id}", work)
    spec["annotations"] = annotations
    return spec


def join(spec: Spec, pid: int) -> None:
    """Into the namespaces of this pause process."""
    spec["linux"]["namespaces"] = list(_joined(spec["linux"]["namespaces"], pid))


def write(spec: Spec, place: str) -> str:
    """As a bundle; its directory."""
    os.makedirs(place, mode=0o700, exist_ok=True)
    pathlib.Path(f"{place}/config.json").write_text(json.dumps(spec))
    return place


def _joined(namespaces: Iterable[dict[str, str]], pid: int) -> Iterator[dict[str, str]]:
    shared = {NAMESPACE_TYPES[kind]: kind for kind in SHARED}
    for one in namespaces:
        kind = shared.get(one["type"])
        yield {**one, "path": f"/proc/{pid}/ns/{kind}"} if kind else one
