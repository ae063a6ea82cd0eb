"""An error on the wire: its code, its words, its reason."""

import pytest
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # ships no py.typed
from hypothesis import given
from hypothesis import strategies as st

from supervisor.api import details
from supervisor.model.errors import CODES, BadRequest, Code, ExitdError, RuntimeFailed


def info(refusal: details.Refusal) -> error_details_pb2.ErrorInfo:
    status = status_pb2.Status.FromString(refusal.details)
    assert (status.code, status.message) == (refusal.code, refusal.text)
    found = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(found)
    return found


@pytest.mark.parametrize("error", CODES)
def test_every_error_carries_its_code_and_its_reason(error: type[ExitdError]) -> None:
    refusal = details.refusal(error("words", field="name"))
    assert (refusal.code, refusal.text) == (CODES[error], "words")
    found = info(refusal)
    assert (found.domain, found.reason, dict(found.metadata)) == ("exitd", error.reason, {"field": "name"})


def test_a_bug_is_an_internal_error_and_nothing_more() -> None:
    refusal = details.internal()
    assert (refusal.code, refusal.text) == (Code.INTERNAL, "internal error")
    assert info(refusal).reason == "INTERNAL"


@given(st.text(max_size=50), st.integers(min_value=10, max_value=60))
def test_shortening_never_tears_a_character(text: str, size: int) -> None:
    short = details.shorten(text, size)
    assert len(short.encode()) <= size
    if len(text.encode("utf-8", "replace")) <= size:
        assert short == text


def test_the_longest_words_of_a_runtime_fit_into_what_a_client_accepts() -> None:
    metadata = {f"k{number}" * 1000: "é" * 10_000 for number in range(100)}
    refusal = details.refusal(RuntimeFailed("é" * 100_000, **metadata))
    percent_encoded, in_base64 = 3 * len(refusal.text.encode()), 4 * len(refusal.details) // 3
    assert percent_encoded + in_base64 < 7_000


def test_words_that_are_no_utf8_are_reported_all_the_same() -> None:
    assert details.refusal(BadRequest("caf\udce9")).text == "caf?"
