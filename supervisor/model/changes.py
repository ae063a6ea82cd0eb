"""What an update makes of a container's spec, and which of its limits then come from the update. Pure."""

from collections.abc import Mapping
from typing import Any

from shim.frozen import fields_of, replace
from supervisor.model import restart
from supervisor.model.errors import BadRequest
from supervisor.model.limits import NO_SWAP_LIMIT, Change
from supervisor.model.values import Spec

RESTART = "restart"
MEMORY, SWAP, RESERVATION = "memory_bytes", "memory_swap_bytes", "memory_reservation_bytes"
CPU, SHARES, CPUS, MEMS, PIDS = "cpu_limit_milli", "cpu_shares", "cpuset_cpus", "cpuset_mems", "pids_limit"
OF_PODS = (MEMORY, CPU, PIDS)  # limits that a pod has, of all its containers together
IN_SPEC = {MEMORY, CPU}  # the others are in Spec.limits, and PIDS in Spec.rights


def limits_in(change: Change) -> tuple[str, ...]:
    """Return the names of the limits that it changes, in a fixed order. The memory limit brings its swap limit along,
    which follows it."""
    found = [name for name in fields_of(type(change)) if name != RESTART and getattr(change, name) is not None]
    return tuple(dict.fromkeys([*found, *((SWAP,) if MEMORY in found else ())]))


def applied(spec: Spec, change: Change) -> Spec:
    """Return the spec with the change; the limits are a pod's own where it is a pause container's. Raises BadRequest,
    which names the field, for values that contradict each other or those that stay."""
    if change.restart is not None:
        spec = replace(spec, restart=restart.parse(change.restart, auto_remove=spec.auto_remove))
    values = {name: value for name in limits_in(change) if (value := getattr(change, name)) is not None}
    if spec.pod is None:
        return _limited(spec, values)
    if other := next((name for name in values if name not in OF_PODS), ""):
        raise BadRequest(
            f"{other}: a pod has limits of memory, CPU time and processes; update its containers", field=other
        )
    return replace(spec, pod=replace(spec.pod, **values))


def _limited(spec: Spec, values: Mapping[str, Any]) -> Spec:
    limits = replace(
        spec.limits, **{name: value for name, value in values.items() if name not in IN_SPEC and name != PIDS}
    )
    if values.get(SWAP) == 0 or (values.get(MEMORY) == 0 and SWAP not in values):
        limits = replace(limits, memory_swap_bytes=None)
    changed = replace(spec, limits=limits, **{name: value for name, value in values.items() if name in IN_SPEC})
    if PIDS in values:
        changed = replace(changed, rights=replace(changed.rights, pids_limit=values[PIDS]))
    _refuse_contradictions(changed)
    return changed


def _refuse_contradictions(spec: Spec) -> None:
    memory, swap, reserved = spec.memory_bytes, spec.limits.memory_swap_bytes, spec.limits.memory_reservation_bytes
    if memory and reserved > memory:
        raise BadRequest(
            f"memory_reservation_bytes: {reserved} is more than the memory limit, {memory}", field=RESERVATION
        )
    if swap is None:
        return
    if not memory:
        raise BadRequest("memory_swap_bytes: it is memory and swap together, and there is no memory limit", field=SWAP)
    if swap != NO_SWAP_LIMIT and swap < memory:
        raise BadRequest(
            f"memory_swap_bytes: {swap} is less than the memory limit, {memory}: change both, or write 0 for no swap",
            field=SWAP,
        )
