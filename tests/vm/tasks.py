"""Tasks of the machine's containerd that exitd's adapter runs, as ctr makes them, and what containerd says of them."""

import json
import re
from dataclasses import dataclass

from tests.vm import image
from tests.vm.machine import Machine

RUNTIME, IMAGE = "io.containerd.exitd.v2", "docker.io/exitd/small:1"
EVENTS = "/var/tmp/events"  # what containerd has published since `record`; it outlives a boot
EXIT_LINE = re.compile(r" /tasks/exit (\{.*\})$", re.MULTILINE)
# A shell waits for its child before it heeds a trap, unless it waits by `wait`.
OBEYS = "trap 'exit {code}' TERM; sleep 100000 & wait"
DEAF = "sleep 100000"  # process 1 of a pid namespace has no default actions


@dataclass(frozen=True)
class Published:
    """An end as containerd has published it. `id`: the task's name, or that of its exec."""

    container: str
    id: str
    code: int


def bring_image(machine: Machine) -> None:
    machine.say("ctr", "images", "import", f"/{image.TASKS_IN}")


def begin(machine: Machine, name: str, script: str) -> None:
    """A task that lives on."""
    machine.say("ctr", "run", "--detach", "--null-io", "--runtime", RUNTIME, IMAGE, name, "sh", "-c", script)


def listed(machine: Machine) -> dict[str, tuple[str, str]]:
    """Each task's pid and state, by its name, as containerd has them."""
    rows = [line.split() for line in machine.say("ctr", "tasks", "list").splitlines()[1:]]
    return {name: (pid, state) for name, pid, state in rows}


def record(machine: Machine) -> None:
    """Write down all that containerd publishes from now on."""
    unit = ("--unit=events", "--property=Before=exitd-containers.service")  # at a shutdown it is stopped after that one
    machine.say("systemd-run", *unit, f"--property=StandardOutput=file:{EVENTS}", "ctr", "events")
    # Something to publish, until the first of it is there.
    machine.say("sh", "-c", f"until [ -s {EVENTS} ]; do ctr images label {IMAGE} seen=$(date +%N); sleep 1; done")


def published(machine: Machine) -> list[Published]:
    """The ends that were published since `record`."""
    found = map(json.loads, EXIT_LINE.findall(machine.say("cat", EVENTS)))
    return [Published(each["container_id"], each["id"], each.get("exit_status", 0)) for each in found]


def clear(machine: Machine) -> None:
    """Remove all tasks and containers of containerd's, and the record of events."""
    machine.say("sh", "-c", "ctr tasks list -q | xargs --no-run-if-empty --max-args=1 ctr tasks delete --force")
    machine.say("sh", "-c", "ctr containers list -q | xargs --no-run-if-empty ctr containers delete")
    machine.run("systemctl", "stop", "events.service")
    machine.say("rm", "-f", EVENTS)
