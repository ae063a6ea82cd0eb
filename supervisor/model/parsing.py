"""Signals and sizes as people write them. Source: signal(7)."""

import re
import signal

MAX_SIGNAL = 64
RTMIN = 34  # as glibc and the container runtimes count: the two below belong to the threading library
_EXTRA = {"STKFLT": 16, "IOT": 6, "CLD": 17, "POLL": 29}  # names of Linux that not every Python knows
_REALTIME = re.compile(r"RT(MIN|MAX)(?:([+-])(\d{1,2}))?")


def number_of(text: str) -> int | None:
    """1 to 64 from SIGTERM, TERM, 15, RTMIN+3 or SIGRTMAX-1, in any case of letters. None: no such signal."""
    if not text.isascii():  # upper() makes an S of the long s
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
    """0 for what lies outside of the real-time signals."""
    number = (RTMIN if base == "MIN" else MAX_SIGNAL) + (step if sign == "+" else -step)
    return number if RTMIN <= number <= MAX_SIGNAL else 0


def name_of(number: int) -> str:
    """SIGTERM, SIGRTMIN+3; the bare number where there is no name. `number_of` takes it back."""
    if RTMIN <= number <= MAX_SIGNAL:
        return f"SIGRTMIN+{number - RTMIN}"
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(b|[kmgt](?:i?b)?)?", re.IGNORECASE)


def parse(text: str) -> int:
    """`64m` → 67108864. The units are docker's: b, k, m, g, t, powers of 1024, `mb` and `mib` meaning the same. Raises
    ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no size: write a number and b, k, m, g or t, as in 64m")
    unit = (match[2] or "b")[0].lower()
    return int(float(match[1]) * 1024 ** "bkmgt".index(unit))
