"""Small real processes and descriptors for the tests of whatever watches them."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator

from shim import native
from supervisor.model.values import Process
from tests.supervisor.descriptors import open_now

CAT = ["cat"]


@contextlib.contextmanager
def child(*command: str) -> Iterator["subprocess.Popen[bytes]"]:
    """`cat` until its input is closed, if nothing else is said; gone after the block, whatever happened."""
    with subprocess.Popen(command or CAT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def ends_unreaped(process: "subprocess.Popen[bytes]", number: int = signal.SIGKILL) -> None:
    """Killed, dead for certain, and still a zombie."""
    process.send_signal(number)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def name_of(process: "subprocess.Popen[bytes]") -> Process:
    return name_of_pid(process.pid)


def name_of_pid(pid: int) -> Process:
    return Process(pid, native.process_stat(pid)[2])


def descriptors() -> set[str]:
    return set(open_now())
