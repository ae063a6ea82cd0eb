"""What the owner of a watched directory may put there: exitd takes in who is right, and says why of the rest."""

import contextlib
import glob
import json
import os
import pathlib
import shutil
from typing import Any

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from shim import native
from supervisor.api.client import Client
from supervisor.external.runcroot import AGAIN_SECONDS as LOOKS_AGAIN
from tests.system import hostile
from tests.system.daemons import Daemon
from tests.system.processes import private_kb
from tests.system.waits import until
from tests.system.watched import end_of, observed, said, stranger

GROWTH_KB = 100 << 10
DIRECTORIES = 2000
PIDS: dict[str, Any] = {**hostile.VALUES, "2**32-1": 2**32 - 1, "2**32": 2**32, "2**22": 2**22, "zero": 0}


def states(pid: int, ticks: int) -> dict[str, bytes]:
    """State files, by what is wrong with them."""
    right = {"init_process_pid": pid, "init_process_start": ticks}
    wrong = dict(hostile.TEXTS)
    for name, value in PIDS.items():
        for key in right:
            wrong[f"{key} {name}"] = json.dumps({**right, key: value}).encode()
    return wrong


def fill(root: pathlib.Path, pid: int, ticks: int) -> None:
    for number, text in enumerate(states(pid, ticks).values()):
        (root / f"bad{number}").mkdir()
        (root / f"bad{number}/state.json").write_bytes(text)
    (root / "init").mkdir()
    (root / "init/state.json").write_text(json.dumps({"init_process_pid": 1, "init_process_start": 2**62}))
    for name in ("line\nbreak", "x" * 255, "\udcff", "a b"):
        (root / name).mkdir()
        shutil.copy(root / "init/state.json", root / name)
    (root / "fifo").mkdir()
    os.mkfifo(root / "fifo/state.json")
    (root / "link").mkdir()
    (root / "link/state.json").symlink_to("/dev/zero")
    (root / "device").symlink_to("/dev/zero")
    (root / "itself").symlink_to("itself")
    (root / "directory/state.json").mkdir(parents=True)
    for number in range(DIRECTORIES):
        (root / f"empty{number}").mkdir()


@pytest.mark.parametrize("comes", ["before the watch", "later"])
def test_whatever_lies_in_a_watched_directory_the_others_in_it_are_watched(
    client: Client, daemon: Daemon, tmp_path: pathlib.Path, comes: str
) -> None:
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    with stranger("exit 7") as before, stranger("exit 8") as after:
        memory = private_kb(daemon.pid)
        if comes == "later":  # what has ended by then is reported as missed
            client.watch(pb.WatchRequest(runc_root=str(root)))
        fill(root, before.pid, before.started_ticks)
        client.watch(pb.WatchRequest(runc_root=str(root)))
        put(root, "right", after.pid)
        observed(client, str(root), 1)
        after.go()
        assert said(end_of(client, f"right@{root}")) == ("exited 8", "self")
        assert private_kb(daemon.pid) - memory < GROWTH_KB
    client.version()
    log = daemon.log.read_text()
    assert "looking at a runtime's directory failed" not in log and "a state that cannot be read" in log
    client.end_watch(str(root))


def test_a_new_directory_is_watched_beside_any_number_that_never_get_a_state(
    client: Client, daemon: Daemon, tmp_path: pathlib.Path
) -> None:
    """Its file comes when exitd has found none, and is reported by inotify, long before the next look at everything."""
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    with stranger("exit 9") as one:
        for number in range(DIRECTORIES):
            (root / f"empty{number}").mkdir()
        client.watch(pb.WatchRequest(runc_root=str(root)))
        (root / "right").mkdir()
        until(lambda: is_watched(daemon.pid, root / "right"), "the new directory is not watched", LOOKS_AGAIN / 2)
        name(root / "right", one.pid)
        observed(client, str(root), 1)
        one.go()
        assert said(end_of(client, f"right@{root}")) == ("exited 9", "self")
    client.end_watch(str(root))


def is_watched(pid: int, path: pathlib.Path) -> bool:
    """By inotify, as the kernel lists it."""
    wanted = f"ino:{path.stat().st_ino:x} "
    for file in glob.glob(f"/proc/{pid}/fdinfo/*"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if any(wanted in line for line in pathlib.Path(file).read_text().splitlines() if "inotify" in line):
                return True
    return False


def put(root: pathlib.Path, id: str, pid: int) -> None:
    """As runc does it: the directory first, the file by its name."""
    (root / id).mkdir()
    name(root / id, pid)


def name(directory: pathlib.Path, pid: int) -> None:
    text = {"init_process_pid": pid, "init_process_start": native.process_stat(pid)[2]}
    (directory / "new").write_text(json.dumps(text))
    (directory / "new").rename(directory / "state.json")
