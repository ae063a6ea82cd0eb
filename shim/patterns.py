"""Regular expressions that are compiled when they are first used.

Compiling one takes up to two milliseconds in a process that has just begun. A command of exitctl uses few of those that
it imports, and exitd none before it answers.
"""

import re
from typing import Any, AnyStr, cast


def late_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what has the methods and attributes of `re.compile(text, flags)`. Functions of `re` do not take it."""
    return cast("re.Pattern[AnyStr]", _Late(text, flags))


class _Late:
    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)  # so that it is not looked for again
        return found
