"""An orderly reboot under fifty containers and ten tasks of containerd's: no code is lost, nobody is waited for as long
as systemd would, restart policies take up again, and each task of containerd's has ended once."""

import re
import sys
from collections import Counter
from itertools import product

from tests.vm import tasks
from tests.vm.machine import Machine

CODE, KILL = 7, 128 + 9
DOWN_SECONDS = 90.0  # of the machine's clock, from the request to the kernel's last word
# Not at the beginning of a line: there may be the prompt of a login.
BEGIN = re.compile(r"\[ *([\d.]+)\] check: reboot")
LAST = re.compile(r"\[ *([\d.]+)\] (?:systemd-shutdown\[1\]: .*|reboot: .*)")


def names(kind: str, count: int) -> list[str]:
    return [f"{kind}-{number}" for number in range(1, count + 1)]


# exitd's own: without a policy, with one, and with one that ignores SIGTERM.
STAYS, RETURNS, DEAF = names("stays", 20), names("returns", 20), names("deaf", 10)
# containerd's tasks: those that end by SIGTERM, and those that ignore it.
OBEYING, IGNORING = names("obeying", 5), names("ignoring", 5)


def running(machine: Machine) -> set[str]:
    return {str(each["name"]) for each in machine.python("lives.py", "inits")}


def seconds_down(console: str) -> float:
    """From the request to the last word before the end, by the kernel's log, which goes on where the journal has
    ended."""
    (began,), (*_, ended) = BEGIN.findall(console), LAST.findall(console)
    return float(ended) - float(began)


def went_down(machine: Machine) -> float:
    """Reboot, and return the seconds it took."""
    machine.say("dmesg", "--console-level", "debug")
    machine.say("sh", "-c", "echo '<0>check: reboot' >/dev/kmsg")
    machine.go_down("systemctl", "reboot")
    said = machine.console()
    print(*(line for line in said.splitlines() if LAST.search(line)), sep="\n", file=sys.stderr)
    return seconds_down(said)


def check_a_reboot_loses_no_code_and_waits_for_nobody(machine_with_tasks: Machine) -> None:
    machine = machine_with_tasks
    machine.python("lives.py", "up", "stays", str(len(STAYS)), "no", str(CODE))
    machine.python("lives.py", "up", "returns", str(len(RETURNS)), "always", str(CODE))
    machine.python("lives.py", "up", "deaf", str(len(DEAF)), "unless-stopped")
    tasks.bring_image(machine)
    tasks.record(machine)
    for name in OBEYING:
        tasks.begin(machine, name, tasks.OBEYS.format(code=CODE))
    for name in IGNORING:
        tasks.begin(machine, name, tasks.DEAF)
    assert {state for _, state in tasks.listed(machine).values()} == {"RUNNING"}
    assert running(machine) == {*STAYS, *RETURNS, *DEAF, *OBEYING, *IGNORING}
    seconds = went_down(machine)
    print(f"down after {seconds:.1f} s", file=sys.stderr)
    machine.boot()
    again = {*RETURNS, *DEAF}
    machine.say("sh", "-c", f"until [ $(exitctl ps -q | wc -l) -ge {len(again)} ]; do sleep 1; done")
    assert running(machine) == again
    obeyed, killed = (*STAYS, *RETURNS, *OBEYING), (*DEAF, *IGNORING)
    expected = {name: ("exited", CODE, 0) for name in obeyed} | dict.fromkeys(killed, ("signaled", 0, 9))
    ends = [end for end in machine.python("lives.py", "ledger") if end["name"] in expected]
    assert sorted(str(end["name"]) for end in ends) == sorted(expected), "each end is there once"
    for end in ends:
        assert (end["kind"], end["code"], end["signal"]) == expected[str(end["name"])], end
        assert end["reason"] == "node-shutdown", end
    # containerd itself is about to be stopped: it may not come to publish the last ones.
    published = Counter((each.container, each.code) for each in tasks.published(machine))
    print(f"{published.total()} of {len(OBEYING) + len(IGNORING)} ends published", file=sys.stderr)
    assert published <= Counter([*product(OBEYING, [CODE]), *product(IGNORING, [KILL])])
    assert tasks.listed(machine) == {}
    assert seconds < DOWN_SECONDS
    tasks.clear(machine)
    machine.python("lives.py", "clear")
