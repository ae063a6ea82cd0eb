"""The log's lines of tasks, as containers and execs write them."""

from dataclasses import replace

from supervisor.model.taskfacts import Notice, RootMount, Stdio, Task
from supervisor.model.values import (
    By,
    Container,
    Event,
    Exit,
    Exited,
    ExitStatus,
    Oom,
    Phase,
    Process,
    Reason,
    RunKey,
    Source,
    Spec,
)

ADDRESS = "/run/containerd/containerd.sock.ttrpc"
AT_NS = 1_700_000_000_000_000_005
TASK = Task(
    "/b/web", (RootMount("overlay", "overlay", "", ("lowerdir=/l", "ro")),), Stdio(stdout="/o"), address=ADDRESS
)
INIT = Process(40, 4)


def container(id: str = "c1", address: str = ADDRESS) -> Container:
    return Container(
        id, Spec(f"task-{id}", namespace="k8s.io", task=replace(TASK, address=address)), Phase.CREATING, 1, 1
    )


def published(
    kind: str,
    id: str = "c1",
    *,
    exec: str = "",
    address: str = ADDRESS,
    silent: bool = False,
    courier: str = "",
    seq: int = 0,
) -> Event:
    """One that containerd is told of, with all that is needed for it."""
    exit = ended(id, exec) if kind == "exit" else None
    made = TASK if kind == "create" else None
    notice = Notice(address, 40, exec, made, 3 if kind == "remove" else 0, AT_NS, silent, courier)
    return Event(kind, id, f"task-{id}", "k8s.io", AT_NS, exit, exec_id=exec and f"x{exec}", task=notice, seq=seq)


def ended(id: str = "c1", exec: str = "", status: ExitStatus = Exited(3)) -> Exit:  # noqa: B008  (frozen)
    key = RunKey(id, 1, exec and f"x{exec}")
    return Exit(
        key, f"task-{id}", "k8s.io", status, Source.RECORD, Reason.SELF, By(), Oom(), AT_NS, None, INIT, "ended"
    )


def unpublished(seq: int = 0) -> Event:
    return Event("create", "native", "native", "default", AT_NS, seq=seq)


def life(id: str, *, execs: int = 1, late: bool = False, address: str = ADDRESS, courier: str = "") -> list[Event]:
    """From its making to its deletion. `late`: the log has an exec's end after init's."""
    kinds = [("create", ""), ("start", "")]
    for n in range(execs):
        kinds += [("exec_added", f"e{n}"), ("exec", f"e{n}"), ("exit", f"e{n}")]
    kinds += [("oom", ""), ("exit", ""), *([("exit", "late")] if late else []), ("remove", "")]
    return [published(kind, id, exec=exec, address=address, courier=courier) for kind, exec in kinds]


def wanted(events: list[Event]) -> list[Event]:
    """What containerd is to be told of them: after init's exit only the deletion."""
    over = next((n for n, event in enumerate(events) if event.type == "exit" and not event.exec_id), len(events))
    return [event for n, event in enumerate(events) if n <= over or event.type == "remove"]
