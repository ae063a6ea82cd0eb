"""A socket that the service manager holds: given to the real daemon, kept over its death, nothing for its children."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

from tests.system.daemons import APART, Daemon, directory
from tests.system.exitctl import SECONDS, Cli
from tests.system.waits import until

# What systemd does between fork and exec.
LAUNCH = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="ttrpc")
os.execv(sys.argv[2], sys.argv[2:])
"""


def start(daemon: Daemon, held: socket.socket) -> None:
    words = (sys.executable, "-m", "supervisor", "--root", str(daemon.root), "--state", str(daemon.state), *APART)
    with daemon.log.open("ab") as log:
        daemon.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(held.fileno()), *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(held.fileno(),),
        )
    until(daemon.answers, "exitd does not answer")


@contextlib.contextmanager
def activated() -> Iterator[tuple[Daemon, socket.socket]]:
    with directory() as base, socket.socket(socket.AF_UNIX) as held:
        daemon = Daemon(base)
        daemon.state.mkdir(mode=0o711)
        held.bind(str(daemon.state / "exitd.ttrpc"))
        held.listen()
        try:
            start(daemon, held)
            yield daemon, held
        finally:
            daemon.end()


def holds(pid: str, inode: int) -> bool:
    """Whether that process, one of ours, has that socket open."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(f"/proc/{pid}/fd/{fd}") == f"socket:[{inode}]":
                    return True
    return False


def test_a_restart_of_the_daemon_keeps_the_socket_and_whoever_came_meanwhile_is_answered() -> None:
    with activated() as (daemon, held):
        cli = Cli(daemon)
        assert "exitd" in cli.ok("version")
        daemon.kill()
        early = cli.begin("version")  # waits in the socket's queue
        start(daemon, held)
        out, err = early.communicate(timeout=SECONDS)
        assert (early.returncode, "exitd" in out, err) == (0, True, "")


def test_where_its_path_was_wiped_exitd_begins_all_the_same_and_is_reached_there() -> None:
    with activated() as (daemon, held):
        cli, path = Cli(daemon), daemon.state / "exitd.ttrpc"
        daemon.kill()
        path.unlink()
        for _ in range(2):  # the second time the path is a dead exitd's
            start(daemon, held)
            assert "exitd" in cli.ok("version")
            with socket.socket(socket.AF_UNIX) as line:
                line.connect(str(path))
            assert "has lost its path" in daemon.log.read_text()
            daemon.kill()
        start(daemon, held)


def test_neither_keeper_nor_shims_have_it_and_the_exit_knows_who_asked_over_it() -> None:
    with activated() as (daemon, held):
        cli = Cli(daemon)
        cli.background("web", "sleep", "60")
        inode = os.fstat(held.fileno()).st_ino
        holders = {int(pid) for pid in os.listdir("/proc") if pid.isdecimal() and holds(pid, inode)}
        assert holders == {os.getpid(), daemon.pid}
        with daemon.client() as client:
            waiting = client.begin_wait("web")
            killing = cli.begin("kill", "web")
            ended = waiting.result(SECONDS)
            killing.communicate(timeout=SECONDS)
        assert ended is not None
        assert (ended.by.uid, ended.by.pid) == (os.getuid(), killing.pid)
        cli.ok("rm", "web")
