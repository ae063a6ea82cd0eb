"""What is to become of a container's limits and policy: message to fact, checked. Pure."""

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.limits import bytes_of, cpus_of, shares_of
from supervisor.api.requests import cpu_of, memory_of
from supervisor.api.rights import MOST_PIDS
from supervisor.api.values import bad
from supervisor.model import restart
from supervisor.model.errors import BadRequest
from supervisor.model.limits import NO_SWAP_LIMIT, Change

EMPTY = Change()


def change_of(message: pb.UpdateRequest) -> Change:
    """Return the checked change. What depends on the values that the container has is checked later. Raises BadRequest
    also where nothing is to change."""

    def given(name: str) -> bool:
        return message.HasField(name)

    change = Change(
        memory_bytes=memory_of(message.memory_bytes) if given("memory_bytes") else None,
        memory_swap_bytes=_swap(message.memory_swap_bytes) if given("memory_swap_bytes") else None,
        memory_reservation_bytes=bytes_of("memory_reservation_bytes", message.memory_reservation_bytes)
        if given("memory_reservation_bytes")
        else None,
        cpu_limit_milli=cpu_of("cpu_limit_milli", message.cpu_limit_milli) if given("cpu_limit_milli") else None,
        cpu_shares=shares_of(message.cpu_shares) if given("cpu_shares") else None,
        cpuset_cpus=cpus_of("cpuset_cpus", message.cpuset_cpus) if given("cpuset_cpus") else None,
        cpuset_mems=cpus_of("cpuset_mems", message.cpuset_mems) if given("cpuset_mems") else None,
        pids_limit=_pids(message.pids_limit) if given("pids_limit") else None,
        restart=_restart(message.restart) if given("restart") else None,
    )
    if change == EMPTY:
        raise BadRequest("nothing to update: give at least one value")
    return change


def _swap(both: int) -> int:
    if both < NO_SWAP_LIMIT:
        raise bad("memory_swap_bytes", str(both), f"{NO_SWAP_LIMIT} for no limit, 0 for no swap, or a size")
    return both


def _pids(limit: int) -> int:
    if limit > MOST_PIDS:
        raise bad("pids_limit", str(limit), f"at most {MOST_PIDS}; 0 and less: no limit")
    return max(0, limit)


def _restart(word: str) -> str:
    restart.parse(word, auto_remove=False)  # raises BadRequest
    return word
