"""How each way is drawn: a colour of Okabe and Ito's palette and a marker, the same in every plot."""

from collections.abc import Iterable

from shim.frozen import frozen

INK = "#1b1d20"  # the palette's black; on a dark page the light that text has
SKY, ORANGE, BLUE, GREEN = "#56B4E9", "#E69F00", "#0072B2", "#009E73"
VERMILION, PURPLE, YELLOW = "#D55E00", "#CC79A7", "#F0E442"


@frozen
class WayLook:
    colour: str
    marker: str  # as matplotlib names it


_KNOWN = {
    "exitd-runc": WayLook(BLUE, "o"),
    "exitd-crun": WayLook(SKY, "s"),
    "exitd-shimv2": WayLook(PURPLE, "D"),
    "containerd-runc": WayLook(VERMILION, "^"),
    "containerd-exitd": WayLook(GREEN, "v"),
    "podman": WayLook(ORANGE, "P"),
    "conmon": WayLook(INK, "X"),
}
_OTHERS = (WayLook(YELLOW, "*"), *_KNOWN.values())


def looks(ways: Iterable[str]) -> dict[str, WayLook]:
    """Return the look of each way. Known ways have theirs for good; others get what is free, and begin anew when
    nothing is."""
    found: dict[str, WayLook] = {}
    keys = list(ways)
    free = [look for look in _OTHERS if look not in (_KNOWN.get(key) for key in keys)]
    for key in keys:
        found[key] = _KNOWN.get(key) or (free.pop(0) if free else _OTHERS[len(found) % len(_OTHERS)])
    return found
