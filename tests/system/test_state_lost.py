"""A state directory that is lost, or a database with it: what ran is ended and recorded, and others' is left alone."""

import os
import pathlib
import shutil
import signal
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.monitor.ownership import MARK
from tests.system import daemons
from tests.system.daemons import Daemon, cgroups, cgroups_of, left, spec
from tests.system.lives import ledger, up
from tests.system.processes import end_process
from tests.system.waits import LIMIT_SECONDS, until

QUICK = ("--reconcile-seconds", "0.2")


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with daemons.daemon(extra=QUICK) as made:
        yield made


@pytest.fixture
def other() -> Iterator[Daemon]:
    with daemons.daemon(extra=QUICK) as made:
        yield made


def wiped(directory: pathlib.Path) -> None:
    for path in directory.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def killed(daemon: Daemon) -> None:
    """exitd and its keeper; containers and shims live on."""
    keeper = daemon.keeper_pid()
    daemon.kill()
    end_process(keeper)


def gone(own: dict[str, int]) -> bool:
    """Every process, and every container's cgroup. A pod's stays as long as the pod is in the list."""
    return not any(os.path.exists(f"/proc/{pid}") for pid in own.values()) and not of(own, "")


def of(own: dict[str, int], prefix: str) -> list[pathlib.Path]:
    """The containers' own, or with the prefix `pod-` those around a pod's."""
    around = {path for path in cgroups() if path.name.startswith("pod-") or path.name.endswith(".slice")}
    return [path for path in cgroups_of(own) if (path in around) == bool(prefix)]


def three(daemon: Daemon) -> dict[str, int]:
    """A container that runs, one that is created, and a pod's member: id -> pid of init."""
    with daemon.client() as client:
        pod = client.run_pod(pb.ContainerSpec(image="pause"))
        found = [up(client), client.create(spec("sleep", "1000")), up(client, sandbox=pod.id), client.inspect(pod.id)]
        return {each.id: each.init.pid for each in found}


def test_what_a_lost_state_directory_leaves_is_ended_and_recorded_and_others_are_untouched(
    daemon: Daemon, other: Daemon
) -> None:
    own, theirs = three(daemon), three(other)
    killed(daemon)
    wiped(daemon.state)
    daemon.start()
    with daemon.client() as client:
        for id in own:
            (exit_,) = until(lambda id=id: ledger(client, id), "its end is not recorded")  # type: ignore[misc]
            assert (exit_.kind, exit_.cause, exit_.source) == ("unknown", "state-lost", "none")
        until(lambda: gone(own), "something of it lives on")
    until(lambda: left(daemon).shims == 0, "a shim lives on")
    with other.client() as client:
        phases = [client.inspect(id).phase for id in theirs]
        assert sorted(phases) == sorted([pb.PHASE_RUNNING] * 3 + [pb.PHASE_CREATED])
        assert [client.inspect(id).init.pid for id in theirs] == list(theirs.values())


def test_what_neither_a_state_directory_nor_a_database_knows_is_swept_by_its_mark(
    daemon: Daemon, other: Daemon
) -> None:
    own, theirs = three(daemon), three(other)
    killed(daemon)
    wiped(daemon.state)
    for path in daemon.root.glob("exitd.db*"):
        path.unlink()
    daemon.start()
    until(lambda: gone(own) and not of(own, "pod-"), "something of it lives on")
    with other.client() as client:
        assert [client.inspect(id).init.pid for id in theirs] == list(theirs.values())


class Elsewhere(Daemon):
    """Of the same root, with another state directory."""

    @property
    def state(self) -> pathlib.Path:
        return self.base / "s2"


def test_containers_of_another_state_directory_of_this_root_are_not_ended(daemon: Daemon) -> None:
    with daemon.client() as client:
        container = up(client)
    daemon.kill()
    moved = Elsewhere(daemon.base, extra=QUICK)
    moved.start()
    until(
        lambda: f"start exitd with --state {daemon.state}" in daemon.log.read_text(), "the log does not name the other"
    )
    moved.kill()
    if keeper := moved.keeper_pid():
        end_process(keeper)
    daemon.start()
    with daemon.client() as client:
        found = client.inspect(container.id)
        assert (found.phase, found.init.pid) == (pb.PHASE_RUNNING, container.init.pid)


class OfAnotherRoot(Daemon):
    """On the same state directory."""

    @property
    def root(self) -> pathlib.Path:
        return self.base / "r2"


def test_an_exitd_with_another_root_is_refused_on_this_state_directory_and_nothing_ends(daemon: Daemon) -> None:
    with daemon.client() as client:
        container = up(client)
    daemon.kill()
    other = OfAnotherRoot(daemon.base, extra=QUICK).start(wait=False)
    assert other.process is not None
    try:
        assert other.process.wait(LIMIT_SECONDS) == 1
    finally:
        other.process.send_signal(signal.SIGKILL)
        other.process.wait(LIMIT_SECONDS)
    assert f"--root {daemon.root}, and this exitd has --root {other.root}" in daemon.log.read_text()
    daemon.start()
    with daemon.client() as client:
        found = client.inspect(container.id)
        assert (found.phase, found.init.pid) == (pb.PHASE_RUNNING, container.init.pid)


def test_a_run_directory_without_a_container_costs_no_container_of_another_exitd_of_this_id(
    daemon: Daemon, other: Daemon
) -> None:
    with other.client() as client:
        container = up(client)
        leaked = daemon.state / "c" / container.id
        (leaked / "1").mkdir(parents=True, mode=0o700)
        until(lambda: not (leaked / "1").exists(), "the leftover is not removed")
        found = client.inspect(container.id)
        assert (found.phase, found.init.pid) == (pb.PHASE_RUNNING, container.init.pid)


def test_a_container_whose_cgroup_was_never_marked_is_marked_when_it_is_found_again(daemon: Daemon) -> None:
    with daemon.client() as client:
        container = up(client)
    daemon.kill()
    (own,) = {path.name: path for path in of({container.id: 0}, "")}.values()
    directories = [each for each in of({container.id: 0}, "") if MARK in os.listxattr(each)]
    assert own in directories
    for path in directories:
        os.removexattr(path, MARK)
    daemon.start()
    until(lambda: all(MARK in os.listxattr(path) for path in directories), "it has no mark")
