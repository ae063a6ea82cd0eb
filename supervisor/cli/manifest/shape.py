"""What a document may contain, as values: each field is read, ignored with a warning, or refused with a reason. Pure.

A check looks at a field and adds notes. Readers run after all checks, and find the shapes that they expect.
"""

import difflib
import re
from collections.abc import Callable, Mapping

from shim.frozen import frozen
from supervisor.cli.manifest.fields import Field, Notes, WrongField

Check = Callable[[Field, Notes], None]


def read(get: Callable[[Field], object]) -> Check:
    """The field is read with `get`, which raises WrongField for an invalid value."""

    def check(field: Field, notes: Notes) -> None:
        try:
            get(field)
        except WrongField as error:
            notes.refusals.append(str(error))

    return check


text = read(Field.text)
texts = read(Field.texts)
boolean = read(Field.boolean)
pairs = read(Field.pairs)


def quiet(_: Field, __: Notes) -> None:
    """Accept silently: the field makes no difference here, or is an observation and not a wish."""


def refused(why: str) -> Check:
    """Refuse: ignoring the field would give something else than what was asked for."""
    return lambda field, notes: None if field.is_empty else field.refuse(notes, why)


def forbidden(why: str) -> Check:
    """As `refused`, also for false and 0."""
    return lambda field, notes: field.refuse(notes, why)


def ignored(what: str) -> Check:
    """Ignore the field, with a warning that says what that means."""
    return lambda field, notes: None if field.is_empty else field.warn(notes, f"ignored: {what}")


def unless(harmless: tuple[object, ...], check: Check) -> Check:
    """Accept values that ask for what is done anyway."""
    return lambda field, notes: None if field.node.value in harmless else check(field, notes)


def one_of(*words: str) -> Check:
    def get(field: Field) -> None:
        if field.text() not in words:
            raise field.wrong(f"{field.text()!r} is none of {', '.join(words)}")

    return read(get)


def matching(pattern: str, what: str) -> Check:
    def get(field: Field) -> None:
        if not re.fullmatch(pattern, field.text(), re.ASCII):
            raise field.wrong(f"{field.text()[:100]!r} is no {what}")

    return read(get)


def within(least: int, most: int) -> Check:
    return read(lambda field: field.integer(least, most))


@frozen
class Object:
    """A mapping with these fields. Others are refused, as kubectl does, or only warned about, as crictl ignores
    them."""

    known: Mapping[str, Check]
    required: tuple[str, ...] = ()
    strict: bool = True

    def __call__(self, field: Field, notes: Notes) -> None:
        try:
            parts = dict(field.fields())
        except WrongField as error:
            notes.refusals.append(str(error))
            return
        for name in self.required:
            if name not in parts or parts[name].node.value is None:
                field.refuse(notes, f"{name} is missing")
        for name, part in parts.items():
            if name not in self.known:
                self._unknown(name, part, notes)
            elif part.node.value is not None:
                self.known[name](part, notes)

    def _unknown(self, name: str, part: Field, notes: Notes) -> None:
        near = difflib.get_close_matches(name.lower().replace("_", ""), self._plain(), 1)
        hint = f"; did you mean {self._plain()[near[0]]}?" if near else ""
        if self.strict:
            part.refuse(notes, f"there is no such field{hint}")
        else:
            part.warn(notes, f"ignored: there is no such field{hint}")

    def _plain(self) -> dict[str, str]:
        return {name.lower().replace("_", ""): name for name in self.known}


def items(check: Check) -> Check:
    """A list of elements with this check."""

    def all_of(field: Field, notes: Notes) -> None:
        try:
            parts = field.items()
        except WrongField as error:
            notes.refusals.append(str(error))
            return
        for part in parts:
            check(part, notes)

    return all_of


def each(names: str, check: Check) -> dict[str, Check]:
    """Several fields with the same check; their names are separated by spaces."""
    return dict.fromkeys(names.split(), check)
