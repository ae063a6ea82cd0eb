"""Ends that something stands against: a freezer, a shared pid namespace, a planned restart, a runtime that hangs."""

import contextlib
import itertools
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.errors import WrongState
from supervisor.runtime.oci import cgroups
from tests.system import daemons, lives
from tests.system.lives import backing_off, events, first_exit, last_exit, ledger, members, types, word
from tests.system.runtimes import Wrapper
from tests.system.waits import LIMIT_SECONDS, until

PROMPT_SECONDS = 8.0  # the grace below, and a busy machine; the limits of what could hang here are longer


@contextlib.contextmanager
def promptly() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < PROMPT_SECONDS


def names_in_the_cgroup(container: str) -> list[str]:
    """What they have executed: one that has forked and not got there yet would hold v1's freezer up."""
    names = []
    for pid in members(container):
        with contextlib.suppress(OSError):
            names.append(pathlib.Path(f"/proc/{pid}/comm").read_text().strip())
    return names


def frozen_from_outside(container: pb.Container) -> None:
    """By its cgroup: exitd was not asked, and still takes it for running."""
    path = cgroups.paths(lives.cgroup(container.id))
    file, word, state = (
        (f"{path['unified']}/cgroup.freeze", "1", f"{path['unified']}/cgroup.events")
        if "freezer" not in path
        else (f"{path['freezer']}/freezer.state", "FROZEN", f"{path['freezer']}/freezer.state")
    )
    pathlib.Path(file).write_text(word)
    until(lambda: {"FROZEN", "frozen 1"} & {*pathlib.Path(state).read_text().splitlines()}, "frozen")


@pytest.mark.parametrize("how", ["stop", "kill", "kill --all", "rm -f"])
def test_what_somebody_else_has_frozen_dies_all_the_same(client: Client, how: str) -> None:
    container = lives.up(client, "sh", "-c", "sleep 1000 & exec sleep 1000")
    until(lambda: names_in_the_cgroup(container.id) == ["sleep", "sleep"], "its processes")
    frozen_from_outside(container)
    with promptly():
        match how:
            case "stop":
                client.stop(container.id, 1)
            case "rm -f":
                client.remove(container.id, force=True)
            case _:
                client.kill(container.id, "KILL", everyone=how != "kill")
        until(lambda: ledger(client, container.id), "its end")
    assert word(ledger(client, container.id)[0]) == "signaled 9"


def test_a_paused_container_dies_without_the_help_of_its_runtime(client: Client, tmp_path: pathlib.Path) -> None:
    wrapper = Wrapper.make(tmp_path)
    container = lives.up(client, runtime=wrapper.name).id
    client.pause(container)
    wrapper.on("resume", "sleep 1000")
    with promptly():
        client.stop(container, 1)
    assert word(last_exit(client, container)) == "signaled 9"


LEAVES_CHILDREN = "sleep 1000 & sleep 1000 & setsid sleep 1000 & exit 3"


def test_a_kill_of_all_comes_to_init_before_it_hears_of_the_others_ends(client: Client, tmp_path: pathlib.Path) -> None:
    """Whose pids may be lower than its own: those begin anew at some time."""
    os.mkfifo(tmp_path / "line")
    earlier = [subprocess.Popen(["sh", "-c", f"exec sleep 1000 >{tmp_path}/line"])]
    earlier += [subprocess.Popen(["sleep", "1000"]) for _ in range(40)]
    try:
        mounts = [pb.Mount(source=str(tmp_path), destination="/mnt")]
        container = lives.up(client, "sh", "-c", "exec </mnt/line; : >/mnt/up; read line; exit 16", mounts=mounts)
        until((tmp_path / "up").exists, "it does not begin")
        own = lives.cgroup(container.id)
        for path in {cgroups.with_inner(own, top)[-1] for top in cgroups.paths(own).values()}:
            for one in earlier:
                pathlib.Path(f"{path}/cgroup.procs").write_text(f"{one.pid}\n")
        client.kill(container.id, "KILL", everyone=True)
        assert word(last_exit(client, container.id)) == "signaled 9"
        assert [one.wait(LIMIT_SECONDS) for one in earlier] == [-signal.SIGKILL] * len(earlier)
    finally:
        for one in earlier:
            one.kill()
            one.wait(LIMIT_SECONDS)


def test_children_that_outlive_an_init_in_the_hosts_pid_namespace_are_killed_with_its_cgroup(client: Client) -> None:
    container, exit_ = lives.run(client, "sh", "-c", LEAVES_CHILDREN, pid="host")
    assert (word(exit_), exit_.reason) == ("exited 3", "self")
    until(lambda: not members(container), "its children live on")
    assert word(last_exit(client, container)) == "exited 3"


def test_children_that_outlive_a_member_in_its_pods_pid_namespace_are_killed_and_nobody_elses(client: Client) -> None:
    made = client.run_pod(pb.ContainerSpec(image="pause"))
    other = lives.up(client, sandbox=made.id, pid="pod")
    container, exit_ = lives.run(client, "sh", "-c", LEAVES_CHILDREN, sandbox=made.id, pid="pod")
    assert word(exit_) == "exited 3"
    until(lambda: not members(container), "its children live on")
    assert members(other.id) == (other.init.pid,)
    assert client.inspect_pod(made.id).state == "SANDBOX_READY"


CHILD_AND_LOOP = "trap 'exit 4' TERM; sleep 1000 & while :; do sleep 0.05; done"


def test_a_stop_of_an_init_in_the_hosts_pid_namespace_takes_its_children_along(client: Client) -> None:
    container = lives.up(
        client, "sh", "-c", "trap 'exit 4' TERM; sleep 1000 & while :; do sleep 0.05; done", pid="host"
    )
    assert os.readlink(f"/proc/{container.init.pid}/ns/pid") == os.readlink("/proc/self/ns/pid")
    until(lambda: len(members(container.id)) >= 3, "its children")
    client.stop(container.id, 10)
    assert last_exit(client, container.id).reason == "stop"
    until(lambda: not members(container.id), "its children live on")


@pytest.mark.parametrize("number", ["KILL", "TERM"])
def test_a_kill_cancels_a_planned_restart_and_says_so(client: Client, number: str) -> None:
    container = lives.up(client, "false", restart="always").id
    backing_off(client, container, 2.0)
    with pytest.raises(WrongState, match="is restarting, there is nothing to signal"):
        client.kill(container, "HUP")
    planned = client.inspect(container)
    client.kill(container, number)
    now = client.inspect(container)
    assert (now.phase, now.run, now.HasField("restart_at")) == (pb.PHASE_EXITED, planned.run, False)
    last = events(client, container)[-1]
    assert (last.type, dict(last.attributes)) == ("kill", {"cancelled": "restart"})
    until(lambda: time.time_ns() > planned.restart_at.ToNanoseconds() + 3e8, "the time it was planned for")
    assert types(client, container)[-1] == "kill"
    client.start(container)
    until(lambda: len(ledger(client, container)) > planned.run, "it begins anew")


def test_a_cancelled_restart_stays_cancelled_for_the_next_daemon() -> None:
    with daemons.daemon() as daemon:
        with daemon.client() as client:
            container = lives.up(client, "false", restart="always").id
            backing_off(client, container, 0.5)
            client.kill(container, "KILL")
            runs = client.inspect(container).run
        daemon.restart()
        with daemon.client() as client:
            assert client.inspect(container).phase == pb.PHASE_EXITED
            assert len(ledger(client, container)) == runs


def test_the_wait_before_a_restart_can_be_bounded_and_its_beginning_set(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[limits]\nrestart_max_seconds = 0.15\nrestart_reset_seconds = 60\n")
    with daemons.daemon(extra=("--config", str(config))) as daemon, daemon.client() as client:
        container = lives.up(client, "false", restart="always").id
        until(lambda: len(ledger(client, container)) >= 12, "twelve ends", 150)
        client.stop(container, 0)
        ends = ledger(client, container)[:12]
        waits = [b.started_at.ToNanoseconds() - a.at.ToNanoseconds() for a, b in itertools.pairwise(ends)]
        assert waits[0] >= 100e6 and all(wait >= 150e6 for wait in waits[1:])
        assert waits[10] < 100e9  # doubled each time it would be that


@pytest.mark.parametrize("who", ["exitd", "somebody else"])
def test_a_pod_with_stopped_shims_dies_and_every_exit_is_true(who: str) -> None:
    with daemons.daemon(extra=("--reconcile-seconds", "0.3")) as daemon, daemon.client() as client:
        made = client.run_pod(pb.ContainerSpec(image="pause"))
        members = [lives.up(client, sandbox=made.id, pid="pod") for _ in range(3)]
        for member in members[:2]:
            os.kill(member.shim.pid, signal.SIGSTOP)
        if who == "exitd":
            client.kill(made.id, "KILL")
        else:
            os.kill(made.pause.init.pid, signal.SIGKILL)
        assert word(first_exit(client, made.id)) == "signaled 9"
        for member in members:
            last_exit(client, member.id)
            (exit_,) = ledger(client, member.id)
            assert (word(exit_), exit_.reason, exit_.by.policy) == ("signaled 9", "pause-exit", "pause-exit")
        client.remove(made.id, force=True)
