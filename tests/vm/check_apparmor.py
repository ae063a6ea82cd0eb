"""exitd's AppArmor profile on a kernel with AppArmor: containers are confined by it, and end as they do without."""

import sys
from collections.abc import Iterator

import pytest

from tests.vm.machine import NO_APPARMOR, Machine

EXITCTL = "/opt/exitd/bin/exitctl"
# Debian gives runc and crun profiles in which nothing is confined. crun keeps its own beside the container's.
ITS_OWN = ("exitd-default (enforce)", "crun//&exitd-default (mixed)")
MOUNT = "mount -t tmpfs none /mnt && grep -q ' /mnt tmpfs' /proc/mounts && echo mounted"


@pytest.fixture
def confining(machine_with_tasks: Machine) -> Iterator[Machine]:
    """The machine, booted with AppArmor for the length of the check."""
    machine = machine_with_tasks
    before = machine.words
    machine.go_down("systemctl", "poweroff")
    machine.words = tuple(word for word in before if word != NO_APPARMOR)
    yield machine.boot()
    machine.go_down("systemctl", "poweroff")
    machine.words = before
    machine.boot()


def ran(machine: Machine, *words: str) -> tuple[int, str]:
    """The status and the output of a container on the machine's own files."""
    done = machine.run(EXITCTL, "run", "--rm", "--rootfs", "/", *words)
    print(words, done, file=sys.stderr)
    return done.status, done.out.strip()


def profile(machine: Machine, *options: str) -> str:
    status, out = ran(machine, *options, "--", "cat", "/proc/self/attr/current")
    assert status == 0
    return out


def check_containers_are_confined_by_exitds_profile_unless_they_ask_for_another(confining: Machine) -> None:
    (line,) = [each for each in confining.run(EXITCTL, "doctor").out.splitlines() if "AppArmor" in each]
    assert line.startswith("ok") and "exitd-default" in line
    for runtime in ("runc", "crun"):
        is_confined(confining, runtime)
        is_signalled_and_ends(confining, runtime)


def is_confined(machine: Machine, runtime: str) -> None:
    by = ("--runtime", runtime)
    assert profile(machine, *by) in ITS_OWN
    for asked in (("--security-opt", "apparmor=unconfined"), ("--privileged",)):
        found = profile(machine, *by, *asked)
        assert found == "unconfined" or found.endswith(" (unconfined)")
    may_mount = (*by, "--cap-add", "SYS_ADMIN")
    assert ran(machine, *may_mount, "--", "sh", "-c", MOUNT)[0] != 0
    assert ran(machine, *may_mount, "--security-opt", "apparmor=unconfined", "--", "sh", "-c", MOUNT) == (0, "mounted")
    assert ran(machine, *by, "--security-opt", "apparmor=not-loaded", "--", "true")[0] == 125


def is_signalled_and_ends(machine: Machine, runtime: str) -> None:
    """From outside and from inside, as without a profile; with its own code."""
    script = "trap 'exit 7' TERM; while :; do sleep 1000 & wait; done"
    by = ("--runtime", runtime, "--rootfs", "/")
    machine.say(EXITCTL, "run", "--detach", "--name", "confined", *by, "--", "sh", "-c", script)
    assert machine.say(EXITCTL, "exec", "confined", "cat", "/proc/self/attr/current").strip() in ITS_OWN
    within = "sleep 1000 & kill $! && wait; ps -e | grep -c sleep"
    assert machine.say(EXITCTL, "exec", "confined", "sh", "-c", within).strip() == "1"
    assert machine.say(EXITCTL, "exec", "confined", "readlink", "/proc/1/exe").strip()  # ptrace (read)
    assert "sleep" in machine.say(EXITCTL, "top", "confined")
    machine.say(EXITCTL, "pause", "confined")
    machine.say(EXITCTL, "unpause", "confined")
    machine.say(EXITCTL, "stop", "confined")
    assert machine.say(EXITCTL, "inspect", "--format", "{{.State.ExitCode}}", "confined").strip() == "7"
    machine.say(EXITCTL, "rm", "confined")
