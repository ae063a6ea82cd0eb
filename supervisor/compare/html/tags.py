"""Markup that cannot be forged: what is not made by `tag` is text, and is written as text."""

import html

from supervisor.compare.words import clean

_EMPTY = {"meta", "br"}  # written as <x/>: in HTML they have no end tag


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def text(words: str) -> Markup:
    return words if isinstance(words, Markup) else Markup(html.escape(clean(words)))


def join(*parts: str) -> Markup:
    return Markup("".join(map(text, parts)))


def tag(name: str, *children: str, **attributes: str | None) -> Markup:
    """Return an element. `class_` is class and `aria_hidden` aria-hidden; an attribute that is None is left out."""
    said = "".join(f' {_name(key)}="{text(value)}"' for key, value in attributes.items() if value is not None)
    if name in _EMPTY and not children:
        return Markup(f"<{name}{said}/>")
    return Markup(f"<{name}{said}>{join(*children)}</{name}>")


def _name(key: str) -> str:
    return key.strip("_").replace("_", "-")
