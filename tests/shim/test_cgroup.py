"""The end of everybody in a cgroup: made-up trees for what no kernel at hand shows, and the kernel's own."""

import contextlib
import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator

import pytest

from shim import native
from supervisor.runtime.oci import cgroups, rest
from tests.supervisor.children import child
from tests.supervisor.descriptors import held_now, only, opened_since

LIMIT_MS = 30_000
needs_cgroups = pytest.mark.skipif(os.geteuid() != 0 or not cgroups.writable(), reason="cgroups cannot be made here")


def made_up(top: pathlib.Path, *pids: int) -> str:
    top.mkdir(parents=True, exist_ok=True)
    (top / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
    return str(top)


def end(*directories: str, limit_ms: int = LIMIT_MS, spared_pid: int = 0) -> None:
    before = held_now()
    try:
        native.end_cgroup(directories, limit_ms, spared_pid)
    finally:
        assert not opened_since(before)


def test_everybody_dies_in_every_hierarchy_and_at_every_depth(tmp_path: pathlib.Path) -> None:
    with child() as one, child() as two, child() as three:
        made_up(tmp_path / "a/b/c", three.pid)
        end(made_up(tmp_path / "a", one.pid), made_up(tmp_path / "z", two.pid), str(tmp_path / "none"))
        assert [each.wait(30) for each in (one, two, three)] == [-signal.SIGKILL] * 3


def test_more_than_one_look_holds_are_killed(tmp_path: pathlib.Path) -> None:
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(child()) for _ in range(70)]
        end(
            made_up(tmp_path / "a", *(each.pid for each in made[:64])),
            made_up(tmp_path / "b", *(m.pid for m in made[64:])),
        )
        assert {each.wait(30) for each in made} == {-signal.SIGKILL}


@pytest.mark.parametrize("room", [0, 1, 2])
def test_without_descriptors_nobody_is_said_to_be_dead(tmp_path: pathlib.Path, room: int) -> None:
    with child() as one:
        path = made_up(tmp_path / "a", one.pid)
        with only(room), pytest.raises(TimeoutError):
            native.end_cgroup([path], 50)
        end(path)
        assert one.wait(30) == -signal.SIGKILL


def test_one_pid_and_the_caller_are_spared(tmp_path: pathlib.Path) -> None:
    with child() as spared, child() as other:
        end(made_up(tmp_path / "a", spared.pid, os.getpid(), other.pid), spared_pid=spared.pid)
        assert other.wait(30) == -signal.SIGKILL
        assert spared.poll() is None


def test_the_dead_pids_of_nobody_and_what_is_no_pid_are_passed_over(tmp_path: pathlib.Path) -> None:
    with child() as gone, child() as other:
        gone.kill()
        gone.wait()
        top = pathlib.Path(made_up(tmp_path / "a", 0, 1, gone.pid, other.pid))
        with open(top / "cgroup.procs", "a") as file:
            file.write("-7\n\nx\n99999999999\n12")
        end(str(top))
        assert other.wait(30) == -signal.SIGKILL


def test_v1_is_thawed_and_v2_is_asked_to_kill(tmp_path: pathlib.Path) -> None:
    v1, v2 = pathlib.Path(made_up(tmp_path / "v1")), pathlib.Path(made_up(tmp_path / "v2"))
    made_up(v1 / "below")
    for path in (v1 / "freezer.state", v1 / "below/freezer.state", v2 / "cgroup.kill"):
        path.touch()
    end(str(v1), str(v2))
    assert (v1 / "freezer.state").read_text() == (v1 / "below/freezer.state").read_text() == "THAWED"
    assert (v2 / "cgroup.kill").read_text() == "1"


def test_a_link_leads_nowhere(tmp_path: pathlib.Path) -> None:
    with child() as stranger:
        made_up(tmp_path / "elsewhere", stranger.pid)
        top = pathlib.Path(made_up(tmp_path / "a"))
        (top / "below").symlink_to(tmp_path / "elsewhere")
        end(str(top))
        assert stranger.poll() is None


@contextlib.contextmanager
def kernels_own() -> Iterator[list[str]]:
    """The directories of a cgroup in every hierarchy, each with one below it."""
    path = f"/exitd-test-end-{os.getpid()}"
    tops = list(cgroups.directories(path))
    for top in tops:
        os.makedirs(f"{top}/below")
    try:
        yield tops
    finally:
        cgroups.remove(path, limit_seconds=30)


def enter(top: str, pid: int) -> None:
    with contextlib.suppress(OSError):  # cpuset takes nobody before its cpus are set
        pathlib.Path(top, "cgroup.procs").write_text(str(pid))


@needs_cgroups
def test_of_the_kernels_own_nobody_is_left_forks_frozen_ones_and_double_forks_included() -> None:
    script = "for n in 1 2 3; do (setsid sleep 1000 & setsid sleep 1000 &); done; echo up; exec sleep 1000"
    with kernels_own() as tops:
        with subprocess.Popen(
            ["sh", "-c", f"read line; {script}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as it:
            assert it.stdin is not None and it.stdout is not None
            for top in tops:
                enter(f"{top}/below", it.pid)
            it.stdin.write(b"\n")
            it.stdin.flush()
            assert it.stdout.readline() == b"up\n"
            for top in tops:
                freezer = pathlib.Path(top, "freezer.state")
                if freezer.exists():
                    freezer.write_text("FROZEN")
            end(*tops)
            assert it.wait(30) == -signal.SIGKILL
        listed = [pathlib.Path(top, "below/cgroup.procs").read_text() for top in tops]
        assert set(listed) == {""}


def in_v2(path: pathlib.Path, *, threaded: bool) -> pathlib.Path:
    path.mkdir()
    if threaded:
        (path / "cgroup.type").write_text("threaded")
    return path


@contextlib.contextmanager
def of_v2() -> Iterator[pathlib.Path]:
    path = f"/exitd-test-v2-{os.getpid()}"
    top = pathlib.Path(cgroups.paths(path)["unified"])
    top.mkdir()
    try:
        yield top
    finally:
        cgroups.remove(path, limit_seconds=30)


@needs_cgroups
def test_threaded_ones_of_v2_are_emptied_and_their_members_are_known() -> None:
    """cgroup-v2.rst, "Threads": cgroup.procs of a threaded one cannot be read, and cgroup.kill cannot be written."""
    with of_v2() as top, child() as one, child() as two:
        below = [in_v2(top / "a", threaded=True), in_v2(top / "a/b", threaded=True)]
        for path, it in zip(below, (one, two), strict=True):
            (top / "cgroup.procs").write_text(str(it.pid))
            (path / "cgroup.threads").write_text(str(it.pid))
        everybody = tuple(sorted((one.pid, two.pid)))
        assert rest.members((str(top),)) == rest.members((str(below[0]),)) == everybody
        assert cgroups.pids(f"/{top.name}") == everybody
        end(str(below[0]))  # as a container's own may be: its parent alone lists them
        assert [each.wait(30) for each in (one, two)] == [-signal.SIGKILL] * 2


@needs_cgroups
@pytest.mark.parametrize("file", ["cgroup.freeze", "freezer.state"])
def test_frozen_ones_below_are_emptied(file: str) -> None:
    with kernels_own() as tops, child() as it:
        for top in tops:
            enter(f"{top}/below", it.pid)
        (frozen,) = [path for top in tops if (path := pathlib.Path(top, "below", file)).exists()]
        frozen.write_text("FROZEN" if file == "freezer.state" else "1")
        end(*tops)
        assert it.wait(30) == -signal.SIGKILL


def test_when_the_time_is_up_it_says_that_somebody_lives(tmp_path: pathlib.Path) -> None:
    with child() as it:
        with pytest.raises(TimeoutError):
            end(made_up(tmp_path / "a", it.pid), limit_ms=0)
        assert it.wait(30) == -signal.SIGKILL
