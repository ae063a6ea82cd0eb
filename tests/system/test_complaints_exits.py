"""Complaints about other supervisors, tried on exitd: codes, times, failed starts, and what is left behind."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.answers import Waiting
from supervisor.api.client import Client
from supervisor.model.errors import ExitdError
from tests.system.daemons import Daemon, left, spec, warm_up
from tests.system.lives import ended, members
from tests.system.processes import in_mask, killed
from tests.system.runtimes import Wrapper
from tests.system.waits import LIMIT_SECONDS, until, wait_readable


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path_factory.mktemp("x"), grpc=True).start()  # calls at once have one connection
    yield daemon
    daemon.end()


@pytest.fixture(scope="module")
def connection(daemon: Daemon) -> Iterator[Client]:
    with daemon.client() as client:
        warm_up(client)
        yield client


@pytest.fixture
def client(daemon: Daemon, connection: Client) -> Iterator[Client]:
    """The test must leave nothing of its containers behind."""
    before = left(daemon)
    yield connection
    until(lambda: left(daemon) == before, f"before: {before}, left: {left(daemon)}")


def begin(client: Client, *args: str, **fields: object) -> tuple[pb.Container, Waiting]:
    """A started container and its end to come."""
    container = client.create(spec(*args, **fields))
    waiting = client.begin_wait(container.id)
    return client.start(container.id), waiting


def wait_for(waiting: Waiting) -> pb.Exit:
    return ended(waiting.result(LIMIT_SECONDS))


@pytest.mark.parametrize(
    ("command", "number"), [("/no/such/program", 127), ("no-such-program", 127), ("/etc/passwd", 126), ("/etc", 126)]
)
def test_a_command_that_cannot_run_has_the_number_a_shell_would_give(
    daemon: Daemon, client: Client, command: str, number: int
) -> None:
    words = [sys.executable, "-m", "supervisor.cli", "run", "--rm", "--rootfs", "/", "--", command]
    environment = os.environ | {"EXITD_STATE": str(daemon.state)}
    done = subprocess.run(words, env=environment, capture_output=True, timeout=LIMIT_SECONDS, text=True)
    assert done.returncode == number, done.stderr


def test_the_shim_ignores_sigpipe_by_itself_and_its_container_does_not(client: Client) -> None:
    container, waiting = begin(client, "sleep", "1000")
    assert in_mask(container.shim.pid, "SigIgn", signal.SIGPIPE)
    assert not in_mask(container.init.pid, "SigIgn", signal.SIGPIPE)
    client.remove(container.id, force=True)
    assert wait_for(waiting).signal == signal.SIGKILL


def test_a_wait_for_a_run_gives_that_runs_code_although_the_next_one_runs(
    daemon: Daemon, client: Client, tmp_path: pathlib.Path
) -> None:
    script = "n=$(cat /data/n); echo $((n+1)) >/data/n; [ $n -ge 3 ] && exec sleep 1000; exit $((10+n))"
    (tmp_path / "n").write_text("1\n")
    mounts = [pb.Mount(source=str(tmp_path), destination="/data")]
    container, waiting = begin(client, "sh", "-c", script, mounts=mounts, restart="always")
    assert wait_for(waiting).code == 11
    until(lambda: client.inspect(container.id).run == 3, "no third run")
    until(lambda: client.inspect(container.id).phase == pb.PHASE_RUNNING, "it does not run")
    assert [wait_for(client.begin_wait(container.id, run=run)).code for run in (1, 2)] == [11, 12]
    client.remove(container.id, force=True)


@pytest.mark.parametrize("verb", ["create", "start"])
def test_a_start_that_fails_is_reported_and_cleaned_up_once(client: Client, tmp_path: pathlib.Path, verb: str) -> None:
    name, after = f"fails-at-{verb}", client.info().seq
    wrapper = Wrapper.make(tmp_path)
    wrapper.on(verb, "exit 1")
    with pytest.raises(ExitdError):
        begin(client, "true", name=name, runtime=wrapper.name)
    if verb == "start":
        assert wait_for(client.begin_wait(name)).cause == "never-started"
        client.remove(name, force=False)
    request = pb.EventsRequest(from_seq=after + 1, no_follow=True, filters=(f"name={name}",))
    types = [reply.event.type for reply in client.events(request) if reply.WhichOneof("item") == "event"]
    assert types.count("failed") == 1
    assert types.count("exit") == (1 if verb == "start" else 0)
    assert "start" not in types
    assert types[-1] == "remove"


def test_the_shim_that_is_shown_is_the_parent_of_init(client: Client) -> None:
    container, _ = begin(client, "sleep", "1000")
    shown = client.inspect(container.id)
    parent = pathlib.Path(f"/proc/{shown.init.pid}/stat").read_text().rpartition(")")[2].split()[1]
    assert (shown.shim.pid, shown.monitored_by) == (int(parent), "shim")
    client.remove(container.id, force=True)


def test_a_cgroup_killed_from_outside_ends_its_shim_too(client: Client) -> None:
    container, waiting = begin(client, "sh", "-c", "sleep 1000 & sleep 1000 & wait; sleep 1000")
    until(lambda: len(members(container.id)) == 3, "its children")
    shim_fd = os.pidfd_open(container.shim.pid)
    for pid in members(container.id):
        with contextlib.suppress(ProcessLookupError):  # init's end is the others' end
            os.kill(pid, signal.SIGKILL)
    exit_ = wait_for(waiting)
    assert (exit_.kind, exit_.signal, exit_.source, exit_.reason) == ("signaled", signal.SIGKILL, "record", "unknown")
    assert wait_readable(shim_fd)
    os.close(shim_fd)
    client.remove(container.id, force=False)


def test_the_time_of_an_exit_is_true_although_the_daemon_was_stopped(daemon: Daemon, client: Client) -> None:
    container, waiting = begin(client, "sleep", "1000")
    shim_fd = os.pidfd_open(container.shim.pid)
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        before = time.time_ns()
        killed(container.init.pid)
        assert wait_readable(shim_fd)  # the shim has reported all it knows and left
        after = time.time_ns()
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    os.close(shim_fd)
    assert before <= wait_for(waiting).at.ToNanoseconds() <= after
    client.remove(container.id, force=False)
