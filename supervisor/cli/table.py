"""Columns for people: left-aligned, at least two spaces apart, without trailing spaces."""

from collections.abc import Iterable, Sequence

GAP = "   "


def columns(rows: Iterable[Sequence[str]]) -> str:
    """Return the rows as lines, each with a newline; the first row usually has the headings. Control characters become
    `?`, so that a container's name or command cannot control the terminal."""
    clean = [[_printable(cell) for cell in row] for row in rows]
    widths: list[int] = []
    for row in clean:
        widths += [0] * (len(row) - len(widths))
        for index, cell in enumerate(row):
            widths[index] = max(widths[index], len(cell))
    lines = (GAP.join(cell.ljust(widths[index]) for index, cell in enumerate(row)).rstrip() for row in clean)
    return "".join(f"{line}\n" for line in lines)


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)
