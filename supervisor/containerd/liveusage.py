"""What a container uses at this moment, by its cgroup and its network namespace: the numbers that `stats` shows.

Memory is counted as docker does it: without the page cache that the kernel takes back first (total_inactive_file of v1,
inactive_file of v2).
"""

import os

from protos.containerd import cgroups1_pb2 as v1
from protos.containerd import cgroups2_pb2 as v2
from shim import native
from shim.frozen import replace
from supervisor.containerd import metrics
from supervisor.containerd.metrics import Metrics
from supervisor.model.values import Process
from supervisor.model.views import LiveUsage, NetworkUse, Pressure, Stall
from supervisor.runtime.oci import cgroups

MOST_NET_BYTES = 256 << 10  # of a list of interfaces: a container may make as many as it likes
LOOPBACK = "lo"
RECEIVED, SENT = 0, 8  # columns of /proc/PID/net/dev, behind the interface's name
NS_PER_US = 1000


def measure(cgroups_path: str, init: Process | None, root: str = cgroups.ROOT) -> LiveUsage | None:
    """Return what the cgroup has used by now; None if it is gone. Blocks for some forty small files. Raises OSError."""
    found = metrics.read(cgroups_path, root)
    if found is None:
        return None
    usage = usage_of(found, machine_bytes(), network_of(init) if init is not None else None)
    if isinstance(found, v1.Metrics):
        return usage
    directory = cgroups.paths(cgroups_path, root)["unified"]
    return replace(
        usage,
        cpu_pressure=pressure_of(found.cpu.psi, f"{directory}/cpu.pressure"),
        memory_pressure=pressure_of(found.memory.psi, f"{directory}/memory.pressure"),
        io_pressure=pressure_of(found.io.psi, f"{directory}/io.pressure"),
    )


def usage_of(found: Metrics, memory_of_machine: int, network: NetworkUse | None = None) -> LiveUsage:
    """Return the numbers in one version's metrics, without its pressure. Pure."""
    if isinstance(found, v1.Metrics):
        memory, cache = found.memory.usage, found.memory.total_inactive_file
        limits = (memory.limit, found.memory.hierarchical_memory_limit or memory.limit)
        disks = found.blkio.io_service_bytes_recursive
        return LiveUsage(
            cpu_ns=found.cpu.usage.total,
            memory_bytes=_without(memory.usage, cache),
            memory_limit_bytes=_least(limits, memory_of_machine),
            network=network,
            read_bytes=sum(each.value for each in disks if each.op.lower() == "read"),
            written_bytes=sum(each.value for each in disks if each.op.lower() == "write"),
            pids=found.pids.current,
            pids_limit=found.pids.limit,
        )
    return LiveUsage(
        cpu_ns=found.cpu.usage_usec * NS_PER_US,
        memory_bytes=_without(found.memory.usage, found.memory.inactive_file),
        memory_limit_bytes=_least((found.memory.usage_limit,), memory_of_machine),
        network=network,
        read_bytes=sum(each.rbytes for each in found.io.usage),
        written_bytes=sum(each.wbytes for each in found.io.usage),
        pids=found.pids.current,
        pids_limit=0 if found.pids.limit == metrics.UNLIMITED else found.pids.limit,
    )


def pressure_of(found: v2.PSIStats, file: str) -> Pressure | None:
    """Return it in the form of the API; None where the kernel has no such file: in the metrics that is all zeros."""
    return Pressure(_stall(found.some), _stall(found.full)) if os.path.exists(file) else None


def _stall(found: v2.PSIData) -> Stall:
    return Stall(found.avg10, found.avg60, found.avg300, found.total * NS_PER_US)


def machine_bytes() -> int:
    """Return the memory of the machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def network_of(init: Process) -> NetworkUse | None:
    """Return what the interfaces of its network namespace have moved; None if that is exitd's own, or the process has
    ended. Raises OSError when there is no room to look."""
    try:
        if os.stat(f"/proc/{init.pid}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino:
            return None
        with open(f"/proc/{init.pid}/net/dev", "rb") as file:
            text = file.read(MOST_NET_BYTES)
    except (FileNotFoundError, ProcessLookupError, NotADirectoryError):
        return None
    # Afterwards: the pid may have been another process's when it was read.
    return parse_interfaces(text.decode("ascii", "replace")) if _is_alive(init) else None


def parse_interfaces(text: str) -> NetworkUse:
    """Return the sums of /proc/PID/net/dev, without the loopback interface (proc_pid_net(5)). What is not a line of the
    table is skipped: the text may be cut off."""
    received = sent = 0
    for line in text.splitlines():
        name, _, rest = line.rpartition(":")
        words = rest.split()
        if name.strip() in ("", LOOPBACK) or len(words) <= SENT:
            continue
        if words[RECEIVED].isdigit() and words[SENT].isdigit():
            received += int(words[RECEIVED])
            sent += int(words[SENT])
    return NetworkUse(received, sent)


def _is_alive(process: Process) -> bool:
    try:
        state, _, started, _ = native.process_stat(process.pid)
    except ProcessLookupError:
        return False
    return started == process.started_ticks and state not in "ZX"


def _without(usage: int, cache: int) -> int:
    return usage - cache if cache < usage else usage


def _least(limits: tuple[int, ...], memory_of_machine: int) -> int:
    """0 is no limit where a file is not there."""
    return min([memory_of_machine, *(limit for limit in limits if limit)])
