"""Options of containerd's runtime: `Root` and `ShimCgroup`, which say where things belong, and crun as `BinaryName`."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator

from supervisor.runtime.oci import cgroups
from tests.system.containerd.server import EXITD, Box, Containerd, Said
from tests.system.processes import commands
from tests.system.runtimes import program
from tests.system.waits import until
from tests.system.watched import engine


def flags(box: Box, text: str) -> tuple[str, str]:
    """Of `ctr run`, for these options in TOML."""
    path = box.containerd.base / f"options-{box.id}.toml"
    path.write_text(text)
    return "--runtime-config-path", str(path)


def state_of(root: pathlib.Path, id: str) -> dict[str, object]:
    done = subprocess.run(["runc", "--root", root, "state", id], capture_output=True, timeout=30, check=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def removed(box: Box) -> None:
    box.end()
    box.containerd.left_is()


def test_a_task_is_in_the_root_that_its_client_named_where_other_tools_look(containerd: Containerd) -> None:
    box, root = containerd.box(EXITD, "root"), containerd.base / "runc"
    box.started("--null-io", *flags(box, f'Root = "{root}"\n'), "--", "sleep", "1000")
    state = state_of(root / containerd.namespace, box.id)
    assert (state["status"], state["pid"]) == ("running", box.pid)
    assert box.exec("one", "--", "sh", "-c", "exit 4").code == 4
    assert [box.task(verb) for verb in ("pause", "resume")] == [Said(0, "", "")] * 2
    removed(box)
    assert os.listdir(root / containerd.namespace) == []


def test_a_container_that_another_has_in_that_root_under_the_same_name_lives_on(
    containerd: Containerd, tmp_path: pathlib.Path
) -> None:
    box, root = containerd.box(EXITD, "taken"), tmp_path / "roots"
    root.mkdir()
    with engine("runc", tmp_path / "x") as theirs:
        (root / containerd.namespace).symlink_to(theirs.root)
        theirs.run(box.id, "sleep 1000")
        said = box.run("-d", "--null-io", *flags(box, f'Root = "{root}"\n'), "--", "sleep", "1000")
        assert said.code == 1
        assert (
            f"{root}/{containerd.namespace}/{box.id}: the runtime knows a container of this name there already"
            in said.err
        )
        containerd.wanted("container", "rm", box.id)
        containerd.left_is()
        assert state_of(theirs.root, box.id)["status"] == "running"


@contextlib.contextmanager
def a_cgroup(name: str) -> Iterator[list[pathlib.Path]]:
    """In two hierarchies at most, as a client would make one."""
    made = [pathlib.Path(path) for path in sorted(cgroups.paths(f"/{name}").values())][-2:]
    try:
        for path in made:
            path.mkdir()
        yield made
    finally:
        for path in made:
            until(lambda path=path: not (path / "cgroup.procs").read_text(), f"{path} is in use")  # type: ignore[misc]
            path.rmdir()


def test_relay_and_shim_are_in_the_cgroup_that_their_client_named(containerd: Containerd) -> None:
    box = containerd.box(EXITD, "shims")
    with a_cgroup(f"exitd-shims-{os.getpid()}") as made:
        box.started("--null-io", *flags(box, f'ShimCgroup = "/{made[0].name}"\n'), "--", "sleep", "1000")
        with containerd.with_exitd().client() as client:
            (shown,) = client.list(all_of_them=False)
        (relay,) = containerd.shims(box.id)
        for path in made:
            members = [int(line) for line in (path / "cgroup.procs").read_text().split()]
            assert sorted(members) == sorted((relay, shown.shim.pid))
        removed(box)


def shims_of(directory: str) -> list[int]:
    """Pids of the shims that work in this run directory or below it: the run's, and those of its execs."""
    found = []
    for pid, words in commands():
        if os.path.basename(words.split(b"\0")[0]) == b"exitd-shim":
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                if f"{os.readlink(f'/proc/{pid}/cwd')}/".startswith(f"{directory}/"):
                    found.append(pid)
    return sorted(found)


def test_so_are_the_shims_of_execs_and_whatever_takes_the_place_of_a_killed_one(containerd: Containerd) -> None:
    box = containerd.box(EXITD, "later")
    with a_cgroup(f"exitd-later-{os.getpid()}") as made:
        box.started("--null-io", *flags(box, f'ShimCgroup = "/{made[0].name}"\n'), "--", "sleep", "1000")
        assert box.exec("one", "-d", "--", "sleep", "1000") == Said(0, "", "")
        with containerd.with_exitd().client() as client:
            (shown,) = client.list(all_of_them=False)
        directory = f"{containerd.with_exitd().state}/c/{shown.id}/{shown.run}"
        (relay,) = containerd.shims(box.id)

        def all_are_in_it() -> bool:
            wanted = [relay, *shims_of(directory)]
            members = [[int(line) for line in (path / "cgroup.procs").read_text().split()] for path in made]
            return len(wanted) == 3 and all(sorted(each) == sorted(wanted) for each in members)

        until(all_are_in_it, "the exec's shim is somewhere else")
        before = shims_of(directory)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        until(lambda: len(after := shims_of(directory)) == 2 and not {*before} & {*after}, "no replacements")
        until(all_are_in_it, "a replacement is somewhere else")
        assert box.exec("two", "--", "sh", "-c", "exit 4").code == 4
        removed(box)


def test_a_cgroup_that_is_not_there_is_named_and_nothing_is_left(containerd: Containerd) -> None:
    box = containerd.box(EXITD, "none")
    said = box.run("-d", "--null-io", *flags(box, 'ShimCgroup = "/not/there"\n'), "--", "sleep", "1000")
    assert said.code == 1
    assert "ShimCgroup is '/not/there', and no such cgroup exists; make it first" in said.err
    containerd.wanted("container", "rm", box.id)
    containerd.left_is()


def test_crun_runs_a_task_and_its_execs_as_runc_does(containerd: Containerd) -> None:
    box = containerd.box(EXITD, "crun")
    (place := containerd.base / f"crun-{box.id}").mkdir()
    (place / "options.toml").write_text(f'BinaryName = "{program("crun", place)}"\n')
    box.started("--null-io", "--runtime-config-path", str(place / "options.toml"), "--", "sleep", "1000")
    said = box.exec("one", "--", "sh", "-c", "read word; echo out $word; echo err >&2; exit 4", stdin=b"in\n")
    assert said == Said(4, "out in\n", "err\n")
    with containerd.with_exitd().client() as client:
        (shown,) = client.list(all_of_them=False)
        assert shown.spec.runtime.endswith("crun")
    assert [box.task(verb) for verb in ("pause", "resume")] == [Said(0, "", "")] * 2
    assert box.task("kill", "-s", "9") == Said(0, "", "")
    box.until("STOPPED")
    assert "exit code 137" in box.task("rm").err
    containerd.wanted("container", "rm", box.id)
    containerd.left_is()
