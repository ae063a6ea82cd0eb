"""docs/doors.md names what there is."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/doors.md").read_text()
NAMES = sorted(set(re.findall(r"`((?:supervisor|shim|tests)/[^`]+)`", PAGE)))


def is_there(name: str) -> bool:
    """A file, or what one defines at its top level: PATH::NAME."""
    path, _, inside = name.partition("::")
    if not (ROOT / path).is_file():
        return False
    defined = rf"^(?:(?:async )?def |class )?{re.escape(inside)}\b(?:\[|\(|:| =|,)"
    return not inside or re.search(defined, (ROOT / path).read_text(), re.MULTILINE) is not None


@pytest.mark.parametrize("name", NAMES)
def test_what_the_page_names_is_there(name: str) -> None:
    assert is_there(name)


def test_a_name_that_is_not_there_is_seen() -> None:
    assert not is_there("supervisor/model/bounds.py::NOTHING") and not is_there("supervisor/nothing.py")


def test_each_door_has_its_place_and_its_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "`" in line]
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 4 and "::" in cells[2] and cells[3].startswith("`tests/"), row
    assert len(rows) > 30
