"""Children that exitd did not start: as PID 1 of a container it inherits the orphans of its pid namespace."""

import contextlib
import os
import time
from collections.abc import Collection

from shim import native
from supervisor.model.values import Process

# Code that waits for its own child (a runtime command, a shim) has reaped it long before.
NOBODYS_AFTER_SECONDS = 5.0


class Orphans:
    """Zombies among this process's children, and the time since which each has been seen."""

    def __init__(self) -> None:
        self._since: dict[Process, float] = {}

    def reap(self, spared: Collection[int]) -> int:
        """Reap the children that have been dead for some time, and return their number. `spared`: inits whose status is
        still needed as evidence."""
        now = time.monotonic()
        self._since = {process: self._since.get(process, now) for process in _zombies() if process.pid not in spared}
        nobodys = [process for process, since in self._since.items() if now - since >= NOBODYS_AFTER_SECONDS]
        for process in nobodys:
            # A zombie child keeps its pid until this call, since only its parent can reap it.
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG)
        return len(nobodys)


def _zombies() -> list[Process]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(ProcessLookupError):
                state, parent, started, _ = native.process_stat(int(name))
                if state == "Z" and parent == os.getpid():
                    found.append(Process(int(name), started))
    return found
