"""Markup that cannot be forged: what is not made by `tag` is text, and is written as text."""

import html

from supervisor.compare.words import clean

# Written as <x/>: in HTML they have no end tag, or they are SVG, where that form is understood.
_EMPTY = {"meta", "br", "circle", "line", "path", "rect"}


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


NOTHING = Markup("")


def text(words: str) -> Markup:
    return words if isinstance(words, Markup) else Markup(html.escape(clean(words)))


def join(*parts: str) -> Markup:
    return Markup("".join(map(text, parts)))


def tag(name: str, *children: str, **attributes: str | float | None) -> Markup:
    """An element. `class_` is class and `stroke_width` stroke-width; an attribute that is None is left out."""
    said = "".join(f' {_name(key)}="{_value(value)}"' for key, value in attributes.items() if value is not None)
    if name in _EMPTY and not children:
        return Markup(f"<{name}{said}/>")
    return Markup(f"<{name}{said}>{join(*children)}</{name}>")


def _name(key: str) -> str:
    return key.strip("_").replace("_", "-")


def _value(value: str | float) -> str:
    return text(value) if isinstance(value, str) else short(value)


def short(value: float) -> str:
    """A place in a drawing: a tenth of a pixel is exact enough."""
    return f"{value:.1f}".removesuffix(".0")
