"""A state directory without a free byte: what can begin no more leaves nothing behind."""

import contextlib
import glob
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from shim import programs, slots
from supervisor.api.client import Unreachable
from supervisor.model.errors import RuntimeFailed, ShimFailed
from supervisor.monitor import rundir
from tests.system import daemons, execs, lives
from tests.system.daemons import Daemon, spec, warm_up
from tests.system.runtimes import Wrapper, program
from tests.system.test_storage import fill, on_tmpfs
from tests.system.waits import LIMIT_SECONDS, until


@contextlib.contextmanager
def small(options: str = "size=1m,mode=700") -> Iterator[pathlib.Path]:
    """A directory for a state directory, on a file system of its own."""
    with daemons.directory() as base:
        (path := base / "s").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "exitd-test", str(path)], check=True)
        try:
            yield path
        finally:
            subprocess.run(["umount", str(path)], check=True)


def test_a_keeper_that_has_no_room_for_its_journal_leaves_none() -> None:
    with small() as state:
        (state / "keeper.lock").touch()
        fill(state / "ballast")
        words = [str(programs.find("exitd-keeper")), "--state", str(state), "--stay"]
        assert subprocess.run(words, timeout=LIMIT_SECONDS, check=False).returncode == 1
        assert list(state.glob("keeper-*.journal")) == []


# What a runtime does before its own work: it takes the last byte, or the last file, of the state directory.
FILL = {
    "space": "dd if=/dev/zero of={state}/ballast bs=4096 2>/dev/null",
    "inodes": "mkdir {state}/ballast; n=0; while touch {state}/ballast/$n 2>/dev/null; do n=$((n + 1)); done",
}
# They let go of what they have in the state directory before it is filled.
KILL = "for pid in {pids}; do kill -9 $pid; while [ -e /proc/$pid/fd/0 ]; do :; done; done\n"
BEGINS = "echo $$ >>/mnt/begun; exit 7"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PAGES_OF_AN_EXEC, PAGES_OF_A_RUN = 10, 16  # more than its directory takes
EVERY = [(runtime, fill_up) for runtime in ("runc", "crun") for fill_up in FILL]


@contextlib.contextmanager
def filling(runtime: str, fill_up: str, verb: str) -> Iterator[tuple[Daemon, str]]:
    """A daemon with a small state directory, and a runtime that finds it full when it comes to this command."""
    with on_tmpfs("s", "size=2m,nr_inodes=400,mode=700") as d:
        wrapper = Wrapper.make(d.base)
        for each in ("create", "start", "state", "kill", "delete", "exec"):
            full = FILL[fill_up].format(state=d.state) if each == verb else ":"
            wrapper.on(each, f'{full}\nexec {program(runtime, d.base)} "$@"')
        yield d, wrapper.name


def empty(d: Daemon) -> None:
    ballast = d.state / "ballast"
    shutil.rmtree(ballast) if ballast.is_dir() else ballast.unlink()


def noting(tmp_path: pathlib.Path) -> list[pb.Mount]:
    return [pb.Mount(source=str(tmp_path), destination="/mnt")]


def begun(tmp_path: pathlib.Path) -> int:
    """How often a program has begun that notes it."""
    return len((tmp_path / "begun").read_text().splitlines())


@pytest.mark.parametrize(("runtime", "fill_up"), EVERY)
def test_an_exec_that_finds_the_state_directory_full_begins_once_and_ends_with_its_code(
    runtime: str, fill_up: str, tmp_path: pathlib.Path
) -> None:
    with filling(runtime, fill_up, "exec") as (d, wrapper), d.client() as client:
        box = lives.up(client, runtime=wrapper, mounts=noting(tmp_path)).id
        exit_ = execs.script(client, box, BEGINS)
        assert (lives.word(exit_), exit_.source, begun(tmp_path)) == ("exited 7", "record", 1)
        empty(d)
        client.remove(box, force=True)


def has_made(d: Daemon, exec_id: str) -> bool:
    """The exec runs, and its shim has tried to note it: it gives up its writing ends afterwards."""
    shims = execs.shims_of(d, exec_id)
    return bool(shims) and not os.path.exists(f"/proc/{shims[0]}/fd/{slots.OUT_WRITE_FD}")


@pytest.mark.parametrize("runtime", ["runc", "crun"])
@pytest.mark.parametrize("ends", ["before the next exitd", "under the next exitd"])
def test_an_exec_on_a_full_disk_that_outlives_exitd_and_keeper_ends_with_its_code(
    runtime: str, ends: str, tmp_path: pathlib.Path
) -> None:
    """Its shim had no room to note what it had made: the record of the end names it, and the next keeper knows it."""
    with filling(runtime, "space", "exec") as (d, wrapper):
        with d.client() as client:
            box = lives.up(client, runtime=wrapper, mounts=noting(tmp_path)).id
            let_go = tmp_path / "go"
            with (d.base / "exec").open("r+") as script:
                rest = script.read()
                script.seek(0)
                script.write(KILL.format(pids=f"{d.pid} {d.keeper_pid()}") + rest)
            with pytest.raises(Unreachable):
                execs.begin(client, box, "sh", "-c", f"until [ -e /mnt/go ]; do sleep 0.02; done; {BEGINS}")
        (directory,) = execs.exec_directories(d)
        if ends == "before the next exitd":
            let_go.touch()
            until(lambda: rundir.named(str(directory)), "the record")
            until(lambda: not execs.shims_of(d, directory.name), "its shim's end")
        else:
            until(lambda: has_made(d, directory.name), "its shim goes on")
        assert rundir.created(str(directory)) is None
        empty(d)
        d.restart()
        let_go.touch()
        with d.client() as client:
            exit_ = execs.end_of(client, box, directory.name)
            assert (lives.word(exit_), exit_.source, begun(tmp_path)) == ("exited 7", "record", 1)
            client.remove(box, force=True)


@pytest.mark.parametrize(("runtime", "fill_up"), EVERY)
def test_a_start_that_finds_the_state_directory_full_ends_with_its_code(
    runtime: str, fill_up: str, tmp_path: pathlib.Path
) -> None:
    with filling(runtime, fill_up, "start") as (d, wrapper), d.client() as client:
        box, exit_ = lives.run(client, "sh", "-c", BEGINS, runtime=wrapper, mounts=noting(tmp_path))
        assert (lives.word(exit_), exit_.source, begun(tmp_path)) == ("exited 7", "record", 1)
        empty(d)
        client.remove(box, force=True)


@pytest.mark.parametrize(("runtime", "fill_up"), EVERY)
def test_a_create_that_finds_the_state_directory_full_is_refused_and_leaves_nothing(
    runtime: str, fill_up: str, tmp_path: pathlib.Path
) -> None:
    with filling(runtime, fill_up, "create") as (d, wrapper), d.client() as client:
        with pytest.raises(RuntimeFailed):
            client.create(spec("true", runtime=wrapper, name="box"))
        empty(d)
        (d.base / "create").write_text(f'exec {program(runtime, d.base)} "$@"')
        assert lives.word(lives.run(client, "true", runtime=wrapper, name="box")[1]) == "exited 0"
        client.remove("box", force=True)


def leave(ballast: pathlib.Path, pages: int) -> None:
    """So many pages of the file system are free."""
    fill(ballast)
    os.truncate(ballast, ballast.stat().st_size - pages * PAGE_BYTES)


@pytest.mark.parametrize("runtime", ["runc", "crun"])
def test_with_any_room_left_an_exec_is_refused_or_ends_with_its_code(runtime: str, tmp_path: pathlib.Path) -> None:
    ends: list[str] = []
    with on_tmpfs("s", "size=2m,mode=700") as d, d.client() as client:
        box = lives.up(client, runtime=program(runtime, d.base), mounts=noting(tmp_path)).id
        for pages in range(PAGES_OF_AN_EXEC):
            leave(d.state / "ballast", pages)
            with contextlib.suppress(ShimFailed, RuntimeFailed):
                ends.append(lives.word(execs.script(client, box, BEGINS)))
            until(lambda: not execs.exec_directories(d), "its directory")
        assert 0 < len(ends) < PAGES_OF_AN_EXEC and {*ends} == {"exited 7"}
        assert begun(tmp_path) == len(ends)
        empty(d)
        client.remove(box, force=True)


@pytest.mark.parametrize("runtime", ["runc", "crun"])
def test_with_any_room_left_a_container_is_refused_or_ends_with_its_code(runtime: str, tmp_path: pathlib.Path) -> None:
    ends: list[str] = []
    with on_tmpfs("s", "size=2m,mode=700") as d, d.client() as client:
        warm_up(client)  # the keeper's journal is there
        wanted = spec("sh", "-c", BEGINS, runtime=program(runtime, d.base), mounts=noting(tmp_path), name="box")
        for pages in range(PAGES_OF_A_RUN):
            until(lambda: not glob.glob(f"{d.state}/c/*/*"), "the last one's directory")
            leave(d.state / "ballast", pages)
            with contextlib.suppress(ShimFailed, RuntimeFailed):
                container = client.create(wanted).id
                client.start(container)
                ends.append(lives.word(lives.last_exit(client, container)))
                client.remove(container, force=False)
        assert 0 < len(ends) < PAGES_OF_A_RUN and {*ends} == {"exited 7"}
        assert begun(tmp_path) == len(ends)
