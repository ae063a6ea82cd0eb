"""The exit protocol, every state of it within bounds: nothing breaks a promise, and what would is refused."""

import re
from collections import Counter

import pytest

from tests.protocol.bounds import BOUNDS, MUTATIONS, Mutation
from tests.protocol.page import (
    FAULTS,
    MUTANTS,
    PAGE,
    SEARCHES,
    STEPS,
    bound_row,
    fault_rows,
    mutation_row,
    refusal,
    rows_under,
    step_rows,
)
from tests.protocol.search import search, steps
from tests.test_docs import ROOT, defined_in

TEXT = PAGE.read_text()
each_mutation = pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)


def is_defined(place: str) -> bool:
    """Whether there is such a function, FILE:FUNCTION, in C or in Python."""
    file, _, name = place.partition(":")
    path = ROOT / file
    if path.suffix == ".py":
        return path.is_file() and name in defined_in(path)
    head = rf"^[a-z][^;{{}}]*\b{name}\([^;{{}}]*\)\n\{{"
    return path.is_file() and re.search(head, path.read_text(), re.MULTILINE) is not None


@pytest.mark.timeout(900)  # half a minute of a processor
def test_every_state_within_the_bounds_keeps_every_promise_and_comes_to_an_end() -> None:
    """Each step and each fault is possible somewhere: none is there for show."""
    taken, rows, states = Counter[str](), list[str](), 0
    for bound in BOUNDS:
        found = search(bound)
        taken += found.taken
        rows.append(bound_row(bound, found))
        states += found.states
    assert f"\n{states:,} states together, " in TEXT
    assert rows == rows_under(TEXT, SEARCHES)
    assert [each.name for each in steps() if not taken[each.name]] == []


@each_mutation
def test_a_protocol_that_is_wrong_is_refused_with_the_way_that_shows_it(mutation: Mutation) -> None:
    refused = refusal(mutation)
    print(refused)
    assert mutation_row(mutation, refused) in rows_under(TEXT, MUTANTS)
    assert str(refused).startswith(f"{refused.why}:\n  1. {refused.way[0]}\n")


def test_the_page_has_every_step_with_its_lines_and_every_fault() -> None:
    assert rows_under(TEXT, STEPS) == step_rows()
    assert rows_under(TEXT, FAULTS) == fault_rows()
    assert len(rows_under(TEXT, MUTANTS)) == len(MUTATIONS)


def test_the_lines_that_a_step_stands_for_are_there() -> None:
    assert [each.place for each in steps() if not each.fault and not is_defined(each.place)] == []
    assert not is_defined("shim/core/reap.c:no_such")
    assert not is_defined("shim/core/reap.c:cgroup_end")  # called there, defined elsewhere
    assert not is_defined("supervisor/engine/node.py:Node.no_such")
