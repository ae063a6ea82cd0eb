"""The end of the host, asked for by exitctl: real containers end by their own signal, and come back in the next boot.

With a systemd that goes down it is tried in a machine: tests/vm/check_shutdown.py.
"""

import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.errors import ShuttingDown
from tests.system import daemons, lives, tinyroot
from tests.system.containerd import server
from tests.system.exitctl import Cli
from tests.system.lives import ledger, up_trapping, word
from tests.system.processes import in_mask
from tests.system.test_pods_reboot import Host
from tests.system.test_recovery import pretended_boot
from tests.system.waits import until

OBEYS = "trap 'exit 5' TERM; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; while :; do sleep 0.05; done"
LIMIT_SECONDS = 12  # a sixth of it is there for what has to be killed


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Iterator[Host]:
    with pretended_boot(tmp_path) as (boot_id, wrapper), daemons.daemon(wrapper=wrapper) as daemon:
        yield Host(daemon, boot_id)


def runs_again(client: Client, id: str) -> bool:
    container = client.inspect(id)
    return (container.phase, container.run) == (pb.PHASE_RUNNING, 2)


def test_containers_end_with_the_host_by_their_own_signal_and_come_back_in_the_next_boot(host: Host) -> None:
    daemon = host.daemon
    with daemon.client() as client:
        obeys = up_trapping(client, OBEYS, restart="unless-stopped").id
        deaf = client.start(
            client.create(daemons.spec("sh", "-c", DEAF, restart="always", stop_timeout_seconds=100)).id
        ).id
        stays = lives.up(client, restart="no").id
        pod = client.run_pod(pb.ContainerSpec(image="pause", restart="always"))
        member = lives.up(client, sandbox=pod.id, restart="always").id
        began = time.monotonic()
        said = Cli(daemon).ok("node-shutdown", "--time", str(LIMIT_SECONDS))
        assert time.monotonic() - began < LIMIT_SECONDS + 5
        assert said == "5 containers have ended"
        ends = {id: ledger(client, id)[-1] for id in (obeys, deaf, stays, pod.id, member)}
        assert {exit_.reason for exit_ in ends.values()} == {"node-shutdown"}
        assert (word(ends[obeys]), word(ends[deaf])) == ("exited 5", "signaled 9")
        assert ends[member].at.ToNanoseconds() <= ends[pod.id].at.ToNanoseconds()
        refused: list[Callable[[], object]] = [
            lambda: client.start(obeys),
            lambda: lives.up(client),
            lambda: client.run_pod(pb.ContainerSpec(image="pause")),
        ]
        for call in refused:
            with pytest.raises(ShuttingDown):
                call()
        assert "the node was shutting down" in Cli(daemon).ok("why", obeys)
    host.reboot()
    with daemon.client() as client:
        for id in (obeys, deaf, pod.id, member):
            until(partial(runs_again, client, id), f"{id} does not come back")
        assert client.inspect(stays).phase == pb.PHASE_EXITED
        assert [len(ledger(client, id)) for id in (obeys, deaf, stays, pod.id, member)] == [1] * 5


def test_tasks_of_containerd_end_with_the_host_and_containerd_sees_how() -> None:
    with server.running() as containerd, containerd.events() as events:
        tasks = [containerd.box(server.EXITD, "task").started("--", "sh", "-c", script) for script in (OBEYS, DEAF)]
        for each, mask in zip(tasks, ("SigCgt", "SigIgn"), strict=True):
            until(partial(in_mask, each.pid, mask, signal.SIGTERM), "the trap is not set")
        daemon = containerd.with_exitd()
        assert Cli(daemon).ok("node-shutdown", "--time", str(LIMIT_SECONDS)) == "2 containers have ended"
        for each in tasks:
            each.until("STOPPED")
        codes = [
            [e.fields["exit_status"] for e in events.settled().of(t.id) if e.topic == "/tasks/exit"] for t in tasks
        ]
        assert codes == [[5], [128 + 9]]
        with daemon.client() as client:
            found = sorted((exit_.name, word(exit_), exit_.reason) for exit_ in client.exits(pb.ExitsRequest()))
        words = zip(tasks, ("exited 5", "signaled 9"), strict=True)
        assert found == [(each.id, said, "node-shutdown") for each, said in words]


def test_while_systemd_is_not_stopping_nothing_is_stopped(host: Host) -> None:
    with host.daemon.client() as client:
        lives_on = lives.up(client).id
        assert "containers live on" in Cli(host.daemon).ok("node-shutdown", "--if-stopping")
        assert client.inspect(lives_on).phase == pb.PHASE_RUNNING
        assert client.inspect(lives.up(client).id).phase == pb.PHASE_RUNNING  # and others may begin


def test_a_run_that_the_host_going_down_does_not_take_is_no_failure_and_comes_later(tmp_path: pathlib.Path) -> None:
    """systemd refuses scopes before it asks for the end of the containers. Its word is played; what cannot be made is
    real."""
    (tools := tmp_path / "bin").mkdir()
    (tools / "systemctl").write_text(f"#!/bin/sh\ncat {tmp_path}/state\n")
    (tools / "systemctl").chmod(0o755)
    state, root, away = tmp_path / "state", tinyroot.make(tmp_path / "root", ("sleep",)), tmp_path / "away"
    state.write_text("running\n")
    with (
        daemons.daemon(environment={"PATH": f"{tools}:{os.environ['PATH']}"}) as daemon,
        daemon.client() as client,
    ):
        made = pb.ContainerSpec(args=["sleep", "1000"], rootfs=str(root), restart="on-failure:1")
        id = client.start(client.create(made).id).id
        state.write_text("stopping\n")
        root.rename(away)
        os.kill(client.inspect(id).init.pid, signal.SIGKILL)
        until(lambda: client.inspect(id).run >= 3, "the run that could not be made is not planned anew")
        away.rename(root)
        until(lambda: client.inspect(id).phase == pb.PHASE_RUNNING, "it does not come back")
        wanted = pb.EventsRequest(from_seq=1, no_follow=True, filters=[f"id={id}"])
        types = [reply.event.type for reply in client.events(wanted) if reply.HasField("event")]
        assert "failed" not in types
        assert client.inspect(id).restart_count == 1
        client.remove(id, force=True)
