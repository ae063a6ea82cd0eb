import dataclasses
import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model import values
from supervisor.model.values import Exited, ExitStatus, Phase, Signaled, Source, Unknown, fold

FACTS = [each for _, each in inspect.getmembers(values, dataclasses.is_dataclass)]


@pytest.mark.parametrize(
    ("status", "number"),
    [(Exited(0), 0), (Exited(255), 255), (Signaled(9), 137), (Signaled(6, core=True), 134), (Unknown("x"), 255)],
)
def test_a_status_folds_into_the_one_number_foreign_protocols_want(status: ExitStatus, number: int) -> None:
    assert fold(status) == number


@given(st.none() | st.integers(-(2**31), 2**31))
def test_a_number_that_proves_nothing_is_not_folded_into_an_answer(number: int | None) -> None:
    assert fold(Unknown("fifo-number-only", number)) == values.UNKNOWN_NUMBER


@pytest.mark.parametrize("fact", FACTS)
def test_facts_are_frozen(fact: type) -> None:
    assert hasattr(fact, "__values_of__") and hasattr(fact, "__slots__")  # as `frozen` leaves it


def test_the_sources_stand_in_the_order_of_trust() -> None:
    assert [source.value for source in Source] == [
        *("record", "fifo", "keeper", "zombie", "pidfd", "procevents"),
        *("shimv2-wait", "shimv2-event", "shimv2-delete", "none"),
    ]


def test_a_live_phase_is_one_with_an_init() -> None:
    assert set(Phase) - values.LIVE == {Phase.CREATING, Phase.EXITED, Phase.RESTARTING, Phase.REMOVING}
