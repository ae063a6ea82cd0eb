"""Exits under attack (tests/attack), where systemd has the cgroups: nothing invented, nothing lost, nothing twice,
nothing left behind. Without tasks of containerd's, which is not in this machine.

EXITD_VM_EXITS is how many exits are planned in all; the seeds follow EXITD_VM_SEED.
"""

import os
import sys
from collections.abc import Callable

import pytest

from tests.attack import report
from tests.vm import collected, suite
from tests.vm.machine import Machine

EXITS = int(os.environ.get("EXITD_VM_EXITS") or 1000)
EACH = 100  # of one attack
CROWD = 6  # one processor, in software
RESULTS = "/run/attack.json"
GUEST_SECONDS = 3600.0  # by the machine's clock
PROCESSOR_SECONDS = 7200.0  # of QEMU's


@pytest.mark.parametrize("seed", range(suite.SEED, suite.SEED + -(-EXITS // EACH)))
def check_exits_under_attack(
    machine_with_tests: Machine, record_property: Callable[[str, object], None], seed: int
) -> None:
    machine = machine_with_tests
    words = ("/opt/tests/bin/python", "-m", "tests.attack", "--seed", str(seed), "--exits", str(min(EACH, EXITS)))
    machine.say("rm", "-f", RESULTS)
    service = suite.service(GUEST_SECONDS, {})
    done = machine.run(
        "systemd-run", *service, *words, "--crowd", str(CROWD), "--out", RESULTS, seconds=PROCESSOR_SECONDS
    )
    print(done.out, file=sys.stderr)
    found = machine.run("cat", RESULTS)
    assert found.status == 0, done
    _, (result,) = report.loaded(found.out)
    wrong = {name: sentences for name, sentences in result.verdict.wrongs().items() if sentences}
    record_property(collected.WHAT, "exits under attack")
    record_property(collected.PASSED, sum(result.exits.values()) if not wrong else 0)
    record_property(collected.FAILED, " ".join(f"{name}-{seed}" for name in wrong))
    assert not wrong
    assert done.status == 0 and result.exits, done
