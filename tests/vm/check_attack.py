"""Lives under kills, stops and failures in a machine with systemd and cgroup v2 alone, judged by what each life did:
part of `make attack`, with this machine's kernel, systemd and Python. containerd's tasks are not among the lives.

EXITD_VM_SEED names the seed, EXITD_VM_EXITS how many exits are planned, EXITD_VM_RUNTIME who makes the containers.
"""

import os
import re
import sys

from tests.vm import suite
from tests.vm.check_suite import Record
from tests.vm.collected import FAILED, PASSED, SEED, WHAT
from tests.vm.machine import Machine

PLANNED = 1100  # for a thousand: some do not come about, misfortune keeps lives from beginning
EXITS = int(os.environ.get("EXITD_VM_EXITS") or PLANNED)
RUNTIME = os.environ.get("EXITD_VM_RUNTIME") or "crun"  # `make attack` has runc: most hosts of tests refuse crun
HITS = 0.1  # misfortunes for each exit, as many as `make attack` has: here a life takes longer
PROCESSOR_SECONDS = 4 * 3600.0  # of QEMU's


def check_of_a_thousand_attacked_exits_none_is_lost_twice_or_invented(
    machine_with_tests: Machine, record_property: Record
) -> None:
    plan = ("--seed", str(suite.SEED), "--exits", str(EXITS), "--runtime", RUNTIME, "--hits", str(HITS))
    words = (suite.PYTHON, "-m", "tests.attack", *plan, "--out", "/run/attack.json")
    done = machine_with_tests.run("systemd-run", *suite.SERVICE, *words, seconds=PROCESSOR_SECONDS)
    print(done.out, file=sys.stderr)
    seen = re.search(r"(\d+) exits", done.out.partition("\n")[2])
    record_property(WHAT, f"`check_attack.py`, exits, {RUNTIME}")
    record_property(SEED, suite.SEED)
    record_property(FAILED if done.status else PASSED, f"seed-{suite.SEED}" if done.status else seen[1] if seen else 0)
    assert done.status == 0 and seen, (done.out, done.err)
    assert EXITS < PLANNED or int(seen[1]) >= 1000, "too few have come about"
