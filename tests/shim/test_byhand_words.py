"""The runtime's own words, as a person who starts a container by hand reads them."""

import pytest

from shim import byhand


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ""),
        ('{"msg": "no `x`", "level": "error"}\n', "no `x`"),
        ('{"msg": "a"}\n{\n  "msg": "no `x`",\n  "level": "error"\n}\n', "no `x`"),
        ("some {words}\n", "some {words}"),
        ('{"torn\n', '{"torn'),
        ("{}\n", "{}"),
    ],
)
def test_the_last_message_is_found_in_one_line_or_several(text: str, words: str) -> None:
    assert byhand.last_words(text) == words
