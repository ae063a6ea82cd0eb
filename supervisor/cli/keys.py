"""The keys that detach: docker's names for them, and finding them in typed input, in portions of any size."""

import string

from supervisor.model.errors import BadRequest

DEFAULT = "ctrl-p,ctrl-q"
CONTROL = "@" + string.ascii_lowercase + "[\\]^_"  # ctrl- with one of these is its index here: 0 to 31


def parse(text: str) -> bytes:
    """Return b"\x10\x11" for `ctrl-p,ctrl-q`; a single character is itself, the empty text no keys. Raises
    BadRequest."""
    return b"".join(_key(word) for word in text.split(",")) if text else b""


def _key(word: str) -> bytes:
    if len(word) == 1 and word.isascii() and word.isprintable():
        return word.encode()
    head, dash, letter = word[:4].lower(), word[4:5], word[5:].lower()
    if head == "ctrl" and dash == "-" and len(letter) == 1 and letter in CONTROL:
        return bytes([CONTROL.index(letter)])
    raise BadRequest(
        f"{word!r} is no detach key: write single characters and ctrl-a to ctrl-z, ctrl-@, ctrl-[, ctrl-\\, ctrl-], "
        "ctrl-^ or ctrl-_, with commas between, as in ctrl-p,ctrl-q; an empty text for none"
    )


class Matcher:
    """Passes bytes on until the sequence has come. A possible beginning of it is kept until that is certain."""

    def __init__(self, sequence: bytes) -> None:
        self._sequence = sequence
        self._kept = b""

    def feed(self, portion: bytes) -> tuple[bytes, bool]:
        """Return (what to pass on, whether the sequence has come). Do not call it again after that."""
        text = self._kept + portion
        if not self._sequence:
            return text, False
        at = text.find(self._sequence)
        if at >= 0:
            self._kept = b""
            return text[:at], True
        keep = self._beginning(text)
        self._kept = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def rest(self) -> bytes:
        """Return what was kept, when nothing more will come."""
        kept, self._kept = self._kept, b""
        return kept

    def _beginning(self, text: bytes) -> int:
        """Return how many of the last bytes may be the beginning of the sequence."""
        longest = min(len(text), len(self._sequence) - 1)
        return next(n for n in range(longest, -1, -1) if text.endswith(self._sequence[:n]))
