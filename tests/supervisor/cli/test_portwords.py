"""-p, -P and --expose as docker writes them."""

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import portwords
from supervisor.cli.portwords import PortWords
from supervisor.model.errors import BadRequest

Mapping = tuple[str, int, int, str]  # address, the machine's port, the container's, protocol


@pytest.mark.parametrize(
    ("word", "mappings"),
    [
        ("80", [("", 0, 80, "tcp")]),
        ("80/udp", [("", 0, 80, "udp")]),
        ("8080:80", [("", 8080, 80, "tcp")]),
        ("8080:80/SCTP", [("", 8080, 80, "sctp")]),
        ("127.0.0.1:8080:80", [("127.0.0.1", 8080, 80, "tcp")]),
        ("127.0.0.1::80", [("127.0.0.1", 0, 80, "tcp")]),
        ("[::1]:8080:80", [("::1", 8080, 80, "tcp")]),
        ("[::1]::80", [("::1", 0, 80, "tcp")]),
        ("7000-7001:8000-8001/udp", [("", 7000, 8000, "udp"), ("", 7001, 8001, "udp")]),
        ("8000-8001", [("", 0, 8000, "tcp"), ("", 0, 8001, "tcp")]),
    ],
)
def test_a_word_is_one_mapping_or_a_range_of_them(word: str, mappings: list[Mapping]) -> None:
    found = portwords.ports([word])
    assert [(each.host_ip, each.host_port, each.container_port, each.protocol) for each in found] == mappings


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("", "no port"),
        ("0", "no port"),
        ("65536:80", "no port"),
        ("http", "no port"),
        ("\u0661", "no port"),
        ("80/icmp", "the protocol is"),
        ("80/", "the protocol is"),
        ("here:8080:80", "no address"),
        ("[::1:8080:80", "write"),
        ("[::1]8080:80", "write"),
        ("1-2:1-3", "different lengths"),
        ("9000-9010:80", "name one port"),
        ("2-1:2-1", "ends before it begins"),
        ("1-:1", "no port"),
    ],
)
def test_what_is_none_is_refused_with_the_form(word: str, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        portwords.ports([word])


def test_exposed_ports_are_words_of_one_port_each() -> None:
    assert portwords.expose_spec(PortWords()) is None
    found = portwords.expose_spec(PortWords((), True, ("53/udp", "80-81")))
    assert found == pb.ExposeSpec(publish_all=True, ports=["53/udp", "80", "81"])
    with pytest.raises(BadRequest, match="no port"):
        portwords.expose_spec(PortWords(expose=("x",)))


def test_ports_are_shown_as_docker_shows_them() -> None:
    ports = portwords.ports(["8080:80", "[::1]:53:53/udp"])
    assert portwords.column(ports) == "0.0.0.0:8080->80/tcp, [::1]:53->53/udp"
    assert portwords.by_port(ports) == {
        "80/tcp": [{"HostIp": "0.0.0.0", "HostPort": "8080"}],
        "53/udp": [{"HostIp": "::1", "HostPort": "53"}],
    }
