"""supervisor/engine/node.py: commits that a store refuses, tried again, and what health hears of it."""

import asyncio

import pytest

from supervisor.engine import node as module
from supervisor.engine.node import StepTurn, Storing
from supervisor.model.errors import NameTaken, StoreFailed
from tests.supervisor.fakes import hasty, in_loop, until

__all__ = ["hasty"]


class Commits:
    """Each fails as it is told, one after the other, and then works."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    async def __call__(self) -> None:
        if self.errors:
            raise self.errors.pop(0)


@pytest.fixture
def heard(hasty: None) -> tuple[Storing, list[bool]]:
    reports = list[bool]()
    return Storing(reports.append), reports


@in_loop
async def test_a_refused_commit_is_tried_until_it_works_and_health_hears_of_both(
    heard: tuple[Storing, list[bool]],
) -> None:
    storing, reports = heard
    await storing.retry("a", Commits(StoreFailed("full"), StoreFailed("full")))
    assert reports == [False, True]


@in_loop
async def test_another_error_is_the_callers_and_ends_the_refusal(heard: tuple[Storing, list[bool]]) -> None:
    storing, reports = heard
    with pytest.raises(NameTaken):
        await storing.retry("a", Commits(StoreFailed("full"), NameTaken("taken")))
    assert reports == [False, True]


@in_loop
async def test_health_is_well_again_only_when_nobody_is_refused(heard: tuple[Storing, list[bool]]) -> None:
    storing, reports = heard
    await asyncio.gather(
        storing.retry("a", Commits(StoreFailed("full"))),
        storing.retry("b", Commits(*[StoreFailed("full")] * 3)),
    )
    assert reports == [False, True]


@in_loop
async def test_a_commit_that_takes_long_is_waited_for_and_not_begun_again_and_health_hears_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SLOW_SECONDS", 0.01)
    reports, disk, begun = list[bool](), asyncio.Event(), list[str]()
    storing = Storing(reports.append)

    async def commit() -> None:
        begun.append("a")
        await disk.wait()

    stored = asyncio.ensure_future(storing.retry("a", commit))
    await until(lambda: reports, "the word of health")
    assert reports == [False]
    disk.set()
    await stored
    assert (begun, reports) == (["a"], [False, True])


@in_loop
async def test_who_is_not_patient_is_refused_when_an_earlier_step_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = StepTurn()
    await turn.take("a", patient=False)
    monkeypatch.setattr(module, "SLOW_SECONDS", 0.01)
    with pytest.raises(StoreFailed, match="still being stored"):
        await turn.take("a", patient=False)
    next_one = asyncio.ensure_future(turn.take("a", patient=True))
    await asyncio.sleep(0)
    turn.give_back()
    await next_one
    assert turn.is_taken
    turn.give_back()
    assert not turn.is_taken
