"""What could be left of a containerd's containers, and where to look for it."""

import contextlib
import os
import pathlib
from dataclasses import dataclass, fields

from tests.system.shimrig import cgroup_directories


@dataclass(frozen=True)
class Left:
    """What one containerd's containers have on this machine right now, by name."""

    processes: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    cgroups: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    fifos: tuple[str, ...] = ()
    bundles: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()  # of exitd: containers, and their run directories

    def without(self, *names: str) -> "Left":
        return Left(**{one.name: getattr(self, one.name) for one in fields(self) if one.name not in names})


NOTHING = Left()


def cwd(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:  # gone, or hidden
        return ""


def below(cgroup: str) -> list[pathlib.Path]:
    """All cgroups below one, in every hierarchy."""
    found = []
    for top in cgroup_directories(cgroup):
        for directory, names, _ in os.walk(top):
            found += [pathlib.Path(directory) / name for name in names]
    return found


def pids_below(cgroup: str) -> set[int]:
    pids: set[int] = set()
    for path in below(cgroup):
        with contextlib.suppress(OSError):  # gone meanwhile
            pids |= set(map(int, (path / "cgroup.procs").read_text().split()))
    return pids
