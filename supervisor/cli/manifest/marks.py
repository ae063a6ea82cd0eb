"""The events of a JSON or YAML reader: starts, ends and scalars, each with its place."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a text, both numbers from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class MarkedNumber:
    """A number as it was written: its consumer decides its exact value."""

    text: str


Value = str | MarkedNumber | bool | None


@dataclass(frozen=True, slots=True)
class Start:
    """A mapping or a list begins. `merges`: its key << means YAML's merge."""

    mark: Mark
    is_map: bool
    anchor: str = ""
    merges: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """The innermost mapping or list ends."""


@dataclass(frozen=True, slots=True)
class Alias:
    """A reference to an earlier part of a YAML document."""

    mark: Mark
    anchor: str


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text, number, boolean or null."""

    mark: Mark
    value: Value
    anchor: str = ""


Event = Start | End | Alias | Scalar


class BadText(Exception):
    """The text is invalid at that place."""

    def __init__(self, mark: Mark, what: str) -> None:
        super().__init__(what)
        self.mark = mark
        self.what = what
