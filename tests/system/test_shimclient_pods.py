"""Pods under containerd's own shim for runc: one process for all of a pod's containers, by the founding document's own
command lines; its end is reported once for each of them."""

import json
import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from supervisor.runtime.oci import cgroups
from tests.system import daemons, oracle, tinyroot
from tests.system.daemons import Daemon
from tests.system.exitctl import Cli
from tests.system.foreign_shims import QUICK, RUNC, addresses, nothing_left, shims
from tests.system.lives import first_exit, ledger
from tests.system.processes import killed, stopped
from tests.system.test_pods_cli import MEMBER, SANDBOX, inspectp, network, quota_percent, typed
from tests.system.waits import until

FOREIGN_SANDBOX, FOREIGN_MEMBER = (
    line.replace("--runtime runc", f"--runtime {RUNC} --stop-timeout 0") for line in (SANDBOX, MEMBER)
)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """With an image that is called busybox in its store."""
    base = tmp_path_factory.mktemp("root")
    root = tinyroot.make(base / "root")
    subprocess.run(["tar", "-C", root, "-cf", base / "root.tar", "."], check=True, timeout=60)
    with daemons.daemon(extra=QUICK) as made:
        Cli(made).ok("image", "import", str(base / "root.tar"), "busybox")
        yield made


@pytest.fixture
def cli(daemon: Daemon) -> Iterator[Cli]:
    yield Cli(daemon)
    oracle.clear(daemon)


@pytest.fixture
def pod(cli: Cli) -> tuple[str, list[str]]:
    """The id of one, and those of its two members."""
    sandbox = typed(cli, FOREIGN_SANDBOX, image="pause", command="")
    return sandbox, [typed(cli, FOREIGN_MEMBER, sandbox=sandbox, command="sleep 1000") for _ in range(2)]


def end_of(cli: Cli, id: str) -> tuple[str, str]:
    """Of its first run, reported once: kind and cause."""
    with cli.daemon.client() as client:
        exit_ = first_exit(client, id)
        assert ledger(client, id) == [exit_]
        return exit_.kind, exit_.cause


def test_a_pods_limits_are_around_its_containers(cli: Cli, tmp_path: pathlib.Path) -> None:
    resources = {"memory_limit_in_bytes": 64 << 20, "cpu_quota": 25000}
    document = {"metadata": {"name": "few", "namespace": "shop"}, "linux": {"resources": resources}}
    (config := tmp_path / "c.json").write_text(json.dumps(document))
    sandbox = cli.ok("runp", "--runtime", RUNC, "--pids-limit", "60", str(config))
    member = cli.ok("run", "-d", "--pod", sandbox, "--stop-timeout", "0", "busybox", "sleep", "1000")
    assert quota_percent(int(cli.field(member, ".State.Pid")), above=1) == 25
    cgroup = cgroups.paths(f"/exitd/pod-{sandbox}")
    top, name = (cgroup["unified"], "memory.max") if len(cgroup) == 1 else (cgroup["memory"], "memory.limit_in_bytes")
    assert int(pathlib.Path(top, name).read_text()) == 64 << 20
    many = "i=0; while [ $i -lt 80 ]; do sleep 100 & i=$((i+1)); done; echo up"
    other = cli("run", "--pod", sandbox, "--stop-timeout", "0", "busybox", "sh", "-c", many)
    assert (other.code, other.out, "fork" in other.err) == (2, "", True), other


def test_the_founding_documents_command_lines_make_a_pod_under_one_shim(
    cli: Cli, daemon: Daemon, pod: tuple[str, list[str]]
) -> None:
    sandbox, members = pod
    assert [network(cli, each) for each in members] == [network(cli, sandbox)] * 2
    assert network(cli, sandbox) != os.readlink("/proc/self/ns/net")
    assert sorted(each["Id"] for each in inspectp(cli, sandbox)["info"]["members"]) == sorted(members)
    assert len(shims(daemon)) == 1
    with daemon.client() as client:
        assert {client.inspect(each).shim.pid for each in (sandbox, *members)} == set(shims(daemon))
    sockets = addresses(daemon)
    cli.ok("stop", "-t", "0", members[0])
    assert cli.ok("wait", members[0]) == "137"
    cli.ok("rm", members[0])
    assert len(shims(daemon)) == 1
    assert cli.ok("rmp", "-f", sandbox).endswith(f"Removed sandbox {sandbox}")
    nothing_left(daemon, sockets)


def test_members_end_with_their_pause_container(cli: Cli, daemon: Daemon, pod: tuple[str, list[str]]) -> None:
    sandbox, members = pod
    cli.ok("kill", sandbox)
    for member in members:
        assert cli.ok("wait", member) == "137"
        assert cli.field(member, ".Exit.Reason") == "pause-exit"
    cli.ok("rm", "-f", sandbox)
    nothing_left(daemon)


def test_a_member_of_another_kind_is_refused(cli: Cli, pod: tuple[str, list[str]]) -> None:
    said = cli("run", "--pod", pod[0], "--runtime", "runc", "busybox", "true")
    assert said.code == 125 and "under shims of one kind" in said.err


@pytest.mark.parametrize("away", [False, True])
def test_the_shim_killed_is_an_end_of_each_reported_once(
    cli: Cli, daemon: Daemon, pod: tuple[str, list[str]], *, away: bool
) -> None:
    sandbox, members = pod
    (shim,), sockets = shims(daemon), addresses(daemon)
    if away:
        with oracle.down(daemon):
            killed(shim)
    else:
        killed(shim)
    for each in (sandbox, *members):
        kind, cause = end_of(cli, each)
        # The pause container's `delete` may be quicker than the look of the others at theirs.
        assert (kind, cause) == ("unknown", "shim-lost") or (kind, cause) == ("signaled", ""), each
    cli.ok("rm", "-f", sandbox)
    nothing_left(daemon, sockets)


def test_a_pod_whose_shim_stands_still_ends_past_it_and_every_end_is_true(
    cli: Cli, daemon: Daemon, pod: tuple[str, list[str]]
) -> None:
    sandbox, members = pod
    (shim,), sockets = shims(daemon), addresses(daemon)
    with stopped(shim):
        with daemon.client() as client:
            until(lambda: client.inspect(members[0]).monitored_by == "unresponsive", "it is not shown")
        cli.ok("rm", "-f", members[0])
        assert shims(daemon) == [shim]
        cli.ok("rmp", "-f", sandbox)
    with daemon.client() as client:
        for each in (sandbox, *members):
            assert [(row.kind, row.signal, row.source) for row in ledger(client, each)] == [("signaled", 9, "zombie")]
    nothing_left(daemon, sockets)


def test_the_members_of_a_pod_are_watched_on_by_the_next_daemon(
    cli: Cli, daemon: Daemon, pod: tuple[str, list[str]]
) -> None:
    _, members = pod
    daemon.restart()
    cli.ok("kill", members[1])
    assert cli.ok("wait", members[1]) == "137"
    assert cli.field(members[0], ".State.Running") == "true"
