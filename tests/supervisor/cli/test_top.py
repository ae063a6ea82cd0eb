"""The lines of ps(1) that are a container's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.cli.top import lines_of
from supervisor.model.errors import BadRequest

PS = """UID          PID    PPID CMD
root           1       0 /sbin/init splash
root          12       1 sleep 100
root         120       1 sleep 12
"""


def test_a_containers_are_picked_by_their_column() -> None:
    assert lines_of(PS, frozenset({"12"})) == ["UID          PID    PPID CMD", "root          12       1 sleep 100"]
    assert lines_of("  PID TTY\n    7 ?\n   12 ?\n", frozenset({"7"})) == ["  PID TTY", "    7 ?"]


@pytest.mark.parametrize("text", ["", "CMD\nsleep\n", "PIDX\n1\n"])
def test_without_that_column_nothing_can_be_picked(text: str) -> None:
    with pytest.raises(BadRequest, match="no column PID"):
        lines_of(text, frozenset({"1"}))


@given(st.text())
def test_whatever_ps_prints_is_a_list_or_refused(text: str) -> None:
    try:
        assert lines_of(f"PID\n{text}", frozenset({"1"}))[0] == "PID"
    except BadRequest:
        raise AssertionError("there is such a column") from None
