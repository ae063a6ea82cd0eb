"""Signals and sizes as people write them. Source: signal(7)."""

import re
import signal

from shim.patterns import LatePattern

MAX_SIGNAL = 64
RTMIN = 34  # as glibc and the container runtimes count: the threading library uses the two below
_EXTRA = {"STKFLT": 16, "IOT": 6, "CLD": 17, "POLL": 29}  # Linux names that some versions of Python lack
_REALTIME = LatePattern(r"RT(MIN|MAX)(?:([+-])(\d{1,2}))?")


def number_of(text: str) -> int | None:
    """Return the number, 1 to 64, of SIGTERM, TERM, 15, RTMIN+3 or SIGRTMAX-1, in upper or lower case; None if there is
    none."""
    if not text.isascii():  # upper() would turn the long s into S
        return None
    word = text.upper().removeprefix("SIG")
    if text.isdigit() and len(text) <= 2:
        number = int(text)
    elif match := _REALTIME.fullmatch(word):
        number = _realtime(match[1], match[2] or "+", int(match[3] or 0))
    else:
        number = int(signal.Signals.__members__.get(f"SIG{word}", _EXTRA.get(word, 0)))
    return number if 1 <= number <= MAX_SIGNAL else None


def _realtime(base: str, sign: str, step: int) -> int:
    """Return the number, or 0 outside of the real-time signals."""
    number = (RTMIN if base == "MIN" else MAX_SIGNAL) + (step if sign == "+" else -step)
    return number if RTMIN <= number <= MAX_SIGNAL else 0


def name_of(number: int) -> str:
    """Return SIGTERM or SIGRTMIN+3, or the number if it has no name. `number_of` reads the result."""
    if RTMIN <= number <= MAX_SIGNAL:
        return f"SIGRTMIN+{number - RTMIN}"
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


_SIZE = LatePattern(r"(\d+(?:\.\d+)?)\s*(b|[kmgt](?:i?b)?)?", re.IGNORECASE)


def parse(text: str) -> int:
    """Return the bytes of a size such as `64m` (67108864). The units are docker's: b, k, m, g, t, powers of 1024; `mb`
    and `mib` mean the same as `m`. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no size: write a number and b, k, m, g or t, as in 64m")
    unit = (match[2] or "b")[0].lower()
    found = float(match[1]) * 1024 ** "bkmgt".index(unit)
    if found >= 2**63:
        raise ValueError(f"{text!r} is a larger size than the kernel has numbers for")
    return int(found)
