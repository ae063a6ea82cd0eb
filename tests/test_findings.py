"""What strangers broke, row by row: each has a test that exists, or says why nothing holds it yet."""

import pathlib
import tomllib
from collections.abc import Set

from tests.test_complaints import named_below

TESTS = pathlib.Path(__file__).resolve().parent
ROWS = [
    *(f"T{n}" for n in range(1, 14)),
    *(f"L{n}" for n in range(1, 10)),
    *(f"B{n}" for n in range(1, 7)),
    *(f"S{n}" for n in range(1, 10)),
    *(f"V{n}" for n in range(1, 9)),
]


def judge(rows: dict[str, dict[str, object]], tests: Set[str]) -> list[str]:
    """What is wrong with the rows, a sentence each."""
    wrong = [f"{row}: missing" for row in ROWS if row not in rows]
    wrong += [f"{row}: not a finding there is" for row in rows if row not in ROWS]
    for row, says in rows.items():
        match says:
            case {"what": str(), "tests": [_, *_] as named, **rest} if not rest.keys() - {"open"}:
                wrong += [f"{row}: no test {each}" for each in named if each not in tests]
            case {"what": str(), "open": str(why)} if why and len(says) == 2:
                pass
            case _:
                wrong.append(f"{row}: neither tests nor a reason")
    return wrong


def test_every_finding_has_tests_that_exist_or_says_why_not() -> None:
    assert judge(tomllib.loads((TESTS / "findings.toml").read_text()), named_below(TESTS)) == []


def test_a_row_that_names_no_test_there_is_or_says_nothing_is_found() -> None:
    good: dict[str, dict[str, object]] = {row: {"what": "x", "tests": ["a::b"]} for row in ROWS}
    assert judge(good, {"a::b"}) == []
    assert judge({**good, "T1": {"what": "x", "tests": ["a::c"]}}, {"a::b"}) == ["T1: no test a::c"]
    assert judge({**good, "T1": {"what": "x", "open": ""}}, {"a::b"}) == ["T1: neither tests nor a reason"]
    assert judge({**good, "T1": {"what": "x", "tests": []}}, {"a::b"}) == ["T1: neither tests nor a reason"]
    assert judge({**good, "T99": {"what": "x", "open": "y"}}, {"a::b"}) == ["T99: not a finding there is"]
    assert "T2: missing" in judge({row: good[row] for row in ROWS if row != "T2"}, {"a::b"})
