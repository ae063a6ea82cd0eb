"""A way looks the same wherever it is drawn, and unlike every other as long as there are looks left."""

from supervisor.compare.looks import looks

KNOWN = ("exitd-runc", "exitd-crun", "exitd-shimv2", "containerd-runc", "containerd-exitd", "podman", "conmon")


def test_a_known_way_looks_the_same_whoever_takes_part() -> None:
    whole = looks(KNOWN)
    for key in KNOWN:
        assert looks(["unheard of", key])[key] == whole[key] == looks([key])[key]


def test_no_two_ways_share_a_colour_or_a_marker() -> None:
    found = looks(("other", *KNOWN)).values()
    assert len({look.colour for look in found}) == len({look.marker for look in found}) == 8


def test_more_ways_than_looks_are_drawn_all_the_same() -> None:
    assert len(looks(str(at) for at in range(20))) == 20
