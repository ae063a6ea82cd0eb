"""A machine that is rebooted in good order: its containers end by their own signal and in their own time, nothing is
begun while it goes down, and their policies take up again in the next boot."""

import json

import pytest

from tests.vm.machine import Machine

COUNT, AGAIN = 10, 3
CODE = 7
DOWN_SECONDS = 60.0  # by the machine's clock, from the request to the end of exitd's unit: far from systemd's 90


def stamps(machine: Machine, *words: str) -> list[float]:
    """When the previous boot's journal said it, in seconds."""
    said = machine.say("journalctl", "--boot=-1", "--output=json", *words)
    return [int(json.loads(line)["__MONOTONIC_TIMESTAMP"]) / 1e6 for line in said.splitlines()]


@pytest.mark.parametrize("verb", ["reboot", "poweroff"])
def check_containers_end_with_the_machine_by_their_own_signal_and_come_back(machine: Machine, verb: str) -> None:
    machine.python("lives.py", "clear")
    stays, returns, again = (f"{verb}-{kind}" for kind in ("stays", "returns", "again"))
    machine.python("lives.py", "up", stays, str(COUNT), "no", str(CODE))
    machine.python("lives.py", "up", returns, str(COUNT), "always", str(CODE))
    machine.python("lives.py", "again", again, str(AGAIN))
    failed = machine.python("lives.py", "events", "failed")
    machine.say("logger", "--tag=check", "down")
    machine.go_down("systemctl", verb)
    machine.boot()
    ends = machine.python("lives.py", "ledger")
    for name in (f"{kind}-{number}" for kind in (stays, returns) for number in range(1, COUNT + 1)):
        (end,) = (end for end in ends if end["name"] == name)
        assert (end["kind"], end["code"], end["reason"]) == ("exited", CODE, "node-shutdown"), end
    restarted = [end for end in ends if str(end["name"]).startswith(f"{again}-")]
    assert {(end["kind"], end["code"]) for end in restarted} <= {("exited", 4), ("signaled", 0)}, restarted
    assert machine.python("lives.py", "events", "failed") == failed
    running = {str(each["name"]) for each in machine.python("lives.py", "inits")}
    assert {f"{returns}-{number}" for number in range(1, COUNT + 1)} <= running
    assert not any(name.startswith(f"{stays}-") for name in running)
    (began,), (*_, ended) = stamps(machine, "--identifier=check"), stamps(machine, "--unit=exitd.service")
    assert ended - began < DOWN_SECONDS
    machine.python("lives.py", "clear")
