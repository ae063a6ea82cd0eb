"""Whether a node works at all: the package's units under a real systemd, true ends with their reasons, a restart over
what lives, and nothing that failed. `make smoke` boots a machine for it; every run of the CI does."""

from tests.vm.check_units import UNITS, main_pid
from tests.vm.machine import Machine

OWN_CODE, LATER_CODE, KILLED_CODE = 7, 5, 137
LIMIT = "16m"
RUN = ("exitctl", "run", "--runtime", "runc", "--name")
# A shell waits for its child before it heeds a trap, unless it waits by `wait`.
OBEYS = f"trap 'exit {LATER_CODE}' TERM; echo up; sleep 100000 & wait"
# systemd's own word of a machine whose units are all there.
UP = "running"
# What the kernel logs of a kill for memory has its level err; it is what was asked for.
EXPECTED = "Memory cgroup out of memory: Killed process"


def status(machine: Machine, name: str, *words: str) -> int:
    """Run a container to its end and return exitctl's status, which is the container's."""
    return machine.run(*RUN, name, *words).status


def why(machine: Machine, name: str) -> str:
    return machine.say("exitctl", "why", name)


def check_the_package_is_installed_and_all_its_units_are_up(machine: Machine) -> None:
    assert machine.say("dpkg-query", "--show", "--showformat=${db:Status-Abbrev}", "exitd").startswith("ii")
    assert machine.run("systemctl", "is-system-running").out.strip() == UP
    assert machine.say("systemctl", "is-active", *UNITS).split() == ["active"] * len(UNITS)
    assert "FAIL" not in machine.say("exitctl", "doctor")


def check_a_container_ends_with_its_own_code(machine: Machine) -> None:
    assert status(machine, "seven", "/", "sh", "-c", f"exit {OWN_CODE}") == OWN_CODE
    assert f"seven, run 1, exited {OWN_CODE}." in why(machine, "seven")


def check_one_that_is_killed_for_memory_ends_with_that_reason(machine: Machine) -> None:
    assert machine.say("stat", "--file-system", "--format=%T", "/sys/fs/cgroup").strip() == "cgroup2fs"
    assert status(machine, "hungry", "--memory", LIMIT, "/", "tail", "/dev/zero") == KILLED_CODE
    told = machine.say("exitctl", "exits", "--reason", "oom", "--format", "{{.Name}} {{.Exit.Signal}}").splitlines()
    assert "hungry 9" in told
    assert "The kernel killed it because the memory limit was reached." in why(machine, "hungry")


def check_one_outlives_a_restart_of_exitd_and_ends_truly_after_it(machine: Machine) -> None:
    machine.say(*RUN, "lives", "--detach", "/", "sh", "-c", OBEYS)
    machine.say("sh", "-c", "until exitctl logs lives | grep --quiet up; do sleep 0.5; done")
    init = ("exitctl", "inspect", "--format", "{{.State.Pid}}", "lives")
    before, exitd = machine.say(*init), main_pid(machine, "exitd.service")
    assert machine.say("systemctl", "is-active", "exitd.slice").strip() == "active"
    machine.say("systemctl", "restart", "exitd.service")
    assert main_pid(machine, "exitd.service") != exitd
    assert machine.say(*init) == before
    machine.say("exitctl", "stop", "--time", "60", "lives")
    assert machine.say("exitctl", "wait", "lives").strip() == str(LATER_CODE)
    assert f"lives, run 1, exited {LATER_CODE}." in why(machine, "lives")


def check_no_unit_has_failed_and_the_journal_has_no_error(machine: Machine) -> None:
    machine.python("lives.py", "clear")
    assert machine.say("systemctl", "list-units", "--failed", "--no-legend", "--plain") == ""
    said = machine.say("journalctl", "--boot", "--priority=err", "--output=cat").splitlines()
    assert [line for line in said if EXPECTED not in line] == []
    assert any(EXPECTED in line for line in said), "the kernel's word of the kill is in the journal"
