"""Kubernetes' quantities are exact."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.cli.manifest.quantity import MOST, parse

SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1), "k": Fraction(10**3),
    "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15), "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40), "Pi": Fraction(2**50),
    "Ei": Fraction(2**60), "e3": Fraction(1000), "E3": Fraction(1000), "e-3": Fraction(1, 1000), "E+2": Fraction(100),
}  # fmt: skip


@given(
    st.sampled_from(["", "+", "-"]), st.integers(0, 10**6), st.integers(0, 999), st.integers(0, 3),
    st.sampled_from(sorted(SUFFIXES)),
)  # fmt: skip
def test_a_quantity_is_its_number_times_its_suffix_exactly(
    sign: str, whole: int, fraction: int, digits: int, suffix: str
) -> None:
    after = f".{fraction:03d}"[: digits + 1] if digits else ""
    wanted = (whole + (Fraction(int(after[1:]), 10**digits) if digits else 0)) * SUFFIXES[suffix]
    wanted = -wanted if sign == "-" else wanted
    if abs(wanted) <= MOST:
        assert parse(f"{sign}{whole}{after}{suffix}") == wanted
    else:
        with pytest.raises(ValueError, match="2\\^63-1"):
            parse(f"{sign}{whole}{after}{suffix}")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", Fraction(1, 2)), ("0.1", Fraction(1, 10)), ("1.5Gi", 1536 * 2**20), (".5", Fraction(1, 2)),
        ("5.", 5), ("1E", 10**18), ("1e3", 1000), ("1Ki", 1024), ("1k", 1000), ("007", 7), ("0", 0),
    ],
)  # fmt: skip
def test_quantities_that_people_write(text: str, value: Fraction | int) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    "text", ["", ".", "m", "1 Gi", "1GiB", "64mb", "1K", "1ki", "1mi", "--1", "1e", "1e1.5", "1e3m", "0x10", "1_0",
             "\u0661", "NaN", "inf", "1,5", "1e41", "1" * 65, "8Ei", "9223372036854775808"]
)  # fmt: skip
def test_what_is_no_quantity_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"quantity|exponent|2\^63-1"):
        parse(text)


def test_the_largest_is_a_number_of_63_bits() -> None:
    assert parse(str(MOST)) == MOST == parse(f"-{MOST}") * -1


@given(st.text(max_size=80))
def test_any_text_is_a_quantity_or_refused_at_once(text: str) -> None:
    try:
        assert abs(parse(text)) <= MOST
    except ValueError as error:
        assert str(error)
