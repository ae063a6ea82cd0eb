"""Whoever an init leaves behind in another's pid namespace is dead before the end is reported, whoever was killed."""

import contextlib
import os
import pathlib
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.monitor import epoll
from supervisor.runtime.oci import cgroups
from tests.system import execs, lives, tinyroot
from tests.system.daemons import Daemon, Left, left, remove_all
from tests.system.lives import WHOLE, begun, last_exit, members, output, word
from tests.system.runtimes import Wrapper, runc_version
from tests.system.waits import LIMIT_SECONDS, until

# What an end waits for those of its execs: a second is too little for a machine that does much else.
pytestmark = pytest.mark.limits({"supervisor.engine.execlife.BEFORE_END_SECONDS": LIMIT_SECONDS})

NOTHING = Left(shims=0, zombies=0, mounts=0, cgroups=0, run_directories=0, bundles=0, descriptors=0)


def emptied(exit_: pb.Exit, container: str) -> None:
    """Nobody is left of it, and if the kernel was too slow for the limit, its end says of how many."""
    assert len(members(container)) <= exit_.left_behind
    until(lambda: not members(container), "its children live on")


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    with daemon.client() as made:
        daemon.warm(made)
        yield made
    with daemon.client() as made:  # it may be another daemon by now
        remove_all(made)
    until(lambda: replace(left(daemon), descriptors=0) == NOTHING, f"left behind: {left(daemon)}")


def test_nobody_in_the_hosts_pid_namespace_lives_when_the_end_is_reported_and_the_output_is_whole(
    daemon: Daemon, client: Client, tmp_path: pathlib.Path
) -> None:
    made = begun(client, tmp_path, pid="host")
    waiting = client.begin_wait(made.id)
    (tmp_path / "end").touch()
    exit_ = lives.ended(waiting.result(LIMIT_SECONDS))
    assert word(exit_) == "exited 3"
    emptied(exit_, made.id)
    until(lambda: output(client, made.id) == WHOLE, "its output")


def test_nor_in_a_pods_and_the_other_members_live_on(daemon: Daemon, client: Client, tmp_path: pathlib.Path) -> None:
    pod = client.run_pod(pb.ContainerSpec(image="pause"))
    other = lives.up(client, sandbox=pod.id, pid="pod")
    made = begun(client, tmp_path, sandbox=pod.id, pid="pod")
    waiting = client.begin_wait(made.id)
    (tmp_path / "end").touch()
    exit_ = lives.ended(waiting.result(LIMIT_SECONDS))
    assert word(exit_) == "exited 3"
    emptied(exit_, made.id)
    assert members(other.id) == (other.init.pid,)


def test_execs_end_with_it_and_are_reported_before(client: Client, tmp_path: pathlib.Path) -> None:
    made = begun(client, tmp_path, pid="host")
    exec_id = execs.begin(client, made.id, "sleep", "1000")
    (tmp_path / "end").touch()
    assert word(last_exit(client, made.id)) == "exited 3"
    exits = [event for event in lives.events(client, made.id) if event.type == "exit"]
    told = [(event.exec_id, word(event.exit), event.exit.by.policy) for event in exits]
    assert told == [(exec_id, "signaled 9", "container-exit"), ("", "exited 3", "")]


def test_a_shim_does_it_while_the_daemon_is_away(daemon: Daemon, client: Client, tmp_path: pathlib.Path) -> None:
    made = begun(client, tmp_path, pid="host")
    daemon.kill()
    (tmp_path / "end").touch()
    until(lambda: members(made.id) == (), "its children live on")
    daemon.start()
    with daemon.client() as again:
        assert word(last_exit(again, made.id)) == "exited 3"


def test_with_its_shim_killed_the_daemon_does_it_before_the_end_is_stored(
    daemon: Daemon, client: Client, tmp_path: pathlib.Path
) -> None:
    made = begun(client, tmp_path, pid="host")
    waiting = client.begin_wait(made.id)
    os.kill(made.shim.pid, signal.SIGKILL)
    until(lambda: client.inspect(made.id).shim.pid not in (0, made.shim.pid), "another shim")
    (tmp_path / "end").touch()
    exit_ = lives.ended(waiting.result(LIMIT_SECONDS))
    assert (word(exit_), exit_.source) == ("exited 3", "keeper")
    emptied(exit_, made.id)


@pytest.mark.parametrize("who", ["child", "grandchild"])
def test_what_was_moved_out_of_the_cgroup_is_left_alone(
    daemon: Daemon, client: Client, tmp_path: pathlib.Path, who: str
) -> None:
    made = begun(client, tmp_path, pid="host")
    pid = int((tmp_path / who).read_text())
    pidfd = os.pidfd_open(pid)
    try:
        for top in filter(os.path.isdir, cgroups.paths(lives.cgroup(made.id)).values()):
            pathlib.Path(top, "../../cgroup.procs").resolve().write_text(str(pid))
        (tmp_path / "end").touch()
        exit_ = last_exit(client, made.id)
        assert word(exit_) == "exited 3"
        emptied(exit_, made.id)
        assert not epoll.read_ready(pidfd)
    finally:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)


shares_cgroups = pytest.mark.skipif(runc_version() >= (1, 2), reason="this runc refuses a cgroup that is not empty")


@shares_cgroups
@pytest.mark.parametrize("first_ends", [True, False])
def test_a_cgroup_that_another_live_container_shares_is_not_killed(
    client: Client, tmp_path: pathlib.Path, first_ends: bool
) -> None:
    """Until the runtime's delete, which is not asked: runc's kills whoever is in the cgroup."""
    runtime, cgroup = Wrapper.make(tmp_path), f"/exitd-test-{os.getpid()}"
    runtime.on("delete", "exit 0")
    bundle = str(tinyroot.bundle(tmp_path, ["sleep", "1000"], cgroup, host_pids=True))
    try:
        specs = [pb.ContainerSpec(bundle=bundle, runtime=runtime.name) for _ in range(2)]
        pair = [client.start(client.create(each).id) for each in specs]
        ends, lives_on = pair if first_ends else pair[::-1]
        client.kill(ends.id, "KILL")
        assert word(last_exit(client, ends.id)) == "signaled 9"
        assert cgroups.pids(cgroup) == (lives_on.init.pid,)
    finally:
        remove_all(client)
        cgroups.remove(cgroup, limit_seconds=LIMIT_SECONDS)


@shares_cgroups
@pytest.mark.parametrize("restarted", [False, True])
def test_when_the_last_that_shared_a_cgroup_ends_nobody_is_left_in_it(
    daemon: Daemon, client: Client, tmp_path: pathlib.Path, restarted: bool
) -> None:
    runtime, cgroup = Wrapper.make(tmp_path), f"/exitd-test-{os.getpid()}"
    runtime.on("delete", "exit 0")
    bundle = str(tinyroot.bundle(tmp_path, ["sh", "-c", "sleep 1000 & exec sleep 1000"], cgroup, host_pids=True))
    with contextlib.ExitStack() as stack:
        stack.callback(cgroups.remove, cgroup, limit_seconds=LIMIT_SECONDS)
        specs = [pb.ContainerSpec(bundle=bundle, runtime=runtime.name) for _ in range(2)]
        first, last = (client.start(client.create(each).id) for each in specs)
        until(lambda: len(cgroups.pids(cgroup)) == 4, "their children are not there")
        client.kill(first.id, "KILL")
        assert last_exit(client, first.id).left_behind == 0
        assert len(cgroups.pids(cgroup)) == 3
        if restarted:
            daemon.restart()
            client = stack.enter_context(daemon.client())
        stack.callback(remove_all, client)
        client.kill(last.id, "KILL")
        exit_ = last_exit(client, last.id)
        assert len(cgroups.pids(cgroup)) <= exit_.left_behind
