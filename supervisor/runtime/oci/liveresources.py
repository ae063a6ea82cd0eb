"""linux.resources for a runtime's `update`: limits of a container that changed, with words for those that were cleared.

An update leaves out nothing that it clears: what is left out stays in the cgroup. How a limit is cleared depends on the
cgroup version: -1 with v1, and with v2 for all but the weight and the reservation, whose defaults (cgroup-v2.rst,
cpu.weight and memory.low) no number of runtime-spec stands for. A runtime takes those as `unified`. A cpuset that is
cleared has all that the cgroup above it has.
"""

import json
import os
from collections.abc import Collection, Mapping

from shim.frozen import frozen
from supervisor.model import changes
from supervisor.model.errors import BadRequest
from supervisor.model.values import Spec
from supervisor.runtime.oci import cgroups, delegation
from supervisor.runtime.oci.spec import CPU_PERIOD_US, shares_of

NO_LIMIT = -1
DEFAULT_SHARES = 1024  # of v1: cgroup-v1/cpu
DEFAULT_WEIGHT = "100"  # of v2: cgroup-v2.rst, cpu.weight
MOST_LIST_BYTES = 64 << 10
# Where config.json has them, below linux.resources.
LEAVES: Mapping[str, tuple[tuple[str, str], ...]] = {
    changes.MEMORY: (("memory", "limit"),),
    changes.SWAP: (("memory", "swap"),),
    changes.RESERVATION: (("memory", "reservation"),),
    changes.CPU: (("cpu", "quota"), ("cpu", "period")),
    changes.SHARES: (("cpu", "shares"),),
    changes.CPUS: (("cpu", "cpus"),),
    changes.MEMS: (("cpu", "mems"),),
    changes.PIDS: (("pids", "limit"),),
}
LIFTED = (("cpu", "quota"), ("pids", "limit"))
CONTROLLERS = {
    **dict.fromkeys((changes.MEMORY, changes.SWAP, changes.RESERVATION), "memory"),
    **dict.fromkeys((changes.CPU, changes.SHARES), "cpu"),
    changes.PIDS: "pids",
}


@frozen
class LimitMachine:
    """What the words depend on in this machine. `cpus`, `mems`: of the cgroup above; empty: not known."""

    cgroup_v2: bool = False
    swap_limit: bool = False
    lacking: tuple[tuple[str, str], ...] = ()  # controllers by which nothing can be limited, and why
    cpus: str = ""
    mems: str = ""


def look(cgroups_path: str, root: str = cgroups.ROOT) -> LimitMachine:
    """Read a few small files. Raises OSError."""
    is_v2 = cgroups.mode(root) is cgroups.Mode.V2
    return LimitMachine(
        cgroup_v2=is_v2,
        swap_limit=cgroups.counts_swap(root),
        lacking=tuple((name, str(refusal)) for name, refusal in delegation.lacking(root).items()),
        cpus=_above(cgroups_path, "cpus", root, is_v2=is_v2),
        mems=_above(cgroups_path, "mems", root, is_v2=is_v2),
    )


def _above(cgroups_path: str, which: str, root: str, *, is_v2: bool) -> str:
    tops = cgroups.paths(cgroups_path, root)
    top = tops.get("unified") if is_v2 else next((p for n, p in tops.items() if "cpuset" in n.split(",")), None)
    if top is None:
        return ""
    name = f"cpuset.{which}.effective" if is_v2 else f"cpuset.{which}"
    try:
        with open(f"{os.path.dirname(top)}/{name}", encoding="ascii") as file:
            return file.read(MOST_LIST_BYTES).strip()
    except FileNotFoundError:
        return ""


def with_memory(limits: Collection[str]) -> tuple[str, ...]:
    """Return the limits, with that of memory where that of swap is among them: runtimes take swap (a number of v2) from
    the difference of both."""
    missing = changes.SWAP in limits and changes.MEMORY not in limits
    return (*limits, *((changes.MEMORY,) if missing else ()))


def refuse_impossible(spec: Spec, limits: Collection[str], machine: LimitMachine) -> None:
    """Raise BadRequest for a limit that cannot be set here. What is cleared was not set."""
    lacking = dict(machine.lacking)
    for name in limits:
        why = lacking.get(CONTROLLERS.get(name, ""))
        if why and not _is_cleared(spec, name):
            raise BadRequest(f"{name}: {why}", field=name)
    swap = spec.limits.memory_swap_bytes
    if changes.SWAP in limits and swap not in (None, spec.memory_bytes) and not machine.swap_limit:
        raise BadRequest(
            "memory_swap_bytes: this machine's kernel counts no swap; boot with swapaccount=1, or ask for none",
            field=changes.SWAP,
        )


def resources(
    spec: Spec, limits: Collection[str], machine: LimitMachine, of_bundle: Mapping[str, object] | None = None
) -> dict[str, dict[str, object]]:
    """Return these limits of the spec as linux.resources, explicitly. `of_bundle`: linux.resources of its bundle, which
    counts for what the spec leaves open."""
    found: dict[str, dict[str, object]] = {}
    lacking = dict(machine.lacking)
    for name in limits:
        if CONTROLLERS.get(name) in lacking or (name == changes.SWAP and not machine.swap_limit):
            continue
        values = _of_bundle(name, of_bundle or {}) if of_bundle and _is_cleared(spec, name) else {}
        for (section, key), value in (values or _explicit(spec, name, machine)).items():
            found.setdefault(section, {})[key] = value
    return found


def split(text: str) -> tuple[str, tuple[str, ...]]:
    """Return linux.resources without the limits that crun (1.8) cannot clear, and the controllers of those: it writes
    -1 into the kernel's files as a number without a sign (cpu.cfs_quota_us), or as it is (pids.max)."""
    document = json.loads(text)
    lifted = []
    for section, key in LIFTED:
        part = document.get(section)
        value = part.get(key) if isinstance(part, dict) else None
        if isinstance(value, int) and value < 0:
            del part[key]
            lifted.append(section)
    return json.dumps(document), tuple(lifted)


def _is_cleared(spec: Spec, name: str) -> bool:
    return not _value(spec, name)


def _value(spec: Spec, name: str) -> int | str:
    """Return the number or list; 0 or empty for none. Memory and swap together are the memory limit by default."""
    found: Mapping[str, int | str] = {
        changes.MEMORY: spec.memory_bytes,
        changes.SWAP: spec.memory_bytes if spec.limits.memory_swap_bytes is None else spec.limits.memory_swap_bytes,
        changes.RESERVATION: spec.limits.memory_reservation_bytes,
        changes.CPU: spec.cpu_limit_milli,
        changes.SHARES: shares_of(spec),
        changes.CPUS: spec.limits.cpuset_cpus,
        changes.MEMS: spec.limits.cpuset_mems,
        changes.PIDS: max(0, spec.rights.pids_limit),
    }
    return found[name]


def _explicit(spec: Spec, name: str, machine: LimitMachine) -> dict[tuple[str, str], object]:
    value = _value(spec, name)
    match name:
        case changes.CPU:
            quota = int(value) * CPU_PERIOD_US // 1000 if value else NO_LIMIT
            return {("cpu", "quota"): quota, ("cpu", "period"): CPU_PERIOD_US}
        case changes.SHARES if not value:
            return (
                {("unified", "cpu.weight"): DEFAULT_WEIGHT}
                if machine.cgroup_v2
                else {("cpu", "shares"): DEFAULT_SHARES}
            )
        case changes.RESERVATION if not value and machine.cgroup_v2:
            return {("unified", "memory.low"): "0"}
        case changes.CPUS | changes.MEMS:
            whole = value or (machine.cpus if name == changes.CPUS else machine.mems)
            return dict.fromkeys(LEAVES[name], whole) if whole else {}
    return dict.fromkeys(LEAVES[name], value or NO_LIMIT)


def _of_bundle(name: str, document: Mapping[str, object]) -> dict[tuple[str, str], object]:
    found: dict[tuple[str, str], object] = {}
    for section, key in LEAVES[name]:
        part = document.get(section)
        if isinstance(part, dict) and key in part:
            found[section, key] = part[key]
    return found
