"""A report is kept as JSON and read again."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.compare.facts import BadReport, Fault, Latency, Memory, Report, Restart, Storm, Way, decode, encode

WORDS = st.text(max_size=10)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
SAMPLES = st.lists(NUMBERS, max_size=4).map(tuple)
COUNTS = st.integers(0, 10_000)
REPORTS = st.builds(
    Report,
    conditions=st.lists(st.tuples(WORDS, WORDS), max_size=3).map(tuple),
    ways=st.lists(st.builds(Way, WORDS, WORDS, WORDS, WORDS), max_size=3).map(tuple),
    memory=st.lists(
        st.builds(Memory, WORDS, COUNTS, COUNTS, SAMPLES, SAMPLES, NUMBERS, st.none() | NUMBERS), max_size=2
    ).map(tuple),
    latencies=st.lists(st.builds(Latency, WORDS, WORDS, WORDS, SAMPLES), max_size=2).map(tuple),
    storms=st.lists(st.builds(Storm, WORDS, COUNTS, st.lists(SAMPLES, max_size=2).map(tuple)), max_size=2).map(tuple),
    restarts=st.lists(
        st.builds(Restart, WORDS, COUNTS, SAMPLES, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS), max_size=2
    ).map(tuple),
    faults=st.lists(st.builds(Fault, WORDS, WORDS, WORDS, WORDS, WORDS, WORDS), max_size=2).map(tuple),
)


@given(REPORTS)
def test_what_is_written_is_read_as_the_same(report: Report) -> None:
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
