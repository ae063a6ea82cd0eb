"""A daemon that was forked beside one that was started: nobody can tell which is which."""

import os
import pathlib
import select
import signal
import time

from shim import native
from supervisor.model.evidence import ZOMBIE_PATIENCE_SECONDS
from tests.system import daemons
from tests.system.daemons import Daemon
from tests.system.lives import last_exit, up
from tests.system.waits import LIMIT_SECONDS
from tests.system.warm import Forked

LONG_SECONDS = 8.0


def looks(daemon: Daemon) -> dict[str, object]:
    """What the kernel shows of it, its own directories aside."""
    proc, base = pathlib.Path(f"/proc/{daemon.pid}"), str(daemon.base)
    status = (proc / "status").read_text().splitlines()
    return {
        "command": (proc / "cmdline").read_bytes().decode().rstrip("\0").replace(base, ""),
        "name": (proc / "comm").read_text(),
        "files": {each: os.readlink(proc / each).replace(base, "") for each in ("exe", "cwd", "fd/0", "fd/1", "fd/2")},
        "family": (os.getpgid(daemon.pid), os.getsid(daemon.pid)),
        "status": [line for line in status if line.startswith(("Umask", "SigB", "SigI", "SigC", "Cap", "Groups"))],
        "limits": (proc / "limits").read_text(),
    }


def test_a_forked_daemon_is_to_others_what_a_started_one_is() -> None:
    with daemons.daemon() as forked, daemons.daemon(forked=False) as started:
        assert isinstance(forked.process, Forked) and not isinstance(started.process, Forked)
        assert looks(forked) == looks(started)


def test_a_forked_daemon_that_has_died_is_a_zombie_until_its_end_is_asked_for() -> None:
    with daemons.daemon() as daemon:
        process, pid = daemon.process, daemon.pid
        assert process is not None and process.poll() is None
        with open(os.pidfd_open(pid)) as pidfd:
            process.send_signal(signal.SIGKILL)
            assert select.select([pidfd], [], [], LIMIT_SECONDS)[0]
        assert native.process_stat(pid)[0] == "Z"
        assert process.poll() == process.wait(LIMIT_SECONDS) == -signal.SIGKILL
        assert not os.path.exists(f"/proc/{pid}")


def test_a_limit_is_another_in_the_fork_that_asks_for_it_and_in_no_other() -> None:
    """A container whose shim stands still is read by its zombie, after this limit and not before. The other one is the
    longer: nothing is promised of how soon after the shorter that comes."""
    with (
        daemons.daemon() as plain,
        daemons.daemon(limits={"supervisor.model.evidence.ZOMBIE_PATIENCE_SECONDS": LONG_SECONDS}) as slow,
        plain.client() as first,
        slow.client() as second,
    ):
        subjects = [(client, up(client, "sh", "-c", "exec sleep 1000")) for client in (first, second)]
        for _, container in subjects:
            os.kill(container.shim.pid, signal.SIGSTOP)
        began, took = time.monotonic(), []
        for _, container in subjects:
            os.kill(container.init.pid, signal.SIGKILL)
        for client, container in subjects:
            assert last_exit(client, container.id).source == "zombie"
            took.append(time.monotonic() - began)
        assert ZOMBIE_PATIENCE_SECONDS <= took[0] < LONG_SECONDS <= took[1]
