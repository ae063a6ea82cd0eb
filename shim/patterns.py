"""Regular expressions that are compiled when they are first used.

Compiling one takes up to two milliseconds in a process that has just begun. A command of exitctl uses few of those that
it imports, and exitd none before it answers.
"""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, AnyStr, Generic


class LatePattern(Generic[AnyStr]):
    """The methods of `re.compile(pattern, flags)` that exitd uses; `compiled` is the thing itself."""

    def __init__(self, pattern: AnyStr, flags: int = 0) -> None:
        self.pattern: AnyStr = pattern
        self._flags = flags

    @cached_property
    def compiled(self) -> re.Pattern[AnyStr]:
        return re.compile(self.pattern, self._flags)

    def fullmatch(self, text: AnyStr, *bounds: int) -> re.Match[AnyStr] | None:
        return self.compiled.fullmatch(text, *bounds)

    def match(self, text: AnyStr, *bounds: int) -> re.Match[AnyStr] | None:
        return self.compiled.match(text, *bounds)

    def search(self, text: AnyStr, *bounds: int) -> re.Match[AnyStr] | None:
        return self.compiled.search(text, *bounds)

    def finditer(self, text: AnyStr) -> Iterator[re.Match[AnyStr]]:
        return self.compiled.finditer(text)

    def findall(self, text: AnyStr) -> list[Any]:
        return self.compiled.findall(text)

    def sub(self, put: Any, text: AnyStr, count: int = 0) -> AnyStr:
        return self.compiled.sub(put, text, count)

    def split(self, text: AnyStr) -> list[Any]:
        return self.compiled.split(text)
