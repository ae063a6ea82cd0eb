"""What a round of the reconcile loop does for the output of a run, and the copies that a watch holds."""

import errno
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shim import launch, slots
from supervisor.model.values import RunKey
from supervisor.monitor import keeper, rundir
from supervisor.monitor.mending import Mend, OutputState, missing, wanted
from supervisor.monitor.shims import Shims
from supervisor.monitor.witness import Watch
from supervisor.system.background import Background
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.fakes import in_loop

ALL = (slots.OUT_FD, slots.ERR_FD, slots.STAGE_READ_FD, slots.STAGE_WRITE_FD)
ALONE = (slots.OUT_FD, slots.STAGE_READ_FD, slots.STAGE_WRITE_FD)
EVERY_SET = [frozenset(some) for count in range(len(ALL) + 1) for some in itertools.combinations(ALL, count)]


@pytest.mark.parametrize("copies", EVERY_SET)
@pytest.mark.parametrize("is_alone", [False, True])
def test_copies_are_asked_for_until_the_set_is_whole(copies: frozenset[int], is_alone: bool) -> None:
    is_whole = copies.issuperset(ALONE if is_alone else ALL)
    assert wanted(OutputState(copies, is_alone, True, True)) is (Mend.NOTHING if is_whole else Mend.COPIES)
    assert missing(copies, is_alone=is_alone) == set(ALONE if is_alone else ALL) - copies


@pytest.mark.parametrize("copies", EVERY_SET)
@pytest.mark.parametrize("is_alone", [False, True])
def test_without_a_shim_a_replacement_is_tried_as_soon_as_there_is_a_copy(
    copies: frozenset[int], is_alone: bool
) -> None:
    assert wanted(OutputState(copies, is_alone, False, True)) is (Mend.SHIM if copies else Mend.COPIES)


@pytest.mark.parametrize("copies", EVERY_SET)
@pytest.mark.parametrize(("is_alone", "has_shim"), [*itertools.product([False, True], repeat=2)])
def test_nothing_is_done_where_another_part_is_at_work_or_nothing_more_comes(
    copies: frozenset[int], is_alone: bool, has_shim: bool
) -> None:
    assert wanted(OutputState(copies, is_alone, has_shim, False)) is Mend.NOTHING


class Line:
    """A keeper that gives what is next in its list, if that is not a refusal."""

    def __init__(self, *answers: Sequence[int] | Exception) -> None:
        self.answers = list(answers)

    async def copies(self, container: str, run: int, exec_id: str = "") -> dict[int, int]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {slot: os.open(os.devnull, os.O_RDONLY) for slot in answer}


class Asking(Shims):
    def __init__(self, line: Any) -> None:
        self._keeper, self._background = line, Background()
        self.asked = self._background


@in_loop
async def test_what_the_keeper_did_not_have_or_gave_in_part_is_asked_for_again_and_nothing_is_held_twice(
    tmp_path: Path,
) -> None:
    unknown = launch.KeeperRefused("unknown run", errno.ENOENT)
    line = Line(unknown, keeper.KeeperSilent("gone"), (), ALL[:2], ALL[1:], ALL)
    senses: Any = None
    before = held_now()
    asking, watch = Asking(line), Watch(RunKey("c1", 1), rundir.RunDirectory(str(tmp_path)), senses)
    watch.shim_is_unheld = True  # it has a shim
    for held in (0, 0, 0, 2, 4):
        assert watch.mend(is_open=True) is Mend.COPIES
        asking.ask_for_copies(watch)
        await asking.asked.settled()
        assert len(watch.copies) == held
    assert watch.mend(is_open=True) is Mend.NOTHING
    asking.ask_for_copies(watch)
    await asking.asked.settled()
    assert len(line.answers) == 1  # it is not asked for what there is
    watch.drop_copies()
    watch.closed = True
    watch.hold_copies({slots.OUT_FD: os.open(os.devnull, os.O_RDONLY)})
    assert not watch.copies and not opened_since(before)
