"""What a daemon, or a keeper, may inherit from whoever starts it."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from shim import programs
from supervisor.model.errors import ExitdError
from tests.system import daemons, lives
from tests.system.daemons import Daemon, directory, remove_all
from tests.system.lives import last_exit, up, word
from tests.system.processes import processes_of
from tests.system.waits import until

NO_SIGCHLD = ("sh", "-c", "trap '' CHLD TERM INT HUP PIPE USR1; exec \"$@\"", "sh")
BLOCKED = (
    sys.executable,
    "-c",
    "import os, signal, sys\n"
    "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n"
    "os.execvp(sys.argv[1], sys.argv[1:])",
)
NO_UMASK = ("sh", "-c", 'umask 0; exec "$@"', "sh")
NO_STDIO = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
NO_PLACE = ("sh", "-c", 'd=$(mktemp -d); cd $d; rmdir $d; exec "$@"', "sh")
FEW_FILES = ("prlimit", "--nofile=16:")


@pytest.mark.parametrize(
    "wrapper",
    [NO_SIGCHLD, BLOCKED, NO_UMASK, NO_STDIO, NO_PLACE, FEW_FILES],
    ids=["signals ignored", "signals blocked", "no umask", "no stdio", "no working directory", "few files"],
)
def test_whatever_a_daemon_inherits_exits_are_reported_and_containers_inherit_nothing_of_it(
    wrapper: tuple[str, ...],
) -> None:
    with daemons.daemon(wrapper=wrapper) as daemon, daemon.client() as client:
        assert word(lives.run(client, "sh", "-c", "exit 7")[1]) == "exited 7"
        container = up(client)
        for name in ("init", "shim"):
            pid = getattr(container, name).pid
            status = dict(line.split(":\t") for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
            if name == "init":
                assert (int(status["SigIgn"], 16), int(status["SigBlk"], 16)) == (0, 0)
                assert status["Umask"] == "0022"
        for path in (daemon.state, daemon.root):
            assert not path.stat().st_mode & 0o022
        assert (daemon.root / "exitd.db").stat().st_mode & 0o777 == 0o600
        run_directory = pathlib.Path(client.inspect(container.id).run_directory)
        assert run_directory.stat().st_mode & 0o777 == 0o700
        client.kill(container.id, "KILL")
        assert last_exit(client, container.id).source == "record"


def test_a_keeper_that_was_started_with_sigchld_ignored_still_reports_the_code() -> None:
    with directory() as base:
        daemon = Daemon(base, extra=("--keeper", "wait"))
        daemon.state.mkdir(mode=0o711)
        keeper = [str(programs.find("exitd-keeper")), "--state", str(daemon.state), "--stay"]
        process = subprocess.Popen([*NO_SIGCHLD, *keeper])
        try:
            daemon.start()
            with daemon.client() as client:
                script = "until [ -e /tmp/exitd-test-go ]; do sleep 0.01; done; exit 43"
                container = up(client, "sh", "-c", script)
                os.kill(container.shim.pid, signal.SIGKILL)
                until(lambda: client.inspect(container.id).monitored_by == "keeper", "the keeper's turn")
                pathlib.Path(f"/proc/{container.init.pid}/root/tmp/exitd-test-go").touch()
                exit_ = last_exit(client, container.id)
                assert (word(exit_), exit_.source) == ("exited 43", "keeper")
        finally:
            daemon.end()
            process.kill()
            process.wait()
        until(lambda: not processes_of(base), "processes")


def test_a_daemon_that_runs_out_of_descriptors_refuses_new_ones_and_keeps_the_old() -> None:
    with daemons.daemon(wrapper=("prlimit", "--nofile=128:128"), grpc=True) as daemon, daemon.client() as client:
        containers = [
            up(client, "sh", "-c", "until [ -e /tmp/exitd-test-go ]; do sleep 0.05; done; exit 7") for _ in range(3)
        ]
        try:
            for _ in range(60):
                containers.append(
                    up(client, "sh", "-c", "until [ -e /tmp/exitd-test-go ]; do sleep 0.05; done; exit 7")
                )
        except ExitdError as error:
            assert "Too many open files" in str(error)
        assert 3 < len(containers) < 60
        for container in containers:
            pathlib.Path(f"/proc/{container.init.pid}/root/tmp/exitd-test-go").touch()
        for container in containers:
            assert word(last_exit(client, container.id)) == "exited 7"
        remove_all(client)
        assert word(lives.run(client, "true")[1]) == "exited 0"
