"""Containers that other engines run, identified from files and cgroups: names, states, and the end of one. Pure."""

import json

from shim.frozen import replace
from shim.patterns import LatePattern
from supervisor.model.values import By, Event, Exit, Oom, Process, Reason, Report, Signaled, is_own_doing
from supervisor.model.watched import FOREIGN, FoundProcess, Observed, Target

SIGKILL = 9
AWAY = "watcher-away"  # exitd was not running when it ended
UNTOLD = "kernel-did-not-tell"
STATE_FILES = ("state.json", "status")  # runc's, crun's
_ID = LatePattern(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


class BadState(ValueError):
    """A runtime's state file that names no process."""


def cgroup_of(text: str) -> str:
    """Return the cgroup that counts memory from the text of /proc/PID/cgroup (cgroups(7)): v1's, else v2's. Empty: the
    root cgroup, or one outside of exitd's cgroup namespace."""
    by_controller: dict[str, str] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            by_controller.setdefault(controller, path)
    path = by_controller.get("memory", by_controller.get("", ""))
    seen = path.startswith("/") and path.strip("/") and ".." not in path.split("/") and not path.endswith(" (deleted)")
    return path if seen else ""


def container_in(cgroup: str) -> str:
    """Return the innermost id of 64 hexadecimal digits in a cgroup's path, whatever surrounds it; empty if there is
    none."""
    found = _ID.findall(cgroup)
    return found[-1] if found else ""


def process_found(pid: int, cgroup: str, command: str) -> FoundProcess:
    """Describe a process that the caller named by pid; its container's id comes from its cgroup, if it has one
    there."""
    id = container_in(cgroup)
    return FoundProcess(f"{id or pid}{FOREIGN}pid", id[:12] or command, "pid", pid, None, str(pid))


def task_found(socket: str, namespace: str, id: str, pid: int, writer: int = 0) -> FoundProcess:
    """Describe a task that containerd listed. `writer`: the uid that owns the socket."""
    container = f"{id}{FOREIGN}{socket}/{namespace}"
    return FoundProcess(container, id, f"containerd/{namespace}", pid, None, socket, writer)


def state_found(root: str, id: str, text: str, writer: int = 0) -> FoundProcess:
    """Describe the process in a state file of runc or crun; `writer` is the uid that could write it. Raises BadState
    when the file names no process."""
    try:
        state = json.loads(text)
        pid = state.get("init_process_pid", state.get("pid"))
        started = state.get("init_process_start", state.get("process-start-time"))
    except (ValueError, AttributeError, RecursionError) as error:
        raise BadState(f"{id}: {error}") from error
    if type(pid) is not int or type(started) is not int or pid <= 0 or started < 0:
        raise BadState(f"{id}: no process in it")
    return FoundProcess(f"{id}{FOREIGN}{root}", id, "oci", pid, started, root, writer)


def was_reported(newest: Exit | None, process: Process, booted_ns: int) -> bool:
    """Return whether the ledger already has the end of this very process: recorded in this boot, and still a zombie."""
    return newest is not None and newest.init == process and newest.at_ns >= booted_ns


def exit_of(one: Observed, report: Report, kills: int) -> Exit:
    """Build the ledger's row for a process that was only watched: no caller asked exitd for its end. `kills`: memory
    kills of its cgroup at the end."""
    by_oom = kills > one.kills_outlived and report.status == Signaled(SIGKILL)
    own = Reason.SELF if is_own_doing(report.status) else Reason.UNKNOWN
    return Exit(
        key=one.key,
        name=one.name,
        namespace=one.namespace,
        status=report.status,
        source=report.source,
        reason=Reason.OOM if by_oom else own,
        by=By(),
        oom=Oom(by_oom, max(0, kills - one.kills_before), one.limit_bytes),
        at_ns=report.at_ns,
        started_ns=one.started_ns,
        init=one.process,
        doubt=one.doubt,
        at_is_found=report.at_is_found,
        names=one.names,
    )


def event_of(one: Observed, type: str, time_ns: int, **attributes: str) -> Event:
    """Return an event about a watched process. `time_ns`: wall time."""
    values = {"watch": one.target, "run": str(one.run), **attributes}
    return Event(type, one.container, one.name, one.namespace, time_ns, attributes=tuple(values.items()))


def watch_event(one: Observed, now_ns: int) -> Event:
    """Return the event that says the process is watched from now on."""
    more = {name: value for name, value in (("cgroup", one.cgroup), ("unverified", one.doubt)) if value}
    return event_of(one, "watch", now_ns, pid=str(one.process.pid), **more)


def end_of(one: Observed, report: Report, kills: int, now_ns: int) -> tuple[Exit, tuple[Event, ...]]:
    """Return the ledger's row and the events of an end: memory kills that were not reported yet, then the exit."""
    exit = exit_of(one, report, kills)
    doubt = {"unverified": one.doubt} if one.doubt else {}
    logged = [replace(event_of(one, "exit", now_ns, **doubt), exit=exit)]
    if kills > one.kills_outlived:
        logged.insert(0, oom_event(one, kills, now_ns, init=exit.oom.init))
    return exit, tuple(logged)


def oom_event(one: Observed, kills: int, now_ns: int, *, init: bool) -> Event:
    """Return the event of memory kills. `kills`: all in its cgroup so far, from which those before the watch are
    subtracted. `init`: the process itself was killed."""
    return event_of(one, "oom", now_ns, kills=str(kills - one.kills_before), init=str(init).lower())


def target_event(target: Target, type: str, now_ns: int) -> Event:
    """Return an event about a watch itself."""
    return Event(type, f"{FOREIGN}{target.where}", "", str(target.kind), now_ns, attributes=(("watch", target.where),))
