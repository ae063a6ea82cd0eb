"""Families as text, read back by Prometheus' own client."""

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from supervisor.metrics.exposition import Labels, MetricFamily, lines
from supervisor.system.histogram import Histogram

# A parser of lines may take what Unicode calls the end of one for the end of one; Prometheus does not.
WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x0b\x0c\r\x1c\x1d\x1e\x85\u2028\u2029"))
LABELS = st.lists(WORDS, max_size=3).map(lambda words: tuple((f"l{at}", word) for at, word in enumerate(words)))


def text_of(*families: MetricFamily) -> str:
    return "".join(line for family in families for line in lines(family))


@given(st.dictionaries(LABELS, st.integers(0, 2**63) | st.floats(0, 1e9), max_size=5), WORDS)
def test_whatever_the_words_are_each_sample_is_read_as_it_was_meant(samples: dict[Labels, float], words: str) -> None:
    text = text_of(MetricFamily("exitd_x", "gauge", words, samples.items()))
    (found,) = text_string_to_metric_families(text)
    assert (found.name, found.type) == ("exitd_x", "gauge")
    read = {tuple(sorted(each.labels.items())): each.value for each in found.samples}
    assert read.keys() == samples.keys()
    assert all(math.isclose(read[labels], value, abs_tol=1e-8) for labels, value in samples.items())


def test_a_histogram_is_read_with_its_sum_and_all_its_bounds() -> None:
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 7.0, -1.0):
        histogram.observe(seconds)
    text = text_of(MetricFamily("exitd_x_seconds", "histogram", "X.", [((("stage", "a"),), histogram.now())]))
    (found,) = text_string_to_metric_families(text)
    assert found.type == "histogram"
    read = {(each.name, each.labels.get("le")): each.value for each in found.samples}
    assert read == {
        ("exitd_x_seconds_bucket", "0.1"): 3,
        ("exitd_x_seconds_bucket", "1.0"): 4,
        ("exitd_x_seconds_bucket", "+Inf"): 5,
        ("exitd_x_seconds_sum", None): 7.65,
        ("exitd_x_seconds_count", None): 5,
    }


def test_what_has_no_labels_has_no_braces_and_large_numbers_keep_their_digits() -> None:
    assert text_of(MetricFamily("a", "gauge", "A.", [((), 2**60)])) == f"# HELP a A.\n# TYPE a gauge\na {2**60}\n"
