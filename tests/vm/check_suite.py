"""Files of the system tests, in a machine with systemd and cgroup v2 alone: what depends on the cgroups with each
cgroup driver and each runtime, and some of the other files, chosen by a seed.

EXITD_VM_SEED names the seed, EXITD_VM_FILES how many are chosen; with EXITD_VM_PAIRS=all each driver has each runtime.
"""

import sys
from collections.abc import Callable

import pytest

from tests.vm import collected, suite
from tests.vm.machine import Machine
from tests.vm.suite import Outcome

Record = Callable[[str, object], None]  # pytest's record_property


def report(record: Record, what: str, outcomes: list[Outcome]) -> None:
    """Fails with the names, and the last words, of all that has not passed."""
    for one in outcomes:
        why = f": {one.why.splitlines()[-1]}" if one.outcome == "skipped" and one.why else ""
        print(f"  {one.seconds:6.1f} s  {one.outcome:7}  {one.test}{why}", file=sys.stderr)
    for property, wanted in ((collected.PASSED, "passed"), (collected.LEFT, "skipped")):
        record(property, sum(one.outcome == wanted for one in outcomes))
    bad = [one for one in outcomes if one.outcome not in suite.GOOD]
    record(collected.WHAT, f"system tests, {what}")
    record(collected.FAILED, " ".join(one.test.rpartition("::")[2].replace(" ", "_") for one in bad))
    assert outcomes and not bad, "\n\n".join(f"{one.test}: {one.outcome}\n{one.why}" for one in bad)


def left(machine: Machine) -> list[str]:
    """What of exitd's is in the tree of cgroups, but for the slice that is systemd's to remove, and its units."""
    found = machine.say("sh", "-c", "cd /sys/fs/cgroup && find . -name '*exitd*' -type d").split()
    return [path for path in found if not path.startswith("./system.slice/") and path != "./exitd.slice"]


@pytest.mark.parametrize(("runtime", "group"), suite.pairs(suite.SYSTEMD))
def check_with_systemds_scopes(machine_with_tests: Machine, record_property: Record, runtime: str, group: str) -> None:
    """And nothing of exitd's is anywhere else in systemd's tree, at its top least of all."""
    files, which = suite.GROUPS[group]
    options = ("--cgroup-driver", suite.SYSTEMD, "--runtime", runtime)
    record_property(collected.SEED, suite.SEED)
    report(record_property, f"{group}: systemd, {runtime}", suite.run(machine_with_tests, files, which, options))
    assert [path for path in left(machine_with_tests) if "exitd-test" not in path] == []


@pytest.mark.parametrize("file", suite.chosen())
def check_a_file_chosen_by_the_seed(machine_with_tests: Machine, record_property: Record, file: str) -> None:
    """As exitd is without options: systemd's scopes, and runc."""
    record_property(collected.SEED, suite.SEED)
    report(record_property, f"`{file}`", suite.run(machine_with_tests, [file]))


@pytest.mark.parametrize(("runtime", "group"), suite.pairs(suite.CGROUPFS))
def check_with_cgroups_of_exitds_own(
    machine_with_tests: Machine, record_property: Record, runtime: str, group: str
) -> None:
    files, which = (suite.GROUPS | suite.BY_HAND)[group]
    options = ("--cgroup-driver", suite.CGROUPFS, "--runtime", runtime)
    record_property(collected.SEED, suite.SEED)
    report(record_property, f"{group}: cgroupfs, {runtime}", suite.run(machine_with_tests, files, which, options))
    assert [path for path in left(machine_with_tests) if path != "./exitd"] == []
