"""Cgroups by the file system: made-up trees for every layout, the kernel's own where there is one."""

import contextlib
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from shim import native
from supervisor.model.errors import ShimFailed, TimedOut
from supervisor.model.values import Process
from supervisor.monitor import procfs
from supervisor.runtime.oci import cgroups
from tests.supervisor.descriptors import held_now, only, opened_since
from tests.system.waits import until

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


def test_the_top_that_a_cgroup_namespace_shows_says_whether_swap_is_counted(tmp_path: pathlib.Path) -> None:
    put(tmp_path / "cgroup.controllers", "memory\n")
    assert not cgroups.counts_swap(str(tmp_path))
    put(tmp_path / "memory.swap.max", "max\n")
    assert cgroups.counts_swap(str(tmp_path))


def test_a_limit_is_set_before_anything_is_in_the_cgroup(v1: pathlib.Path) -> None:
    cgroups.limit_memory("/exitd/pod-1", 5 << 20, str(v1))
    assert (v1 / "memory/exitd/pod-1/memory.limit_in_bytes").read_text() == str(5 << 20)


def test_on_v2_every_level_above_hands_the_memory_controller_down(v2: pathlib.Path) -> None:
    cgroups.limit_memory("/exitd/pod-1", 5 << 20, str(v2))
    assert (v2 / "exitd/pod-1/memory.max").read_text() == str(5 << 20)
    for level in (v2, v2 / "exitd"):
        assert (level / "cgroup.subtree_control").read_text() == "+memory"
    assert not (v2 / "exitd/pod-1/cgroup.subtree_control").exists()


def test_processes_are_limited_where_the_kernel_counts_them(v2: pathlib.Path) -> None:
    cgroups.limit_pids("/exitd/pod-1", 9, str(v2))
    assert (v2 / "exitd/pod-1/pids.max").read_text() == "9"
    assert (v2 / "exitd/cgroup.subtree_control").read_text() == "+pids"
    put(v2 / "cgroup.controllers", "memory\n")
    with pytest.raises(ShimFailed, match="pids controller is not mounted"):
        cgroups.limit_pids("/exitd/pod-1", 9, str(v2))


def test_a_limit_of_cpu_time_is_a_quota_of_the_kernels_period(v2: pathlib.Path) -> None:
    cgroups.limit_cpu("/exitd/pod-1", 250, str(v2))
    assert (v2 / "exitd/pod-1/cpu.max").read_text() == "25000 100000"
    assert (v2 / "exitd/cgroup.subtree_control").read_text() == "+cpu"


def test_on_v1_a_limit_of_cpu_time_is_where_that_controller_is(v1: pathlib.Path) -> None:
    cgroups.limit_cpu("/exitd/pod-1", 250, str(v1))
    assert (v1 / "cpu,cpuacct/exitd/pod-1/cpu.cfs_quota_us").read_text() == "25000"
    (v1 / "cpu,cpuacct/cgroup.procs").unlink()
    with pytest.raises(ShimFailed, match="cpu controller is not mounted"):
        cgroups.limit_cpu("/exitd/pod-1", 250, str(v1))


def test_a_limit_that_cannot_be_set_is_a_named_error(v1: pathlib.Path, tmp_path: pathlib.Path) -> None:
    put(tmp_path / "memory/exitd", "a file in the way")
    with pytest.raises(ShimFailed, match="memory limit is not set"):
        cgroups.limit_memory("/exitd/pod-1", 5 << 20, str(v1))
    (tmp_path / "memory/cgroup.procs").unlink()
    with pytest.raises(ShimFailed, match="not mounted"):
        cgroups.limit_memory("/exitd/pod-1", 5 << 20, str(v1))


def test_children_are_found_in_any_hierarchy(v1: pathlib.Path) -> None:
    for path in ("memory/exitd/a", "freezer/exitd/b", "systemd/exitd/a/c"):
        (v1 / path).mkdir(parents=True)
    assert cgroups.children("/exitd", str(v1)) == ("/exitd/a", "/exitd/b")
    assert cgroups.children("/none", str(v1)) == ()


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


@pytest.mark.parametrize("path", ["/", "", "//", "/.", "/../x", "/a/../..", "relative", "a.slice:b:c.slice"])
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


def test_a_cgroup_that_is_busy_for_a_moment_with_nobody_in_it_is_removed_if_it_is_empty(tmp_path: pathlib.Path) -> None:
    """As the kernel has it with a process that is ending: no rmdir, and no member. The list is read after that."""
    put(tmp_path / "cgroup.controllers")
    (top := tmp_path / "x/y").mkdir(parents=True)
    os.mkfifo(top / "cgroup.procs")

    def end() -> None:
        with (top / "cgroup.procs").open("w"):  # waits for the reader
            (top / "cgroup.procs").unlink()

    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(end)
        cgroups.remove_if_empty("/x/y", limit_seconds=30, root=str(tmp_path))
        with contextlib.suppress(FileNotFoundError):  # nobody has looked
            os.close(os.open(top / "cgroup.procs", os.O_RDONLY))
        ending.result()
    assert not top.exists()


def test_a_cgroup_with_somebody_in_it_is_left_at_once_and_a_busy_one_in_time(v2: pathlib.Path) -> None:
    cgroups.remove_if_empty("/exitd/x", limit_seconds=1000, root=str(v2))
    put(v2 / "exitd/x/cgroup.procs", "")
    cgroups.remove_if_empty("/exitd/x", limit_seconds=0.05, root=str(v2))
    assert (v2 / "exitd/x").is_dir()


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
    assert sleeper.wait(60) == -9
    assert not [top for top in cgroups.paths(path).values() if os.path.exists(top)]
    begun = time.monotonic()
    cgroups.remove(path)
    assert time.monotonic() - begun < 5


@needs_cgroups
@pytest.mark.parametrize("room", [3, 6])
def test_more_processes_than_descriptors_are_killed_in_several_rounds_and_none_stays_frozen(room: int) -> None:
    path = f"/exitd-test-{os.getpid()}"
    sleepers = [subprocess.Popen(["sleep", "1000"]) for _ in range(12)]
    for name, top in cgroups.paths(path).items():
        os.makedirs(top)
        for sleeper in sleepers if name != "cpuset" else ():
            pathlib.Path(top, "cgroup.procs").write_text(str(sleeper.pid))
    before = held_now()
    with only(room):
        cgroups.remove(path, limit_seconds=30)
    assert not opened_since(before)
    assert [sleeper.wait(30) for sleeper in sleepers] == [-9] * 12


@needs_cgroups
def test_without_any_descriptor_nothing_is_said_to_be_removed() -> None:
    path = f"/exitd-test-{os.getpid()}"
    with subprocess.Popen(["sleep", "1000"]) as sleeper:
        for name, top in cgroups.paths(path).items():
            os.makedirs(top)
            if name != "cpuset":
                pathlib.Path(top, "cgroup.procs").write_text(str(sleeper.pid))
        with only(0), pytest.raises(OSError, match="Too many open files"):
            cgroups.remove(path)
        cgroups.remove(path)
        assert sleeper.wait(30) == -9


@pytest.fixture
def frozen() -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """A cgroup of the kernel's below one more, and a process in it that is frozen."""
    path = f"/exitd-test-{os.getpid()}/child"
    top = cgroups.paths(path)["freezer"]
    os.makedirs(top)
    with subprocess.Popen(["sleep", "1000"]) as sleeper:
        pathlib.Path(top, "cgroup.procs").write_text(str(sleeper.pid))
        state = pathlib.Path(top, "freezer.state")
        state.write_text("FROZEN")
        until(lambda: state.read_text() == "FROZEN\n", "frozen")
        yield path, sleeper
        cgroups.remove(os.path.dirname(path))


needs_freezer = pytest.mark.skipif("freezer" not in cgroups.paths("/x"), reason="there is no v1 freezer here")


@needs_cgroups
@needs_freezer
def test_a_frozen_process_of_v1_dies_once_it_is_thawed(frozen: tuple[str, "subprocess.Popen[bytes]"]) -> None:
    path, sleeper = frozen
    process = Process(sleeper.pid, native.process_stat(sleeper.pid)[2])
    assert not procfs.is_killed(process)
    sleeper.send_signal(signal.SIGSTOP)
    assert not procfs.is_killed(process)
    sleeper.kill()
    assert procfs.is_killed(process) and not procfs.is_ending(process)
    assert not procfs.is_killed(Process(process.pid, process.started_ticks + 1))
    cgroups.thaw(os.path.dirname(path))  # the whole tree
    assert sleeper.wait(60) == -9
    assert not procfs.is_killed(process)


def test_nothing_is_thawed_where_nothing_is_frozen(v1: pathlib.Path, v2: pathlib.Path) -> None:
    cgroups.thaw("/exitd/none", str(v1))
    cgroups.thaw("/exitd/x", str(v2))


def test_v2_and_a_cgroup_that_is_gone_have_no_memory_eventfd(v1: pathlib.Path) -> None:
    before = held_now()
    assert cgroups.oom_event("/exitd/none", str(v1)) == -1
    put(v1 / "memory/exitd/x/memory.oom_control")
    (v1 / "memory/exitd/x/cgroup.event_control").mkdir()  # a kernel without it
    with pytest.raises(OSError):
        cgroups.oom_event("/exitd/x", str(v1))
    assert not opened_since(before)


# -- scopes: the systemd driver


@pytest.mark.parametrize(
    ("path", "inner"),
    [
        ("exitd.slice:exitd:c1", "exitd.slice/exitd-c1.scope"),
        ("a-b-c.slice:p:n", "a.slice/a-b.slice/a-b-c.slice/p-n.scope"),
        ("-.slice:p:n", "p-n.scope"),
        (":p:n", "system.slice/p-n.scope"),
        ("a.slice::n", "a.slice/-n.scope"),
        ("kubepods-pod1_2.slice:cri:0f.x", "kubepods.slice/kubepods-pod1_2.slice/cri-0f.x.scope"),
    ],
)
def test_a_scope_is_in_its_slice_and_that_in_its_parents(
    v1: pathlib.Path, tmp_path_factory: pytest.TempPathFactory, path: str, inner: str
) -> None:
    assert cgroups.is_scope(path)
    assert cgroups.paths(path, str(v1)) == {
        name: f"{v1}/{name}/{inner}" for name in ("cpu,cpuacct", "freezer", "memory", "systemd")
    }
    unified = tmp_path_factory.mktemp("v2")
    put(unified / "cgroup.controllers")
    assert cgroups.paths(path, str(unified)) == {"unified": f"{unified}/{inner}"}


@pytest.mark.parametrize(
    "path",
    [
        "a:p:n",
        "a.slice:p:",
        "a--b.slice:p:n",
        "-a.slice:p:n",
        "a-.slice:p:n",
        ".slice:p:n",
        "a/b.slice:p:n",
        "a.slice:p:../n",
        "a.slice:p:n.slice",
        "a.slice:p/q:n",
        "../x.slice:p:n",
        "a.slice:p",
        "a.slice:p:n:m",
        "a",
    ],
)
def test_what_is_no_scope_of_a_slice_is_refused(v1: pathlib.Path, path: str) -> None:
    with pytest.raises(ValueError):
        cgroups.paths(path, str(v1))


def test_a_path_is_a_path_also_with_colons_in_it(v1: pathlib.Path) -> None:
    assert not cgroups.is_scope("/a:b:c")
    assert cgroups.paths("/a:b:c", str(v1))["memory"] == f"{v1}/memory/a:b:c"


def test_counters_limits_and_members_of_a_scope_are_found(v1: pathlib.Path, v2: pathlib.Path) -> None:
    path = "exitd.slice:exitd:c1"
    put(v2 / "exitd.slice/exitd-c1.scope/memory.events", "oom_kill 4\n")
    put(v2 / "exitd.slice/exitd-c1.scope/memory.max", "4096\n")
    put(v2 / "exitd.slice/exitd-c1.scope/cgroup.procs", "7\n8\n")
    assert cgroups.oom_counter_path(path, str(v2)) == f"{v2}/exitd.slice/exitd-c1.scope/memory.events"
    assert (cgroups.oom_kills(path, str(v2)), cgroups.memory_limit_bytes(path, str(v2))) == (4, 4096)
    assert cgroups.pids(path, str(v2)) == (7, 8)
    assert cgroups.oom_kills("exitd.slice:exitd:c2", str(v2)) is None


def test_the_directories_of_a_cgroup_begin_where_everybody_can_be_killed_at_once(v1: pathlib.Path) -> None:
    put(v1 / "unified/cgroup.procs")
    assert cgroups.directories("/a/b", str(v1)) == tuple(
        f"{v1}/{name}/a/b" for name in ("unified", "cpu,cpuacct", "freezer", "memory", "systemd")
    )


@pytest.mark.parametrize(
    ("outer", "inner", "is_in"),
    [
        ("/a", "/a", True),
        ("/a", "/a/b", True),
        ("/a/b", "/a", False),
        ("/a", "/ab", False),
        ("/a.slice/x-y.scope", "a.slice:x:y", True),
    ],
)
def test_a_cgroup_is_in_itself_and_in_those_above_it(outer: str, inner: str, is_in: bool) -> None:
    assert cgroups.place(inner).startswith(cgroups.place(outer)) is is_in


def test_frozen_is_what_the_cgroup_itself_is_told_to_be(
    v1: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    put(v1 / "freezer/exitd/x/freezer.self_freezing", "0\n")
    put(v1 / "freezer/exitd/x/freezer.state", "FROZEN\n")  # one above it is
    assert not cgroups.is_frozen("/exitd/x", str(v1))
    put(v1 / "freezer/exitd/x/freezer.self_freezing", "1\n")
    assert cgroups.is_frozen("/exitd/x", str(v1))
    assert not cgroups.is_frozen("/exitd/none", str(v1))
    unified = tmp_path_factory.mktemp("v2")
    put(unified / "cgroup.controllers", "memory pids\n")
    for word, is_frozen in (("0\n", False), ("1\n", True)):
        put(unified / "exitd/x/cgroup.freeze", word)
        assert cgroups.is_frozen("/exitd/x", str(unified)) is is_frozen


@needs_cgroups
@needs_freezer
def test_the_kernel_says_that_a_cgroup_is_frozen(frozen: tuple[str, "subprocess.Popen[bytes]"]) -> None:
    path, sleeper = frozen
    assert cgroups.is_frozen(path) and not cgroups.is_frozen(os.path.dirname(path))
    cgroups.thaw(path)
    assert not cgroups.is_frozen(path)
    sleeper.kill()


def test_everybody_is_killed_in_one_round_and_so_many_are_waited_for(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "AT_ONCE", 2)
    sleepers = [subprocess.Popen(["sleep", "1000"]) for _ in range(5)]
    try:
        put(tmp_path / "cgroup.procs", "".join(f"{sleeper.pid}\n" for sleeper in sleepers))
        before = held_now()
        assert cgroups._kill_all({"memory": str(tmp_path)}, time.monotonic() + 30)
        assert not opened_since(before)
        assert [sleeper.wait(30) for sleeper in sleepers] == [-9] * 5
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
