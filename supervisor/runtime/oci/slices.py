"""A pod's slice: the unit of systemd's around the scopes of a pod's containers, which has the limits of them all.

`busctl` and `systemctl`, which come with systemd, ask for it. It is transient: nothing of it outlives a boot. systemd
makes the slice by itself for the first scope in it; with limits it is made before that. See org.freedesktop.systemd1(5)
and systemd.resource-control(5).
"""

from collections.abc import Collection, Mapping

from shim.patterns import LatePattern
from supervisor.model.errors import ShimFailed
from supervisor.model.values import Pod
from supervisor.runtime.oci import runtime

TOP = "exitd.slice"
NAME = LatePattern(r"exitd-([0-9a-f]+)\.slice")
SYSTEMD = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
ANSWER_SECONDS = 20.0
END_SECONDS = 60.0  # for processes that were left in it: systemd asks them to end, and kills them a while later
INFINITY = 2**64 - 1  # of memory, tasks and CPU time alike
OF_LIMITS = {"memory_bytes": "MemoryMax", "pids_limit": "TasksMax", "cpu_limit_milli": "CPUQuotaPerSecUSec"}
US_PER_MILLI = 1000  # of CPU time, in each second


def name_of(pod_id: str) -> str:
    """Return the unit's name: systemd reads a-b.slice as b in a.slice, and an id has no hyphen."""
    return f"exitd-{pod_id}.slice"


def pod_in(name: str) -> str:
    """Return the id of the pod whose slice has this name; empty if it is no pod's."""
    found = NAME.fullmatch(name)
    return found[1] if found else ""


def properties(pod: Pod) -> dict[str, int]:
    """Return the pod's limits by their names in systemd: bytes, processes and threads, microseconds in a second."""
    return {name: value for name, value in _all(pod).items() if value}


def explicit(pod: Pod, names: Collection[str]) -> dict[str, int]:
    """Return these of the pod's limits in the same way; a cleared one is systemd's infinity."""
    wanted = {OF_LIMITS[name] for name in names if name in OF_LIMITS}
    return {name: value or INFINITY for name, value in _all(pod).items() if name in wanted}


def _all(pod: Pod) -> dict[str, int]:
    return {
        "MemoryMax": pod.memory_bytes,
        "TasksMax": pod.pids_limit,
        "CPUQuotaPerSecUSec": pod.cpu_limit_milli * US_PER_MILLI,
    }


async def limit(pod_id: str, wanted: dict[str, int]) -> None:
    """Make the pod's slice with these properties, or give them to the one that is there. Repeatable. Raises ShimFailed
    when systemd refuses, TimedOut, Busy."""
    name = name_of(pod_id)
    made = await _call("StartTransientUnit", "ssa(sv)a(sa(sv))", name, "fail", *_words(wanted), "0")
    if made.returncode:
        await alter(name, wanted, runtime.last_error(made.stderr))


async def alter(unit: str, wanted: Mapping[str, int], before: str = "") -> None:
    """Give the unit these properties until the next boot. `before`: what systemd said when it was to be made. Raises
    ShimFailed when systemd refuses, TimedOut, Busy."""
    altered = await _call("SetUnitProperties", "sba(sv)", unit, "true", *_words(wanted))
    if altered.returncode:
        said = "; ".join(filter(None, (before, runtime.last_error(altered.stderr))))
        raise ShimFailed(f"systemd gives {unit} no such limits ({said})")


def _words(wanted: Mapping[str, int]) -> list[str]:
    return [str(len(wanted)), *(word for key, value in wanted.items() for word in (key, "t", str(value)))]


async def end(pod_id: str) -> str:
    """Stop the pod's slice, and whatever is in it. Return why it could not be stopped; empty if it was. Raises
    TimedOut, Busy."""
    try:
        stopped = await runtime.run(("systemctl", "--quiet", "stop", name_of(pod_id)), timeout_seconds=END_SECONDS)
    except OSError as error:
        return str(error)
    return runtime.last_error(stopped.stderr) or f"status {stopped.returncode}" if stopped.returncode else ""


async def _call(method: str, *words: str) -> runtime.CommandResult:
    try:
        argv = ("busctl", "--quiet", "call", "--", *SYSTEMD, method, *words)
        return await runtime.run(argv, timeout_seconds=ANSWER_SECONDS)
    except OSError as error:
        raise ShimFailed(f"busctl: {error.strerror}; the limits are not set") from error
