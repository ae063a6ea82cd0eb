"""The list of ways, and which of them can be tried on this machine."""

import shutil
from collections.abc import Callable
from dataclasses import replace

from supervisor.compare.conmon import Conmons
from supervisor.compare.facts import Way
from supervisor.compare.machine import Scratch
from supervisor.compare.native import Native
from supervisor.compare.podman import Podmans
from supervisor.compare.tasks import ContainerdTasksWay
from supervisor.compare.way import Driver

PER_CONTAINER, PER_POD = "shim per container, exit fifo", "shim per pod, Wait"
WAYS = (
    Way("exitd-runc", "exitd + runc", PER_CONTAINER),
    Way("exitd-crun", "exitd + crun", PER_CONTAINER),
    Way("exitd-shimv2", "exitd + runc-v2", PER_POD),
    Way("containerd-runc", "containerd + runc-v2", PER_POD),
    Way("containerd-exitd", "containerd + exitd", "shim per container behind a relay per pod"),
    Way("podman", "podman", "monitor per container, exit file"),
    Way("conmon", "conmon", "monitor per container, exit file"),
)
NEEDS = {
    "exitd-runc": ("runc",),
    "exitd-crun": ("crun",),
    "exitd-shimv2": ("containerd-shim-runc-v2", "runc"),
    "containerd-runc": ("containerd", "containerd-shim-runc-v2", "runc"),
    "containerd-exitd": ("containerd", "runc"),
    "podman": ("podman", "conmon", "runc"),
    "conmon": ("conmon", "runc"),
}
EXITD_RUNTIMES = {"exitd-runc": "runc", "exitd-crun": "crun", "exitd-shimv2": "io.containerd.runc.v2"}


def here(way: Way) -> Way:
    """Return the way, with the reason if a program is missing."""
    missing = [name for name in NEEDS[way.key] if shutil.which(name) is None]
    return replace(way, why_not=f"{' and '.join(missing)} not installed") if missing else way


def maker(key: str) -> Callable[[Scratch], Driver]:
    """Return what opens the way."""
    if key in EXITD_RUNTIMES:
        return lambda scratch: Native(scratch, key, EXITD_RUNTIMES[key])
    if key == "podman":
        return lambda scratch: Podmans(scratch, key)
    if key == "conmon":
        return lambda scratch: Conmons(scratch, key)
    return lambda scratch: ContainerdTasksWay(scratch, key)
