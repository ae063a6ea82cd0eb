"""What a container uses: the numbers in both versions' metrics, and those of its network."""

import os
import pathlib
import subprocess

import pytest

from protos.containerd import cgroups1_pb2 as v1
from protos.containerd import cgroups2_pb2 as v2
from shim import native
from supervisor.api import replies
from supervisor.containerd.liveusage import measure, network_of, parse_interfaces, usage_of
from supervisor.containerd.metrics import UNLIMITED
from supervisor.model.values import Process
from supervisor.model.views import LiveUsage, NetworkUse, Pressure, Stall, UsageView

MACHINE = 1 << 34
DEV = """Inter-|   Receive                                     |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo: 1000 10 0 0 0 0 0 0 1000 10 0 0 0 0 0 0
  eth0: 70 1 0 0 0 0 0 0 90 2 0 0 0 0 0 0
 a:b:c: 7 1 0 0 0 0 0 0 9 2 0 0 0 0 0 0
"""


def test_version_1_has_them_in_its_fields() -> None:
    found = v1.Metrics()
    found.cpu.usage.total = 5
    found.memory.usage.usage, found.memory.total_inactive_file, found.memory.usage.limit = 100, 30, 1 << 63
    found.memory.hierarchical_memory_limit = 500
    for op, value in (("Read", 7), ("Write", 8), ("Sync", 99), ("read", 1)):
        found.blkio.io_service_bytes_recursive.add(op=op, value=value)
    found.pids.current, found.pids.limit = 3, 0
    expected = LiveUsage(5, 70, 500, NetworkUse(1, 2), 8, 8, 3, 0)
    assert usage_of(found, MACHINE, NetworkUse(1, 2)) == expected


def test_version_2_has_them_in_its_own() -> None:
    found = v2.Metrics()
    found.cpu.usage_usec = 5
    found.memory.usage, found.memory.inactive_file, found.memory.usage_limit = 100, 130, UNLIMITED
    found.io.usage.add(rbytes=7, wbytes=8)
    found.io.usage.add(rbytes=1, wbytes=0)
    found.pids.current, found.pids.limit = 3, UNLIMITED
    assert usage_of(found, MACHINE) == LiveUsage(5000, 100, MACHINE, None, 8, 8, 3, 0)
    found.pids.limit, found.memory.usage_limit = 9, 50
    assert (usage_of(found, MACHINE).pids_limit, usage_of(found, MACHINE).memory_limit_bytes) == (9, 50)


def test_pressure_is_that_of_the_kernels_files_and_absent_without_them(tmp_path: pathlib.Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory pids\n")
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "cpu.pressure").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
    full = "full avg10=1.00 avg60=0.25 avg300=0.10 total=7\n"
    (tmp_path / "box" / "memory.pressure").write_text(f"some avg10=12.50 avg60=3.00 avg300=0.50 total=90\n{full}")
    found = measure("/box", None, str(tmp_path))
    assert found is not None
    assert found.cpu_pressure == Pressure()
    assert found.memory_pressure == Pressure(Stall(12.5, 3.0, 0.5, 90_000), Stall(1.0, 0.25, 0.1, 7000))
    assert found.io_pressure is None
    message = replies.stats_message(UsageView("c1", "web", found, 5))
    assert (message.memory_pressure.some.avg10, message.memory_pressure.full.total_ns) == (12.5, 7000)
    assert message.HasField("cpu_pressure") and not message.HasField("io_pressure")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (DEV, NetworkUse(77, 99)),
        (DEV[:-20], NetworkUse(70, 90)),  # cut off: the line that is no whole one is not counted
        ("", NetworkUse(0, 0)),
        ("eth0: x 1 1 1 1 1 1 1 9\n: 5 0 0 0 0 0 0 0 6\n", NetworkUse(0, 0)),
    ],
)
def test_interfaces_are_summed_up_but_for_the_loopback_one(text: str, expected: NetworkUse) -> None:
    assert parse_interfaces(text) == expected


def test_a_network_is_its_own_when_it_is_not_exitds() -> None:
    here = Process(os.getpid(), native.process_stat(os.getpid())[2])
    assert network_of(here) is None
    with subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None and other.stdout is not None
        other.stdin.write(b"up\n")
        other.stdin.flush()
        assert other.stdout.readline() == b"up\n"  # it has become cat
        ticks = native.process_stat(other.pid)[2]
        assert network_of(Process(other.pid, ticks)) == NetworkUse(0, 0)
        assert network_of(Process(other.pid, ticks + 1)) is None  # another process that had this pid
    assert network_of(Process(other.pid, ticks)) is None
