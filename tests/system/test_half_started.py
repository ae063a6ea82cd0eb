"""A start that was cut off after it had let init go: the runtime says `created` for ever, and the program runs."""

import contextlib
import pathlib
import signal

from supervisor.api.client import Client, Unreachable
from tests.system import daemons
from tests.system.daemons import directory, spec
from tests.system.lives import last_exit, ledger, types, word
from tests.system.processes import in_mask
from tests.system.runtimes import Wrapper
from tests.system.waits import LIMIT_SECONDS, until

LET_GO = r"""
while [ "$1" != --root ]; do shift; done
root=$2
for id; do :; done
init=$(sed 's/.*"init_process_pid":\([0-9]*\).*/\1/' "$root/$id/state.json")
cat "$root/$id/exec.fifo" >/dev/null
timeout 30 sh -c "until grep -q '^sh' /proc/$init/comm; do sleep 0.01; done"
"""


def program(client: Client, wrapper: Wrapper) -> str:
    """Created: ends with 7 when it is told to."""
    script = "trap 'exit 7' USR1; while :; do sleep 0.05; done"
    return client.create(spec("sh", "-c", script, runtime=wrapper.name)).id


def comm(client: Client, id: str) -> str:
    return pathlib.Path(f"/proc/{client.inspect(id).init.pid}/comm").read_text().strip()


def test_a_start_that_failed_after_it_had_worked_is_a_start() -> None:
    with directory() as base, daemons.daemon() as daemon, daemon.client() as client:
        wrapper = Wrapper.make(base)
        wrapper.on("start", f"{LET_GO} exit 1")
        id = program(client, wrapper)
        client.start(id)
        assert comm(client, id) == "sh"
        until(lambda: _traps(client, id), "no trap")
        client.kill(id, "USR1")
        assert word(last_exit(client, id)) == "exited 7"
        assert types(client, id).count("start") == 1


def test_a_daemon_killed_with_such_a_start_finds_the_program_running_and_leaves_it_alone() -> None:
    with directory() as base, daemons.daemon() as daemon:
        wrapper = Wrapper.make(base)
        with daemon.client() as client:
            wrapper.on("start", f"{LET_GO} kill -9 {daemon.pid}; exec sleep 1000")
            id = program(client, wrapper)
            with contextlib.suppress(Unreachable):
                client.start(id)
        assert daemon.process is not None
        daemon.process.wait(LIMIT_SECONDS)
        wrapper.on("start", "exit 1")
        daemon.start()
        with daemon.client() as client:
            assert comm(client, id) == "sh"
            until(lambda: _traps(client, id), "no trap")
            client.kill(id, "USR1")
            assert word(last_exit(client, id)) == "exited 7"
            assert len(ledger(client, id)) == 1


def _traps(client: Client, id: str) -> bool:
    return in_mask(client.inspect(id).init.pid, "SigCgt", signal.SIGUSR1)
