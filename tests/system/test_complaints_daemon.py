"""Complaints about other daemons, tried on exitd: restarts, slow and refused system calls, and whatever rains on it."""

import itertools
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client, Unreachable
from supervisor.model.errors import ExitdError
from tests.system.daemons import Daemon, left, spec, warm_up
from tests.system.lives import last_exit, up
from tests.system.waits import LIMIT_SECONDS, SCALE, until


@pytest.fixture
def daemon(tmp_path: pathlib.Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path, grpc=True)  # calls at once have one connection
    yield daemon
    daemon.end()


def test_a_created_container_can_be_started_after_the_daemon_was_killed(daemon: Daemon) -> None:
    daemon.start()
    with daemon.client() as client:
        container = client.create(spec("sh", "-c", "exit 11"))
    daemon.restart()
    with daemon.client() as client:
        assert client.inspect(container.id).phase == pb.PHASE_CREATED
        client.start(container.id)
        assert (last_exit(client, container.id).code, client.inspect(container.id).run) == (11, 1)
        client.remove(container.id, force=False)


def test_a_waiting_client_is_told_when_the_daemon_dies_and_gets_the_code_from_the_next(
    daemon: Daemon, tmp_path: pathlib.Path
) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    mounts = [pb.Mount(source=str(tmp_path / "go"), destination="/run/go")]
    daemon.start()
    with daemon.client() as client:
        container = up(client, "sh", "-c", "read code </run/go; exit $code", mounts=mounts).id
        waiting = client.begin_wait(container)
        until(lambda: client.info().settings.get("waiters") == "1", "the wait has not arrived")
        daemon.kill()
        with pytest.raises(Unreachable):
            waiting.result(LIMIT_SECONDS)
    go.write_text("9\n")
    daemon.start()
    with daemon.client() as client:
        assert last_exit(client, container).code == 9
        client.remove(container, force=False)


MANY_FILES = """
import os, resource, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
for _ in range(1100):
    os.set_inheritable(os.open("/dev/null", os.O_RDONLY), True)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def test_an_exit_is_seen_on_descriptors_beyond_a_thousand(daemon: Daemon) -> None:
    daemon.wrapper = (sys.executable, "-c", MANY_FILES)
    daemon.start()
    with daemon.client() as client:
        warm_up(client)
        before = left(daemon)
        container = up(client, "sh", "-c", "exit 21")
        assert (last_exit(client, container.id).code, last_exit(client, container.id).source) == (21, "record")
        client.remove(container.id, force=False)
        until(lambda: left(daemon) == before, f"before: {before}, left: {left(daemon)}")


def test_signals_raining_on_the_daemon_cost_no_exit(daemon: Daemon) -> None:
    daemon.start(wait=False)
    dry = threading.Event()

    def rain() -> None:
        for number in itertools.cycle((signal.SIGCHLD, signal.SIGWINCH, signal.SIGURG, signal.SIGCONT)):
            os.kill(daemon.pid, number)
            if dry.wait(0.0005):
                return

    weather = threading.Thread(target=rain)
    weather.start()
    try:
        until(daemon.answers, "exitd does not answer")
        with daemon.client() as client:
            for code in range(8):
                container = up(client, "sh", "-c", f"exit {code}")
                assert last_exit(client, container.id).code == code
                client.remove(container.id, force=False)
    finally:
        dry.set()
        weather.join()


class Traced:
    """strace on the running daemon, its threads included if asked for, with a fault to inject."""

    def __init__(self, daemon: Daemon, inject: str, *, threads: bool = False) -> None:
        call = self._call = inject.partition(":")[0]
        self._log = daemon.base / "strace.log"
        self._log.unlink(missing_ok=True)
        words = ["strace", "-q", *(["-f"] if threads else []), "-o", str(self._log), "-p", str(daemon.pid)]
        self._daemon = daemon
        self._words = [*words, "-e", f"trace={call}", "-e", f"inject={inject}"]

    def __enter__(self) -> "Traced":
        self._process = subprocess.Popen(self._words)
        until(lambda: self._tracers() and self._log.exists(), "strace is not attached")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(LIMIT_SECONDS)

    def injected(self) -> int:
        return len(re.findall(r"\((?:INJECTED|DELAYED)\)", self._log.read_text()))

    def calls(self) -> int:
        """How many were begun: one that is not over when the tracer goes has no such word."""
        return self._log.read_text().count(f"{self._call}(")

    def _tracers(self) -> bool:
        status = pathlib.Path(f"/proc/{self._daemon.pid}/status").read_text()
        return f"TracerPid:\t{self._process.pid}\n" in status


def test_whatever_epoll_refuses_during_a_run_costs_no_exit_and_no_descriptor(
    daemon: Daemon, tmp_path: pathlib.Path
) -> None:
    """Each call to epoll_ctl in the life of a container (at a small scale: every third) is refused once."""
    daemon.start()
    with daemon.client() as client:
        warm_up(client)
        before = left(daemon)
        for refused in itertools.count(1, 1 if SCALE >= 1 else 3):
            (tmp_path / "ran").unlink(missing_ok=True)
            with Traced(daemon, f"epoll_ctl:error=ENOSPC:when={refused}") as trace:
                container = live(client, tmp_path)
                reached = trace.injected() > 0
            if container:
                client.remove(container, force=True)
            until(lambda: left(daemon) == before, f"refused {refused}: before {before}, left {left(daemon)}")
            if not reached:
                break
        assert refused > 3


def live(client: Client, directory: pathlib.Path) -> str:
    """A container's whole life, or the error that is reported; the id of what stays."""
    mounts = [pb.Mount(source=str(directory), destination="/data")]
    try:
        container = client.create(spec("sh", "-c", "echo >/data/ran; exit 5", mounts=mounts)).id
    except ExitdError:
        return ""
    try:
        client.start(container)
    except ExitdError:
        return container
    # A start that was broken off leaves an end of the runtime's own making.
    assert last_exit(client, container).code == 5 or not (directory / "ran").exists()
    return container


def test_a_slow_unmount_delays_the_removal_and_nothing_else(daemon: Daemon) -> None:
    daemon.start()
    with daemon.client() as client:
        warm_up(client)
        before = left(daemon)
        slow = up(client, "true").id
        last_exit(client, slow)
        # Longer than the other's life takes on a busy machine. It is over with the tracer.
        with Traced(daemon, f"umount2:delay_enter={int(LIMIT_SECONDS * 1_000_000)}", threads=True) as trace:
            removing = client.begin_wait(slow, condition="removed")
            removal = threading.Thread(target=client.remove, args=(slow,), kwargs={"force": False})
            removal.start()
            until(lambda: client.inspect(slow).phase == pb.PHASE_REMOVING, "its removal has not begun")
            other = up(client, "sh", "-c", "exit 8").id
            assert last_exit(client, other).code == 8
            assert removal.is_alive()
        assert removing.result(LIMIT_SECONDS) is not None
        removal.join(LIMIT_SECONDS)
        assert trace.calls() > 0
        client.remove(other, force=False)
        until(lambda: left(daemon) == before, f"before: {before}, left: {left(daemon)}")
