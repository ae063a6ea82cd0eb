"""Which capabilities a container has, by what was asked for."""

import pytest

from supervisor.model.rights import DEFAULT, NAMES, Rights, capabilities, capability


@pytest.mark.parametrize("word", ["NET_ADMIN", "CAP_NET_ADMIN", "net_admin", "cap_net_admin", "Cap_Net_Admin"])
def test_a_capability_may_be_written_in_any_way(word: str) -> None:
    assert capability(word) == "CAP_NET_ADMIN"


@pytest.mark.parametrize("word", ["", "CAP_", "ROOT", "CAP_CAP_CHOWN", "CAP_ALL", "SYS ADMIN"])
def test_what_the_kernel_does_not_know_is_none(word: str) -> None:
    assert capability(word) is None
    assert capability("all") == "ALL"


ADDED, DROPPED = ("CAP_SYS_ADMIN",), ("CAP_MKNOD",)


@pytest.mark.parametrize(
    ("rights", "expected"),
    [
        (Rights(), {*DEFAULT}),
        (Rights(cap_add=ADDED), {*DEFAULT, *ADDED}),
        (Rights(cap_drop=DROPPED), {*DEFAULT} - {*DROPPED}),
        (Rights(cap_add=DROPPED, cap_drop=DROPPED), {*DEFAULT}),
        (Rights(cap_drop=("ALL",)), set()),
        (Rights(cap_add=ADDED, cap_drop=("ALL",)), {*ADDED}),
        (Rights(cap_add=("ALL",)), {*NAMES}),
        (Rights(cap_add=("ALL",), cap_drop=DROPPED), {*NAMES} - {*DROPPED}),
        (Rights(cap_add=("ALL",), cap_drop=("ALL",)), {*NAMES}),
        (Rights(privileged=True, cap_drop=("ALL",)), {*NAMES}),
    ],
)
def test_what_is_added_and_dropped_begins_with_dockers_default_set(rights: Rights, expected: set[str]) -> None:
    found = capabilities(rights)
    assert ({*found}, list(found)) == (expected, sorted(expected))


def test_all_are_those_that_the_daemon_has() -> None:
    assert capabilities(Rights(privileged=True), ("CAP_KILL", "CAP_CHOWN")) == ("CAP_CHOWN", "CAP_KILL")
    assert capabilities(Rights(cap_add=("ALL", "CAP_BPF")), ("CAP_KILL",)) == ("CAP_BPF", "CAP_KILL")


def test_the_names_stand_at_their_numbers() -> None:
    """include/uapi/linux/capability.h."""
    numbers = {"CHOWN": 0, "KILL": 5, "NET_ADMIN": 12, "SYS_ADMIN": 21, "SETFCAP": 31, "CHECKPOINT_RESTORE": 40}
    assert {name: NAMES.index(f"CAP_{name}") for name in numbers} == numbers
    assert len(NAMES) == 41
