"""The events of a JSON or YAML reader: starts, ends and scalars, each with its place."""

from shim.frozen import frozen


@frozen
class Mark:
    """A place in a text, both numbers from 1."""

    line: int
    column: int


@frozen
class MarkedNumber:
    """A number as it was written: its consumer decides its exact value."""

    text: str


Value = str | MarkedNumber | bool | None


@frozen
class Start:
    """A mapping or a list begins. `merges`: its key << means YAML's merge."""

    mark: Mark
    is_map: bool
    anchor: str = ""
    merges: bool = False


@frozen
class End:
    """The innermost mapping or list ends."""


@frozen
class Alias:
    """A reference to an earlier part of a YAML document."""

    mark: Mark
    anchor: str


@frozen
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
