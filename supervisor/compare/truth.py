"""The witness that belongs to no way: the kernel, asked for the end of a process over a pidfd that is held here."""

import functools
import os
import subprocess

from shim import native
from supervisor.compare.gate import CODE
from supervisor.compare.machine import until, wait_readable
from supervisor.compare.way import WayContainer
from supervisor.model.values import Exited, ExitStatus, Signaled

LIMIT_SECONDS = 20.0


@functools.cache
def kernel_reports() -> bool:
    """Return whether the kernel reports how a process ended, tried on one of our own: Linux 6.15 or newer does."""
    child = subprocess.Popen(["/bin/sh", "-c", f"exit {CODE}"], stdin=subprocess.DEVNULL)
    pidfd = os.pidfd_open(child.pid)
    try:
        child.wait()
        return native.pidfd_exit_status(pidfd) == CODE << 8
    except OSError:
        return False
    finally:
        os.close(pidfd)


def end_of(container: WayContainer, made_to_be: ExitStatus) -> ExitStatus:
    """Return how it ended, once it has been reaped. Where the kernel does not report it, what it was made to be."""
    wait_readable(container.pidfd, f"the end of {container.id}", LIMIT_SECONDS)
    if not kernel_reports():
        return made_to_be
    until(lambda: native.pidfd_exit_status(container.pidfd) is not None, f"who reaps {container.id}", LIMIT_SECONDS)
    status = native.pidfd_exit_status(container.pidfd)
    assert status is not None
    return Signaled(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else Exited(os.WEXITSTATUS(status))
