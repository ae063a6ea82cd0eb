"""The process that holds a new user namespace: it delays no other, and does not outlive its parent."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from shim import native
from tests.system.waits import until, wait_readable

pytestmark = pytest.mark.root("the namespaces have ids of others")

THREADS = """
import os, sys, threading
from shim import native
def make(count):
    for _ in range(count):
        os.close(native.user_namespace(1 << 20, 65536))
threads = [threading.Thread(target=make, args=(int(sys.argv[1]),)) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
"""
NO_END = 1 << 40


def children(parent: int) -> list[int]:
    """Those that sleep: one that was killed does not, and it may yet be there."""
    found = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with contextlib.suppress(ProcessLookupError):
            state, ppid, _, _ = native.process_stat(pid)
            if (ppid, state) == (parent, "S"):
                found.append(pid)
    return found


def held_in_the_middle(parent: int) -> list[int]:
    """Stop the process, and return its children; without any, let it go on."""
    os.kill(parent, signal.SIGSTOP)
    os.waitid(os.P_PID, parent, os.WSTOPPED)
    found = children(parent)
    if not found:
        os.kill(parent, signal.SIGCONT)
    return found


def test_many_threads_make_them_at_once() -> None:
    subprocess.run([sys.executable, "-c", THREADS, "100"], check=True, timeout=60)


def test_it_has_no_descriptors_and_ends_with_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", THREADS, str(NO_END)]) as parent:
        pids = until(lambda: held_in_the_middle(parent.pid), "a process that holds a namespace")
        pidfds = [os.pidfd_open(pid) for pid in pids]
        try:
            assert [os.listdir(f"/proc/{pid}/fd") for pid in pids] == [[]] * len(pids)
            assert not any(wait_readable(pidfd, 0) for pidfd in pidfds)
            parent.kill()
            assert all(wait_readable(pidfd) for pidfd in pidfds)
        finally:
            for pidfd in pidfds:
                os.close(pidfd)
            parent.kill()
