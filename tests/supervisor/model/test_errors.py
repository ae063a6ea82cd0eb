import pytest

from supervisor.model import errors
from supervisor.model.errors import CODES, Code, ExitdError, code_of


def all_of(base: type[ExitdError]) -> set[type[ExitdError]]:
    found = set(base.__subclasses__())
    return found.union(*(all_of(each) for each in found))


def test_every_error_has_a_code_and_the_table_has_nothing_else() -> None:
    assert {each for each in all_of(ExitdError) if each.__module__ == errors.__name__} == set(CODES)


def test_every_error_has_a_stable_word_of_its_own() -> None:
    words = [each.reason for each in CODES]
    assert len(set(words)) == len(words)
    assert "INTERNAL" not in words
    assert all(word.isupper() for word in words)


@pytest.mark.parametrize("error", CODES)
def test_an_error_carries_its_text_and_what_programs_want_to_know(error: type[ExitdError]) -> None:
    made = error("the next step", id="c1")
    assert (str(made), made.metadata, code_of(made)) == ("the next step", {"id": "c1"}, CODES[error])


def test_an_error_that_nobody_listed_is_a_bug_and_internal() -> None:
    assert code_of(ExitdError("x")) is Code.INTERNAL


def test_the_codes_are_grpcs() -> None:
    assert [code.value for code in Code] == list(range(1, 15))
