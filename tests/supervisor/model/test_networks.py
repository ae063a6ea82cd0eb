"""Ports that clash, and words of ports."""

import pytest

from supervisor.model import networks
from supervisor.model.networks import Attached, PublishedPort, TakenPorts

WEB = PublishedPort(80, 8080)


@pytest.mark.parametrize(
    ("other", "clashes"),
    [
        (PublishedPort(81, 8080), True),
        (PublishedPort(81, 8081), False),
        (PublishedPort(80, 8080, "udp"), False),
        (PublishedPort(80, 8080, "tcp", "127.0.0.1"), True),
        (PublishedPort(80, 8080, "tcp", "::"), True),
    ],
)
def test_two_of_one_port_of_the_machine_clash_unless_their_addresses_differ(
    other: PublishedPort, clashes: bool
) -> None:
    assert TakenPorts([WEB]).clashes(other) is TakenPorts([other]).clashes(WEB) is clashes
    assert bool(list(networks.doubled([WEB, other]))) is clashes


def test_ports_that_are_left_open_and_other_addresses_clash_with_none() -> None:
    assert not TakenPorts([PublishedPort(80)]).clashes(PublishedPort(80))
    one, other = (PublishedPort(80, 8080, "tcp", address) for address in ("127.0.0.1", "192.0.2.1"))
    assert not TakenPorts([one]).clashes(other)


@pytest.mark.parametrize(
    ("word", "found"),
    [("80", (80, "tcp")), ("53/UDP", (53, "udp")), ("0", None), ("65536", None), ("80/icmp", None), ("x", None)],
)
def test_a_word_of_a_port(word: str, found: tuple[int, str] | None) -> None:
    assert networks.exposed(word) == found


def test_addresses_are_without_their_prefixes() -> None:
    assert networks.addresses([Attached("a", "eth0", addresses=("10.0.0.2/8", "fd00::2/64"))]) == (
        "10.0.0.2",
        "fd00::2",
    )


def test_whose_network_namespace_exitd_makes() -> None:
    assert networks.has_own("pods", "") and not networks.has_own("pods", "pod")
    assert not any(networks.has_own(name, "") for name in ("", "none", "host", "pod"))
