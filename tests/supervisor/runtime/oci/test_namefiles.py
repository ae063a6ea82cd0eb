"""The texts of /etc/hosts, /etc/hostname and /etc/resolv.conf."""

from supervisor.model.networks import Attached
from supervisor.model.resolver import Resolver
from supervisor.runtime.oci.namefiles import PLACES, texts

MACHINES = {
    "hosts": "127.0.0.1 localhost\n192.0.2.1 machine",
    "hostname": "machine\n",
    "resolv.conf": "# by hand\nnameserver 127.0.0.53\nnameserver 192.0.2.53\ndomain example.org\noptions edns0\n",
}
ASKED = Resolver(("192.0.2.9", "2001:db8::9"), ("a.example", "b.example"), ("ndots:2",), (("db", "192.0.2.7"),))


def test_a_network_of_its_own_has_its_own_name_and_no_server_that_it_cannot_reach() -> None:
    made = texts(Resolver(), "box", MACHINES, of_host=False)
    assert {*made} == {*PLACES}
    assert made["hostname"] == "box\n"
    lines = made["hosts"].splitlines()
    assert (lines[0], lines[-1]) == ("127.0.0.1\tlocalhost", "127.0.0.1\tbox")
    assert "machine" not in made["hosts"]
    assert made["resolv.conf"] == "# by hand\nnameserver 192.0.2.53\ndomain example.org\noptions edns0\n"


def test_in_a_network_its_name_is_at_its_addresses_and_its_servers_count_unless_others_were_asked_for() -> None:
    own = Attached("pods", "eth0", "", ("10.88.0.2/16", "fd00::2/64"), (), ("10.88.0.1",), ("lan",), ())
    made = texts(Resolver(), "box", MACHINES, of_host=False, attached=[own])
    assert made["hosts"].endswith("10.88.0.2\tbox\nfd00::2\tbox\n") and "127.0.0.1\tbox" not in made["hosts"]
    assert made["resolv.conf"] == "# by hand\noptions edns0\nnameserver 10.88.0.1\nsearch lan\n"
    asked = texts(Resolver(("192.0.2.9",)), "box", MACHINES, of_host=False, attached=[own])["resolv.conf"]
    assert "nameserver 192.0.2.9\n" in asked and "10.88.0.1" not in asked


def test_with_the_machines_network_they_are_the_machines() -> None:
    made = texts(Resolver(), "box", MACHINES, of_host=True)
    assert made["hosts"] == "127.0.0.1 localhost\n192.0.2.1 machine\n"
    assert made["resolv.conf"] == MACHINES["resolv.conf"]


def test_what_was_asked_for_takes_the_place_of_the_machines_lines() -> None:
    for of_host in (False, True):
        made = texts(ASKED, "box", MACHINES, of_host=of_host)
        assert made["resolv.conf"] == (
            "# by hand\nnameserver 192.0.2.9\nnameserver 2001:db8::9\nsearch a.example b.example\noptions ndots:2\n"
        )
        assert made["hosts"].endswith("192.0.2.7\tdb\n")


def test_a_machine_without_such_files_gives_none_of_their_lines() -> None:
    made = texts(Resolver(), "box", dict.fromkeys(PLACES, ""), of_host=True)
    assert (made["hosts"], made["resolv.conf"]) == ("", "")
