"""What a task used: the kernel's own files where it has v1, made-up trees for both versions."""

import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest
from google.protobuf.message import Message

from protos.containerd import cgroups1_pb2 as v1
from protos.containerd import cgroups2_pb2 as v2
from supervisor.containerd import metrics
from supervisor.runtime.oci import cgroups

needs_v1 = pytest.mark.skipif(
    os.geteuid() != 0 or cgroups.mode() is cgroups.Mode.V2 or not cgroups.writable(), reason="no cgroups of v1 here"
)
FILES_V1 = {
    "memory/memory.stat": "cache 1\npgpgin 2\ninactive_file 3\nhierarchical_memory_limit 4\n"
    "hierarchical_memsw_limit 5\ntotal_rss 6\ntotal_pgmajfault 7\ntotal_inactive_file 8\nnew_in_some_kernel 9\n",
    "memory/memory.usage_in_bytes": "100\n",
    "memory/memory.max_usage_in_bytes": "200\n",
    "memory/memory.limit_in_bytes": "9223372036854771712\n",
    "memory/memory.failcnt": "3\n",
    "memory/memory.memsw.usage_in_bytes": "101\n",
    "memory/memory.kmem.usage_in_bytes": "102\n",
    "memory/memory.kmem.tcp.usage_in_bytes": "103\n",
    "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 1\noom_kill 2\n",
    "cpu,cpuacct/cpuacct.usage": "5000\n",
    "cpu,cpuacct/cpuacct.stat": "user 2\nsystem 1\n",
    "cpu,cpuacct/cpuacct.usage_percpu": "2000 3000 \n",
    "cpu,cpuacct/cpu.stat": "nr_periods 4\nnr_throttled 5\nthrottled_time 6\n",
    "pids/pids.current": "2\n",
    "pids/pids.max": "max\n",
    "blkio/blkio.bfq.io_serviced_recursive": "Total 0\n",
    "blkio/blkio.throttle.io_serviced_recursive": "8:0 Read 1\n8:0 Total 1\nTotal 1\n",
    "blkio/blkio.bfq.time_recursive": "8:16 77\n",
    "hugetlb/hugetlb.2MB.usage_in_bytes": "1\n",
    "hugetlb/hugetlb.2MB.max_usage_in_bytes": "2\n",
    "hugetlb/hugetlb.2MB.failcnt": "3\n",
    "hugetlb/hugetlb.2MB.rsvd.usage_in_bytes": "9\n",
    "rdma/rdma.current": "mlx4_0 hca_handle=2 hca_object=2000\n",
    "rdma/rdma.max": "mlx4_0 hca_handle=max hca_object=max\n",
}
FILES_V2 = {
    "pids.current": "2\n",
    "pids.max": "max\n",
    "cpu.stat": "usage_usec 1\nuser_usec 2\nsystem_usec 3\nnr_periods 4\nnr_throttled 5\nthrottled_usec 6\n"
    "nr_bursts 7\nburst_usec 8\n",
    "cpu.pressure": "some avg10=1.50 avg60=0.25 avg300=0.00 total=99\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
    "memory.stat": "anon 1\nfile 2\npgfault 3\nworkingset_refault_anon 4\nworkingset_refault_file 5\nslab 6\n",
    "memory.current": "100\n",
    "memory.max": "max\n",
    "memory.peak": "300\n",
    "memory.swap.current": "5\n",
    "memory.swap.max": "1024\n",
    "memory.events": "low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 6\n",
    "io.stat": "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n8:16 \n",
    "hugetlb.2MB.current": "1\n",
    "hugetlb.2MB.max": "max\n",
    "hugetlb.2MB.events": "max 3\n",
    "hugetlb.2MB.rsvd.current": "9\n",
    "rdma.current": "mlx4_0 hca_handle=2 hca_object=2000\n",
}


def put(path: pathlib.Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def tree_v1(tmp_path: pathlib.Path) -> str:
    for name in ("memory", "cpu,cpuacct", "pids", "blkio", "hugetlb", "rdma"):
        put(tmp_path / name / "cgroup.procs")
    for name, text in FILES_V1.items():
        controller, _, file = name.partition("/")
        put(tmp_path / controller / "exitd/box" / file, text)
    return str(tmp_path)


@pytest.fixture
def tree_v2(tmp_path: pathlib.Path) -> str:
    put(tmp_path / "cgroup.controllers", "memory pids\n")
    for name, text in FILES_V2.items():
        put(tmp_path / "exitd/box" / name, text)
    return str(tmp_path)


def absent(message: Message) -> list[str]:
    """The messages within that are not there."""
    found = []
    for field in message.DESCRIPTOR.fields:
        within = getattr(message, field.name)
        if isinstance(within, Message):
            found += [field.full_name] * (not message.HasField(field.name)) + absent(within)
    return found


def test_v1_is_read_into_containerds_fields(tree_v1: str) -> None:
    found = metrics.read("/exitd/box", tree_v1)
    assert isinstance(found, v1.Metrics)
    memory, usage, throttling = found.memory, found.cpu.usage, found.cpu.throttling
    assert (memory.cache, memory.pg_pg_in, memory.inactive_file, memory.total_rss) == (1, 2, 3, 6)
    assert (memory.hierarchical_memory_limit, memory.hierarchical_swap_limit) == (4, 5)
    assert (memory.total_pg_maj_fault, memory.total_inactive_file) == (7, 8)
    assert memory.usage == v1.MemoryEntry(limit=9223372036854771712, usage=100, max=200, failcnt=3)
    assert (memory.swap.usage, memory.kernel.usage, memory.kernel_tcp.usage) == (101, 102, 103)
    assert (found.memory_oom_control.under_oom, found.memory_oom_control.oom_kill) == (1, 2)
    assert (usage.total, usage.user, usage.kernel) == (5000, 2 * metrics.TICK_NS, metrics.TICK_NS)
    assert list(usage.per_cpu) == [2000, 3000]
    assert (throttling.periods, throttling.throttled_periods, throttling.throttled_time) == (4, 5, 6)
    assert (found.pids.current, found.pids.limit) == (2, 0)
    assert list(found.hugetlb) == [v1.HugetlbStat(usage=1, max=2, failcnt=3, pagesize="2MB")]


def test_disks_and_rdma_devices_of_v1_are_reported_one_by_one(tree_v1: str) -> None:
    found = metrics.read("/exitd/box", tree_v1)
    assert isinstance(found, v1.Metrics)
    serviced = [(e.op, e.major, e.minor, e.value) for e in found.blkio.io_serviced_recursive]
    assert serviced == [("Read", 8, 0, 1), ("Total", 8, 0, 1)]
    assert [(e.op, e.minor, e.value) for e in found.blkio.io_time_recursive] == [("", 16, 77)]
    assert list(found.rdma.current) == [v1.RdmaEntry(device="mlx4_0", hca_handles=2, hca_objects=2000)]
    assert found.rdma.limit[0].hca_handles == 2**32 - 1


def test_v2_is_read_into_containerds_fields(tree_v2: str) -> None:
    found = metrics.read("/exitd/box", tree_v2)
    assert isinstance(found, v2.Metrics)
    cpu, memory, events = found.cpu, found.memory, found.memory_events
    assert (cpu.usage_usec, cpu.throttled_usec, cpu.nr_bursts, cpu.burst_usec) == (1, 6, 7, 8)
    assert (cpu.psi.some, cpu.psi.full.total) == (v2.PSIData(avg10=1.5, avg60=0.25, avg300=0, total=99), 7)
    assert (memory.anon, memory.file, memory.pgfault, memory.workingset_refault, memory.slab) == (1, 2, 3, 9, 6)
    assert (memory.usage, memory.usage_limit, memory.max_usage) == (100, metrics.UNLIMITED, 300)
    assert (memory.swap_usage, memory.swap_limit) == (5, 1024)
    assert (events.low, events.oom, events.oom_kill, events.oom_group_kill) == (1, 4, 5, 6)
    assert (found.pids.current, found.pids.limit) == (2, metrics.UNLIMITED)
    assert list(found.io.usage) == [v2.IOEntry(major=8, rbytes=1, wbytes=2, rios=3, wios=4)]
    assert list(found.hugetlb) == [v2.HugeTlbStat(current=1, max=metrics.UNLIMITED, pagesize="2MB", failcnt=3)]
    assert found.rdma.current[0].hca_objects == 2000


def test_limits_of_the_cgroup_that_crun_makes_in_a_scope_count_as_well(tmp_path: pathlib.Path) -> None:
    put(tmp_path / "cgroup.controllers", "memory pids\n")
    scope = tmp_path / "exitd.slice/exitd-box.scope"
    own = {"pids.max": "1760\n", "memory.max": "max\n", "memory.swap.max": "0\n", "pids.current": "2\n"}
    inner = {"pids.max": "50\n", "memory.max": "4096\n", "memory.swap.max": "max\n", "pids.current": "1\n"}
    for path, files in ((scope, own), (scope / "container", inner)):
        for name, text in files.items():
            put(path / name, text)
    found = metrics.read("exitd.slice:exitd:box", str(tmp_path))
    assert isinstance(found, v2.Metrics)
    assert (found.pids.limit, found.memory.usage_limit, found.memory.swap_limit, found.pids.current) == (50, 4096, 0, 2)
    (scope / "container/memory.max").unlink()
    found = metrics.read("exitd.slice:exitd:box", str(tmp_path))
    assert isinstance(found, v2.Metrics)
    assert found.memory.usage_limit == metrics.UNLIMITED


def test_every_message_is_there_even_when_the_kernel_reports_nothing(tmp_path: pathlib.Path) -> None:
    put(tmp_path / "1/pids/cgroup.procs")
    put(tmp_path / "1/pids/exitd/box/cgroup.procs")
    put(tmp_path / "2/cgroup.controllers")
    put(tmp_path / "2/exitd/box/cgroup.procs")
    for root in (str(tmp_path / "1"), str(tmp_path / "2")):
        found = metrics.read("/exitd/box", root)
        assert found is not None and absent(found) == []
        sent = metrics.wrap(found)
        assert sent.type_url == found.DESCRIPTOR.full_name
        assert absent(type(found).FromString(sent.value)) == []


def test_a_cgroup_that_is_gone_has_no_readings(tree_v1: str) -> None:
    assert metrics.read("/exitd/other", tree_v1) is None


def test_a_task_that_has_ended_keeps_its_last_readings_and_its_memory_kills(tree_v2: str) -> None:
    last = metrics.read("/exitd/box", tree_v2)
    assert isinstance(last, v2.Metrics)
    found = metrics.after_the_end(last.SerializeToString(), 9, tree_v2)
    last.memory_events.oom_kill = 9
    assert found == last
    assert metrics.after_the_end(last.SerializeToString(), 0, tree_v2) == last


def test_without_any_readings_the_memory_kills_of_the_exit_are_reported(tree_v1: str) -> None:
    found = metrics.after_the_end(b"", 1, tree_v1)
    assert isinstance(found, v1.Metrics)
    assert (found.memory_oom_control.oom_kill, found.memory.usage.usage, absent(found)) == (1, 0, [])


@pytest.fixture
def own() -> Iterator[str]:
    path = f"/exitd-metrics-{os.getpid()}"
    for directory in cgroups.paths(path).values():
        os.makedirs(directory, exist_ok=True)
    yield path
    cgroups.remove(path)


@needs_v1
def test_the_kernels_own_readings_are_those_of_who_ran_there(own: str) -> None:
    procs = [f"{path}/cgroup.procs" for name, path in cgroups.paths(own).items() if name != "cpuset"]
    script = "for f; do echo 0 >$f; done; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"
    subprocess.run(["sh", "-c", script, "sh", *procs], check=True, timeout=60)
    found = metrics.read(own)
    assert isinstance(found, v1.Metrics)
    assert found.cpu.usage.total > 0 and sum(found.cpu.usage.per_cpu) == found.cpu.usage.total
    assert found.memory.usage.max > 0 and found.memory.usage.limit > 2**60
    assert (found.pids.current, absent(found)) == (0, [])
