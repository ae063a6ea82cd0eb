"""Ports of the machine: which are chosen, and which a program has."""

import socket
import sys

import pytest

from supervisor.model.networks import PublishedPort, TakenPorts
from supervisor.network import hostports

TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 22 1 0000 100 0 0 10 0
   1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 23 1 0000 100 0 0 10 0
   2: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 24 1 0000 100 0 0 10 0
"""
TABLE_6 = """  sl  local_address                         remote_address                        st tx_queue rx_queue
   0: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 0
   1: 0000000000000000FFFF00000100007F:0051 00000000000000000000000000000000:0000 0A 00000000:00000000 0
"""


@pytest.mark.skipif(sys.byteorder != "little", reason="the tables are of such a machine")
def test_of_the_kernels_tables_what_listens_counts() -> None:
    assert list(hostports.listening(TABLE)) == [(8080, "127.0.0.1"), (22, "0.0.0.0")]
    assert list(hostports.listening(TABLE_6)) == [(80, "::1"), (81, "127.0.0.1")]


@pytest.mark.parametrize(
    ("local", "chosen"),
    [
        ((32768, 60999), (61000, 65535)),
        ((32768, 64511), (64512, 65535)),
        ((32768, 65535), (20000, 32767)),
        ((1024, 65535), hostports.DYNAMIC),
    ],
)
def test_ports_are_chosen_outside_of_those_of_outgoing_connections_where_there_are_enough(
    local: tuple[int, int], chosen: tuple[int, int]
) -> None:
    assert hostports.outside(*local) == chosen


def test_each_port_is_offered_once() -> None:
    found = list(hostports.numbers())
    assert len(found) == len(set(found)) == max(found) - min(found) + 1 >= hostports.FEWEST


def test_a_port_is_chosen_that_no_container_has_and_no_program() -> None:
    with socket.create_server(("127.0.0.1", 0)) as line:
        listened = line.getsockname()[1]
        numbers = iter([listened, 7, 9])
        taken = TakenPorts([PublishedPort(80, 7, "tcp", "127.0.0.1")])
        assert hostports.choose(PublishedPort(80, 0, "tcp", "127.0.0.1"), taken, numbers).host_port == 9


@pytest.mark.parametrize(
    ("host_ip", "at", "is_listened_at"),
    [
        ("", {"127.0.0.1"}, True),
        ("0.0.0.0", {"::1"}, True),
        ("127.0.0.1", {"127.0.0.1"}, True),
        ("127.0.0.1", {"::"}, True),
        ("127.0.0.1", {"192.0.2.1"}, False),
        ("", set(), False),
    ],
)
def test_a_listener_at_the_same_address_or_at_all_takes_the_connections(
    host_ip: str, at: set[str], is_listened_at: bool
) -> None:
    listeners = {8080: at, 8081: {"0.0.0.0"}}
    assert hostports.is_listened_at(PublishedPort(80, 8080, "tcp", host_ip), listeners) is is_listened_at


def test_a_port_of_an_outgoing_connection_is_free_and_one_that_is_listened_at_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as line, socket.create_connection(line.getsockname()) as outgoing:
        listened, used = line.getsockname()[1], outgoing.getsockname()[1]
        ports = [PublishedPort(80, used, "tcp", "127.0.0.1"), PublishedPort(81, listened, "tcp", "127.0.0.1")]
        with socket.socket() as other, pytest.raises(OSError):
            other.bind(("127.0.0.1", used))
        assert hostports.first_taken(ports[:1]) is None
        assert hostports.first_taken(ports) == ports[1]
