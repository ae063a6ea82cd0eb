import re

from shim.patterns import LatePattern

WORD = LatePattern(r"([a-z]+)(\d?)", re.IGNORECASE)


def test_it_finds_what_a_compiled_one_finds() -> None:
    plain = re.compile(WORD.pattern, re.IGNORECASE)
    for text in ("", "Ab1", "1ab", "ab 1 cd2"):
        for method in ("fullmatch", "match", "search"):
            found, wanted = getattr(WORD, method)(text), getattr(plain, method)(text)
            assert (found and found.groups()) == (wanted and wanted.groups())
        assert [each.span() for each in WORD.finditer(text)] == [each.span() for each in plain.finditer(text)]
        assert (WORD.findall(text), WORD.split(text)) == (plain.findall(text), plain.split(text))
        assert WORD.sub(r"\2\1", text) == plain.sub(r"\2\1", text)
    assert WORD.match("1ab", 1) and not WORD.fullmatch("1ab", 1, 1) and LatePattern(b"a").match(b"ab")


def test_it_is_compiled_once_when_it_is_first_used() -> None:
    late = LatePattern("(")
    try:
        late.search("")
    except re.error:
        assert "compiled" not in vars(late)
    right = LatePattern("a")
    assert "compiled" not in vars(right)
    right.search("a")
    assert vars(right)["compiled"] is right.compiled
