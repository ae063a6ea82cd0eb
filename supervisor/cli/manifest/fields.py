"""Fields of a document: their value, their place, and the notes about them. Pure."""

from collections.abc import Iterator

from shim.frozen import field, frozen, mutable
from supervisor.cli.manifest.marks import Mark, MarkedNumber
from supervisor.cli.manifest.tree import TreeNode, kind_of
from supervisor.model.errors import BadRequest


@mutable
class Notes:
    """What was found while reading a document: mistakes, and warnings about what is done differently."""

    refusals: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def settle(self) -> None:
        """Raise BadRequest if anything was refused, with each mistake on a line."""
        if self.refusals:
            raise BadRequest("\n".join(self.refusals))


class WrongField(Exception):
    """A field cannot be read; the text says where and why."""


@frozen
class Field:
    """One part of a document by its path, as Kubernetes writes it: spec.containers[0].name."""

    file: str
    path: str
    node: TreeNode
    key: Mark | None = None  # the place of its name; by an alias, its value may come from elsewhere

    def __str__(self) -> str:
        mark = self.key or self.node.mark
        return f"{self.file}:{mark.line}:{mark.column}: {self.path}"

    def wrong(self, what: str) -> WrongField:
        return WrongField(f"{self}: {what}" if self.path else f"{str(self).removesuffix(': ')}: {what}")

    def refuse(self, notes: Notes, what: str) -> None:
        notes.refusals.append(str(self.wrong(what)))

    def warn(self, notes: Notes, what: str) -> None:
        notes.warnings.append(str(self.wrong(what)))

    @property
    def is_empty(self) -> bool:
        """Return whether it is as good as absent: null, false, empty, zero."""
        match self.node.value:
            case MarkedNumber(text):
                return text.strip("+-0.") == ""
            case value:
                return not value

    def get(self, *names: str) -> "Field | None":
        """Return the field of that name, and so on inwards; null counts as absent."""
        here: Field | None = self
        for name in names:
            here = here._part(name) if here is not None else None
        return here

    def _part(self, name: str) -> "Field | None":
        node = self._parts().get(name)
        return None if node is None or node.value is None else self._field(name, node)

    def fields(self) -> Iterator[tuple[str, "Field"]]:
        """Yield a mapping's fields in the order of the text, null ones included."""
        for name, node in self._parts().items():
            yield name, self._field(name, node)

    def _parts(self) -> dict[str, TreeNode]:
        if not isinstance(self.node.value, dict):
            raise self.wrong(f"must be a mapping; it is {kind_of(self.node.value)}")
        return self.node.value

    def _field(self, name: str, node: TreeNode) -> "Field":
        plain = name.replace("-", "").replace("_", "").isalnum()
        step = (f".{name}" if self.path else name) if plain else f"[{name!r}]"
        return Field(self.file, f"{self.path}{step}", node, self.node.keys.get(name))

    def items(self) -> tuple["Field", ...]:
        """Return a list's elements."""
        value = self.node.value
        if not isinstance(value, tuple):
            raise self.wrong(f"must be a list; it is {kind_of(value)}")
        return tuple(Field(self.file, f"{self.path}[{index}]", node) for index, node in enumerate(value))

    def text(self) -> str:
        value = self.node.value
        if isinstance(value, str):
            return value
        hint = "; write it in quotes" if isinstance(value, bool | MarkedNumber) else ""
        raise self.wrong(f"must be a text; it is {kind_of(value)}{hint}")

    def boolean(self) -> bool:
        if isinstance(self.node.value, bool):
            return self.node.value
        raise self.wrong(f"must be true or false; it is {kind_of(self.node.value)}")

    def integer(self, least: int = 0, most: int = (1 << 63) - 1) -> int:
        value = self.node.value
        if not isinstance(value, MarkedNumber):
            raise self.wrong(f"must be a whole number; it is {kind_of(value)}")
        digits = value.text.removeprefix("-")
        if not digits.isascii() or not digits.isdigit() or (digits[0] == "0" and digits != "0") or len(digits) > 20:
            raise self.wrong(f"{value.text[:40]} is no whole number in decimal digits")
        if not least <= int(value.text) <= most:
            raise self.wrong(f"{value.text} is not in the range of {least} to {most}")
        return int(value.text)

    def texts(self) -> tuple[str, ...]:
        return tuple(item.text() for item in self.items())

    def pairs(self) -> dict[str, str]:
        """Return labels and the like: every value is a text."""
        return {name: each.text() for name, each in self.fields()}


def text_of(field: Field | None, otherwise: str = "") -> str:
    """Return the text of a field that may be absent."""
    return otherwise if field is None else field.text()


def flag_of(field: Field | None) -> bool:
    """Return a boolean that may be absent, which means false."""
    return field is not None and field.boolean()
