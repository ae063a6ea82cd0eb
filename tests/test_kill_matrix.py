"""The kill matrix is one table: its tests are in one folder, and take their cases from it."""

import pathlib
import re

import pytest

from tests.system.kill_matrix import table
from tests.system.kill_matrix.table import AT_RANDOM, COMMANDS, EACH_CALL, MATRIX, ONE_OF, Row, dark, light, these

FOLDER = pathlib.Path(table.__file__).parent
FILES = {path.name: path.read_text() for path in FOLDER.glob("test_*.py")}
TAKEN = re.compile(r'\b(?:row|cases)\("([^"]+)"\)')


def test_every_row_has_its_file_and_every_file_a_row() -> None:
    assert {row.file for row in MATRIX.values()} == FILES.keys()


@pytest.mark.parametrize("file", FILES)
def test_what_a_file_takes_from_the_table_is_a_row_of_it(file: str) -> None:
    assert set(TAKEN.findall(FILES[file])) <= {path for path, row in MATRIX.items() if row.file == file}


@pytest.mark.parametrize("path", [path for path, row in MATRIX.items() if row.few])
def test_a_row_of_which_only_a_few_cases_are_tried_is_taken_from_the_table(path: str) -> None:
    assert path in TAKEN.findall(FILES[MATRIX[path].file])


@pytest.mark.parametrize("path", [path for path, row in MATRIX.items() if EACH_CALL not in row.moments])
def test_the_cases_of_a_row_are_its_own_each_once(path: str) -> None:
    cases = MATRIX[path].cases
    assert len(cases) == len(set(cases)) > 0
    assert {(case.victim in MATRIX[path].victims, case.moment in MATRIX[path].moments) for case in cases} == {
        (True, True)
    }


def test_light_and_dark_are_all_cases_and_each_has_every_victim_and_every_moment() -> None:
    every = Row("", ONE_OF, COMMANDS, "").cases
    assert sorted(map(str, light(every) + dark(every))) == sorted(map(str, every))
    for half in (light(every), dark(every)):
        assert {case.victim for case in half} == set(ONE_OF) and {case.moment for case in half} == set(COMMANDS)


def test_a_case_that_is_none_of_its_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "SCALE", 0.02)
    with pytest.raises(AssertionError, match="shim at lunch"):
        _ = Row("", ("shim",), (AT_RANDOM,), "", few=these("shim at lunch")).cases
