"""What a container writes over its image: where it is, how long it stays, and who is hurt by it."""

import contextlib
import json
import os
import pathlib
import sqlite3
import subprocess
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.errors import WrongState
from tests.system import daemons, lives
from tests.system.daemons import Daemon, directory, spec
from tests.system.exitctl import Cli
from tests.system.lives import last_exit, ledger, word
from tests.system.processes import processes_of
from tests.system.test_storage import on_tmpfs
from tests.system.waits import LIMIT_SECONDS, until

WRITES = "dd if=/dev/zero of=/var/tmp/data bs=1M count=100 2>/dev/null"
KEEPS = "if [ -e /var/tmp/mark ]; then exit 7; fi; echo x >/var/tmp/mark; exit 3"
HOSTILE = """
cd /var/tmp; mkdir a; cd a; i=0
while [ $i -lt 1500 ]; do mkdir d; cd d; i=$((i+1)); done; echo x >file
cd /var/tmp; mknod null c 1 3; ln -s /etc link; echo x >locked; chattr +i locked; chattr +i a; exit 0
"""


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with daemons.daemon() as made:
        yield made


def rootfs_of(daemon: Daemon, container: str) -> pathlib.Path:
    return daemon.root / "c" / container / "rootfs"


def mounts_of(daemon: Daemon, container: str) -> list[str]:
    """What of a container is mounted, by the last part of its path."""
    lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split()[4] for line in lines]
    return sorted(point.rpartition("/")[2] for point in points if point.startswith(f"{rootfs_of(daemon, container)}/"))


def again(client: Client, container: str) -> pb.Exit:
    """Its next run, to the end."""
    waiting = client.begin_wait(container, condition="next-exit")
    client.start(container)
    return lives.ended(waiting.result(LIMIT_SECONDS))


def test_more_than_its_memory_can_be_written_and_the_exit_is_its_own(daemon: Daemon) -> None:
    with daemon.client() as client:
        container, exit_ = lives.run(client, "sh", "-c", WRITES, memory_bytes=64 << 20)
        assert (word(exit_), exit_.oom.kills) == ("exited 0", 0)
        assert client.inspect(container).spec.storage == "disk"
        assert mounts_of(daemon, container) == ["merged"]
        assert (rootfs_of(daemon, container) / "layer/upper/var/tmp/data").stat().st_size == 100 << 20
        assert (rootfs_of(daemon, container) / "layer").stat().st_mode & 0o777 == 0o700


def test_the_layer_outlives_runs_and_mounts_and_goes_with_the_container(daemon: Daemon) -> None:
    with daemon.client() as client:
        container, exit_ = lives.run(client, "sh", "-c", KEEPS)
        assert word(exit_) == "exited 3"
        until(lambda: client.inspect(container).phase == pb.PHASE_EXITED, "its end")
        assert word(again(client, container)) == "exited 7"
        daemon.kill()
        subprocess.run(["umount", str(rootfs_of(daemon, container) / "merged")], check=True)  # as after a reboot
        daemon.start()
    with daemon.client() as client:
        assert word(again(client, container)) == "exited 7"
        client.remove(container, force=False)
        assert not (daemon.root / "c" / container).exists()


def test_what_a_container_has_left_is_removed_whatever_it_is(daemon: Daemon) -> None:
    with daemon.client() as client:
        rights = pb.RightsSpec(privileged=True)
        container, exit_ = lives.run(client, "sh", "-c", HOSTILE, rights=rights)
        assert word(exit_) == "exited 0"
        client.remove(container, force=False)
        assert list((daemon.root / "c").iterdir()) == []


def test_a_removal_that_was_killed_is_finished_by_the_next_exitd(daemon: Daemon) -> None:
    with daemon.client() as client:
        container, _ = lives.run(client, "true", name="mine")
    held = daemon.root / "c" / container / "bundle" / "held"
    held.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "exitd-test", str(held)], check=True)
    removing = Cli(daemon).begin("rm", "mine")
    try:
        until(lambda: "something is mounted below it" in daemon.log.read_text(), "the refusal")
        daemon.kill()
    finally:
        subprocess.run(["umount", str(held)], check=True)
        removing.communicate(timeout=LIMIT_SECONDS)
    daemon.start()
    until(lambda: not (daemon.root / "c" / container).exists(), "its files")


def test_a_tmpfs_is_full_at_its_size_and_shown(daemon: Daemon) -> None:
    exitctl = Cli(daemon)
    assert exitctl.run("--name", "small", "--storage", "tmpfs:4m", "sh", "-c", WRITES).code == 1
    assert exitctl.field("small", ".HostConfig.Storage") == f"tmpfs:{4 << 20}"
    container = exitctl.field("small", ".Id")
    scratch = os.statvfs(rootfs_of(daemon, container) / "scratch")
    assert (scratch.f_blocks * scratch.f_frsize, mounts_of(daemon, container)) == (4 << 20, ["merged", "scratch"])
    assert exitctl.run("--name", "big", "--storage", "tmpfs", "true").code == 0
    assert exitctl.field("big", ".HostConfig.Storage") == "tmpfs"
    refused = exitctl.run("--storage", "ram", "true")
    assert (refused.code, refused.err) == (125, "exitctl: storage 'ram': allowed is disk, tmpfs or tmpfs:SIZE\n")


def test_the_nodes_default_is_the_configurations(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('storage = "tmpfs"\n')
    with daemons.daemon(extra=("--config", str(config))) as daemon, daemon.client() as client:
        made = client.inspect(lives.created(client, "true"))
        on_disk = client.inspect(Cli(daemon).ok("create", "--storage", "disk", "--rootfs", "/", "true"))
        assert (made.spec.storage, on_disk.spec.storage) == ("tmpfs", "disk")


def test_a_container_of_an_earlier_exitd_stays_in_memory(daemon: Daemon) -> None:
    """Its row has no such field."""
    with daemon.client() as client:
        container, _ = lives.run(client, "sh", "-c", KEEPS, storage="tmpfs")
    daemon.kill(15)
    with contextlib.closing(sqlite3.connect(daemon.root / "exitd.db")) as database:
        (text,) = database.execute("SELECT body FROM containers WHERE id = ?", (container,)).fetchone()
        body = json.loads(text)
        del body["spec"]["storage"]
        database.execute("UPDATE containers SET body = ? WHERE id = ?", (json.dumps(body), container))
        database.commit()
    daemon.start()
    with daemon.client() as client:
        assert client.inspect(container).spec.storage == "tmpfs"
        assert word(again(client, container)) == "exited 7"
        assert mounts_of(daemon, container) == ["merged", "scratch"]


@contextlib.contextmanager
def on_overlay() -> Iterator[Daemon]:
    """A daemon whose root directory is an overlay, as in a container without a volume."""
    with directory() as base:
        for name in ("lower", "upper", "work", "r"):
            (base / name).mkdir(mode=0o700)
        layers = f"lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work"
        subprocess.run(["mount", "-t", "overlay", "-o", layers, "exitd-test", str(base / "r")], check=True)
        daemon = Daemon(base)
        try:
            yield daemon.start()
        finally:
            daemon.end()
            until(lambda: not processes_of(base), "processes")
            words = ["umount", str(base / "r")]  # busy until the last file of who has just ended is closed
            until(lambda: not subprocess.run(words, stderr=subprocess.DEVNULL).returncode, "it is busy")


def test_where_no_layer_can_be_on_disk_it_is_in_memory_and_said_so() -> None:
    with on_overlay() as daemon, daemon.client() as client:
        exitctl = Cli(daemon)
        assert client.inspect(lives.created(client, "true")).spec.storage == "tmpfs"
        with pytest.raises(WrongState, match=rf"storage disk: {daemon.root} cannot hold writable layers: .*--storage"):
            client.create(spec("true", storage="disk"))
        (warning,) = [line for line in daemon.log.read_text().splitlines() if "no writable layer" in line]
        assert "containers write to memory" in warning
        assert f"{daemon.root} cannot hold writable layers" in exitctl.ok("info", "-f", "{{.Settings.storage_refusal}}")
        lines = [line for line in exitctl("doctor").out.splitlines() if " storage " in line]
        assert len(lines) == 1 and lines[0].startswith("warn") and "containers write to memory" in lines[0]


def test_the_doctor_says_where_containers_write(daemon: Daemon) -> None:
    (line,) = [line for line in Cli(daemon)("doctor").out.splitlines() if " storage " in line]
    assert line.startswith("ok") and f"disk; {daemon.root} can hold writable layers" in line


def test_a_container_that_fills_the_disk_costs_nobody_an_exit_and_can_be_removed(tmp_path: pathlib.Path) -> None:
    """The database's log has its room from the beginning, where there was any."""
    (go := tmp_path / "go").mkdir()
    waits = f"while [ -e /mnt/{go.name} ]; do sleep 0.01; done; exit 7"
    mounts = [pb.Mount(source=str(tmp_path), destination="/mnt", read_only=True)]
    with on_tmpfs("r", "size=90m,mode=700", ring_flush_seconds=60) as daemon, daemon.client() as client:
        other = client.start(client.create(spec("sh", "-c", waits, mounts=mounts)).id).id
        greedy, exit_ = lives.run(client, "sh", "-c", f"{WRITES}; exit 5")
        assert word(exit_) == "exited 5"
        go.rmdir()
        assert word(last_exit(client, other)) == "exited 7"
        assert [word(each) for each in ledger(client, greedy)] == ["exited 5"]
        client.remove(greedy, force=False)
        assert word(lives.run(client, "true")[1]) == "exited 0"
