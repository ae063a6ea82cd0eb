"""The grammar of everything two processes share: a kind and a version, then key=value fields, each ended by NUL.

The C twin is core/fields.c; tests hold the two against each other.
"""

from collections.abc import Iterable

from shim.frozen import frozen
from shim.patterns import LatePattern

END = b"end\0"
NUMBER_MAX = 2**64 - 1
VERSION = LatePattern(r"[1-9][0-9]{0,4}")


class BadMessage(ValueError):
    """Not a complete message of the expected kind."""


@frozen
class Message:
    """One message; a key may stand more than once (a command's words)."""

    kind: str
    version: int
    pairs: tuple[tuple[str, str], ...]

    def get(self, key: str, default: str = "") -> str:
        for name, value in self.pairs:
            if name == key:
                return value
        return default

    def number(self, key: str) -> int:
        """The decimal value of `key`; BadMessage when it is missing or no number."""
        text = self.get(key)
        digits = text.lstrip("0")
        # Nobody writes more than 20 digits, and int() itself gives up on thousands of them.
        if text.isascii() and text.isdigit() and len(digits) <= 20 and (number := int(digits or "0")) <= NUMBER_MAX:
            return number
        raise BadMessage(f"{self.kind}: field {key!r} is {text[:40]!r}, expected digits")


def encode(kind: str, pairs: Iterable[tuple[str, str | int]], version: int = 1) -> bytes:
    """Message bytes. ValueError for a NUL in a value: the grammar has no escape for it."""
    parts = [f"{kind} {version}", *[f"{key}={value}" for key, value in pairs]]
    text = "\0".join(parts)
    if text.count("\0") >= len(parts):
        wrong = next(part for part in parts if "\0" in part)
        raise ValueError(f"NUL byte in {wrong.split('=', 1)[0]!r}")
    return text.encode("utf-8", "surrogateescape") + b"\0" + END


def decode(data: bytes, kind: str = "") -> Message:
    """The message in `data`, of `kind` if one is given; BadMessage for anything cut short or malformed."""
    if not data.endswith(b"\0" + END):
        raise BadMessage(f"incomplete {kind or 'message'} of {len(data)} bytes")
    head, *fields = data[: -len(END) - 1].decode("utf-8", "surrogateescape").split("\0")
    name, _, version = head.rpartition(" ")
    if not name or not VERSION.fullmatch(version) or (kind and name != kind):
        raise BadMessage(f"expected {kind or 'a message'}, got {head[:40]!r}")
    pairs = []
    for field in fields:
        key, separator, value = field.partition("=")
        if not separator or not key:
            raise BadMessage(f"{name}: a field without a key or '='")
        pairs.append((key, value))
    return Message(name, int(version), (*pairs,))
