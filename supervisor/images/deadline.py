"""How long work on images may take, and how all of it is stopped. For threads, which cannot be cancelled."""

import os
import select
import subprocess
import time

from supervisor.model.errors import ShuttingDown, TimedOut


class Halt:
    """Set once, from any thread. Close it when no work is left."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)  # readable once it is set
        self.is_set = False

    def set(self) -> None:
        self.is_set = True
        os.eventfd_write(self.fd, 1)

    def close(self) -> None:
        os.close(self.fd)


class Deadline:
    """The time limit of one piece of work; errors call it `what`."""

    def __init__(self, what: str, seconds: float, halt: Halt) -> None:
        self._what, self._seconds, self._halt = what, seconds, halt
        self._end = time.monotonic() + seconds

    def check(self) -> None:
        """Called repeatedly by the work. Raises TimedOut, ShuttingDown."""
        if self._halt.is_set:
            raise ShuttingDown(f"{self._what} was broken off, the daemon is shutting down; nothing was stored")
        if time.monotonic() >= self._end:
            raise TimedOut(f"{self._what} took more than {self._seconds:g} s and was given up; nothing was stored")

    def wait(self, process: "subprocess.Popen[bytes]") -> int:
        """Return the exit status of a child. Raises as `check` does; the child then runs until the caller ends it."""
        pidfd = os.pidfd_open(process.pid)
        try:
            poll = select.poll()
            for fd in (pidfd, self._halt.fd):
                poll.register(fd, select.POLLIN)
            while (status := process.poll()) is None:
                self.check()
                poll.poll(max(1.0, (self._end - time.monotonic()) * 1000))
            return status
        finally:
            os.close(pidfd)
