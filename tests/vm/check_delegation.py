"""An exitd in a cgroup that was delegated, which is all of the tree that it sees, or in a tree that it may not write:
limits work where their controllers were handed down, and are refused with the cure where they were not."""

from collections.abc import Iterator

import pytest

from tests.vm.machine import Done, Machine

UNIT, STATE, ROOT = "nested.service", "/run/nested", "/var/tmp/nested"
EXITD = f"/opt/exitd/bin/exitd --root {ROOT} --state {STATE} --cgroup-driver cgroupfs --default-network none"
# In a cgroup below its unit's, which hands down the controllers $1, without the rest of the tree in sight. systemd-run
# makes $ of $$; 0 stands for the writer.
NESTED = f"""set -e
unit=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)
mkdir $unit/begins $unit/handed
echo 0 >$unit/begins/cgroup.procs
echo "$1" >$unit/cgroup.subtree_control
echo 0 >$unit/handed/cgroup.procs
exec unshare --cgroup --mount sh -ec '
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir /sys/fs/cgroup/own
echo 0 >/sys/fs/cgroup/own/cgroup.procs
exec {EXITD}'"""


@pytest.fixture
def nested(machine: Machine) -> Iterator[Machine]:
    yield machine
    machine.say("systemctl", "stop", UNIT)
    machine.say("rm", "-rf", ROOT, STATE)
    machine.run("systemctl", "reset-failed", UNIT)


def begin(machine: Machine, *words: str) -> None:
    """Return when that exitd answers. `words`: what systemd-run is asked."""
    machine.say("systemd-run", f"--unit={UNIT}", *words)
    answers, lives = f"exitctl --address {STATE}/exitd.sock info", f"systemctl is-active --quiet {UNIT}"
    machine.say("sh", "-c", f"until {answers} >/dev/null 2>&1; do {lives} || exit; sleep 1; done")


def run(machine: Machine, *words: str) -> Done:
    return machine.run("exitctl", "--address", f"{STATE}/exitd.sock", "run", *words)


def check_limits_work_in_a_delegated_cgroup(nested: Machine) -> None:
    begin(nested, "--property=Delegate=yes", "sh", "-c", NESTED, "sh", "+cpu +memory +pids")
    limits = ("--memory", "16m", "--cpus", "0.5", "--pids-limit", "50")
    done = run(nested, *limits, "--name", "code", "/", "sh", "-c", "exit 3")
    assert done.status == 3, done
    assert run(nested, *limits, "--name", "memory", "/", "tail", "/dev/zero").status == 128 + 9
    said = nested.say(
        "exitctl", "--address", f"{STATE}/exitd.sock", "exits", "--reason", "oom", "--format", "{{.Name}}"
    )
    assert said.split() == ["memory"], said


def check_a_controller_that_was_not_delegated_is_named_with_the_cure(nested: Machine) -> None:
    begin(nested, "--property=Delegate=yes", "sh", "-c", NESTED, "sh", "+pids")
    done = run(nested, "--memory", "16m", "/", "sh", "-c", "exit 3")
    assert done.status == 125, done
    assert "has not been delegated the cgroup controller memory: add it to Delegate=" in done.err
    assert run(nested, "--pids-limit", "50", "/", "sh", "-c", "exit 3").status == 3


def check_a_tree_that_is_read_only_is_named_with_the_cure(nested: Machine) -> None:
    begin(nested, "--property=ProtectControlGroups=yes", *EXITD.split())
    done = run(nested, "/", "sh", "-c", "exit 3")
    assert done.status == 125, done
    assert "/sys/fs/cgroup is mounted read-only" in done.err and "remount,rw" in done.err
