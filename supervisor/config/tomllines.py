"""TOML with line numbers: what a text says, and on which line. Pure.

tomllib gives no line numbers. A statement of TOML (a header, or a key with its value) is complete as soon as tomllib
accepts it alone, so tomllib itself is used to find the statements. https://toml.io/en/v1.0.0
"""

import tomllib
from collections.abc import Iterator
from typing import cast

from shim.frozen import frozen
from shim.patterns import LatePattern

Path = tuple[str, ...]  # from the outermost table inwards
Table = dict[str, object]

_CLOSING = ("]", "}", '"""', "'''")  # the last line of a statement with several lines has one of them
_POSITION = LatePattern(r" \(at (?:line (\d+), column \d+|end of document)\)$")


class NotToml(ValueError):
    """The text is not TOML from this line on; lines count from 1."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.line = line


@frozen
class Document:
    """`lines`: the first line that mentions each table and each key."""

    values: Table
    lines: dict[Path, int]


def parse(data: bytes) -> Document:
    """Raises NotToml."""
    text = _decoded(data).replace("\r\n", "\n")
    try:
        values = cast(Table, tomllib.loads(text)) if text else {}  # without a file tomllib is not loaded
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(error, text) from error
    except (ValueError, RecursionError) as error:  # a number beyond Python's limit; too deeply nested lists
        raise NotToml(str(error), _line_that_fails(text)) from error
    return Document(values, _lines(text))


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise NotToml("not UTF-8", data.count(b"\n", 0, error.start) + 1) from error


def _not_toml(error: "tomllib.TOMLDecodeError", text: str) -> NotToml:
    """Return the error with its line. Up to Python 3.13 the position is only in tomllib's message; without one, the end
    of the text is meant."""
    words = str(error)
    found = _POSITION.search(words)
    line = int(found[1]) if found and found[1] else text.rstrip("\n").count("\n") + 1
    return NotToml(words[: found.start()] if found else words, line)


def _line_that_fails(text: str) -> int:
    last = 0
    try:
        for line, length, _ in _statements(text):
            last = line + length - 1
    except (ValueError, RecursionError):
        return last + 1
    return 1


def _lines(text: str) -> dict[Path, int]:
    lines: dict[Path, int] = {}
    table: Path = ()
    starts = text.split("\n")
    for line, _, values in _statements(text):
        is_header = starts[line - 1].lstrip(" \t").startswith("[")
        paths = list(_paths(values, () if is_header else table))
        if is_header:
            table = paths[-1]
        for path in paths:
            lines.setdefault(path, line)
    return lines


def _statements(text: str) -> Iterator[tuple[int, int, Table]]:
    """Yield the first line of each statement, its number of lines, and its content. The text must be TOML."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        end = at + 1
        while (values := _alone("\n".join(lines[at:end]), is_last=end == len(lines))) is None:
            end += 1
            while end < len(lines) and not any(mark in lines[end - 1] for mark in _CLOSING):
                end += 1
        yield at + 1, end - at, values
        at = end


def _alone(statement: str, *, is_last: bool) -> Table | None:
    """Return None if the statement is not complete yet."""
    try:
        return cast(Table, tomllib.loads(statement))
    except tomllib.TOMLDecodeError:
        if is_last:
            raise
        return None


def _paths(table: Table, above: Path) -> Iterator[Path]:
    """Yield every path in the table, tables before their contents. Of a list only the list itself."""
    for name, value in table.items():
        yield (*above, name)
        if isinstance(value, dict):
            yield from _paths(cast(Table, value), (*above, name))
