"""The cgroup that one way's daemons and monitors are begun in: what the kernel holds for them, and who they are."""

import contextlib
import os
import pathlib

from supervisor.compare.machine import CGROUP, end_process

V1, V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"


class ProcessGroup:
    """A cgroup with a name that no other has; `remove` it at the end."""

    def __init__(self, name: str) -> None:
        self._v1 = os.path.isdir(V1)
        self._path = pathlib.Path(f"{V1 if self._v1 else V2}{CGROUP}/way-{name}")
        self._path.mkdir(parents=True, exist_ok=True)

    def words(self) -> tuple[str, ...]:
        """Return the words in front of a command that begins in the group, with whatever it begins."""
        return ("/bin/sh", "-c", 'echo $$ >"$0" && exec "$@"', f"{self._path}/cgroup.procs")

    def kernel_kb(self) -> float | None:
        """Return its kernel memory in KiB; None where this kernel does not count it."""
        with contextlib.suppress(OSError):
            if self._v1:
                return int((self._path / "memory.kmem.usage_in_bytes").read_text()) / 1024
            for line in (self._path / "memory.stat").read_text().splitlines():
                if line.startswith("kernel "):
                    return int(line.split()[1]) / 1024
        return None

    def pids(self) -> list[int]:
        return [int(word) for word in (self._path / "cgroup.procs").read_text().split()]

    def remove(self) -> None:
        """Remove the group, and kill everybody who is still in it."""
        while pids := self.pids():
            for pid in pids:
                end_process(pid)
        with contextlib.suppress(OSError):
            self._path.rmdir()
