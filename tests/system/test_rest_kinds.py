"""Cgroups of every kind at init's end: nested, threaded, frozen; and who cannot be killed is part of the end."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.runtime.oci import cgroups
from tests.system import lives
from tests.system.daemons import Daemon
from tests.system.lives import last_exit, word
from tests.system.runtimes import program
from tests.system.waits import LIMIT_SECONDS, until

PURE_V2 = cgroups.mode() is cgroups.Mode.V2
ROOT = pathlib.Path(__file__).resolve().parents[2]
FREEZER = "/sys/fs/cgroup/freezer"
UNIFIED = "/sys/fs/cgroup" if PURE_V2 else "/sys/fs/cgroup/unified"


@pytest.fixture(params=["runc", "crun"])
def runtime(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> str:
    return program(request.param, tmp_path)


def both(shared: pathlib.Path) -> list[int]:
    return [int((shared / name).read_text()) for name in ("child", "grandchild")]


def inner(container: str, hierarchy: str, *levels: str) -> pathlib.Path:
    """A cgroup inside of the container's, as a program with a writable file system of cgroups makes it."""
    own = lives.cgroup(container)
    path = pathlib.Path(cgroups.with_inner(own, f"{hierarchy}/{cgroups.inside(own)}")[-1], *levels)
    path.mkdir(parents=True, exist_ok=True)  # with crun, v2 has none of this container
    return path


def put(path: pathlib.Path, file: str, value: object) -> None:
    (path / file).write_text(str(value))


def is_so(path: pathlib.Path, file: str, wanted: str) -> None:
    until(lambda: wanted in (path / file).read_text(), f"{path}/{file} does not say {wanted!r}")


def nested(container: str, pids: list[int]) -> None:
    """Eight levels in every hierarchy there is, one of them at each end."""
    for top in (UNIFIED,) if PURE_V2 else (UNIFIED, FREEZER, "/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory"):
        levels = [f"level{i}" for i in range(8)]
        put(inner(container, top, *levels), "cgroup.procs", pids[0])
        put(inner(container, top, *levels[:1]), "cgroup.procs", pids[1])


def threaded(container: str, pids: list[int]) -> None:
    """cgroup-v2.rst, "Threads": cgroup.procs of a threaded one cannot be read, nor can everybody in it be killed."""
    for name, pid in zip(("a", "b"), pids, strict=True):
        path = inner(container, UNIFIED, name)
        put(path, "cgroup.type", "threaded")
        put(path.parent, "cgroup.procs", pid)
        put(path, "cgroup.threads", pid)


def frozen_v1(container: str, pids: list[int]) -> None:
    path = inner(container, FREEZER, "cold")
    for pid in pids:
        put(path, "cgroup.procs", pid)
    put(path, "freezer.state", "FROZEN")
    is_so(path, "freezer.state", "FROZEN")


def frozen_v2(container: str, pids: list[int]) -> None:
    path = inner(container, UNIFIED, "cold")
    for pid in pids:
        put(path, "cgroup.procs", pid)
    put(path, "cgroup.freeze", 1)
    is_so(path, "cgroup.events", "frozen 1")


KINDS = {kind.__name__: kind for kind in (nested, threaded, frozen_v2, *(() if PURE_V2 else (frozen_v1,)))}


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_is_left_in_any_kind_of_cgroup_and_the_container_can_be_removed(
    client: Client, tmp_path: pathlib.Path, runtime: str, kind: str
) -> None:
    made = lives.begun(client, tmp_path, pid="host", runtime=runtime)
    KINDS[kind](made.id, both(tmp_path))
    ended_well(client, made.id, tmp_path)


def ended_well(client: Client, container: str, shared: pathlib.Path) -> None:
    waiting = client.begin_wait(container)
    (shared / "end").touch()
    exit_ = lives.ended(waiting.result(LIMIT_SECONDS))
    assert word(exit_) == "exited 3"
    assert exit_.left_behind >= len(lives.members(container))  # tests/shim/test_cgroup.py has the strict ones
    client.remove(container, force=False)
    assert not cgroups.existing(lives.cgroup(container))


@pytest.mark.parametrize("kind", ["threaded", "frozen_v2" if PURE_V2 else "frozen_v1"])
def test_nor_where_the_shim_was_killed(daemon: Daemon, client: Client, tmp_path: pathlib.Path, kind: str) -> None:
    made = lives.begun(client, tmp_path, pid="host")
    KINDS[kind](made.id, both(tmp_path))
    os.kill(made.shim.pid, signal.SIGKILL)
    until(lambda: client.inspect(made.id).shim.pid not in (0, made.shim.pid), "another shim")
    ended_well(client, made.id, tmp_path)


@contextlib.contextmanager
def elsewhere() -> Iterator[pathlib.Path]:
    """A frozen cgroup that is not the container's: no part of exitd may thaw it."""
    path = pathlib.Path(FREEZER, f"exitd-test-{os.getpid()}")
    path.mkdir()
    try:
        put(path, "freezer.state", "FROZEN")
        yield path
    finally:
        put(path, "freezer.state", "THAWED")
        until(lambda: not (path / "cgroup.procs").read_text(), f"{path} is in use")
        path.rmdir()


@pytest.mark.skipif(PURE_V2, reason="v2 lets whom it has frozen die")
@pytest.mark.parametrize("whose", ["the shim", "the daemon"])
def test_whom_somebody_else_has_frozen_cannot_be_killed_and_the_end_says_how_many_there_are(
    client: Client, tmp_path: pathlib.Path, whose: str
) -> None:
    made = lives.begun(client, tmp_path, pid="host")
    with elsewhere() as cold:
        for pid in both(tmp_path):
            put(cold, "cgroup.procs", pid)
        if whose == "the daemon":
            os.kill(made.shim.pid, signal.SIGKILL)
            until(lambda: client.inspect(made.id).shim.pid not in (0, made.shim.pid), "another shim")
        (tmp_path / "end").touch()
        exit_ = last_exit(client, made.id)
        assert (word(exit_), exit_.left_behind) == ("exited 3", 2)
        told = [event.exit.left_behind for event in lives.events(client, made.id) if event.type == "exit"]
        assert told == [2]
    until(lambda: not lives.members(made.id), "they outlive their thawing")
    (row,) = client.exits(pb.ExitsRequest(id=made.id))
    assert row.left_behind == 2


ON_V2 = """
mount --bind /sys/fs/cgroup/unified /sys/fs/cgroup
exec "$@"
"""


@pytest.mark.skipif(PURE_V2, reason="the others have been run on such a host, then")
@pytest.mark.timeout(1200)
def test_all_of_that_on_a_host_that_has_v2_alone() -> None:
    """As the kernel shows it in a mount namespace, for runc: crun needs memory locked there that not every host gives.
    This hierarchy has controllers of no use; nothing here needs one."""
    names = "(nobody_in_the_hosts or with_its_shim) or (runc and (nested or threaded or v2)) or (killed and threaded)"
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", names]
    files = ["tests/system/test_rest.py", "tests/system/test_rest_kinds.py"]
    command = ["unshare", "--mount", "sh", "-ec", ON_V2, "sh", *words, *files]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=1100, cwd=ROOT, env=environment)
    assert done.returncode == 0, f"{done.stdout[-5000:]}\n{done.stderr[-2000:]}"
    assert " passed" in done.stdout and " skipped" not in done.stdout
