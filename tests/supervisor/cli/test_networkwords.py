"""--network in docker's and podman's words."""

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli.networkwords import NetworkWords, put_networks
from supervisor.model.errors import BadRequest


def asked(words: NetworkWords) -> tuple[list[str], list[tuple[str, list[str], str]]]:
    spec = pb.ContainerSpec()
    put_networks(spec, words)
    return [spec.network, *spec.more_networks], [(each.network, list(each.ips), each.mac) for each in spec.addresses]


@pytest.mark.parametrize(
    ("words", "networks", "addresses"),
    [
        ((), [""], []),
        (("a",), ["a"], []),
        (("a", "b"), ["a", "b"], []),
        (("a,b", "c"), ["a", "b", "c"], []),
        (("container:web",), ["container:web"], []),  # the daemon says what is allowed
        (("a:ip=10.0.0.2,ip6=::2,mac=m", "b"), ["a", "b"], [("a", ["10.0.0.2", "::2"], "m")]),
        (("b", "ip=10.0.0.2,name=a,mac-address=m"), ["b", "a"], [("a", ["10.0.0.2"], "m")]),
    ],
)
def test_the_words_become_networks_and_addresses(
    words: tuple[str, ...], networks: list[str], addresses: list[tuple[str, list[str], str]]
) -> None:
    assert asked(NetworkWords(words)) == (networks, addresses)


def test_an_address_without_a_network_is_the_firsts() -> None:
    assert asked(NetworkWords((), "10.0.0.2", "::2", "m")) == ([""], [("", ["10.0.0.2", "::2"], "m")])


@pytest.mark.parametrize("word", ["", "a,,b", "ip=10.0.0.2", "a:alias=x", "name=a,alias=x", "a:ip=", ":ip=10.0.0.2"])
def test_what_is_not_known_is_refused_with_the_form(word: str) -> None:
    with pytest.raises(BadRequest, match="write NAME, NAME,NAME"):
        asked(NetworkWords((word,)))
