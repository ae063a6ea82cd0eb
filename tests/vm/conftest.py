"""One machine for all checks, and what it was."""

import sys
from collections.abc import Iterator

import pytest

from tests.vm import machine as machines
from tests.vm.machine import Machine


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    with machines.machine() as made:
        made.say("systemctl", "is-active", "exitd.service", "exitd-keeper.service")
        facts = made.say(
            "sh",
            "-c",
            "uname -r; systemctl --version | head -n 1; stat -fc %T /sys/fs/cgroup; runc --version | head -n 1",
        )
        clock, used = made.booted[-1]
        up = f"the machine, up after {clock:.0f} s, {used:.0f} of the processor's:"
        print(up, *facts.splitlines(), sep="\n  ", file=sys.stderr)
        yield made
