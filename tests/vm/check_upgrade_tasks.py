"""exitd's package is upgraded under tasks of containerd's: they, their execs and their relays live on, and each end is
published once, with its code."""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.vm import image, tasks
from tests.vm.check_package import VERSION, install
from tests.vm.check_units import main_pid
from tests.vm.machine import Machine
from tests.vm.tasks import Published

CODE, OF_EXEC, KILL = 7, 6, 128 + 9
OBEYS, KILLED, MEANWHILE = "obeys", "killed", "meanwhile"
RELAYS = ("pgrep", "-f", "containerd-shim-exitd-v2 .*-id")


@pytest.fixture
def machine(machine_with_tasks: Machine) -> Iterator[Machine]:
    tasks.bring_image(machine_with_tasks)
    tasks.record(machine_with_tasks)
    yield machine_with_tasks
    tasks.clear(machine_with_tasks)


def check_an_upgrade_leaves_tasks_their_execs_and_their_relays_alone(machine: Machine) -> None:
    """One task ends by itself while exitd is being upgraded."""
    for name in (OBEYS, MEANWHILE):
        tasks.begin(machine, name, tasks.OBEYS.format(code=CODE))
    tasks.begin(machine, KILLED, tasks.DEAF)
    script = tasks.OBEYS.format(code=OF_EXEC)
    in_exec = ("ctr", "tasks", "exec", "--detach", "--exec-id", "first", KILLED, "sh", "-c", script)
    machine.say(*in_exec)
    before, relays = tasks.listed(machine), machine.say(*RELAYS).split()
    assert {state for _, state in before.values()} == {"RUNNING"} and len(relays) == len(before)
    exitd = main_pid(machine, "exitd.service")
    ends_meanwhile = (
        f"until systemctl show --property=MainPID exitd.service | grep -vq '={exitd}$'; do sleep 0.01; done"
    )
    machine.say("sh", "-c", f"({ends_meanwhile}; kill -TERM {before[MEANWHILE][0]}) >/dev/null 2>&1 &")
    status, said = install(machine, image.NEWER)
    assert status == 0, said
    assert machine.say(*VERSION).startswith("ii ") and main_pid(machine, "exitd.service") != exitd
    assert machine.say(*RELAYS).split() == relays
    machine.say("sh", "-c", f"until ctr tasks list | grep -q '{MEANWHILE} .*STOPPED'; do sleep 1; done")
    living = {name: before[name] for name in (OBEYS, KILLED)}
    assert {name: found for name, found in tasks.listed(machine).items() if name != MEANWHILE} == living
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
