"""The machine's memory is used up by containers without a limit: the kernel kills them, and nobody who watches them."""

import sys

import pytest

from tests.vm.machine import Machine

QUIET = 2  # as in guest/pressure.py
EATEN = ["signaled", 9, "oom", True, "record", ["create", "start", "oom", "exit"], 1]
ENDED = ["exited", 7, "self", False, "record", ["create", "start", "exit"], 1]


@pytest.mark.parametrize("runtime", ["runc", "crun"])
@pytest.mark.parametrize("eaters", [1, 3])
def check_exitd_keeper_and_shims_outlive_the_machines_memory(machine: Machine, runtime: str, eaters: int) -> None:
    """Each that was killed ends with its reason, by its shim's record; the others are left alone."""
    found: list[object] = list(machine.python("pressure.py", runtime, str(eaters)))
    print(runtime, eaters, found, file=sys.stderr)
    *outcomes, watched = found
    assert outcomes == [EATEN] * eaters + [ENDED] * QUIET
    assert watched == {"same": True, "kills": eaters, "protected": True}
