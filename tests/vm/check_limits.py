"""Limits of containers in systemd's scopes: what the kernel has in force at the beginning, after updates, and after
systemd has read its units again and written their limits into the kernel's files."""

import sys
from collections.abc import Iterator

import pytest

from tests.vm.machine import Machine

MIB = 1 << 20
FILES = {"pids": "pids.max", "memory": "memory.max", "swap": "memory.swap.max", "cpu": "cpu.max"}
NONE = dict.fromkeys(FILES, "max")
# Of the scope, and of the cgroup that crun makes in it: what is reached first counts.
SHOW = """
scope=$(find /sys/fs/cgroup/exitd.slice -type d -name "exitd-$1*.scope")
for each in $scope $scope/container; do
    [ -d $each ] && head -n 1 $each/pids.max $each/memory.max $each/memory.swap.max $each/cpu.max
done; true
"""


def in_force(machine: Machine, id: str) -> dict[str, str]:
    found: dict[str, list[float]] = {name: [] for name in FILES}
    file = ""
    for line in machine.say("sh", "-c", SHOW, "sh", id).splitlines():
        if line.startswith("==> "):
            file = line.split()[1].rpartition("/")[2]
        elif line:
            name = next(name for name, each in FILES.items() if each == file)
            found[name].append(float("inf") if line.startswith("max") else float(line.split()[0]))
    return {name: "max" if min(values) == float("inf") else f"{min(values):.0f}" for name, values in found.items()}


def are_in_force(machine: Machine, id: str, **wanted: object) -> None:
    """Now, and when systemd has read its units again."""
    said = NONE | {name: str(value) for name, value in wanted.items()}
    for when in ("now", "after daemon-reload"):
        found = in_force(machine, id)
        print(when, found, file=sys.stderr)
        assert found == said, when
        machine.say("systemctl", "daemon-reload")


@pytest.fixture(params=["runc", "crun"])
def begun(machine: Machine, request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    """The words that run a container."""
    yield ("exitctl", "run", "-d", "--runtime", request.param, "--rootfs", "/", "--name", "limited")
    machine.say("exitctl", "rm", "-f", "limited")


def check_limits_are_in_force_as_asked_also_when_systemd_reads_its_units_again(
    machine: Machine, begun: tuple[str, ...]
) -> None:
    """5000 processes are more than systemd's own limit for a unit in a machine of this size."""
    id = machine.say(*begun, "-m", "64m", "--cpus", "0.5", "--pids-limit", "5000", "sleep", "600").strip()
    are_in_force(machine, id, pids=5000, memory=64 * MIB, swap=0, cpu=50_000)
    machine.say("exitctl", "update", "-m", "128m", "--cpus", "1.5", "--pids-limit", "6000", id)
    are_in_force(machine, id, pids=6000, memory=128 * MIB, swap=0, cpu=150_000)
    assert " / 128 MiB " in machine.say("exitctl", "stats", "--no-stream", id)
    machine.say("exitctl", "update", "--memory-swap", "192m", "--pids-limit", "70", id)
    are_in_force(machine, id, pids=70, memory=128 * MIB, swap=64 * MIB, cpu=150_000)
    machine.say("exitctl", "update", "-m", "0", "--cpus", "0", "--pids-limit", "0", id)
    are_in_force(machine, id)
    machine.say("exitctl", "update", "-m", "32m", "--pids-limit", "80", id)
    are_in_force(machine, id, pids=80, memory=32 * MIB, swap=0)
    machine.say("exitctl", "restart", "--time", "0", id)
    are_in_force(machine, id, pids=80, memory=32 * MIB, swap=0)


def check_no_limit_of_processes_is_none_and_not_systemds(machine: Machine, begun: tuple[str, ...]) -> None:
    id = machine.say(*begun, "--pids-limit", "-1", "sleep", "600").strip()
    are_in_force(machine, id)


def check_without_a_word_there_is_exitds_limit_of_processes(machine: Machine, begun: tuple[str, ...]) -> None:
    id = machine.say(*begun, "sleep", "600").strip()
    are_in_force(machine, id, pids=2048)
