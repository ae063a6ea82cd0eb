"""Facts about what a container may use of the machine, beside its rights."""

from shim.frozen import frozen

NO_SWAP_LIMIT = -1


@frozen
class ContainerLimits:
    """Limits and weights for cgroup and memory. Empty ones: no limit, or what the bundle says."""

    memory_reservation_bytes: int = 0
    memory_swap_bytes: int | None = None  # memory and swap together, or NO_SWAP_LIMIT; None: no swap
    cpu_shares: int = 0  # 1024 is the kernel's default
    cpuset_cpus: str = ""  # lists as in cpuset(7): 0-3,7
    cpuset_mems: str = ""
    oom_score_adj: int | None = None
    shm_bytes: int = 0  # of its own /dev/shm


@frozen
class HostDevice:
    """A device node of the machine, or a directory of them, that a container gets."""

    source: str
    path: str = ""  # in the container; empty: as source
    access: str = "rwm"


@frozen
class Change:
    """What an update changes; None: it stays as it is. A cleared number is 0, a cleared list empty."""

    memory_bytes: int | None = None
    memory_swap_bytes: int | None = None  # memory and swap together, or NO_SWAP_LIMIT
    memory_reservation_bytes: int | None = None
    cpu_limit_milli: int | None = None
    cpu_shares: int | None = None
    cpuset_cpus: str | None = None
    cpuset_mems: str | None = None
    pids_limit: int | None = None
    restart: str | None = None  # docker's word, as on-failure:3
