"""The machine's clock is set, forwards and back, while containers end, start again and are stopped."""

import sys

from tests.vm.machine import Machine

DAYS = (2.0, -2.0, 0.5)  # within the ledger's days: what is older than that is forgotten by the clock
MOST_SECONDS = 120.0  # of a machine without KVM; the longest pause of a policy is one minute


def check_a_clock_that_jumps_changes_no_code_and_holds_nothing_up(machine: Machine) -> None:
    *jumps, last = machine.python("clock.py", *map(str, DAYS))
    print(*jumps, last, sep="\n", file=sys.stderr)
    for number, (days, found) in enumerate(zip(DAYS, jumps, strict=True), 1):
        assert (found["code"], found["signal"], found["days"]) == (number, 9, days)
        assert 2.0 <= float(str(found["stopped"])) < MOST_SECONDS
        assert float(str(found["again"])) < MOST_SECONDS
        assert abs(float(str(found["off"]))) < MOST_SECONDS, "the end is dated by the clock of its moment"
    names = [f"{kind}-{number}" for kind in ("deaf", "ends") for number in range(1, len(DAYS) + 1)]
    assert last["ledger"] == sorted(names)
    assert float(str(last["again"])) < MOST_SECONDS
