"""The units of the package under a real systemd: started, stopped, restarted and reloaded while containers end, a
watchdog that bites, and what the journal has."""

import json
from collections.abc import Iterator

import pytest

from tests.vm.check_power import lives
from tests.vm.machine import Machine

COUNT = 3
# While a unit is being stopped, started or reloaded, and a moment after it.
MEANWHILE = "(for pid in {inits}; do kill -9 $pid; sleep {gap}; done) & {command}; done=$?; wait; exit $done"
UNITS = ("exitd.service", "exitd-keeper.service", "exitd.socket", "exitd-containers.service")
VERBS = ("restart", "stop-start", "reload")
RELOADS = ("exitd.service", "exitd-keeper.service")


@pytest.fixture(autouse=True)
def nobody_is_left(machine: Machine) -> Iterator[None]:
    machine.python("lives.py", "clear")
    yield
    machine.say("systemctl", "start", *UNITS)
    machine.python("lives.py", "clear")


def inits(machine: Machine) -> list[str]:
    return [str(each["pid"]) for each in machine.python("lives.py", "inits")]


def main_pid(machine: Machine, unit: str) -> str:
    return machine.say("systemctl", "show", "--value", "--property=MainPID", unit).strip()


def command(verb: str, unit: str) -> str:
    """exitd's socket cannot be taken over from a daemon that has bound it: systemd begins with the socket."""
    if unit == "exitd.socket":
        return "systemctl stop exitd.service exitd.socket && systemctl start exitd.socket exitd.service"
    return f"systemctl stop {unit} && systemctl start {unit}" if verb == "stop-start" else f"systemctl {verb} {unit}"


def ways() -> list[tuple[str, str]]:
    ways = [(verb, unit) for unit in UNITS for verb in VERBS if verb != "reload" or unit in RELOADS]
    return [way for way in ways if way != ("restart", "exitd.socket")]


@pytest.mark.parametrize(("verb", "unit"), ways())
def check_containers_that_end_while_a_unit_is_turned_have_their_true_ends(
    machine: Machine, verb: str, unit: str
) -> None:
    machine.python("lives.py", "up", "turned", str(COUNT))
    keeper = main_pid(machine, "exitd-keeper.service")
    script = MEANWHILE.format(inits=" ".join(inits(machine)), gap="0.7", command=command(verb, unit))
    machine.say("sh", "-c", script)
    assert lives(machine, "wait") == {f"turned-{number}": ("signaled", 9) for number in range(1, COUNT + 1)}
    assert machine.say("systemctl", "is-active", *UNITS).split() == ["active"] * len(UNITS)
    if unit != "exitd-keeper.service" or verb == "reload":  # it executes its program again, in the same process
        assert main_pid(machine, "exitd-keeper.service") == keeper


def check_an_exitd_that_stands_still_is_restarted_by_the_watchdog_and_containers_go_on(machine: Machine) -> None:
    machine.python("lives.py", "up", "dog", str(COUNT))
    pids, stopped = inits(machine), main_pid(machine, "exitd.service")
    machine.say("kill", "-STOP", stopped)
    machine.say("kill", "-9", *pids[1:])
    turned = f"until p=$(systemctl show --value --property=MainPID exitd); [ $p != {stopped} ] && [ $p != 0 ]"
    machine.say("sh", "-c", f"{turned}; do sleep 1; done; systemctl is-active --wait exitd; systemctl start exitd")
    assert inits(machine) == pids[:1]
    machine.say("kill", "-9", *pids[:1])
    assert lives(machine, "wait") == {f"dog-{number}": ("signaled", 9) for number in range(1, COUNT + 1)}
    said = machine.say("journalctl", "--unit=exitd.service", "--grep=[Ww]atchdog", "--output=cat")
    assert "atchdog timeout" in said, said


def check_exitd_that_only_watches_takes_exitds_place_and_gives_it_back(machine: Machine) -> None:
    """Turn and turn about, without a wait in between: both have one ledger and one socket."""
    machine.python("lives.py", "up", "beside", str(COUNT))
    pids = inits(machine)
    try:
        for code in (33, 34):
            machine.say("systemctl", "start", "exitd-watch.service")
            active = machine.run("systemctl", "is-active", "exitd-watch.service", "exitd.service", "exitd.socket")
            assert active.out.split() == ["active", "inactive", "inactive"], active
            script = (
                f"sh -c 'read go; exit {code}' </run/gate & exec 3>/run/gate; exitctl watch --detach $!; echo >&3; wait"
            )
            machine.run("sh", "-c", f"rm -f /run/gate; mkfifo /run/gate; {script}")
            ledger = "/opt/exitd/bin/python /opt/tree/tests/vm/guest/lives.py ledger"
            machine.say("sh", "-c", f"until {ledger} | grep -q '\"code\": {code}\\b'; do sleep 0.5; done")
            machine.say("systemctl", "reload", "exitd-watch.service")
            machine.say("systemctl", "start", "exitd.socket", "exitd.service")
            assert machine.run("systemctl", "is-active", "exitd-watch.service").out.strip() == "inactive"
    finally:
        machine.say("systemctl", "stop", "exitd-watch.service")
        machine.say("systemctl", "start", *UNITS)
    said = machine.say("journalctl", "--unit=exitd-watch.service", "--output=cat")
    assert "Traceback" not in said, said
    assert inits(machine) == pids
    machine.say("kill", "-9", *pids)
    assert lives(machine, "wait") == {f"beside-{number}": ("signaled", 9) for number in range(1, COUNT + 1)}


def check_a_reload_returns_when_it_is_done_where_systemd_knows_how_to_wait_for_that(machine: Machine) -> None:
    version = int(machine.say("systemctl", "--version").split()[1])
    kind = machine.say("systemctl", "show", "--value", "--property=Type", "exitd.service").strip()
    assert kind == ("notify-reload" if version >= 253 else "notify"), version


def check_a_reload_takes_what_is_new_and_a_broken_file_changes_nothing(machine: Machine) -> None:
    config = "/etc/exitd/config.toml"
    before, pid = machine.say("cat", config), main_pid(machine, "exitd.service")
    try:
        machine.say("sh", "-c", f"printf '[limits]\\nring_flush_seconds = 7\\n' >>{config} && systemctl reload exitd")
        machine.say("sh", "-c", f"echo 'nonsense = [' >>{config}; systemctl reload exitd || true")
        assert main_pid(machine, "exitd.service") == pid
        assert lives(machine, "begin", "reloaded", "1") == {"reloaded-ends-1": ("exited", 1)}
        said = machine.say("journalctl", "--unit=exitd.service", "--output=cat", "--lines=50")
        assert "config.toml" in said, said
    finally:
        machine.say("sh", "-c", f"cat >{config} <<'END' && systemctl reload exitd\n{before}END")


def check_the_journal_has_ends_with_fields_of_their_own(machine: Machine) -> None:
    lives(machine, "begin", "noted", "1")
    words = ("journalctl", "--unit=exitd.service", "--output=json", "EXITD_NAME=noted-ends-1", "EXITD_EVENT=exit")
    (entry,) = (json.loads(line) for line in machine.say(*words).splitlines())
    assert (entry["EXITD_RUN"], entry["EXITD_SOURCE"], entry["EXITD_REASON"]) == ("1", "record", "self")
    assert entry["CONTAINER_ID_FULL"].startswith(entry["CONTAINER_ID"])
