"""A task's resource usage, in the messages that containerd's clients read: those of cgroups v1 or v2, as the host has
it.

Every nested message is set, if only empty: `ctr task metrics` and containerd's own collector read them without
checking. What the kernel does not report stays 0. "No limit" is what each reader takes for it: the kernel's huge number
(v1), all bits set (v2), 0 (pids of v1).

`root` is a parameter so that a made-up tree can replace a kernel that is not available. See cgroups(7).
"""

import errno
import os
from collections.abc import Sequence
from typing import TypeVar

from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message

from protos.containerd import cgroups1_pb2 as v1
from protos.containerd import cgroups2_pb2 as v2
from supervisor.runtime.oci import cgroups

UNLIMITED = 2**64 - 1
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
# The file is gone, its controller is off, or the kernel does not measure pressure.
NOT_MEASURED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.EOPNOTSUPP, errno.EINVAL})

M = TypeVar("M", bound=Message)
Metrics = v1.Metrics | v2.Metrics


def read(cgroups_path: str, root: str = cgroups.ROOT) -> Metrics | None:
    """Return the present readings; None if the cgroup is gone. Blocks for some forty small files: call it in a
    thread."""
    places = cgroups.paths(cgroups_path, root)
    found: Metrics
    if cgroups.mode(root) is cgroups.Mode.V2:
        found = _read_v2(cgroups.with_inner(cgroups_path, places["unified"]))
    else:
        found = _read_v1({name: path for names, path in places.items() for name in names.split(",")})
    # Checked last: what is gone now may have been half gone before.
    there = places["unified"] if isinstance(found, v2.Metrics) else places.get("memory") or places.get("pids", "")
    return found if os.path.isdir(there) else None


def after_the_end(last: bytes, oom_kills: int, root: str = cgroups.ROOT) -> Metrics:
    """Return the readings of a task whose cgroup is gone: the last ones (`last` is their wire form; empty: there were
    none), with the memory kills of its exit. CRI asks for these before it deletes the task."""
    if cgroups.mode(root) is cgroups.Mode.V2:
        unified = v2.Metrics.FromString(last)
        unified.memory_events.oom_kill = max(unified.memory_events.oom_kill, oom_kills)
        return _whole(unified)
    divided = v1.Metrics.FromString(last)
    divided.memory_oom_control.oom_kill = max(divided.memory_oom_control.oom_kill, oom_kills)
    return _whole(divided)


def wrap(metrics: Metrics) -> Any:
    """Pack as StatsResponse holds it: the url is the bare name."""
    return Any(type_url=metrics.DESCRIPTOR.full_name, value=metrics.SerializeToString())


def _whole(message: M) -> M:
    """Set all nested messages, recursively."""
    for field in message.DESCRIPTOR.fields:
        within = getattr(message, field.name)
        if isinstance(within, Message):
            within.SetInParent()
            _whole(within)
    return message


# -- files


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except OSError as error:
        if error.errno in NOT_MEASURED:
            return ""
        raise


def _number(path: str, unlimited: int = UNLIMITED) -> int:
    return _value(_text(path).strip(), unlimited)


def _value(word: str, unlimited: int = UNLIMITED) -> int:
    if word == "max":
        return unlimited
    return min(int(word), UNLIMITED) if word.isdigit() else 0


def _pairs(text: str) -> dict[str, int]:
    """Parse lines of `name number`."""
    return {words[0]: _value(words[1]) for line in text.splitlines() if len(words := line.split()) == 2}


def _take(message: Message, pairs: dict[str, int], names: dict[str, str] | None = None) -> None:
    """Set the numbers that the message has a field for; `names` maps the kernel's names to differing fields."""
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in pairs.items():
        field = (names or {}).get(name, name)
        if field in fields and fields[field].message_type is None:
            setattr(message, field, value)


def _names(directory: str) -> list[str]:
    return sorted(os.listdir(directory)) if os.path.isdir(directory) else []


# -- version 1

V1_MEMORY = {
    **{
        top + kernel: top + name
        for top in ("", "total_")
        for kernel, name in (
            ("pgpgin", "pg_pg_in"),
            ("pgpgout", "pg_pg_out"),
            ("pgfault", "pg_fault"),
            ("pgmajfault", "pg_maj_fault"),
        )
    },
    "hierarchical_memsw_limit": "hierarchical_swap_limit",
}
V1_ENTRIES = {"usage": "", "swap": "memsw.", "kernel": "kmem.", "kernel_tcp": "kmem.tcp."}
V1_FILES = {"usage": "usage_in_bytes", "max": "max_usage_in_bytes", "limit": "limit_in_bytes", "failcnt": "failcnt"}


def _read_v1(at: dict[str, str]) -> v1.Metrics:
    found = _whole(v1.Metrics())
    if "pids" in at:
        found.pids.current = _number(f"{at['pids']}/pids.current")
        found.pids.limit = _number(f"{at['pids']}/pids.max", unlimited=0)
    if "cpuacct" in at:
        _cpu_v1(found.cpu.usage, at["cpuacct"])
    if "cpu" in at:
        names = {"nr_periods": "periods", "nr_throttled": "throttled_periods"}
        _take(found.cpu.throttling, _pairs(_text(f"{at['cpu']}/cpu.stat")), names)
    if "memory" in at:
        _memory_v1(found, at["memory"])
    if "blkio" in at:
        _blkio(found.blkio, at["blkio"])
    if "hugetlb" in at:
        _hugetlb_v1(found, at["hugetlb"])
    if "rdma" in at:
        _rdma(found.rdma, at["rdma"])
    return found


def _cpu_v1(usage: v1.CPUUsage, path: str) -> None:
    ticks = _pairs(_text(f"{path}/cpuacct.stat"))
    usage.total = _number(f"{path}/cpuacct.usage")
    usage.user, usage.kernel = ticks.get("user", 0) * TICK_NS, ticks.get("system", 0) * TICK_NS
    usage.per_cpu.extend(map(_value, _text(f"{path}/cpuacct.usage_percpu").split()))


def _memory_v1(found: v1.Metrics, path: str) -> None:
    _take(found.memory, _pairs(_text(f"{path}/memory.stat")), V1_MEMORY)
    for name, prefix in V1_ENTRIES.items():
        entry = getattr(found.memory, name)
        for field, file in V1_FILES.items():
            setattr(entry, field, _number(f"{path}/memory.{prefix}{file}"))
    _take(found.memory_oom_control, _pairs(_text(f"{path}/memory.oom_control")))


def _blkio(found: v1.BlkIOStat, path: str) -> None:
    """The disks' schedulers decide which files there are; the throttle's always exist."""
    for field in found.DESCRIPTOR.fields:
        name = "time_recursive" if field.name == "io_time_recursive" else field.name
        for kind in ("", "bfq.", "throttle."):
            entries = [entry for line in _text(f"{path}/blkio.{kind}{name}").splitlines() if (entry := _entry(line))]
            if entries:
                getattr(found, field.name).extend(entries)
                break


def _entry(line: str) -> v1.BlkIOEntry | None:
    """Parse `8:0 Read 4096`, or without the word; the sum over all disks is skipped."""
    words = line.split()
    major, _, minor = words[0].partition(":") if len(words) in (2, 3) else ("", "", "")
    if not (major.isdigit() and minor.isdigit()):
        return None
    op = words[1] if len(words) == 3 else ""
    return v1.BlkIOEntry(op=op, device=_disk(words[0]), major=int(major), minor=int(minor), value=_value(words[-1]))


def _disk(number: str) -> str:
    try:
        return "/dev/" + os.path.basename(os.readlink(f"/sys/dev/block/{number}"))
    except OSError:
        return ""


def _hugetlb_v1(found: v1.Metrics, path: str) -> None:
    for name in _names(path):
        size = name.removeprefix("hugetlb.").removesuffix(".usage_in_bytes")
        if name == f"hugetlb.{size}.usage_in_bytes" and not size.endswith(".rsvd"):
            values = {
                field: _number(f"{path}/hugetlb.{size}.{V1_FILES[field]}") for field in ("usage", "max", "failcnt")
            }
            found.hugetlb.add(pagesize=size, **values)


def _rdma(found: v1.RdmaStat | v2.RdmaStat, path: str) -> None:
    """Parse `mlx4_0 hca_handle=2 hca_object=2000`, one line for each device."""
    for entries, file in ((found.current, "rdma.current"), (found.limit, "rdma.max")):
        for line in _text(f"{path}/{file}").splitlines():
            device, *rest = line.split()
            values = dict(word.partition("=")[::2] for word in rest)
            handles, objects = (_value(values.get(f"hca_{kind}", ""), 2**32 - 1) for kind in ("handle", "object"))
            entries.add(device=device, hca_handles=handles, hca_objects=objects)


# -- version 2

V2_MEMORY_FILES = {
    "usage": "current",
    "swap_usage": "swap.current",
    "max_usage": "peak",
    "swap_max_usage": "swap.peak",
}
V2_MEMORY_LIMITS = {"usage_limit": "max", "swap_limit": "swap.max"}


def _read_v2(directories: Sequence[str]) -> v2.Metrics:
    """`directories`: the cgroup's, and that of one inside of it whose limits count as well."""
    found, path = _whole(v2.Metrics()), directories[0]
    found.pids.current = _number(f"{path}/pids.current")
    found.pids.limit = _least(directories, "pids.max")
    _take(found.cpu, _pairs(_text(f"{path}/cpu.stat")))
    _take(found.memory, _sums(_pairs(_text(f"{path}/memory.stat"))))
    for field, file in V2_MEMORY_FILES.items():
        setattr(found.memory, field, _number(f"{path}/memory.{file}"))
    for field, file in V2_MEMORY_LIMITS.items():
        setattr(found.memory, field, _least(directories, f"memory.{file}"))
    _take(found.memory_events, _pairs(_text(f"{path}/memory.events")))
    for line in _text(f"{path}/io.stat").splitlines():
        _io(found.io, line)
    for psi, controller in ((found.cpu.psi, "cpu"), (found.memory.psi, "memory"), (found.io.psi, "io")):
        _pressure(psi, _text(f"{path}/{controller}.pressure"))
    for name in _names(path):
        size = name.removeprefix("hugetlb.").removesuffix(".current")
        if name == f"hugetlb.{size}.current" and not size.endswith(".rsvd"):
            current, most = (_number(f"{path}/hugetlb.{size}.{field}") for field in ("current", "max"))
            failed = _pairs(_text(f"{path}/hugetlb.{size}.events")).get("max", 0)
            found.hugetlb.add(pagesize=size, current=current, max=most, failcnt=failed)
    _rdma(found.rdma, path)
    return found


def _least(directories: Sequence[str], file: str) -> int:
    """Return the limit that is reached first; 0 where there is no such file."""
    texts = (_text(f"{each}/{file}").strip() for each in directories)
    return min((_value(text) for text in texts if text), default=0)


def _sums(stat: dict[str, int]) -> dict[str, int]:
    """Since Linux 5.9 some are reported separately for anonymous memory and files."""
    parts = ("workingset_refault", "workingset_activate")
    return {**stat, **{name: stat[f"{name}_anon"] + stat[f"{name}_file"] for name in parts if f"{name}_anon" in stat}}


def _io(found: v2.IOStat, line: str) -> None:
    """`8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0`."""
    number, *rest = line.split()
    major, _, minor = number.partition(":")
    if major.isdigit() and minor.isdigit() and rest:
        entry = found.usage.add(major=int(major), minor=int(minor))
        _take(entry, {name: _value(value) for name, _, value in (word.partition("=") for word in rest)})


def _pressure(found: v2.PSIStats, text: str) -> None:
    """`some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, and the same of `full`."""
    for line in text.splitlines():
        kind, *rest = line.split()
        values = dict(word.partition("=")[::2] for word in rest)
        if kind in ("some", "full") and {"avg10", "avg60", "avg300", "total"} <= values.keys():
            data = found.some if kind == "some" else found.full
            data.avg10, data.avg60, data.avg300 = (float(values[name]) for name in ("avg10", "avg60", "avg300"))
            data.total = _value(values["total"])
