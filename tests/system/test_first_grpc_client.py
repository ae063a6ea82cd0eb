"""An exitd to which no client speaks gRPC has nothing of it; the first one finds it there."""

import os
import pathlib
import signal
import stat

from supervisor.api.client import Client
from supervisor.model.errors import ExitdError
from tests.system import daemons
from tests.system.daemons import Daemon
from tests.system.waits import until


def has_grpc(daemon: Daemon) -> bool:
    """Its library is in the process: gRPC's threads are begun by it alone."""
    return has_library(daemon, "cygrpc")


def has_library(daemon: Daemon, name: str) -> bool:
    return name in pathlib.Path(f"/proc/{daemon.pid}/maps").read_text()


def over_ttrpc(daemon: Daemon) -> bool:
    try:
        with Client(f"{daemon.state}/exitd.sock", f"{daemon.state}/exitd.ttrpc") as client:
            return client.info().pid == daemon.pid
    except ExitdError:
        return False


def test_grpc_is_there_from_its_first_client_on_and_not_before_also_after_a_kill() -> None:
    with daemons.daemon(forked=False, grpc=True) as daemon:
        path = f"{daemon.state}/exitd.sock"
        for number in (signal.SIGKILL, signal.SIGTERM):
            daemon.kill(number)
            daemon.start(wait=False)
            until(lambda: over_ttrpc(daemon), "exitd does not answer")
            until(lambda: has_library(daemon, "/_hashlib."), "what a lack of descriptors would break is not loaded")
            assert not has_grpc(daemon)
            with daemon.client() as client:
                assert client.info().pid == daemon.pid
            assert has_grpc(daemon)
            assert stat.S_IMODE(os.stat(path).st_mode) in (0o600, 0o660)
        daemon.kill(signal.SIGTERM)
        assert not [name for name in os.listdir(daemon.state) if name.startswith("exitd.sock")]
        daemon.start()
