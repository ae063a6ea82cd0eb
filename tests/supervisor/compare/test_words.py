"""Figures are written with the digits that count; words cannot steer what shows them."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.compare.words import clean, kilobytes, milliseconds, number, several, short


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0"),
        (0.004, "0.004"),
        (0.5, "0.50"),
        (2.14, "2.1"),
        (17.0, "17"),
        (99.96, "100.0"),
        (1234.5, "1,234"),
        (3e12, "3e+12"),
    ],
)
def test_a_number_has_two_or_three_digits_that_count(value: float, said: str) -> None:
    assert number(value) == said


def test_units_grow_with_the_figure() -> None:
    assert [milliseconds(value) for value in (0.72, 210, 1200)] == ["0.72 ms", "210 ms", "1.2 s"]
    assert [kilobytes(value) for value in (36, 3200, 2.5e6, -40)] == ["36 kB", "3.2 MB", "2.5 GB", "-40 kB"]


def test_one_is_no_plural() -> None:
    assert [several(1, "exit"), several(1000, "exit")] == ["1 exit", "1,000 exits"]


@given(st.text(st.characters(), max_size=30))
def test_nothing_that_a_terminal_obeys_stays_in_words(words: str) -> None:
    assert not {unicodedata.category(each) for each in clean(words)} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert len(clean(words)) == len(words)


def test_an_escape_sequence_and_a_line_end_are_taken_out() -> None:
    assert clean("a\x1b[31mb\nc\u202ed") == "a\ufffd[31mb c\ufffdd"


def test_what_is_too_long_ends_with_a_sign_of_it() -> None:
    assert [short("abcdef", 6), short("abcdef", 5)] == ["abcdef", "abcd\u2026"]
