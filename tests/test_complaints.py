"""What users of other shims and supervisors complain of, line by line: each has a test, or a reason why not yet."""

import ast
import functools
import pathlib
import re
import tomllib
from collections import Counter
from collections.abc import Set

import pytest

from bench.__main__ import ALL_ROWS

TESTS = pathlib.Path(__file__).resolve().parent
LINES = TESTS / "complaints.toml"

# Whose complaints they are, by section, and the first and last number in it.
ROWS = {
    "isulad-7.1": (1, 20),  # iSulad: weaknesses in its structure
    "isulad-7.2": (1, 25),  # iSulad: fixes that teach
    "peers-3.1": (1, 18),  # every peer's users: exit codes lost or invented
    "peers-3.2": (19, 30),  # a daemon's restart
    "peers-3.3": (31, 44),  # waits, events and their order
    "peers-3.4": (45, 52),  # wrong process, reused pids, zombies
    "peers-3.5": (53, 61),  # who ran out of memory
    "peers-3.6": (62, 71),  # input and output
    "peers-3.7": (72, 75),  # growth
    "peers-3.8": (76, 84),  # wishes
    "peers-N": (1, 6),  # what came in since: containerd, docker, kubernetes
    "shimv2-G": (1, 44),  # containerd's shims
}
LATER = ("streams", "adapter", "client", "scale", "node", "rig")


def wanted() -> list[str]:
    """`peers-3.1-01` and so on, one for each complaint."""
    return [f"{section}-{number:02}" for section, (first, last) in ROWS.items() for number in range(first, last + 1)]


@functools.cache  # three pages and lists are compared with all tests
def named_below(root: pathlib.Path) -> frozenset[str]:
    """`tests/shim/test_record.py::test_name` of every test below `root`, a folder named tests; nothing is imported."""
    found = set()
    for path in root.rglob("test_*.py"):
        where = path.relative_to(root.parent)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found.add(f"{where}::{node.name}")
    return frozenset(found)


def measured() -> set[str]:
    """`measured: exit-wait` of every row of the benchmark."""
    return {f"measured: {row}" for row in ALL_ROWS}


def judge(lines: dict[str, object], tests: Set[str]) -> list[str]:
    """What is wrong with the lines, a sentence each."""
    ids = Counter(key.partition(" ")[0] for key in lines)
    wrong = [f"{id}: no line" for id in wanted() if id not in ids]
    wrong += [f"{id}: {count} lines" for id, count in ids.items() if count > 1]
    wrong += [f"{id}: not a complaint there is" for id in ids if id not in wanted()]
    wrong += [f"{key}: says nothing of the complaint" for key in lines if not key.partition(" ")[2]]
    for key, value in lines.items():
        id = key.partition(" ")[0]
        wrong += [f"{id}: {trouble}" for trouble in _troubles(value, tests)]
    return wrong


def _troubles(value: object, tests: Set[str]) -> list[str]:
    match value:
        case str() if value.startswith("later: "):
            word = value.removeprefix("later: ")
            return [] if word in LATER else [f"later {word!r} is none of {', '.join(LATER)}"]
        case str() if value.startswith("not ours: "):
            return [] if re.search(r"\w \w", value.removeprefix("not ours: ")) else ["not ours, and no reason"]
        case str():
            return [] if value in tests else [f"no test {value}"]
        case [_, *_]:
            return [f"no test {each}" for each in value if each not in tests]
    return [f"{value!r} is neither a test, nor several, nor a reason"]


def test_every_complaint_has_a_test_that_exists_or_says_why_not_yet() -> None:
    assert judge(tomllib.loads(LINES.read_text()), named_below(TESTS) | measured()) == []


def test_the_sources_have_the_numbers_of_rows_they_had_when_they_were_read() -> None:
    sources = Counter(id.partition("-")[0] for id in wanted())
    assert sources == {"isulad": 20 + 25, "peers": 84 + 6, "shimv2": 44}


def complete(**changed: object) -> dict[str, object]:
    return {f"{id} words": changed.get(id, "later: scale") for id in wanted()}


def test_a_complaint_without_a_line_is_missed() -> None:
    lines = complete()
    del lines["peers-3.4-50 words"]
    assert judge(lines, set()) == ["peers-3.4-50: no line"]


def test_a_second_line_and_one_of_no_source_are_noticed() -> None:
    lines = complete() | {"isulad-7.2-25 again": "later: rig", "peers-3.4-99 words": "later: rig"}
    assert judge(lines, set()) == ["isulad-7.2-25: 2 lines", "peers-3.4-99: not a complaint there is"]


@pytest.mark.parametrize(
    "value",
    ["tests/test_a.py::test_gone", ["tests/test_a.py::test_here", "tests/test_a.py::test_gone"]],
    ids=["alone", "among others"],
)
def test_a_test_that_does_not_exist_is_noticed(value: object) -> None:
    lines = complete(**{"shimv2-G-01": value})
    assert judge(lines, {"tests/test_a.py::test_here"}) == ["shimv2-G-01: no test tests/test_a.py::test_gone"]


@pytest.mark.parametrize("value", ["later: someday", "later:", "not ours: ", "not ours: why", "", [], 7])
def test_an_excuse_that_is_none_is_noticed(value: object) -> None:
    assert len(judge(complete(**{"peers-3.1-01": value}), set())) == 1


def test_tests_are_found_by_reading_and_not_by_running(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "tests" / "system" / "test_x.py"
    file.parent.mkdir(parents=True)
    file.write_text("import nothing_there\n\ndef helper(): ...\nasync def test_one(): ...\ndef test_two(): ...\n")
    assert named_below(tmp_path / "tests") == {"tests/system/test_x.py::test_one", "tests/system/test_x.py::test_two"}
