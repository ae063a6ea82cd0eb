"""What a directory made by hand says of itself."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim import fields, mark
from shim.mark import Mark, Started

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
MARKS = st.builds(
    Mark,
    name=st.from_regex(mark.ID.compiled, fullmatch=True),
    bundle=TEXT.map(lambda path: f"/{path}"),
    runtime=TEXT.filter(bool),
    boot_id=TEXT.filter(bool),
    made_ns=st.integers(0, 2**63),
    args=st.lists(TEXT, max_size=5).map(tuple),
)


@given(MARKS)
def test_a_mark_comes_back_as_it_was_written(wanted: Mark) -> None:
    assert mark.decode_mark(mark.encode_mark(wanted)) == wanted


@given(st.integers(0, 2**63), st.integers(0, 2**63))
def test_a_start_comes_back_as_it_was_written(realtime: int, boottime: int) -> None:
    assert mark.decode_started(mark.encode_started(Started(realtime, boottime))) == Started(realtime, boottime)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"name": ""}, "'name' is missing"),
        ({"name": "../up"}, "'name' is no name of a container"),
        ({"bundle": ""}, "'bundle' is missing"),
        ({"bundle": "relative"}, "'bundle' is no absolute path"),
        ({"runtime": ""}, "'runtime' is missing"),
        ({"boot_id": ""}, "'boot_id' is missing"),
        ({"made_ns": "soon"}, "'made_ns' is 'soon', expected digits"),
    ],
)
def test_a_mark_that_lacks_something_is_refused_by_name(changed: dict[str, Any], words: str) -> None:
    whole: dict[str, Any] = {"name": "box", "bundle": "/b", "runtime": "runc", "boot_id": "boot", "made_ns": 1}
    with pytest.raises(fields.BadMessage, match=words):
        mark.decode_mark(fields.encode("exitd-byhand", {**whole, **changed}.items()))


def test_what_a_newer_exitd_wrote_is_refused_as_such() -> None:
    with pytest.raises(fields.BadMessage, match="version 2"):
        mark.decode_started(fields.encode("exitd-started", [("realtime_ns", 1), ("boottime_ns", 1)], version=2))


@given(st.binary(max_size=80))
def test_any_other_bytes_are_refused_without_a_crash(data: bytes) -> None:
    for decode in (mark.decode_mark, mark.decode_started):
        with pytest.raises(fields.BadMessage):
            decode(data)


def test_no_id_is_both_exitds_own_and_anothers_to_choose_freely() -> None:
    assert mark.EXITDS_OWN_ID.fullmatch("0123456789abcdef" * 4)
    for id in ("0123456789abcdef" * 4 + "0", "0123456789ABCDEF" * 4, "hand-1", "a" * 63):
        assert not mark.EXITDS_OWN_ID.fullmatch(id)
    assert not mark.ID.fullmatch("0123456789abcdef" * 4)
