"""Clients that only stay, more than exitd has descriptors: what it does for containers needs some, too."""

import contextlib
import os
import resource
import signal
import socket
from collections.abc import Iterator
from functools import partial

import pytest

from supervisor.api.client import Unreachable
from tests.system.daemons import Daemon, directory, spec
from tests.system.waits import LIMIT_SECONDS, until

MOST = 256  # descriptors of the daemon
SOCKETS = ("exitd.ttrpc", "exitd.sock", "caller.sock", "shimv2.sock")


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with directory() as base:
        daemon = Daemon(base, wrapper=("prlimit", f"--nofile={MOST}:{MOST}"))
        try:
            yield daemon.start()
        finally:
            daemon.end()


@contextlib.contextmanager
def crowd(daemon: Daemon) -> Iterator[list[socket.socket]]:
    """Connected everywhere, as often as the daemon has descriptors, and silent."""
    with contextlib.ExitStack() as stack:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        idle = []
        for name in SOCKETS:
            for _ in range(MOST):
                line = stack.enter_context(socket.socket(socket.AF_UNIX))
                line.setblocking(False)
                with contextlib.suppress(BlockingIOError):  # its queue is full
                    line.connect(str(daemon.state / name))
                idle.append(line)
        yield idle


def is_refused(line: socket.socket) -> bool:
    try:
        return line.recv(1 << 16) == b""
    except BlockingIOError:
        return False
    except OSError:  # reset, or never connected
        return True


def is_removed(daemon: Daemon, id: str) -> bool:
    """False while exitd is busy with the connections that have left: it refuses others, before it does anything."""
    try:
        with daemon.client() as client:
            client.remove(id, force=False)  # when it is cleaned up
    except Unreachable:
        return False
    return True


def test_clients_that_only_stay_delay_no_end_of_a_container_and_fill_no_log(daemon: Daemon) -> None:
    with daemon.client() as client:
        made = client.create(spec("sleep", "600"))
        running = client.start(made.id)
        waiting = client.begin_wait(made.id)
        with crowd(daemon) as idle:
            until(lambda: any(map(is_refused, idle)), "nobody is refused")
            os.kill(running.shim.pid, signal.SIGSTOP)  # the kernel has to be asked, which takes descriptors
            os.kill(running.init.pid, signal.SIGKILL)
            ended = waiting.result(LIMIT_SECONDS)
        assert ended is not None and (ended.kind, ended.signal) == ("signaled", 9)
    until(partial(is_removed, daemon, made.id), "exitd does not answer when they have left")
    log = daemon.log.read_text()
    assert "no descriptors for more connections" in log
    assert "out of system resource" not in log
    assert "Traceback" not in log
