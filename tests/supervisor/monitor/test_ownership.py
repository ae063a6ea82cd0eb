"""supervisor/monitor/ownership.py: the instance of a root, and the states it has had."""

import os
import pathlib
import shutil

import pytest

from supervisor.model.errors import CannotStart
from supervisor.monitor import ownership


def test_a_root_keeps_its_instance_and_another_root_has_another(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = ownership.owner(str(tmp_path / "a"), "/s")
    assert ownership.owner(str(tmp_path / "a"), "/s") == first
    assert ownership.owner(str(tmp_path / "b"), "/s").instance != first.instance
    assert first.earlier_states == ()


def test_a_start_that_has_nothing_new_to_note_writes_nothing(tmp_path: pathlib.Path) -> None:
    """A root directory without room keeps no exitd from its next start."""
    first = ownership.owner(str(tmp_path), "/s")
    before = (tmp_path / "instance").stat()
    assert ownership.owner(str(tmp_path), "/s") == first
    after = (tmp_path / "instance").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_run_is_looked_for_in_the_states_that_the_root_has_had(tmp_path: pathlib.Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    (old / "c/id/1").mkdir(parents=True)
    new.mkdir()
    ownership.owner(str(tmp_path), str(old))
    found = ownership.owner(str(tmp_path), str(new))
    assert (found.earlier_state_of("id", 1), found.earlier_state_of("id", 2)) == (str(old), "")
    assert ownership.owner(str(tmp_path), str(old)).earlier_states == ()  # the new one has no containers yet


def test_a_state_that_is_gone_is_forgotten(tmp_path: pathlib.Path) -> None:
    ownership.owner(str(tmp_path), str(tmp_path / "gone"))
    assert ownership.owner(str(tmp_path), str(tmp_path)).earlier_states == ()


@pytest.mark.parametrize("content", [b"not an instance\n", b"\xff\xfe", b"\n"])
def test_a_file_that_is_none_of_exitds_is_named_and_left_alone(tmp_path: pathlib.Path, content: bytes) -> None:
    (tmp_path / "instance").write_bytes(content)
    with pytest.raises(CannotStart, match="instance"):
        ownership.owner(str(tmp_path), "/s")
    assert (tmp_path / "instance").read_bytes() == content


@pytest.fixture
def taken(tmp_path: pathlib.Path) -> tuple[str, str, str]:
    """A state directory with a run, the root of its exitd, and another root."""
    made = [tmp_path / name for name in ("s", "r", "r2")]
    for path in made:
        path.mkdir()
    (made[0] / "c/id/1").mkdir(parents=True)
    ownership.owner(str(made[1]), str(made[0]))
    return str(made[0]), str(made[1]), str(made[2])


def test_a_state_with_runs_is_its_roots_alone(taken: tuple[str, str, str]) -> None:
    state, root, other = taken
    with pytest.raises(CannotStart, match=f"--root {root}, and this exitd has --root {other}; .*remove {state}/inst"):
        ownership.owner(other, state)
    assert not (pathlib.Path(other) / "instance").exists()
    assert ownership.owner(root, state).instance


@pytest.mark.parametrize("how", ["without runs", "of an earlier version"])
def test_a_state_that_nobody_needs_or_has_marked_is_taken_over(taken: tuple[str, str, str], how: str) -> None:
    state, _root, other = taken
    shutil.rmtree(f"{state}/c/id") if how == "without runs" else os.unlink(f"{state}/instance")
    found = ownership.owner(other, state)
    assert pathlib.Path(state, "instance").read_text() == f"{found.instance}\n{other}\n"
    assert pathlib.Path(state, "instance").stat().st_mode & 0o777 == 0o600


def test_a_root_that_was_lost_has_its_instance_again_and_one_that_was_replaced_is_refused(
    taken: tuple[str, str, str],
) -> None:
    state, root, _other = taken
    first = ownership.owner(root, state)
    os.unlink(f"{root}/instance")
    assert ownership.owner(root, state).instance == first.instance
    pathlib.Path(root, "instance").write_text(f"{'0' * 32}\n")
    with pytest.raises(CannotStart, match=f"former content of --root {root}"):
        ownership.owner(root, state)


@pytest.mark.parametrize("content", [b"not an instance\n", b"\xff\xfe", b"\n"])
def test_a_states_file_that_is_none_of_exitds_is_named(taken: tuple[str, str, str], content: bytes) -> None:
    state, root, _ = taken
    pathlib.Path(state, "instance").write_bytes(content)
    with pytest.raises(CannotStart, match=f"{state}/instance"):
        ownership.owner(root, state)


def test_what_has_no_mark_or_has_gone_is_not_owned(tmp_path: pathlib.Path) -> None:
    owner = ownership.Owner("0" * 32)
    owner.mark((str(tmp_path / "gone"),))
    assert not owner.owns(str(tmp_path))
    assert not owner.owns(str(tmp_path / "gone"))
    assert not owner.is_anothers(str(tmp_path))
