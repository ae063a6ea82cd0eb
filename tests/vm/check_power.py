"""A restart of the daemon over containers that live, and a power cut: what was reported is still there."""

import json
from collections import Counter

import pytest

from tests.vm.image import FILES
from tests.vm.machine import Machine

COUNT = 3
CONFIG = "/etc/exitd/config.toml"
PATIENT = f"mkdir -p /etc/exitd && printf '[limits]\\nring_flush_seconds = 60\\n' >{CONFIG} && systemctl restart exitd"
Ends = Counter[tuple[object, ...]]  # a name with its kind of end, and its number or cause


@pytest.fixture(autouse=True)
def nothing_else_runs(machine: Machine) -> None:
    machine.python("lives.py", "clear")


def lives(machine: Machine, *words: str) -> dict[object, tuple[object, object]]:
    """Each name with its kind of end, and its number or cause."""
    ends = machine.python("lives.py", *words)
    found = {end["name"]: word(end) for end in ends}
    assert len(found) == len(ends), "some end is there twice"
    return found


def word(end: dict[str, object]) -> tuple[object, object]:
    which = {"exited": "code", "signaled": "signal", "unknown": "cause"}
    return end["kind"], end[which.get(str(end["kind"]), "reason")]


def ledger(machine: Machine) -> Ends:
    """All of it: also of what ended in checks before."""
    return Counter((end["name"], *word(end)) for end in machine.python("lives.py", "ledger"))


def counted(ends: dict[object, tuple[object, object]]) -> Ends:
    return Counter((name, *end) for name, end in ends.items())


def ended(name: str) -> dict[object, tuple[object, object]]:
    return {f"{name}-ends-{number}": ("exited", number) for number in range(1, COUNT + 1)}


def all_lives(name: str, end: tuple[object, object]) -> dict[object, tuple[object, object]]:
    return {f"{name}-lives-{number}": end for number in range(1, COUNT + 1)}


def check_containers_live_on_over_a_restart_and_their_ends_are_told_truly(machine: Machine) -> None:
    assert lives(machine, "begin", "restart", str(COUNT)) == ended("restart")
    machine.say("systemctl", "restart", "exitd.service")
    killed = all_lives("restart", ("signaled", 9))
    assert lives(machine, "kill") == killed
    assert counted(ended("restart") | killed) <= ledger(machine)


def check_what_was_told_before_a_power_cut_is_there_after_it(machine: Machine) -> None:
    assert lives(machine, "begin", "power", str(COUNT)) == ended("power")
    before = ledger(machine)
    machine.cut()
    machine.boot()
    lives(machine, "wait")
    assert ledger(machine) == before + counted(all_lives("power", ("unknown", "host-rebooted")))


def begun(machine: Machine, verb: str, count: int) -> dict[object, tuple[object, object]]:
    """What it has printed. It goes on until the power fails."""
    script = ("/opt/exitd/bin/python", "/opt/tree/tests/vm/guest/lives.py", verb)
    machine.say("systemd-run", f"--unit={verb}", f"--property=StandardOutput=file:/run/{verb}", *script)
    printed = f"until [ $(wc -l </run/{verb}) -ge {count} ]; do systemctl -q is-active {verb} || exit; done"
    machine.say("sh", "-c", printed)
    ends = [json.loads(line) for line in machine.say("cat", f"/run/{verb}").splitlines()]
    return {end["name"]: word(end) for end in ends}


@pytest.mark.parametrize("moment", ["unanswered", "unflushed"])
def check_an_end_whose_block_is_on_the_disk_is_there_once_after_a_power_cut(machine: Machine, moment: str) -> None:
    """Cut between the block and its answer; between the row, which the ring's end was stored in, and its flush."""
    lives(machine, "begin", moment, str(COUNT))
    before = ledger(machine)
    written = begun(machine, moment, 2)
    assert len(written) == 2 and {*written.values()} == {("signaled", 9)}
    machine.cut()
    machine.boot()
    lives(machine, "wait")
    found = all_lives(moment, ("unknown", "host-rebooted")) | written
    assert ledger(machine) == before + counted(found)


def check_what_was_told_from_the_ring_before_a_power_cut_is_there_after_it(machine: Machine) -> None:
    """The database has nothing of it then, and what shims record is lost with the machine's memory."""
    machine.say("sh", "-c", PATIENT)
    try:
        lives(machine, "begin", "ring", str(COUNT))
        before, told = ledger(machine), all_lives("ring", ("signaled", 9))
        assert begun(machine, "told", COUNT) == told
        machine.cut()
        machine.boot()
        lives(machine, "wait")
        assert ledger(machine) == before + counted(told)
    finally:
        machine.say("sh", "-c", f"printf %s '{FILES[CONFIG[1:]]}' >{CONFIG} && systemctl restart exitd")
