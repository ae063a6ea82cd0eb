"""Processes of an earlier daemon, held before they are looked up: the kernel reports the end only of a process that is
held, and a look-up waits for files, threads and other look-ups."""

import os

import structlog

from shim import native
from shim.frozen import frozen, replace
from shim.undo import undone_on_failure
from supervisor.model.values import Process
from supervisor.monitor import epoll
from supervisor.monitor.kernelword import KernelWord

log = structlog.get_logger(__name__)


@frozen
class Held:
    """An open process. `parent`: the pid of its parent then; `executed`: it had executed a program by then."""

    pidfd: int
    parent: int
    executed: bool


class EarlyHolds:
    """One per daemon. A look-up takes its process; it is let go when its container has been looked up."""

    def __init__(self, kernel: KernelWord) -> None:
        self._kernel = kernel
        self._held: dict[Process, Held] = {}
        self._of: dict[str, list[Process]] = {}

    def hold(self, container_id: str, process: Process) -> None:
        """Hold a process of the container's, if it is there. Without room for a descriptor its look-up holds it."""
        if process in self._held:
            return
        try:
            held = opened(process)
        except OSError as error:
            log.debug("a process is held by its look-up only", container=container_id, why=str(error))
            return
        if held is not None:
            self._held[process] = held
            self._of.setdefault(container_id, []).append(process)
            self._kernel.hold(process, held.pidfd)

    def take(self, process: Process) -> Held | None:
        """Return the held process with a descriptor of the caller's own, which lets go of it at the kernel's witness,
        and closes it. None: it is not held here. A look-up that fails afterwards may take it again, unless there was
        room for one descriptor only."""
        held = self._held.get(process)
        if held is None:
            return None
        try:
            return replace(held, pidfd=os.dup(held.pidfd))
        except OSError:
            return self._held.pop(process)

    def release(self, container_id: str) -> None:
        """Let go of the container's processes: they have been looked up. Repeatable."""
        for process in self._of.pop(container_id, ()):
            if (held := self._held.pop(process, None)) is not None:
                self._kernel.let_go(process, held.pidfd)
                os.close(held.pidfd)

    def close(self) -> None:
        """Let go of everything. Repeatable."""
        for container_id in list(self._of):
            self.release(container_id)


def opened(process: Process) -> Held | None:
    """Return a descriptor of the process, which the caller closes; None if it has been reaped. Raises OSError."""
    fd = epoll.open_pid(process.pid)
    if fd is None:
        return None
    with undone_on_failure(lambda: os.close(fd)):
        try:
            parent, started, executed = native.process_origin(process.pid)
            if started == process.started_ticks:  # compared after the opening, as in epoll.open_process
                return Held(fd, parent, executed)
        except ProcessLookupError:
            pass
    os.close(fd)
    return None
