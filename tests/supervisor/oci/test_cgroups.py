"""Cgroups by the file system: made-up trees for every layout, the kernel's own where there is one."""

import os
import pathlib
import subprocess
import time

import pytest

from supervisor.errors import TimedOut
from supervisor.oci import cgroups

needs_cgroups = pytest.mark.skipif(os.geteuid() != 0 or not cgroups.writable(), reason="cgroups cannot be made here")


def put(path: pathlib.Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def v1(tmp_path: pathlib.Path) -> pathlib.Path:
    for name in ("memory", "cpu,cpuacct", "freezer", "systemd"):
        put(tmp_path / name / "cgroup.procs")
    (tmp_path / "cpu").symlink_to("cpu,cpuacct")
    (tmp_path / "not-a-hierarchy").mkdir()
    return tmp_path


@pytest.fixture
def v2(tmp_path: pathlib.Path) -> pathlib.Path:
    put(tmp_path / "cgroup.controllers", "memory pids\n")
    put(tmp_path / "system.slice/memory.swap.max", "max\n")
    put(tmp_path / "exitd/x/cgroup.procs", "1\n")
    put(tmp_path / "exitd/x/memory.events", "low 0\noom 2\noom_kill 3\noom_group_kill 9\n")
    put(tmp_path / "exitd/x/memory.max", "67108864\n")
    put(tmp_path / "exitd/x/y/cgroup.procs", "0\n")
    put(tmp_path / "exitd/x/y/memory.max", "max\n")
    return tmp_path


def test_v1_is_known_by_its_hierarchies(v1: pathlib.Path) -> None:
    assert cgroups.mode(str(v1)) == "v1"
    assert set(cgroups.paths("/exitd/x", str(v1))) == {"memory", "cpu,cpuacct", "freezer", "systemd"}
    assert cgroups.oom_counter_path("/exitd/x", str(v1)) == f"{v1}/memory/exitd/x/memory.oom_control"


def test_hybrid_has_the_unified_hierarchy_beside(v1: pathlib.Path) -> None:
    put(v1 / "unified/cgroup.controllers")
    put(v1 / "unified/cgroup.procs")
    assert cgroups.mode(str(v1)) == "hybrid"
    assert cgroups.paths("/exitd/x", str(v1))["unified"] == f"{v1}/unified/exitd/x"


def test_v2_is_one_tree(v2: pathlib.Path) -> None:
    assert cgroups.mode(str(v2)) == "v2"
    assert cgroups.paths("/exitd/x", str(v2)) == {"unified": f"{v2}/exitd/x"}
    assert cgroups.oom_kills("/exitd/x", str(v2)) == 3
    assert cgroups.memory_limit_bytes("/exitd/x", str(v2)) == 64 << 20
    assert cgroups.memory_limit_bytes("/exitd/x/y", str(v2)) == 0
    assert cgroups.pids("/exitd/x", str(v2)) == (1,)
    assert cgroups.counts_swap(str(v2))


def test_v1_counters_and_limits(v1: pathlib.Path) -> None:
    put(v1 / "memory/exitd/x/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    put(v1 / "memory/exitd/x/memory.limit_in_bytes", "9223372036854771712\n")
    assert cgroups.oom_kills("/exitd/x", str(v1)) == 1
    assert cgroups.memory_limit_bytes("/exitd/x", str(v1)) == 0
    assert not cgroups.counts_swap(str(v1))


def test_what_is_gone_is_not_known(v1: pathlib.Path) -> None:
    assert cgroups.oom_kills("/exitd/gone", str(v1)) is None
    assert cgroups.memory_limit_bytes("/exitd/gone", str(v1)) == 0
    assert cgroups.pids("/exitd/gone", str(v1)) == ()
    cgroups.remove("/exitd/gone", root=str(v1))


@pytest.mark.parametrize("path", ["/", "", "//", "/.", "/../x", "/a/../..", "relative", "a.slice:b:c"])
def test_the_top_is_never_taken_for_a_containers_cgroup(v1: pathlib.Path, path: str) -> None:
    with pytest.raises(ValueError, match="cgroups path"):
        cgroups.remove(path, root=str(v1))


@pytest.mark.parametrize(("text", "kills"), [("", 0), ("oom_kill\n", 0), ("oom_kill x", 0), ("a 1\noom_kill 12", 12)])
def test_the_counter_is_read_from_its_own_line(text: str, kills: int) -> None:
    assert cgroups.parse_oom_kills(text) == kills


def test_a_made_up_v2_tree_of_directories_goes_children_first(tmp_path: pathlib.Path) -> None:
    put(tmp_path / "cgroup.controllers")
    (tmp_path / "exitd/x/a/b").mkdir(parents=True)
    cgroups.remove("/exitd/x", root=str(tmp_path))
    assert os.listdir(tmp_path / "exitd") == []


def test_v2_kills_all_at_once_and_gives_up_in_time(v2: pathlib.Path) -> None:
    """Files cannot be removed with rmdir, so this made-up cgroup stays busy; its members are not ours to signal."""
    put(v2 / "exitd/x/cgroup.kill")
    put(v2 / "exitd/x/cgroup.procs", "")
    with pytest.raises(TimedOut, match="still busy"):
        cgroups.remove("/exitd/x", limit_seconds=0.05, root=str(v2))
    assert (v2 / "exitd/x/cgroup.kill").read_text() == "1"


@needs_cgroups
def test_whoever_is_left_is_killed_and_every_hierarchy_is_cleaned() -> None:
    path = f"/exitd-test-{os.getpid()}"
    sleeper = subprocess.Popen(["sleep", "1000"])
    for top in cgroups.paths(path).values():
        os.makedirs(f"{top}/child")
    inner = f"{path}/child"
    for name, top in cgroups.paths(inner).items():
        if name != "cpuset":  # takes nobody before its cpus are set
            pathlib.Path(top, "cgroup.procs").write_text(str(sleeper.pid))
    assert cgroups.pids(path) == (sleeper.pid,)
    freezer = pathlib.Path(cgroups.paths(inner).get("freezer", "/nope"), "freezer.state")
    if freezer.exists():
        freezer.write_text("FROZEN")
    cgroups.remove(path)
    assert sleeper.wait(5) == -9
    assert not [top for top in cgroups.paths(path).values() if os.path.exists(top)]
    begun = time.monotonic()
    cgroups.remove(path)
    assert time.monotonic() - begun < 1
