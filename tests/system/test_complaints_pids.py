"""Complaints about pids: one that is reused, and a daemon that is the first process of its pid namespace."""

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from supervisor.model.errors import WrongState
from tests.system.daemons import Daemon, spec, warm_up
from tests.system.lives import last_exit
from tests.system.processes import children_of, zombies_of
from tests.system.waits import LIMIT_SECONDS, until, wait_readable

# clone3(2) with set_tid makes a process with a pid of our choice, once nobody has it any more.
STRANGER = """
import ctypes, os, struct, sys
libc, pid = ctypes.CDLL(None, use_errno=True), ctypes.c_int(int(sys.argv[1]))
args = struct.pack("11Q", 0, 0, 0, 0, 17, 0, 0, 0, ctypes.addressof(pid), 1, 0)
if libc.syscall(435, args, len(args)) == 0:
    os.execv("/bin/sleep", ["a-stranger", "1000"])
sys.exit(ctypes.get_errno())
"""
EEXIST = 17


@contextmanager
def stranger(pid: int) -> Iterator[int]:
    """Another process under this pid; its pidfd."""
    made = [sys.executable, "-c", STRANGER, str(pid)]
    # The pid stays taken until whoever inherited the dead process has reaped it.
    until(lambda: (status := subprocess.run(made, timeout=LIMIT_SECONDS).returncode) == 0 or refused(status), f"{pid}")
    pidfd = os.pidfd_open(pid)
    try:
        yield pidfd
    finally:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)


def refused(status: int) -> bool:
    assert status == EEXIST, os.strerror(status)
    return False


@pytest.fixture
def daemon(tmp_path: pathlib.Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path)
    yield daemon
    daemon.end()


def end(pid: int) -> None:
    """SIGKILL, and the wait until it is reaped as well: its pid is free."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: not os.path.exists(f"/proc/{pid}"), f"{pid} is not reaped")


@pytest.mark.parametrize("evidence", ["kept", "lost"])
def test_a_reused_pid_is_neither_taken_for_the_container_nor_signalled(daemon: Daemon, evidence: str) -> None:
    daemon.start()
    with daemon.client() as client:
        container = client.create(spec("sleep", "1000", restart="no"))
        client.start(container.id)
    daemon.kill()
    end(container.shim.pid)
    end(container.init.pid)  # its parent is the keeper, which writes the end down
    keeper = daemon.keeper_pid()
    end(keeper)
    if evidence == "lost":
        for path in daemon.state.glob("keeper-*.journal"):
            path.unlink()
    with ExitStack() as stack:
        strangers = [stack.enter_context(stranger(pid)) for pid in (container.init.pid, container.shim.pid, keeper)]
        daemon.start()
        with daemon.client() as client:
            exit_ = last_exit(client, container.id)
            expected = ("signaled", "keeper", "") if evidence == "kept" else ("unknown", "none", "monitors-killed")
            assert (exit_.kind, exit_.source, exit_.cause) == expected
            with pytest.raises(WrongState):
                client.kill(container.id, "TERM")
            client.stop(container.id, 1)
            client.remove(container.id, force=True)
        assert [wait_readable(pidfd, 0) for pidfd in strangers] == [False, False, False]


@pytest.fixture
def first(daemon: Daemon) -> Iterator[int]:
    """The pid of an exitd that is PID 1 of its own pid namespace."""
    daemon.wrapper = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    daemon.extra = ("--reconcile-seconds", "0.2")
    daemon.start()
    pid = children_of(daemon.pid)[0]
    yield pid
    os.kill(pid, signal.SIGTERM)
    assert daemon.process is not None
    daemon.process.wait(LIMIT_SECONDS)  # and with it everything in the namespace ends


def test_exitd_is_a_good_pid_1(daemon: Daemon, first: int) -> None:
    with daemon.client() as client:
        assert client.info().pid == 1
        warm_up(client)
        container = client.create(spec("sh", "-c", "sleep 1000 & exec sleep 1000"))
        client.start(container.id)
        os.kill(daemon.keeper_pid(), signal.SIGKILL)  # it and its children, the shims, are PID 1's now
        client.kill(container.id, "KILL")
        exit_ = last_exit(client, container.id)
        assert (exit_.kind, exit_.signal) == ("signaled", signal.SIGKILL)
        client.remove(container.id, force=False)
        warm_up(client)
        until(lambda: not zombies_of({first}), "not reaped")
