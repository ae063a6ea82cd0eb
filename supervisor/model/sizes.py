"""Sizes as people write them."""

import re

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(b|[kmgt](?:i?b)?)?", re.IGNORECASE)


def parse(text: str) -> int:
    """`64m` → 67108864. The units are docker's: b, k, m, g, t, powers of 1024, `mb` and `mib` meaning the same. Raises
    ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no size: write a number and b, k, m, g or t, as in 64m")
    unit = (match[2] or "b")[0].lower()
    return int(float(match[1]) * 1024 ** "bkmgt".index(unit))
