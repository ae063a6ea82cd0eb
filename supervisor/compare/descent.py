"""Everybody who descends from this process: found by descent and not by name, and ended."""

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from shim import native
from supervisor.model.values import Process
from supervisor.monitor import epoll

LEAVE_SECONDS = 10.0


def end_everybody() -> list[str]:
    """Kill all that descend from this process, until none does. Return the names of those that lived."""
    names = []
    deadline = time.monotonic() + LEAVE_SECONDS
    while (living := list(_descendants())) and time.monotonic() < deadline:
        for process in living:
            pidfd = epoll.open_process(process.pid, process.started_ticks)
            if pidfd is None:
                continue
            names += [] if epoll.read_ready(pidfd) else [_name(process.pid)]
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            select.select([pidfd], [], [], 1.0)
            os.close(pidfd)
        _reap()
    return names


def _descendants() -> Iterator[Process]:
    """Everybody below us, zombies too, children before grandchildren."""
    children: dict[int, list[Process]] = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with contextlib.suppress(ProcessLookupError):
            _, parent, started, _ = native.process_stat(pid)
            children.setdefault(parent, []).append(Process(pid, started))
    generation = children.get(os.getpid(), [])
    while generation:
        yield from generation
        generation = [child for parent in generation for child in children.get(parent.pid, [])]


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG) is not None:
            pass


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return f"with the pid {pid}"
