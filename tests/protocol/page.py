"""The tables of docs/protocol.md, as the model and its searches have them."""

import pathlib
import re

from tests.protocol.bounds import BOUNDS, MUTATIONS, Mutation
from tests.protocol.search import Found, Refused, search, steps
from tests.protocol.state import Bound

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "protocol.md"
STEPS, FAULTS, SEARCHES, MUTANTS = "The steps", "What may go wrong", "What is searched", "What it refuses"


def step_rows() -> list[str]:
    return [f"| {each.name} | `{each.place}` | {each.words} |" for each in steps() if not each.fault]


def fault_rows() -> list[str]:
    return [f"| {each.name} | {each.words} |" for each in steps() if each.fault]


def bound_row(bound: Bound, found: Found) -> str:
    most = ", ".join(f"{kind} {count}" for kind, count in bound.faults.items())
    return f"| {bound.name} | {bound.words} | {bound.total} of: {most} | {found.states:,} | {found.depth} |"


def mutation_row(mutation: Mutation, refused: Refused) -> str:
    return f"| {mutation.name} | {refused.why} | {mutation.bound} | {len(refused.way)} |"


def rows_under(text: str, heading: str) -> list[str]:
    """The rows of the table in this section of the page, without its head."""
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


def with_rows(text: str, heading: str, rows: list[str]) -> str:
    """The page with other rows in the table of this section."""
    before, section = text.split(f"\n## {heading}\n")
    section, *rest = re.split(r"(?=\n## )", section, maxsplit=1)
    head, _, behind = section.partition("|---|\n")
    behind = behind[len("".join(line for line in behind.splitlines(keepends=True) if line.startswith("|"))) :]
    return "".join([before, f"\n## {heading}\n", head, "|---|\n", *(f"{row}\n" for row in rows), behind, *rest])


def refusal(mutation: Mutation) -> Refused:
    """What the search says of a protocol that is wrong in this way. Raises AssertionError when it says nothing."""
    bound = next(each for each in BOUNDS if each.name == mutation.bound)
    try:
        found = search(bound, mutation.name)
    except Refused as refused:
        return refused
    raise AssertionError(f"{mutation.name}: not refused in {found.states} states")


def written(text: str) -> str:
    """The page with all of its tables anew."""
    for heading, rows in (
        (STEPS, step_rows()),
        (FAULTS, fault_rows()),
        (SEARCHES, [bound_row(bound, search(bound)) for bound in BOUNDS]),
        (MUTANTS, [mutation_row(mutation, refusal(mutation)) for mutation in MUTATIONS]),
    ):
        text = with_rows(text, heading, rows)
    return text
