"""$(NAME) as Kubernetes replaces it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.cli.manifest.expand import expand

VARIABLES = {"A": "1", "B": "$(A)", "C": "", "A.B": "dot"}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("$(A)", "1"), ("x$(A)y$(A)", "x1y1"), ("$(C)", ""), ("$(A.B)", "dot"), ("$(NO)", "$(NO)"), ("$()", "$()"),
        ("$$(A)", "$(A)"), ("$$$(A)", "$1"), ("$$$$(A)", "$$(A)"), ("$A", "$A"), ("$", "$"), ("$$", "$"),
        ("$(A", "$(A"), ("$(A $(A)", "$(A $(A)"), ("${A}", "${A}"), ("$(B)", "$(A)"), ("a$b$(A)", "a$b1"),
    ],
)  # fmt: skip
def test_references_become_values_and_what_is_none_stays(text: str, result: str) -> None:
    assert expand(text, VARIABLES) == result


@given(st.text())
def test_a_text_with_every_dollar_doubled_comes_through_as_it_was(text: str) -> None:
    assert expand(text.replace("$", "$$"), VARIABLES) == text


@given(st.text("$()AB", max_size=30))
def test_what_a_value_brings_in_is_not_looked_at_again(text: str) -> None:
    marked = expand(text, {"A": "\1", "B": "\2"})
    assert expand(text, {"A": "$(B)", "B": "$$"}) == marked.replace("\1", "$(B)").replace("\2", "$$")
