"""TOML with its lines: what a text says, and in which line it says it. Pure.

tomllib tells no lines. A statement of TOML (a header, a key with its value) is whole as soon as tomllib takes it alone,
so it is tomllib itself that finds where the statements are. https://toml.io/en/v1.0.0
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

Path = tuple[str, ...]  # from the outermost table inwards
Table = dict[str, object]

_CLOSING = ("]", "}", '"""', "'''")  # one of them is in the last line of whatever has several lines
_POSITION = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


class NotToml(ValueError):
    """The text is not TOML from this line on; lines count from 1."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.line = line


@dataclass(frozen=True, slots=True)
class Document:
    """`lines`: where each table and each key is mentioned first."""

    values: Table
    lines: dict[Path, int]


def parse(data: bytes) -> Document:
    """Raises NotToml."""
    text = _decoded(data).replace("\r\n", "\n")
    try:
        values = cast(Table, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(error, text) from error
    except (ValueError, RecursionError) as error:  # a number beyond Python's limit; lists in lists in lists
        raise NotToml(str(error), _line_that_fails(text)) from error
    return Document(values, _lines(text))


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise NotToml("not UTF-8", data.count(b"\n", 0, error.start) + 1) from error


def _not_toml(error: tomllib.TOMLDecodeError, text: str) -> NotToml:
    """Up to Python 3.13 the position is in tomllib's words alone; where it is not, the end of the text is meant."""
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
    """The line each begins in, how many lines it has, and what it says by itself; for a text that is TOML."""
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
    """None for one that is not whole yet."""
    try:
        return cast(Table, tomllib.loads(statement))
    except tomllib.TOMLDecodeError:
        if is_last:
            raise
        return None


def _paths(table: Table, above: Path) -> Iterator[Path]:
    """Everything in it, tables before what is in them. Of a list only the list itself."""
    for name, value in table.items():
        yield (*above, name)
        if isinstance(value, dict):
            yield from _paths(cast(Table, value), (*above, name))
