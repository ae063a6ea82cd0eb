"""exitd is killed at moments of a network's plugins, and at its system calls, in the life of a container that is in two
networks and publishes a port. What the next exitd finds it takes down: there is no address, interface, namespace, rule
or record then."""

import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.model.idranges import COUNT
from tests.system import networks, oracle
from tests.system.daemons import Daemon, spec, warm_up
from tests.system.kill_matrix.calls import CALLS, killed_at_each
from tests.system.kill_matrix.table import Case, cases, row
from tests.system.networks import NOTHING, Net, PluginGates
from tests.system.oracle import Revived, Subject
from tests.system.waits import LIMIT_SECONDS, until

BASE = 1_000_000_000
OF_USERS = ("clone", "open_tree", "mount_setattr", "symlink", "chown", "chmod", "fchown")


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    with networks.net() as made:
        made.write_second()
        yield made


@pytest.fixture(scope="module")
def gates(net: Net) -> Iterator[PluginGates]:
    with networks.gates(net) as made:
        yield made


@pytest.fixture(scope="module")
def daemon(net: Net, gates: PluginGates) -> Iterator[Daemon]:
    extra = ("--reconcile-seconds", "0.2")
    users = f"[userns]\nbase = {BASE}\ncount = {2 * COUNT}\n"
    environment = gates.environment
    with networks.daemon(net, str(gates.directory), config=users, extra=extra, environment=environment) as made:
        made.base.chmod(0o711)
        with made.client() as client:
            warm_up(client)
        yield made


def observed(daemon: Daemon) -> Subject:
    ports = [pb.PortMapping(container_port=80, host_port=8080)]
    return oracle.observed(daemon, oracle.fresh_name(), ports=ports, network="pods", more_networks=["second"])


def judge(daemon: Daemon, net: Net, subject: Subject, case: str) -> Counter[str]:
    with daemon.client() as client:
        said = oracle.judge(client, subject, case)
    oracle.nothing_left(daemon)
    until(lambda: net.left(daemon) == NOTHING, f"left after {case}: {net.left(daemon)}")
    return said


@pytest.mark.parametrize("case", cases("network"), ids=str)
def test_exitd_killed_beside_a_plugin_leaves_nothing_of_a_network(
    daemon: Daemon, net: Net, gates: PluginGates, case: Case
) -> None:
    """host-local is bridge's child: it outlives exitd and bridge, and does its work when the next exitd is there."""
    subject, up = observed(daemon), Revived(daemon)
    gates.close(case.moment)
    with ThreadPoolExecutor(1) as pool:
        lived = pool.submit(oracle.whole_life, up, subject)
        try:
            gates.reached(case.moment)
            daemon.kill()
            up.revive()
        finally:
            gates.open()
        lived.result(LIMIT_SECONDS * 4)
    gates.end()
    said = judge(daemon, net, subject, str(case))
    assert set(said) <= {"exited by record"}, said


@pytest.mark.parametrize("case", cases("network, exitd is stopped"), ids=str)
def test_exitd_that_is_stopped_beside_a_plugin_cuts_it_in_two_no_more_than_one_that_is_killed(
    daemon: Daemon, net: Net, gates: PluginGates, case: Case
) -> None:
    subject, up = observed(daemon), Revived(daemon)
    gates.close(case.moment)
    oracle.created(up, subject)
    oracle.started(up, subject)
    try:
        gates.reached(case.moment)
        daemon.kill(signal.SIGTERM)
        up.revive()
    finally:
        gates.open()
    oracle.over(up, subject)
    oracle.removed(up, subject)
    gates.end()
    said = judge(daemon, net, subject, str(case))
    assert set(said) <= {"exited by record"}, said


def test_exitd_killed_at_any_system_call_of_a_life_in_a_network_leaves_nothing_of_it(daemon: Daemon, net: Net) -> None:
    def life() -> Subject:
        subject = observed(daemon)
        oracle.whole_life(Revived(daemon), subject)
        until(lambda: not list(daemon.root.glob("networks/*-*")), "its network is not taken down")
        return subject

    said = killed_at_each(
        daemon, row("network, at calls").count, life, lambda subject, case: judge(daemon, net, subject, case)
    )
    assert set(said) <= {"exited by record", "exited by keeper"}, said


def test_exitd_killed_at_any_system_call_of_a_life_with_users_of_its_own_gives_its_range_back(
    daemon: Daemon, net: Net
) -> None:
    def life() -> Subject:
        subject = oracle.observed(daemon, oracle.fresh_name(), network="pods", userns="auto")
        subject.directory.chmod(0o777)  # as any user of the machine's
        (subject.directory / "go").chmod(0o666)
        oracle.whole_life(Revived(daemon), subject)
        until(lambda: not list(daemon.root.glob("networks/*-*")), "its network is not taken down")
        return subject

    def judge_ranges(subject: Subject, case: str) -> Counter[str]:
        said = judge(daemon, net, subject, case)
        assert list(daemon.state.glob("roots/*")) == [], case
        with daemon.client() as client:
            made = client.create(spec("true", userns="auto"))
            assert made.ids.first == BASE, case
            client.remove(made.id, force=True)
        return said

    count = row("network, users of its own, at calls").count
    said = killed_at_each(daemon, count, life, judge_ranges, (*CALLS, *OF_USERS))
    assert set(said) <= {"exited by record", "exited by keeper"}, said
