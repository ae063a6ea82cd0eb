"""Read JSON (RFC 8259) as events with their places. Pure.

The standard library's reader gives values without places, and floats for numbers, which here stay exact; the YAML
reader refuses tabs and surrogate pairs, which are JSON, and takes what is not. Strings are read by the standard
library.
"""

import re
from collections.abc import Iterator
from json import JSONDecodeError, JSONDecoder

from shim.patterns import LatePattern
from supervisor.cli.manifest.marks import BadText, End, Event, Mark, MarkedNumber, Scalar, Start

_SPACE = LatePattern(r"[ \t\n\r]*")
_NUMBER = LatePattern(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
_DECODER = JSONDecoder()
_WORDS = {"true": True, "false": False, "null": None}
_WORD = LatePattern(r"[A-Za-z_]\w*")


def events(text: str) -> Iterator[Event]:
    """Yield the events of a text. Raises BadText when it is not JSON."""
    return _JsonReader(text).events()


class _JsonReader:
    """Reads from position `_at`; `_ends` are the closing brackets still expected, innermost last."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._counted = 0  # lines are counted up to here
        self._line = 1
        self._line_start = 0
        self._ends: list[str] = []

    def events(self) -> Iterator[Event]:
        yield from self._value()
        while self._ends:
            yield from self._next()
        if self._peek():
            raise BadText(self._mark(), "no JSON: something follows after the end")

    def _next(self) -> Iterator[Event]:
        """After a value in a mapping or list: its end, or a comma and the next entry."""
        end = self._ends[-1]
        char = self._peek()
        if char == end:
            self._at += 1
            self._ends.pop()
            yield End()
        elif char == ",":
            comma = self._mark()
            self._at += 1
            if self._peek() == end:
                raise BadText(comma, f"no JSON: a comma before the closing {end}")
            yield from self._entry()
        else:
            raise BadText(self._mark(), f"no JSON: a comma or the closing {end} is missing")

    def _entry(self) -> Iterator[Event]:
        """Read `"key": value` in a mapping, or a value in a list."""
        if self._ends[-1] == "}":
            if self._peek() != '"':
                raise BadText(self._mark(), "no JSON: a key in double quotes is missing")
            yield self._string()
            if self._peek() != ":":
                raise BadText(self._mark(), "no JSON: a colon after the key is missing")
            self._at += 1
        yield from self._value()

    def _value(self) -> Iterator[Event]:
        char, mark = self._peek(), self._mark()
        if char in ("{", "["):
            self._at += 1
            end = "}" if char == "{" else "]"
            self._ends.append(end)
            yield Start(mark, char == "{")
            if self._peek() == end:
                self._at += 1
                self._ends.pop()
                yield End()
            else:
                yield from self._entry()
        elif char == '"':
            yield self._string()
        else:
            yield self._plain(mark)

    def _plain(self, mark: Mark) -> Scalar:
        if number := _NUMBER.match(self._text, self._at):
            self._at = number.end()
            return Scalar(mark, MarkedNumber(number[0]))
        word = _WORD.match(self._text, self._at)
        if word and word[0] in _WORDS:
            self._at = word.end()
            return Scalar(mark, _WORDS[word[0]])
        if not self._peek():
            raise BadText(mark, "no JSON: the text ends too early")
        raise BadText(mark, "no JSON: a value is missing")

    def _string(self) -> Scalar:
        mark = self._mark()
        try:
            value, self._at = _DECODER.raw_decode(self._text, self._at)
        except JSONDecodeError as error:
            what = error.msg.removesuffix(" at")
            raise BadText(Mark(error.lineno, error.colno), f"no JSON: {what}") from error
        return Scalar(mark, value)

    def _peek(self) -> str:
        """Return the next character that is not white space; empty at the end."""
        match = _SPACE.match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        return self._text[self._at : self._at + 1]

    def _mark(self) -> Mark:
        """Return the place of the next character."""
        self._line += self._text.count("\n", self._counted, self._at)
        newline = self._text.rfind("\n", self._counted, self._at)
        self._line_start = newline + 1 if newline >= 0 else self._line_start
        self._counted = self._at
        return Mark(self._line, self._at - self._line_start + 1)
