"""The tables of docs/play-beside-podman.md as values: a row for each manifest, and what did not hold in it."""

import pathlib

import pytest

from tests.system.standins import MANIFESTS
from tests.vm import behind, beside
from tests.vm.beside import ALL, END, EXITD, FACTS, NOT_YET, PODMAN, TABLE, Outcome

PAGE = pathlib.Path(__file__).parents[1] / "docs/play-beside-podman.md"
REFUSED = Outcome(125, "Error: a | b\n\n", ())


def test_each_manifest_has_what_has_to_hold() -> None:
    assert FACTS.keys() == {path.stem for path in MANIFESTS.glob("*.yaml")}
    assert all(FACTS.values())


def test_a_run_replaces_its_own_cells_and_nothing_else() -> None:
    page = f"# Page\n\n{TABLE.begin}{END}\nafter\n"
    refused = beside.cell(FACTS["hooks"], REFUSED)
    first = beside.with_row(page, TABLE, "podman 4", "hooks", PODMAN, refused)
    made = beside.with_row(first, TABLE, "podman 5", "hooks", EXITD, ALL)
    assert made.startswith(f"# Page\n\n{TABLE.begin}\npodman 5\n") and made.endswith(f"\n{END}\nafter\n")
    what = "; ".join(fact.what for fact in FACTS["hooks"])
    assert f"| `hooks` | {what} | {ALL} | refused, 125: `Error: a \\| b` |" in made.splitlines()
    assert made.count(NOT_YET) == 2 * (len(FACTS) - 1)
    assert beside.with_row(made, TABLE, "podman 5", "hooks", PODMAN, refused) == made
    with pytest.raises(ValueError, match="no place"):
        beside.with_row("# Page\n", TABLE, "podman 5", "hooks", EXITD, ALL)


def test_what_did_not_hold_is_named_with_what_was_seen_instead() -> None:
    first, second = FACTS["hooks"]
    assert beside.cell((first, second), Outcome(0, "", ((True, ""), (False, "")))) == (
        f"**not:** {second.what}: nothing is there"
    )
    long = "x" * 1000
    assert f"`{'x' * beside.SAID_CHARACTERS}...`" in beside.cell((first,), Outcome(0, "", ((False, long),)))


def test_each_table_has_its_place_on_the_page_and_leaves_the_other_one_alone() -> None:
    page = PAGE.read_text()
    marked = beside.with_row(page, TABLE, "versions of one run", "hooks", PODMAN, "one cell")
    both = beside.with_row(marked, behind.TABLE, "versions of another", "build", PODMAN, "another cell")
    changed = [line for line in both.splitlines() if line not in page.splitlines()]
    assert changed == [
        "versions of one run",
        f"| `hooks` | {TABLE.wanted['hooks']} | {exitds(page, 'hooks')} | one cell |",
        "versions of another",
        f"| `build` | {behind.TABLE.wanted['build']} | {exitds(page, 'build')} | another cell |",
    ]


def exitds(page: str, name: str) -> str:
    (row,) = (line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
    return row.split(" | ")[2]
