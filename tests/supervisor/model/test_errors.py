import pytest

from supervisor.model import errors, restart
from supervisor.model.errors import CODES, BadRequest, Code, ExitdError, code_of


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


def test_an_error_that_repeats_a_long_request_keeps_its_beginning_and_its_next_step() -> None:
    with pytest.raises(BadRequest) as caught:
        restart.parse_rules(["x" * 100_000])
    said = str(caught.value)
    assert len(said) < 4200
    assert said.startswith("restart rule 'xxx")
    assert " more characters] x" in said
    assert said.endswith("write 'exit in 42,43 => no' or 'exit not in 0 => restart'")
    assert str(BadRequest("y" * 4096)) == "y" * 4096
