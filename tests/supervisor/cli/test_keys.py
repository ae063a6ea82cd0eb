"""Detach keys: the words for them, and that every byte which is not part of the sequence is passed on, in order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.cli import keys
from supervisor.model.errors import BadRequest

FEW = st.lists(st.sampled_from(b"pq"), max_size=12).map(bytes)  # few letters: near misses and overlaps are the rule
SEQUENCE = st.lists(st.sampled_from(b"pq"), min_size=1, max_size=5).map(bytes)


def passed(matcher: keys.Matcher, portions: list[bytes]) -> tuple[bytes, bool]:
    """All that is passed on up to the sequence, or to the end."""
    out = b""
    for portion in portions:
        part, found = matcher.feed(portion)
        out += part
        if found:
            return out, True
    return out + matcher.rest(), False


@pytest.mark.parametrize(
    ("text", "sequence"),
    [
        ("ctrl-p,ctrl-q", b"\x10\x11"),
        ("a", b"a"),
        ("A,ctrl-A", b"A\x01"),
        ("ctrl-@,ctrl-[,ctrl-\\,ctrl-],ctrl-^,ctrl-_", b"\x00\x1b\x1c\x1d\x1e\x1f"),
        ("ctrl-a,b,ctrl-z", b"\x01b\x1a"),
        ("~,.", b"~."),
        ("", b""),
    ],
)
def test_the_words_are_dockers(text: str, sequence: bytes) -> None:
    assert keys.parse(text) == sequence


@pytest.mark.parametrize(
    "text", ["ctrl-", "ctrl-pq", "ctrl-1", "control-p", "ab", "a,", ",", "ctrlp", "ü", "a,,b", "\n"]
)
def test_what_is_no_key_is_refused_with_the_ways_to_write_one(text: str) -> None:
    with pytest.raises(BadRequest, match="ctrl-p,ctrl-q"):
        keys.parse(text)


@given(SEQUENCE, st.lists(FEW, max_size=8))
def test_what_is_passed_on_is_all_before_the_first_sequence_however_it_is_cut(
    sequence: bytes, portions: list[bytes]
) -> None:
    before, found, _ = b"".join(portions).partition(sequence)
    assert passed(keys.Matcher(sequence), portions) == (before, bool(found))


@given(SEQUENCE, st.lists(FEW, max_size=8))
def test_no_more_is_kept_back_than_may_be_its_beginning(sequence: bytes, portions: list[bytes]) -> None:
    matcher, typed, out = keys.Matcher(sequence), b"", b""
    for portion in portions:
        part, found = matcher.feed(portion)
        if found:
            return
        typed, out = typed + portion, out + part
        kept = typed[len(out) :]
        assert sequence.startswith(kept) and len(kept) < len(sequence)


@given(st.binary(max_size=40))
def test_without_keys_every_byte_goes_through_at_once(data: bytes) -> None:
    assert keys.Matcher(b"").feed(data) == (data, False)


def test_a_lone_first_key_is_passed_on_with_the_next() -> None:
    matcher = keys.Matcher(keys.parse(keys.DEFAULT))
    assert matcher.feed(b"x\x10") == (b"x", False)
    assert matcher.feed(b"\x10") == (b"\x10", False)
    assert matcher.feed(b"y") == (b"\x10y", False)
    assert matcher.feed(b"\x10") == (b"", False)
    assert matcher.feed(b"\x11later") == (b"", True)
