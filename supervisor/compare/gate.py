"""Containers that end when they are asked to, with a code that no engine would make up."""

import itertools
import os
import select
import time

from supervisor.compare.machine import DATA, LIMIT_SECONDS, Scratch, Work

CODE = 43  # neither 0 nor 1, 137 or 255
STEP_MS = 2


class Gates:
    """The gates of containers: a fifo for each."""

    def __init__(self, scratch: Scratch, name: str) -> None:
        self._scratch, self._name = scratch, name
        self._numbers = itertools.count()

    def make(self) -> tuple[str, Work]:
        """Make a gate. Return its path, and what its container does."""
        place = self._scratch.root_place(f"gates/{self._name}-{next(self._numbers)}")
        os.mkfifo(f"{place}/go")
        os.chmod(place, 0o755)
        return f"{place}/go", Work(args=("/bin/sh", "-c", f"read go <{DATA}/go; exit {CODE}"), data=place)


def open_gate(path: str) -> None:
    """Open a gate, as soon as its container is there. Raises TimeoutError."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        try:
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # ENXIO: its shell is not there yet
            select.select([], [], [], STEP_MS / 1000)
            continue
        os.write(fd, b"go\n")
        return os.close(fd)
    raise TimeoutError(f"no process came to {path}")
