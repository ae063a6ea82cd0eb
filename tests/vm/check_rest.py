"""Whoever an init leaves in its scope, in the machine's pid namespace, is dead before the end is reported."""

import sys

import pytest

from tests.vm.machine import Machine

NOBODY_LIVES = 0
SOURCES = {"nobody": "record", "shim": "keeper", "both": ""}  # both: what the kernel says


@pytest.mark.parametrize("runtime", ["runc", "crun"])
@pytest.mark.parametrize("killed", SOURCES)
def check_nobody_in_a_scope_lives_when_the_end_of_its_init_is_reported(
    machine: Machine, runtime: str, killed: str
) -> None:
    count = 3
    found: list[object] = list(machine.python("rest.py", runtime, killed, str(count)))
    print(runtime, killed, found, file=sys.stderr)
    assert found == [["exited", 7, SOURCES[killed] or machine.kernels_source(), NOBODY_LIVES]] * count


def check_a_cgroup_that_crun_made_where_its_killed_container_was_is_removed(machine: Machine) -> None:
    """crun takes the place of a process that has ended before systemd moved it for that of the scope: its shim's."""
    places = [f"/sys/fs/cgroup/system.slice/{unit}.service/container" for unit in ("exitd", "exitd-keeper")]
    machine.say("mkdir", *places)
    for place in places:
        machine.say("timeout", "120", "sh", "-c", 'while [ -d "$1" ]; do sleep 1; done', "sh", place)
