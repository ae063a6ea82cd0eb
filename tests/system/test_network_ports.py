"""A port of a container that has ended is the next one's, as soon as its network has been taken down."""

from collections.abc import Iterator

import pytest

from tests.system import networks
from tests.system.daemons import Daemon
from tests.system.exitctl import Cli
from tests.system.networks import Net, PluginGates
from tests.system.waits import until

PORT = ("-p", "8080:80")


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    with networks.net() as made:
        yield made


@pytest.fixture(scope="module")
def gates(net: Net) -> Iterator[PluginGates]:
    with networks.gates(net) as made:
        yield made


@pytest.fixture(scope="module")
def daemon(net: Net, gates: PluginGates) -> Iterator[Daemon]:
    with networks.daemon(net, str(gates.directory), environment=gates.environment) as made:
        yield made


@pytest.fixture
def cli(daemon: Daemon, net: Net) -> Iterator[Cli]:
    with networks.cli(daemon, net) as made:
        yield made


def gives_way(cli: Cli, gates: PluginGates, *words: str) -> None:
    """While it ends, and the plugin that has its port is halted, another asks for that, and gets it."""
    gates.close("portmap-DEL.before")
    try:
        ending = cli.begin(*words)
        gates.reached("portmap-DEL.before")
        second = cli.begin("run", "-d", "--name", "two", *PORT, "--rootfs", "/", "sleep", "1000")
        until(lambda: cli("inspect", "two").code == 0, "the second one is not asked for")
        assert second.poll() is None
        gates.open()
        for each in (ending, second):
            _, err = each.communicate(timeout=60)
            assert each.returncode == 0, err
    finally:
        gates.end()
    assert cli.ok("port", "two") == "80/tcp -> 0.0.0.0:8080"


@pytest.mark.parametrize("how", [("stop", "-t", "0"), ("rm", "-f"), ("kill",)], ids=" ".join)
def test_a_port_is_waited_for_while_the_network_of_what_had_it_is_taken_down(
    cli: Cli, gates: PluginGates, how: tuple[str, ...]
) -> None:
    cli.background("one", *PORT, "sleep", "1000")
    gives_way(cli, gates, *how, "one")


def test_a_port_of_a_pod_is_waited_for_while_the_last_of_it_ends(cli: Cli, gates: PluginGates) -> None:
    pod = cli.ok("run", "-d", *PORT, "--annotation", "io.kubernetes.docker.type=podsandbox", "pause")
    cli.background("member", "--pod", pod, "sleep", "1000")
    gives_way(cli, gates, "rmp", "-f", pod)
