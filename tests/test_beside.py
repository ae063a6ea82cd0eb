"""The table of docs/play-beside-podman.md as a value: a row for each manifest, and what did not hold in it."""

import pytest

from tests.system.standins import MANIFESTS
from tests.vm import beside
from tests.vm.beside import ALL, BEGIN, END, EXITD, FACTS, NOT_YET, PODMAN, Outcome

REFUSED = Outcome(125, "Error: a | b\n\n", ())


def test_each_manifest_has_what_has_to_hold() -> None:
    assert FACTS.keys() == {path.stem for path in MANIFESTS.glob("*.yaml")}
    assert all(FACTS.values())


def test_a_run_replaces_its_own_cells_and_nothing_else() -> None:
    page = f"# Page\n\n{BEGIN}{END}\nafter\n"
    refused = beside.cell(FACTS["hooks"], REFUSED)
    first = beside.with_row(page, "podman 4", "hooks", PODMAN, refused)
    made = beside.with_row(first, "podman 5", "hooks", EXITD, ALL)
    assert made.startswith(f"# Page\n\n{BEGIN}\npodman 5\n") and made.endswith(f"\n{END}\nafter\n")
    what = "; ".join(fact.what for fact in FACTS["hooks"])
    assert f"| `hooks` | {what} | {ALL} | refused, 125: `Error: a \\| b` |" in made.splitlines()
    assert made.count(NOT_YET) == 2 * (len(FACTS) - 1)
    assert beside.with_row(made, "podman 5", "hooks", PODMAN, refused) == made
    with pytest.raises(ValueError, match="no place"):
        beside.with_row("# Page\n", "podman 5", "hooks", EXITD, ALL)


def test_what_did_not_hold_is_named_with_what_was_seen_instead() -> None:
    first, second = FACTS["hooks"]
    assert beside.cell((first, second), Outcome(0, "", ((True, ""), (False, "")))) == (
        f"**not:** {second.what}: nothing is there"
    )
    long = "x" * 1000
    assert f"`{'x' * beside.SAID_CHARACTERS}...`" in beside.cell((first,), Outcome(0, "", ((False, long),)))
