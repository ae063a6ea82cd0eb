"""$(NAME) in env, command and args, as Kubernetes replaces it. Pure.

$(NAME) becomes the variable's value, and stays unchanged if there is none; $$ becomes $. Source: the API reference of
core/v1 EnvVar.value and Container.command.
"""

import re
from collections.abc import Mapping

from shim.patterns import LatePattern

_REFERENCE = LatePattern(r"\$(?:\$|\(([^)]*)\))")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace once, from left to right: inserted values are not expanded again."""

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return _REFERENCE.sub(value, text)


def names_in(text: str) -> frozenset[str]:
    """Return the names of the variables that the text refers to."""
    return frozenset(match[1] for match in _REFERENCE.finditer(text) if match[1] is not None)
