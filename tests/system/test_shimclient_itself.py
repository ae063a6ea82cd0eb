"""exitd as the client of itself: its containers are under our own relay, and behind that is another exitd."""

import pathlib
import sys
from collections.abc import Iterator

import pytest

from supervisor.api.client import Client
from tests.system import daemons, lives, oracle
from tests.system.daemons import Daemon
from tests.system.foreign_shims import QUICK
from tests.system.lives import last_exit, run, up, up_trapping
from tests.system.processes import killed
from tests.system.waits import LIMIT_SECONDS

EXITD = "io.containerd.exitd.v2"
# What a TaskExit waits for the answer to Wait: a second is too little for a machine that does much else.
LIMITS = {"supervisor.runtime.foreign_shim.verdict.EVENT_PATIENCE_SECONDS": LIMIT_SECONDS}


@pytest.fixture(scope="module")
def behind() -> Iterator[Daemon]:
    with daemons.daemon() as made:
        yield made


@pytest.fixture(scope="module")
def daemon(behind: Daemon) -> Iterator[Daemon]:
    path = f"{pathlib.Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    environment = {"EXITD_STATE": str(behind.state), "PATH": path}
    with daemons.daemon(extra=QUICK, environment=environment, limits=LIMITS) as made:
        yield made
        oracle.clear(made)


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    with daemon.client() as made:
        yield made


@pytest.mark.parametrize("code", [0, 43, 255])
def test_a_code_goes_through_both(client: Client, code: int) -> None:
    id, exit_ = run(client, "sh", "-c", f"exit {code}", runtime=EXITD)
    assert (exit_.kind, exit_.code, exit_.source) == ("exited", code, "shimv2-wait")
    client.remove(id, force=False)


@pytest.mark.parametrize("who", ["client", "server"])
def test_either_exitd_is_started_again_meanwhile(daemon: Daemon, behind: Daemon, who: str) -> None:
    with daemon.client() as client:
        id = up_trapping(client, "trap 'exit 5' TERM; while :; do sleep 0.05; done", runtime=EXITD).id
    (daemon if who == "client" else behind).restart()
    with daemon.client() as client:
        waiting = client.begin_wait(id)
        client.stop(id, 20)
        exit_ = lives.ended(waiting.result(30))
        assert (exit_.kind, exit_.code, exit_.source) == ("exited", 5, "shimv2-wait")
        client.remove(id, force=True)


def test_a_relay_that_is_killed_is_an_unknown_end(client: Client) -> None:
    id = up(client, "sleep", "1000", runtime=EXITD).id
    killed(client.inspect(id).shim.pid)
    exit_ = last_exit(client, id)
    assert (exit_.kind, exit_.cause) in (("unknown", "shim-lost"), ("signaled", ""))
    client.remove(id, force=True)
