"""Kubernetes' quantities (apimachinery, pkg/api/resource/quantity.go): 500m, 1.5Gi, 2e3. Exact, never a float. Pure."""

import re
from fractions import Fraction

from shim.patterns import LatePattern

MOST = (1 << 63) - 1
MOST_CHARACTERS = 64
MOST_EXPONENT = 40
_QUANTITY = LatePattern(
    r"(?P<number>[-+]?(?:\d+\.?\d*|\.\d+))(?P<suffix>[KMGTPE]i|[numkMGTPE]?|[eE][-+]?\d+)", re.ASCII
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def parse(text: str) -> Fraction:
    """Parse a quantity. Raises ValueError with the reason, for people."""
    match = _QUANTITY.fullmatch(text) if len(text) <= MOST_CHARACTERS else None
    if match is None:
        raise ValueError(f"{text[:MOST_CHARACTERS]!r} is no quantity; write 500m, 1.5, 64Mi or 2e9")
    suffix = match["suffix"]
    if suffix.endswith("i"):
        factor = Fraction(1024 ** (1 + "KMGTPE".index(suffix[0])))
    elif suffix in _DECIMAL:
        factor = Fraction(10) ** _DECIMAL[suffix]
    else:
        exponent = int(suffix[1:])
        if abs(exponent) > MOST_EXPONENT:
            raise ValueError(f"{text!r}: an exponent is at most {MOST_EXPONENT}")
        factor = Fraction(10) ** exponent
    value = Fraction(match["number"]) * factor
    if abs(value) > MOST:
        raise ValueError(f"{text!r} is more than 2^63-1")
    return value
