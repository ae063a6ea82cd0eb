"""A state directory that is lost: what ran is ended, scopes and all, and recorded as unknown."""

import sys

import pytest

from tests.vm.machine import Machine

ONCE = 1


@pytest.mark.parametrize("shims", ["live", "killed"])
def check_what_a_lost_state_directory_leaves_is_ended_and_recorded(machine: Machine, shims: str) -> None:
    count = 4
    found: list[object] = list(machine.python("lost.py", shims, str(count)))
    print(shims, found, file=sys.stderr)
    assert found == [["unknown", "state-lost", "none", ONCE]] * (count + 1)
