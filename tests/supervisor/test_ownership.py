"""supervisor/ownership.py: the instance of a root, and the states it has had."""

import pathlib

import pytest

from supervisor import ownership
from supervisor.errors import CannotStart


def test_a_root_keeps_its_instance_and_another_root_has_another(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = ownership.owner(str(tmp_path / "a"), "/s")
    assert ownership.owner(str(tmp_path / "a"), "/s") == first
    assert ownership.owner(str(tmp_path / "b"), "/s").instance != first.instance
    assert first.earlier_states == ()


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


def test_what_has_no_mark_or_has_gone_is_not_owned(tmp_path: pathlib.Path) -> None:
    owner = ownership.Owner("0" * 32)
    owner.mark((str(tmp_path / "gone"),))
    assert not owner.owns(str(tmp_path))
    assert not owner.owns(str(tmp_path / "gone"))
