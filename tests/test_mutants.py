"""tests/mutants: one mistake at a time, the same ones for the same seed, and the nearest tests first."""

import pathlib

import pytest

from tests.mutants.__main__ import Copy, chosen
from tests.mutants.mutation import mutants
from tests.mutants.nearest import Nearest

SOURCE = '''"""A docstring."""

LIMIT = 3


def judge(code: int, known: bool, ends: dict[str, int]) -> str:
    """What it says."""
    if code < LIMIT and not known:
        log.info("small", code=code)
        ends["é"] = code + 1
        return "few"
    tell(code)
    raise ValueError(f"{code} is wrong")
'''


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("code < LIMIT and", "(code <= LIMIT) and"),
        ("code < LIMIT and not known", "(code < LIMIT or not known)"),
        ("code < LIMIT and not known", "(not (code < LIMIT and (not known)))"),
        ("not known", "(known)"),
        ("LIMIT = 3", "LIMIT = 4"),
        ('"few"', "'few?'"),
        ("code + 1", "(code - 1)"),
        ('ends["é"] = code + 1', "pass"),
        ('return "few"', "return None"),
        ("tell(code)", "pass"),
        ('raise ValueError(f"{code} is wrong")', "pass"),
    ],
)
def test_a_mistake_is_written_into_its_place_and_nothing_else_changes(before: str, after: str) -> None:
    assert SOURCE.replace(before, after) in [mutant.applied(SOURCE) for mutant in mutants("a.py", SOURCE)]


def test_every_mutant_is_one_change_that_python_still_reads() -> None:
    found = mutants("a.py", SOURCE)
    assert len({mutant.applied(SOURCE) for mutant in found}) == len(found)
    for mutant in found:
        compile(mutant.applied(SOURCE), "a.py", "exec")


@pytest.mark.parametrize("place", ["docstring", "What it says", "small", "is wrong"])
def test_words_for_people_are_not_changed(place: str) -> None:
    assert all(place in mutant.applied(SOURCE) for mutant in mutants("a.py", SOURCE) if "raise" not in mutant.before)


def test_a_seed_chooses_the_same_mutants_again_and_one_for_each_line() -> None:
    everything = mutants("a.py", SOURCE)
    assert chosen(everything, 7, 4) == chosen(everything, 7, 6)[:4]
    assert len({mutant.line for mutant in chosen(everything, 7, 100)}) == len({mutant.line for mutant in everything})


@pytest.mark.timeout(900)
def test_a_test_that_has_failed_can_be_run_again_by_its_name_alone(tmp_path: pathlib.Path) -> None:
    named = "é:\n  - [a] FAILED - b"
    lines = ["import pytest", f"@pytest.mark.parametrize('it', [1], ids=[{named!r}])", "def test_it(it): assert not it"]
    (tmp_path / "test_a.py").write_text("def test_fine(): pass\n")
    (tmp_path / "test_b.py").write_text("\n".join(lines))
    copy = Copy(tmp_path)
    failed = copy.failing(["test_a.py", "test_b.py"], 240)
    assert failed.startswith("test_b.py::test_it[")
    assert copy.failing([failed], 240) == failed
    assert copy.failing(["test_a.py"], 240) == ""


@pytest.mark.timeout(300)
def test_a_file_that_cannot_be_read_has_failed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "test_a.py").write_text("from nowhere import nothing\n")
    assert Copy(tmp_path).failing(["test_a.py"], 240) == "test_a.py"


def test_a_modules_own_tests_come_first_then_those_that_import_it_then_its_rooms(tmp_path: pathlib.Path) -> None:
    files = {
        "supervisor/store/rows.py": "",
        "supervisor/engine/node.py": "from supervisor.store import rows",
        "tests/supervisor/engine/test_node.py": "def f():\n    from supervisor.engine.node import Node",
        "tests/supervisor/store/test_rows.py": "",
        "tests/supervisor/store/test_rows_old.py": "",
        "tests/supervisor/store/test_schema.py": "",
        "tests/supervisor/test_direct.py": "import supervisor.store.rows",
        "tests/supervisor/test_other.py": "import os",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert Nearest(tmp_path).tests("supervisor/store/rows.py") == [
        "tests/supervisor/store/test_rows.py",
        "tests/supervisor/store/test_rows_old.py",
        "tests/supervisor/test_direct.py",
        "tests/supervisor/engine/test_node.py",
        "tests/supervisor/store/test_schema.py",
    ]
