"""How long work on images may take, and how all of it is told to stop. For threads, which nobody can cancel."""

import os
import select
import subprocess
import time

from supervisor.model.errors import ShuttingDown, TimedOut


class Halt:
    """Told once and for all, from any thread. Close it when nobody works any more."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)  # readable from then on
        self.told = False

    def tell(self) -> None:
        self.told = True
        os.eventfd_write(self.fd, 1)

    def close(self) -> None:
        os.close(self.fd)


class Deadline:
    """For one piece of work; `what` is how errors call it."""

    def __init__(self, what: str, seconds: float, halt: Halt) -> None:
        self._what, self._seconds, self._halt = what, seconds, halt
        self._end = time.monotonic() + seconds

    def check(self) -> None:
        """Asked again and again by whoever works. Raises TimedOut, ShuttingDown."""
        if self._halt.told:
            raise ShuttingDown(f"{self._what} was broken off, the daemon is shutting down; nothing was stored")
        if time.monotonic() >= self._end:
            raise TimedOut(f"{self._what} took more than {self._seconds:g} s and was given up; nothing was stored")

    def wait(self, process: "subprocess.Popen[bytes]") -> int:
        """The exit status of a child. Raises as `check` does; the child then goes on until somebody ends it."""
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
