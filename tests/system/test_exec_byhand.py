"""An exec in a container whose shim was started by hand: its bundle is its caller's, its runtime's root that shim's."""

import pytest

from tests.system import oracle
from tests.system.byhand import adopted, begun
from tests.system.daemons import Daemon
from tests.system.execs import script
from tests.system.lives import last_exit, word
from tests.system.oracle import down

pytestmark = pytest.mark.observed()


def test_an_adopted_container_takes_execs_as_any_other(daemon: Daemon) -> None:
    with down(daemon):
        subject = begun(daemon, "read line </mnt/go")
    adopted(daemon, subject)
    with daemon.client() as client:
        assert word(script(client, subject.id, "exit 43")) == "exited 43"
        client.kill(subject.id, "KILL")
        assert word(last_exit(client, subject.id)) == "signaled 9"
    oracle.clear(daemon)
