"""Words and figures as a person reads them, also where another program has written the words."""

import unicodedata
from collections.abc import Callable, Iterable, Sequence

Unit = Callable[[float], str]
_UNSEEN = {"Cc", "Cf", "Cs"}  # would steer a terminal, turn the line round, or be no text at all
_BLANK = set("\t\n\r\v\f\u2028\u2029")


def clean(text: str) -> str:
    """Return one line, without anything that a terminal or a page would obey instead of show."""
    return "".join(" " if each in _BLANK else "\N{REPLACEMENT CHARACTER}" if _unseen(each) else each for each in text)


def _unseen(each: str) -> bool:
    return unicodedata.category(each) in _UNSEEN or ord(each) & 0xFFFE == 0xFFFE


def short(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "\N{HORIZONTAL ELLIPSIS}"


def number(value: float) -> str:
    """Return two or three digits that count; whole numbers whole."""
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}" if size < 1e9 else f"{value:.3g}"
    return f"{value:.1f}" if size >= 1 else f"{value:.2g}" if size < 0.1 else f"{value:.2f}"


def milliseconds(value: float) -> str:
    return f"{number(value)} ms" if abs(value) < 1000 else f"{number(value / 1000)} s"


def kilobytes(value: float) -> str:
    for unit, size in (("GB", 1e6), ("MB", 1e3)):
        if abs(value) >= size:
            return f"{number(value / size)} {unit}"
    return f"{number(value)} kB"


def aligned(rows: Iterable[Sequence[str]], left: int) -> list[str]:
    """Return lines of columns as wide as they must be: the first `left` at the left, the others at the right."""
    found = list(rows)
    widths = [max(map(len, column)) for column in zip(*found, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in found
    ]


def several(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
