"""exitd's package is upgraded, from today's version and from an earlier one, under tasks of containerd's and containers
of exitd's own: they, their execs, shims and relays live on, the keeper executes the new program, and each end is
reported once, with its code."""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.vm import image, tasks
from tests.vm.check_package import KEEPER, VERSION, anew, install
from tests.vm.check_power import word
from tests.vm.check_units import main_pid
from tests.vm.machine import Machine
from tests.vm.tasks import Published

CODE, OF_EXEC, OF_KEPT, KILL = 7, 6, 5, 128 + 9
OBEYS, KILLED, MEANWHILE = "obeys", "killed", "meanwhile"
KEPT = ("kept-1", "kept-2")  # exitd's own; the first has an exec, whose command line begins so:
EXEC = f"^sh -c trap .exit {OF_KEPT}"
RELAYS = ("pgrep", "-f", "containerd-shim-exitd-v2 .*-id")
LEDGER = "/opt/exitd/bin/python /opt/tree/tests/vm/guest/lives.py ledger"


@pytest.fixture
def machine(machine_with_tasks: Machine) -> Iterator[Machine]:
    tasks.bring_image(machine_with_tasks)
    tasks.record(machine_with_tasks)
    yield machine_with_tasks
    tasks.clear(machine_with_tasks)
    machine_with_tasks.python("lives.py", "clear")


def upgrade(machine: Machine, *, ending: str) -> None:
    """And while exitd is being restarted, the process with the pid `ending` is asked to end."""
    exitd = main_pid(machine, "exitd.service")
    turned = f"until systemctl show --property=MainPID exitd.service | grep -vq '={exitd}$'; do sleep 0.01; done"
    machine.say("sh", "-c", f"({turned}; kill -TERM {ending}) >/dev/null 2>&1 &")
    status, said = install(machine, image.NEWER)
    assert status == 0, said
    assert machine.say(*VERSION).startswith("ii ") and main_pid(machine, "exitd.service") != exitd


@pytest.mark.parametrize("earlier", [False, True], ids=["today", "earlier"])
def check_an_upgrade_leaves_tasks_containers_execs_and_relays_alone(machine: Machine, earlier: bool) -> None:
    """One task ends by itself while exitd is being upgraded. What begins is begun by the commands of that version."""
    if earlier:
        anew(machine, image.EARLIER)
    for name in (OBEYS, MEANWHILE):
        tasks.begin(machine, name, tasks.OBEYS.format(code=CODE))
    tasks.begin(machine, KILLED, tasks.DEAF)
    script = tasks.OBEYS.format(code=OF_EXEC)
    machine.say("ctr", "tasks", "exec", "--detach", "--exec-id", "first", KILLED, "sh", "-c", script)
    for name in KEPT:
        machine.say("exitctl", "run", "--detach", "--name", name, "/", "sleep", "100000")
    machine.say("systemd-run", "--no-block", "exitctl", "exec", KEPT[0], "sh", "-c", tasks.OBEYS.format(code=OF_KEPT))
    machine.say("sh", "-c", f"until pgrep -f '{EXEC}'; do sleep 0.2; done")
    before, relays, keeper = tasks.listed(machine), machine.say(*RELAYS).split(), main_pid(machine, KEEPER)
    kept = running(machine)
    assert {state for _, state in before.values()} == {"RUNNING"} and len(relays) == len(before)
    upgrade(machine, ending=before[MEANWHILE][0])
    assert machine.say(*RELAYS).split() == relays
    assert main_pid(machine, KEEPER) == keeper
    assert machine.say("readlink", f"/proc/{keeper}/exe").strip().endswith("/exitd-keeper")  # and not "(deleted)"
    machine.say("sh", "-c", f"until ctr tasks list | grep -q '{MEANWHILE} .*STOPPED'; do sleep 1; done")
    living = {name: before[name] for name in (OBEYS, KILLED)}
    assert {name: found for name, found in tasks.listed(machine).items() if name != MEANWHILE} == living
    assert running(machine) == kept and set(kept) == set(KEPT)
    all_tasks_end(machine)
    machine.say("pkill", "-TERM", "-f", EXEC)
    expected = [(KEPT[0], ("exited", OF_KEPT)), *((name, ("signaled", KILL - 128)) for name in KEPT)]
    machine.say("sh", "-c", f'until {LEDGER} | grep -q \'"name": "{KEPT[0]}"\'; do sleep 1; done')
    machine.say("kill", "-KILL", *kept.values())
    machine.say("sh", "-c", f'until [ $({LEDGER} | grep -c \'"name": "kept-\') -ge {len(expected)} ]; do sleep 1; done')
    ends = [(str(end["name"]), word(end)) for end in machine.python("lives.py", "ledger")]
    assert Counter(end for end in ends if end[0] in KEPT) == Counter(expected)


def running(machine: Machine) -> dict[str, str]:
    """The pid of each of exitd's own that runs, by its name."""
    found = {str(each["name"]): str(each["pid"]) for each in machine.python("lives.py", "inits")}
    return {name: pid for name, pid in found.items() if name.startswith("kept-")}


def all_tasks_end(machine: Machine) -> None:
    machine.say("ctr", "tasks", "kill", "--signal", "SIGTERM", "--exec-id", "first", KILLED)
    machine.say("ctr", "tasks", "kill", "--signal", "SIGTERM", OBEYS)
    machine.say("sh", "-c", f"until grep -c /tasks/exit {tasks.EVENTS} | grep -q 3; do sleep 1; done")
    machine.say("ctr", "tasks", "kill", "--signal", "SIGKILL", KILLED)
    machine.say("sh", "-c", f"until grep -c /tasks/exit {tasks.EVENTS} | grep -q 4; do sleep 1; done")
    assert Counter(tasks.published(machine)) == Counter(
        [
            Published(MEANWHILE, MEANWHILE, CODE),
            Published(OBEYS, OBEYS, CODE),
            Published(KILLED, "first", OF_EXEC),
            Published(KILLED, KILLED, KILL),
        ]
    )
