"""supervisor/storing.py: commits that a store refuses, tried again, and what health hears of it."""

import asyncio

import pytest

from supervisor.errors import NameTaken, StoreFailed
from supervisor.storing import Storing
from tests.supervisor.fakes import hasty, in_loop

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
    storing, told = Storing(), list[bool]()
    storing.on_health = told.append
    return storing, told


@in_loop
async def test_a_refused_commit_is_tried_until_it_works_and_health_hears_of_both(
    heard: tuple[Storing, list[bool]],
) -> None:
    storing, told = heard
    await storing.surely("a", Commits(StoreFailed("full"), StoreFailed("full")))
    assert told == [False, True]


@in_loop
async def test_another_error_is_the_callers_and_ends_the_refusal(heard: tuple[Storing, list[bool]]) -> None:
    storing, told = heard
    with pytest.raises(NameTaken):
        await storing.surely("a", Commits(StoreFailed("full"), NameTaken("taken")))
    assert told == [False, True]


@in_loop
async def test_health_is_well_again_only_when_nobody_is_refused(heard: tuple[Storing, list[bool]]) -> None:
    storing, told = heard
    await asyncio.gather(
        storing.surely("a", Commits(StoreFailed("full"))),
        storing.surely("b", Commits(*[StoreFailed("full")] * 3)),
    )
    assert told == [False, True]
