"""Containers under shims that are not exitd's own, and the count of all that such a shim could leave behind."""

import contextlib
import glob
import os
import signal
from collections.abc import Iterator

from supervisor.runtime.foreign_shim import place
from supervisor.runtime.foreign_shim.connection import socket_path
from tests.system import oracle
from tests.system.daemons import Daemon
from tests.system.processes import killed, processes_of
from tests.system.waits import until

RUNC = "io.containerd.runc.v2"
QUICK = ("--reconcile-seconds", "0.2")


def observed(daemon: Daemon, before_end: str = oracle.AT_ONCE, code: int = 43, **fields: object) -> oracle.Subject:
    fields.setdefault("runtime", RUNC)
    return oracle.observed(daemon, oracle.fresh_name(), before_end, code, **fields)


def begun(daemon: Daemon, before_end: str = oracle.WHEN_TOLD, code: int = 43, **fields: object) -> oracle.Subject:
    fields.setdefault("runtime", RUNC)
    return oracle.begun(daemon, before_end, code, **fields)


def addresses(daemon: Daemon) -> set[str]:
    """The sockets of all shims that there are run directories of."""
    found = (place.read_contact(path) for path in glob.glob(f"{daemon.state}/c/*/*"))
    return {socket_path(contact.address) for contact in found if contact is not None}


def nothing_left(daemon: Daemon, sockets: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    """Besides what is counted everywhere: the shims' processes work in their bundles, which are in the state directory;
    their fifos and mounts are there too. `sockets` are elsewhere."""
    oracle.nothing_left(daemon)
    until(lambda: not [path for path in sockets if os.path.exists(path)], "sockets of shims are left")
    states = list((daemon.state / "shimrt").glob("*/*"))
    said = [line for line in daemon.log.read_text().splitlines() if "the shim's delete failed" in line][-3:]
    assert states == [], [*states, *(states[0].glob("*") if states else ()), *said]


def shims(daemon: Daemon) -> list[int]:
    """The processes of foreign shims that work below the state directory."""
    found = [line for line in processes_of(daemon.base) if "containerd-shim-" in line and " start" not in line]
    return [int(line.partition(":")[0]) for line in found]


def end_shim(pid: int) -> None:
    """It is dead when this returns."""
    killed(pid)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
