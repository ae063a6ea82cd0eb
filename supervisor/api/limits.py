"""What a container may use of the machine, and what it is given of it: message to fact, checked, and back. Pure."""

import os
from collections.abc import Iterable, Mapping

from protos.exitd.v1 import exitd_pb2 as pb
from shim.patterns import LatePattern
from supervisor.api.values import absolute, bad, matching
from supervisor.model import bounds
from supervisor.model.errors import BadRequest
from supervisor.model.limits import NO_SWAP_LIMIT, ContainerLimits, HostDevice

LEAST_SHARES, MOST_SHARES = 2, 262_144  # the kernel's own bounds
MOST_ADJ = 1000
MOST_BYTES = 2**63 - 1
MOST_DEVICES = 1024  # in one request; a directory is one
ACCESSES = "rwm"
OF_IPC = frozenset(
    f"kernel.{name}" for name in ("msgmax", "msgmnb", "msgmni", "sem", "shmall", "shmmax", "shmmni", "shm_rmid_forced")
)
OF_QUEUES, OF_NETWORK = "fs.mqueue.", "net."
_LIST = LatePattern(r"[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*")
_SYSCTL = LatePattern(r"[a-zA-Z0-9_-]+(\.[a-zA-Z0-9_-]+)+")


def limits_of(message: pb.LimitsSpec, memory_bytes: int, *, of_bundle: bool) -> ContainerLimits:
    """Return the checked limits. `memory_bytes`: the container's memory limit, 0 for none. Raises BadRequest, which
    names the field."""
    if of_bundle and message.shm_bytes:
        raise BadRequest("limits.shm_bytes: a bundle says that itself, in its config.json", field="limits.shm_bytes")
    return ContainerLimits(
        memory_reservation_bytes=_reservation(message.memory_reservation_bytes, memory_bytes),
        memory_swap_bytes=_swap(message, memory_bytes),
        cpu_shares=shares_of(message.cpu_shares),
        cpuset_cpus=cpus_of("limits.cpuset_cpus", message.cpuset_cpus),
        cpuset_mems=cpus_of("limits.cpuset_mems", message.cpuset_mems),
        oom_score_adj=_adjustment(message),
        shm_bytes=bytes_of("limits.shm_bytes", message.shm_bytes),
    )


def limits_message(limits: ContainerLimits) -> pb.LimitsSpec:
    """Return the message of limits, as `limits_of` reads it."""
    return pb.LimitsSpec(
        memory_reservation_bytes=limits.memory_reservation_bytes,
        memory_swap_bytes=limits.memory_swap_bytes,
        cpu_shares=limits.cpu_shares,
        cpuset_cpus=limits.cpuset_cpus,
        cpuset_mems=limits.cpuset_mems,
        oom_score_adj=limits.oom_score_adj,
        shm_bytes=limits.shm_bytes,
    )


def devices_of(messages: Iterable[pb.HostDevice]) -> tuple[HostDevice, ...]:
    """Return the checked devices. Whether there are such is seen when the container is made. Raises BadRequest."""
    found = tuple(_device(f"devices[{index}]", each) for index, each in enumerate(messages))
    if len(found) > MOST_DEVICES:
        raise bad("devices", f"{len(found)} of them", f"at most {MOST_DEVICES}")
    return found


def devices_message(devices: Iterable[HostDevice]) -> list[pb.HostDevice]:
    return [pb.HostDevice(source=each.source, path=each.path, access=each.access) for each in devices]


def sysctls_of(pairs: Mapping[str, str], *, network: str, ipc: str = "own") -> tuple[tuple[str, str], ...]:
    """Return the checked kernel parameters: those of namespaces that a container has for itself. Raises BadRequest."""
    for name, value in pairs.items():
        if not _SYSCTL.fullmatch(name) or not (name in OF_IPC or name.startswith((OF_QUEUES, OF_NETWORK))):
            allowed = "a parameter of its own namespaces: net.*, fs.mqueue.*, kernel.msg*, kernel.sem or kernel.shm*"
            raise bad("sysctls", name, allowed)
        if name.startswith(OF_NETWORK) and network == "host":
            raise bad("sysctls", name, "none of net.* with the host's network, which it would change")
        if not name.startswith(OF_NETWORK) and ipc == "host":
            raise bad("sysctls", name, "none of ipc with the host's ipc namespace, which it would change")
        if not value or "\n" in value:
            raise bad("sysctls", f"{name}={value}", "a value of one line")
    size = bounds.size_of_pairs(pairs.items())
    if size > bounds.MOST_PAIRS_BYTES:
        raise bad("sysctls", f"{size} bytes of them", f"at most {bounds.MOST_PAIRS_BYTES}")
    return tuple(sorted(pairs.items()))


def cpus_of(field: str, text: str) -> str:
    """Return a list of processors or memory nodes, which may be empty. Raises BadRequest."""
    return matching(field, text, _LIST, "a list such as 0-3,7")


def bytes_of(field: str, size_bytes: int) -> int:
    """Return a size that the kernel can take. Raises BadRequest."""
    if size_bytes > MOST_BYTES:
        raise bad(field, str(size_bytes), f"at most {MOST_BYTES}")
    return size_bytes


def _reservation(size_bytes: int, memory_bytes: int) -> int:
    field = "limits.memory_reservation_bytes"
    if memory_bytes and size_bytes > memory_bytes:
        raise bad(field, str(size_bytes), f"at most its memory limit, {memory_bytes}")
    return bytes_of(field, size_bytes)


def _swap(message: pb.LimitsSpec, memory_bytes: int) -> int | None:
    field = "limits.memory_swap_bytes"
    if not message.HasField("memory_swap_bytes"):
        return None
    both = message.memory_swap_bytes
    if not memory_bytes:
        raise bad(field, str(both), "one only together with a memory limit: it is memory and swap together")
    if both != NO_SWAP_LIMIT and both < memory_bytes:
        raise bad(field, str(both), f"{NO_SWAP_LIMIT} for no limit, or at least its memory limit, {memory_bytes}")
    return both


def shares_of(shares: int) -> int:
    """Return a weight that the kernel can take, or 0. Raises BadRequest."""
    if shares and not LEAST_SHARES <= shares <= MOST_SHARES:
        raise bad("limits.cpu_shares", str(shares), f"{LEAST_SHARES} to {MOST_SHARES}, or 0 for the kernel's default")
    return shares


def _adjustment(message: pb.LimitsSpec) -> int | None:
    if not message.HasField("oom_score_adj"):
        return None
    if not -MOST_ADJ <= message.oom_score_adj <= MOST_ADJ:
        raise bad("limits.oom_score_adj", str(message.oom_score_adj), f"-{MOST_ADJ} to {MOST_ADJ}")
    return message.oom_score_adj


def _device(field: str, message: pb.HostDevice) -> HostDevice:
    if not message.source.startswith("/"):
        raise bad(f"{field}.source", message.source, "the absolute path of a device of this machine")
    access = message.access or ACCESSES
    if len(set(access)) != len(access) or not set(access) <= set(ACCESSES):
        raise bad(f"{field}.access", access, "of r, w and m, each at most once")
    source = os.path.normpath(message.source)
    return HostDevice(source, os.path.normpath(absolute(f"{field}.path", message.path) or source), access)
