"""Children that nobody here started: exitd as PID 1 of a container inherits the orphans of its pid namespace."""

import contextlib
import os
import time
from collections.abc import Collection

from shim import native
from supervisor.model.values import Process

# Whoever waits for a child of its own (a runtime command, a shim) has reaped it long before.
NOBODYS_AFTER_SECONDS = 5.0


class Orphans:
    """Zombies among this process's children, and since when they have been seen."""

    def __init__(self) -> None:
        self._since: dict[Process, float] = {}

    def reap(self, spared: Collection[int]) -> int:
        """Reaps what has been dead for a while, except `spared`: inits whose status is evidence still. How many."""
        now = time.monotonic()
        self._since = {process: self._since.get(process, now) for process in _zombies() if process.pid not in spared}
        nobodys = [process for process, since in self._since.items() if now - since >= NOBODYS_AFTER_SECONDS]
        for process in nobodys:
            # A zombie child keeps its pid until this call; nobody else can make it another's.
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
