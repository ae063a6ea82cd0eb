"""Which events containerd is sent, and with what content. Pure.

Containerd gets no events of a create that failed, nor of runs after the first.
"""

from supervisor.model.taskfacts import CLEANED_UP, Notice
from supervisor.model.values import Container, Process, fold

SENT = frozenset({"create", "start", "oom", "pause", "resume", "exec_added", "exit"})


def of_container(c: Container, kind: str, exec_name: str = "") -> Notice | None:
    """Return what containerd is sent for an event of `kind`, or None. `c` is the container after the event, but still
    with the process that the event is about."""
    task = c.spec.task
    if task is None or c.spec.pod is not None:  # containerd itself publishes the events of a sandbox
        return None
    if kind == "remove" and c.exit is not None:  # no exit: it was never made
        silent, pid = c.delete_key == CLEANED_UP, _pid(c.exit.init)
        status, at_ns = fold(c.exit.status), c.exit.at_ns
        return Notice(task.address, pid, status=status, at_ns=at_ns, silent=silent, courier=task.courier)
    if kind not in SENT or c.run > 1:
        return None
    made = task if kind == "create" else None
    return Notice(task.address, _pid(c.init), exec_name, made=made, courier=task.courier)


def of_exec(address: str, courier: str, name: str, init: Process | None) -> Notice | None:
    """Return what containerd is sent for an exec's start or end. None for an exec that is not containerd's: it has no
    address, or no name there."""
    return Notice(address, _pid(init), name, courier=courier) if address and name else None


def _pid(process: Process | None) -> int:
    return process.pid if process is not None else 0
