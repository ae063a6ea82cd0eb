"""A daemon that was forked beside one that was started: nobody can tell which is which."""

import os
import pathlib
import select
import signal

from shim import native
from tests.system import lives
from tests.system.daemonrig import LIMIT_SECONDS, Daemon
from tests.system.warm import Forked


def looks(daemon: Daemon) -> dict[str, object]:
    """What the kernel tells of it, its own directories aside."""
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
    with lives.daemon() as forked, lives.daemon(forked=False) as started:
        assert isinstance(forked.process, Forked) and not isinstance(started.process, Forked)
        assert looks(forked) == looks(started)


def test_a_forked_daemon_that_has_died_is_a_zombie_until_its_end_is_asked_for() -> None:
    with lives.daemon() as daemon:
        process, pid = daemon.process, daemon.pid
        assert process is not None and process.poll() is None
        with open(os.pidfd_open(pid)) as pidfd:
            process.send_signal(signal.SIGKILL)
            assert select.select([pidfd], [], [], LIMIT_SECONDS)[0]
        assert native.process_stat(pid)[0] == "Z"
        assert process.poll() == process.wait(LIMIT_SECONDS) == -signal.SIGKILL
        assert not os.path.exists(f"/proc/{pid}")
