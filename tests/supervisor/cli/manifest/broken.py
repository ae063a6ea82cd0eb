"""Documents in which one part has become something else."""

import copy
from typing import Any

from hypothesis import strategies as st

ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(
        ["", "x", "0", "-1", "1e99", "/", "..", "docker://", "Always", "a" * 300, "metadata.labels['", "$("]
    )
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "", "path", "x"]), inner),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to all parts of a document, the whole left out."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [found for key, part in inner for found in ((*path, key), *places(part, (*path, key)))]


@st.composite
def broken(draw: st.DrawFn, whole: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 3))):
        found = places(made)
        if not found:
            break
        *way, last = draw(st.sampled_from(found))
        here: Any = made
        for step in way:
            here = here[step]
        here[last] = draw(ODD)
    return made
