"""A restart of the daemon over containers that live, and a power cut: what was reported is still there."""

from tests.vm.image import FILES
from tests.vm.machine import Machine

COUNT = 3


def lives(machine: Machine, *words: str) -> dict[object, tuple[object, object]]:
    """Each name with its kind of end, and its number or cause."""
    which = {"exited": "code", "signaled": "signal", "unknown": "cause"}
    return {end["name"]: (end["kind"], end[which[str(end["kind"])]]) for end in machine.python("lives.py", *words)}


def ended(name: str) -> dict[object, tuple[object, object]]:
    return {f"{name}-ends-{number}": ("exited", number) for number in range(1, COUNT + 1)}


def all_lives(name: str, end: tuple[object, object]) -> dict[object, tuple[object, object]]:
    return {f"{name}-lives-{number}": end for number in range(1, COUNT + 1)}


def check_containers_live_on_over_a_restart_and_their_ends_are_told_truly(machine: Machine) -> None:
    assert lives(machine, "begin", "restart", str(COUNT)) == ended("restart")
    machine.say("systemctl", "restart", "exitd.service")
    killed = all_lives("restart", ("signaled", 9))
    assert lives(machine, "kill") == killed
    assert (ended("restart") | killed).items() <= lives(machine, "ledger").items()


def check_what_was_told_before_a_power_cut_is_there_after_it(machine: Machine) -> None:
    assert lives(machine, "begin", "power", str(COUNT)) == ended("power")
    before = lives(machine, "ledger")
    machine.cut()
    machine.boot()
    lives(machine, "wait")
    assert lives(machine, "ledger") == before | all_lives("power", ("unknown", "host-rebooted"))


CONFIG = "/etc/exitd/config.toml"
PATIENT = f"mkdir -p /etc/exitd && printf '[limits]\\nring_flush_seconds = 60\\n' >{CONFIG} && systemctl restart exitd"


def check_what_was_told_from_the_ring_before_a_power_cut_is_there_after_it(machine: Machine) -> None:
    """The database has nothing of it then, and what shims record is lost with the machine's memory."""
    machine.say("sh", "-c", PATIENT)
    lives(machine, "begin", "ring", str(COUNT))
    before, told = lives(machine, "ledger"), all_lives("ring", ("signaled", 9))
    script = ("/opt/exitd/bin/python", "/opt/tree/tests/vm/guest/lives.py", "told")
    machine.say("systemd-run", "--unit=told", "--property=StandardOutput=file:/run/told", *script)
    machine.say("sh", "-c", f"until [ $(wc -l </run/told) -ge {COUNT} ]; do systemctl -q is-active told || exit; done")
    assert machine.say("cat", "/run/told").count('"signaled"') == COUNT
    machine.cut()
    machine.boot()
    lives(machine, "wait")
    assert lives(machine, "ledger") == before | told
    machine.say("sh", "-c", f"printf %s '{FILES[CONFIG[1:]]}' >{CONFIG} && systemctl restart exitd")
