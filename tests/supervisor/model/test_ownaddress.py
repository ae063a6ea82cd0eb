"""The address of a run in place of its mark."""

from supervisor.model.networks import Attached
from supervisor.model.ownaddress import with_address
from supervisor.model.secrets import SecretWords, mounted_file
from supervisor.model.values import Mount, Spec

MARK = "pod-address-0123456789"
SPEC = Spec(
    "web",
    args=("serve", f"--at={MARK}:80", "shown"),
    env=(f"ME={MARK}", f"BOTH={MARK},{MARK}", "OTHER=pod-address"),
    secrets=SecretWords((f"URL=http://:s@{MARK}",), (("shown", f"s@{MARK}"),)),
    mounts=(Mount("", "/f", files=(mounted_file("a", b"\xff" + MARK.encode(), 0o600), mounted_file("b", b"x"))),),
    address_mark=MARK,
)


def test_the_first_address_is_put_wherever_the_mark_stands() -> None:
    made = with_address(SPEC, (Attached("n", "eth0", addresses=("10.0.0.7/16", "fd00::7/64")), Attached("m", "eth1")))
    assert made.args == ("serve", "--at=10.0.0.7:80", "shown")
    assert made.env == ("ME=10.0.0.7", "BOTH=10.0.0.7,10.0.0.7", "OTHER=pod-address")
    assert made.secrets == SecretWords(("URL=http://:s@10.0.0.7",), (("shown", "s@10.0.0.7"),))
    assert [(each.data, each.mode) for each in made.mounts[0].files] == [(b"\xff10.0.0.7", 0o600), (b"x", 0o644)]


def test_without_a_network_it_is_the_loopbacks_and_without_a_mark_nothing_changes() -> None:
    assert with_address(SPEC, ()).env[0] == "ME=127.0.0.1"
    plain = Spec("web", env=(f"ME={MARK}",))
    assert with_address(plain, ()) is plain
