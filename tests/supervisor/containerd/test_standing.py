"""exitd's word of a task's state: it stands while that is certain, and is gone before anything changes."""

import os
from pathlib import Path

import pytest

from shim.frozen import replace
from supervisor.containerd.standing import StandingWords, place_of
from supervisor.containerd.tasks import WORDS, look
from supervisor.engine.containers import Containers
from supervisor.model.errors import ShimFailed
from supervisor.model.taskfacts import Task
from supervisor.model.values import Container, Phase, Pod, Process, Spec
from tests.supervisor.fakes import in_loop


def task(state: Path, phase: Phase = Phase.CREATED) -> Container:
    c = Container("c1", Spec("web", task=Task("/b")), phase, 1, 1, init=Process(40, 4))
    os.makedirs(os.path.dirname(place_of(str(state), c)), exist_ok=True)
    return c


def word(state: Path, c: Container) -> str:
    try:
        return os.readlink(place_of(str(state), c))
    except FileNotFoundError:
        return ""


@in_loop
async def test_of_every_phase_the_word_is_what_state_says_or_there_is_none(tmp_path: Path) -> None:
    standing, c = StandingWords(Containers(), str(tmp_path)), task(tmp_path)
    for before in Phase:
        for phase in Phase:
            for shown in (before, phase):
                c = replace(c, phase=shown)
                standing.settle(c)
                certain = shown in (Phase.CREATED, Phase.RUNNING, Phase.PAUSED)
                assert word(tmp_path, c) == (WORDS[look(c).status] if certain else ""), (before, phase)


@in_loop
async def test_while_anything_changes_it_there_is_no_word_whatever_is_shown(tmp_path: Path) -> None:
    standing, c = StandingWords(Containers(), str(tmp_path)), task(tmp_path, Phase.RUNNING)
    standing.settle(c)
    standing.turning(c)
    assert word(tmp_path, c) == ""
    standing.turning(c)  # another one, which is refused
    standing.turned(c)
    standing.settle(replace(c, phase=Phase.PAUSED))
    assert word(tmp_path, c) == ""
    standing.turned(replace(c, phase=Phase.PAUSED))
    assert word(tmp_path, c) == "paused"


@in_loop
async def test_what_an_earlier_exitd_wrote_stays_if_it_is_what_was_stored_and_nothing_is_written_before_the_look_up(
    tmp_path: Path,
) -> None:
    containers, c = Containers(), task(tmp_path, Phase.RUNNING)
    containers.recovering[c.id] = object()  # type: ignore[assignment]  # what is looked up has an event
    os.symlink("running", place_of(str(tmp_path), c))
    StandingWords(containers, str(tmp_path)).look_up(c)
    assert word(tmp_path, c) == "running"
    standing = StandingWords(containers, str(tmp_path))
    standing.look_up(replace(c, phase=Phase.STARTING))  # its exitd was killed before it could take the word away
    assert word(tmp_path, c) == ""
    standing.settle(c)
    assert word(tmp_path, c) == ""
    del containers.recovering[c.id]
    standing.settle(c)
    assert word(tmp_path, c) == "running"


@in_loop
async def test_where_the_word_cannot_be_taken_away_nothing_is_changed(tmp_path: Path) -> None:
    standing, c = StandingWords(Containers(), str(tmp_path)), task(tmp_path, Phase.RUNNING)
    standing.settle(c)
    os.unlink(place := place_of(str(tmp_path), c))
    os.mkdir(place)
    with pytest.raises(ShimFailed, match="state: Is a directory"):
        standing.turning(c)
    with pytest.raises(OSError, match="Is a directory"):
        standing.look_up(replace(c, phase=Phase.STARTING))
    os.rmdir(place)
    standing.settle(replace(c, phase=Phase.PAUSED))
    assert word(tmp_path, c) == "paused"


@in_loop
async def test_a_word_that_cannot_be_written_is_none_and_comes_with_the_next_change(tmp_path: Path) -> None:
    standing, c = StandingWords(Containers(), str(tmp_path)), task(tmp_path)
    os.rmdir(directory := os.path.dirname(place_of(str(tmp_path), c)))
    standing.settle(c)
    os.mknod(directory)
    standing.settle(c)
    os.unlink(directory)
    os.mkdir(directory)
    standing.settle(c)
    assert word(tmp_path, c) == "created"


@in_loop
async def test_of_what_is_no_task_or_a_sandbox_nothing_is_written(tmp_path: Path) -> None:
    standing, c = StandingWords(Containers(), str(tmp_path)), task(tmp_path, Phase.RUNNING)
    for spec in (Spec("web"), replace(c.spec, pod=Pod())):
        for step in (standing.settle, standing.look_up, standing.turning, standing.turned):
            step(replace(c, spec=spec))
    assert word(tmp_path, c) == ""
    assert not os.listdir(os.path.dirname(place_of(str(tmp_path), c)))
