"""A report is kept as JSON and read again."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.compare.facts import BadReport, CompareReport, decode, encode
from tests.supervisor.compare.any_report import reports

REPORTS = reports(st.text(max_size=10), st.floats(allow_nan=False, allow_infinity=False))


@given(REPORTS)
def test_what_is_written_is_read_as_the_same(report: CompareReport) -> None:
    assert decode(encode(report)) == report


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "conditions": [], "ways": [{"x": 1}]}', "null"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadReport):
        decode(text)


def test_a_report_of_another_version_is_refused() -> None:
    with pytest.raises(BadReport, match="another version"):
        decode(json.dumps({"version": 2, "conditions": []}))
