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
