"""Full disks, lost directories, broken databases: the exit is reported all the same, once, and not too early."""

import contextlib
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]  # ships no py.typed

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api import health
from supervisor.api.rpc import Stub
from supervisor.model.errors import NoSuchContainer, ShimFailed, StoreFailed
from tests.system import daemons, lives, warm
from tests.system.daemons import OURS, Daemon, cgroups, directory, left, spec, warm_up
from tests.system.lives import ended, last_exit, ledger, types, word
from tests.system.processes import processes_of
from tests.system.scrape import ask, scrape
from tests.system.waits import LIMIT_SECONDS, until

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
PATIENT = "while [ -e {} ]; do sleep 0.01; done; exit 7"  # until the file has gone


@contextlib.contextmanager
def on_tmpfs(name: str, options: str, *, ring_flush_seconds: float = 0.005) -> Iterator[Daemon]:
    """A daemon whose state (s) or root (r) directory is a file system of its own."""
    with directory() as base:
        (base / name).mkdir(mode=0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "exitd-test", str(base / name)], check=True)
        text = f'[limits]\nring_flush_seconds = {ring_flush_seconds}\n[metrics]\nlisten = "unix:{base}/m"\n'
        (base / "config.toml").write_text(text)
        daemon = Daemon(base, extra=("--config", str(base / "config.toml")))
        try:
            yield daemon.start()
        finally:
            daemon.end()
            until(lambda: not processes_of(base), "processes")
            words = ["umount", str(base / name)]  # busy until the last file of who has just ended is closed
            until(lambda: not subprocess.run(words, stderr=subprocess.DEVNULL).returncode, "it is busy")


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with daemons.daemon() as made:
        yield made


@pytest.fixture
def go(tmp_path: pathlib.Path) -> pathlib.Path:
    """Containers of these tests end when this directory goes; the file system under it is none of the full ones."""
    path = tmp_path / "go"
    path.mkdir()
    return path


def patient(go: pathlib.Path, **fields: object) -> pb.ContainerSpec:
    mounts = [pb.Mount(source=str(go.parent), destination="/mnt", read_only=True)]
    return spec("sh", "-c", PATIENT.format(f"/mnt/{go.name}"), mounts=mounts, **fields)


def fill(path: pathlib.Path) -> pathlib.Path:
    """Not a byte is left."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return path


def fill_inodes(path: pathlib.Path) -> pathlib.Path:
    """Not a file is left."""
    path.mkdir()
    with contextlib.suppress(OSError):
        for number in range(100_000):
            (path / str(number)).touch()
    return path


@pytest.mark.parametrize("fill_up", [fill, fill_inodes], ids=["space", "inodes"])
def test_a_full_state_file_system_takes_no_exit_away(
    fill_up: Callable[[pathlib.Path], pathlib.Path], go: pathlib.Path
) -> None:
    with on_tmpfs("s", "size=2m,nr_inodes=400,mode=700") as daemon, daemon.client() as client:
        warm_up(client)
        before = left(daemon)
        containers = [client.start(client.create(patient(go)).id).id for _ in range(3)]
        ballast = [fill_up(daemon.state / "ballast")]
        go.rmdir()
        for container in containers:
            exit_ = last_exit(client, container)
            assert (word(exit_), exit_.source) == ("exited 7", "record")
        # The old ones can be removed; a new one is refused with the reason, and leaves nothing.
        for container in containers:
            client.remove(container, force=False)
        ballast.append(fill_up(daemon.state / "more"))
        with pytest.raises(ShimFailed, match=r"No space left on device.*state directory full"):
            client.create(spec("true", name="more"))
        for path in ballast:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        assert word(lives.run(client, "true", name="more")[1]) == "exited 0"
        client.remove("more", force=False)
        until(lambda: left(daemon) == before or None, f"{left(daemon)}, before: {before}")


def status(daemon: Daemon) -> int:
    with grpc.insecure_channel(f"unix:{daemon.state}/exitd.sock") as channel:
        reply = Stub(channel, health.SERVICE).Check(health_pb2.HealthCheckRequest(), timeout=LIMIT_SECONDS)
        return int(reply.status)


def test_an_exit_that_cannot_be_stored_is_told_to_nobody_until_it_can(go: pathlib.Path) -> None:
    with on_tmpfs("r", "size=5m,mode=700", ring_flush_seconds=0) as daemon, daemon.client() as client:
        container = client.start(client.create(patient(go)).id).id
        waiting = client.begin_wait(container)
        assert status(daemon) == SERVING
        ballast = fill(daemon.root / "ballast")
        go.rmdir()
        until(lambda: status(daemon) == NOT_SERVING, "health")
        assert client.info().pending_commits == 1
        assert ask(f"{daemon.base}/m", "/readyz") == (503, "ends are known that cannot be stored\n")
        page = scrape(daemon)
        assert (page.total("exitd_pending_commits"), page.total("exitd_ready")) == (1, 0)
        assert (page.total("exitd_container_exits_total"), page.total("exitd_counters_fresh")) == (0, 1)
        assert types(client, container) == ["create", "start"]
        assert ledger(client, container) == []
        assert client.inspect(container).phase == pb.PHASE_RUNNING
        with pytest.raises(StoreFailed):
            client.create(spec("true", name="more"))
        ballast.unlink()
        exit_ = ended(waiting.result(LIMIT_SECONDS))
        assert (word(exit_), exit_.source) == ("exited 7", "record")
        until(lambda: status(daemon) == SERVING, "health")
        assert client.info().pending_commits == 0
        assert ask(f"{daemon.base}/m", "/readyz") == (200, "ok\n")
        assert scrape(daemon).total("exitd_container_exits_total") == 1
        assert types(client, container) == ["create", "start", "exit"]
        assert len(ledger(client, container)) == 1
        assert word(lives.run(client, "true", name="more")[1]) == "exited 0"


def test_a_daemon_killed_while_it_could_not_store_an_exit_reports_it_once_afterwards(go: pathlib.Path) -> None:
    with on_tmpfs("r", "size=5m,mode=700", ring_flush_seconds=0) as daemon:
        with daemon.client() as client:
            container = client.start(client.create(patient(go)).id).id
            ballast = fill(daemon.root / "ballast")
            go.rmdir()
            until(lambda: status(daemon) == NOT_SERVING, "health")
        daemon.kill()
        ballast.unlink()
        daemon.start()
        with daemon.client() as client:
            exit_ = last_exit(client, container)
            assert (word(exit_), exit_.source) == ("exited 7", "record")
            assert len(ledger(client, container)) == 1
            assert types(client, container) == ["create", "start", "exit"]


@pytest.mark.parametrize("killed", [False, True], ids=["by the same daemon", "by the next daemon"])
def test_an_ordinary_exit_is_on_a_full_disk_all_the_same_and_reported_at_once(go: pathlib.Path, killed: bool) -> None:
    """The ring has its room from the beginning; the database takes the exit over when there is space."""
    with on_tmpfs("r", "size=5m,mode=700", ring_flush_seconds=60) as daemon:
        with daemon.client() as client:
            container = client.start(client.create(patient(go)).id).id
            waiting = client.begin_wait(container)
            ballast = fill(daemon.root / "ballast")
            go.rmdir()
            exit_ = ended(waiting.result(LIMIT_SECONDS))
            assert (word(exit_), exit_.source) == ("exited 7", "record")
            until(lambda: status(daemon) == NOT_SERVING, "health")
            assert ledger(client, container) == [exit_]
            assert types(client, container) == ["create", "start", "exit"]
            assert client.inspect(container).exit == exit_
        if killed:
            daemon.kill()
        ballast.unlink()
        if killed:
            daemon.start()
        with daemon.client() as client:
            until(lambda: status(daemon) == SERVING, "health")
            assert ledger(client, container) == [exit_]
            assert types(client, container) == ["create", "start", "exit"]
            client.remove(container, force=False)
            assert word(lives.run(client, "true", name="more")[1]) == "exited 0"


@pytest.mark.parametrize("fill_up", [fill, fill_inodes], ids=["space", "inodes"])
def test_exitd_starts_again_on_a_disk_that_was_filled_up_while_it_was_stopped(
    go: pathlib.Path, fill_up: Callable[[pathlib.Path], pathlib.Path]
) -> None:
    with on_tmpfs("r", "size=8m,mode=700,nr_inodes=2000", ring_flush_seconds=60) as daemon:
        with daemon.client() as client:
            container = client.start(client.create(patient(go)).id).id
        daemon.kill(signal.SIGTERM)
        ballast = fill_up(daemon.root / "ballast")
        go.rmdir()
        daemon.start()
        with daemon.client() as client:
            exit_ = last_exit(client, container)
            assert (word(exit_), exit_.source) == ("exited 7", "record")
            shutil.rmtree(ballast) if ballast.is_dir() else ballast.unlink()
            until(lambda: status(daemon) == SERVING, "health")
            assert ledger(client, container) == [exit_]
            assert word(lives.run(client, "true", name="more")[1]) == "exited 0"


def test_a_run_directory_deleted_under_a_running_container_costs_nothing(daemon: Daemon, go: pathlib.Path) -> None:
    with daemon.client() as client:
        container = client.start(client.create(patient(go, name="mine")).id).id
        shutil.rmtree(daemon.state / "c" / container)
        go.rmdir()
        exit_ = last_exit(client, container)
        assert (word(exit_), exit_.source) == ("exited 7", "record")
        client.remove(container, force=False)
        assert word(lives.run(client, "true", name="mine")[1]) == "exited 0"


@pytest.mark.parametrize("restarted", [False, True], ids=["by the same daemon", "by the next daemon"])
def test_rm_works_the_first_time_though_the_run_directory_was_deleted(daemon: Daemon, restarted: bool) -> None:
    with daemon.client() as client:
        container = lives.up(client, name="mine").id
        init = client.inspect(container).init.pid
    shutil.rmtree(daemon.state / "c")
    if restarted:
        daemon.restart()
    with daemon.client() as client:
        assert client.inspect(container).phase == pb.PHASE_RUNNING
        client.remove(container, force=True)
        assert not os.path.exists(f"/proc/{init}")
        assert word(ledger(client, container)[0]) == "signaled 9"
        assert word(lives.run(client, "true", name="mine")[1]) == "exited 0"
        client.remove("mine", force=False)
        until(lambda: not [path for path in cgroups() if container in path.name], "cgroups")
        until(lambda: left(daemon).shims == 0, "shims")


def test_a_bundle_deleted_under_a_running_container_costs_nothing(daemon: Daemon, go: pathlib.Path) -> None:
    with daemon.client() as client:
        container = client.start(client.create(patient(go, name="mine")).id).id
        shutil.rmtree(daemon.root / "c" / container / "bundle")
        go.rmdir()
        assert word(last_exit(client, container)) == "exited 7"
        client.remove(container, force=False)


SOON = {"supervisor.daemon.LOCK_SECONDS": 0.5}  # whoever has the lock keeps it


def refusal(daemon: Daemon, *words: str) -> str:
    """What a daemon says that does not come up on these directories."""
    directories = ("--root", str(daemon.root), "--state", str(daemon.state))
    code, _, err = warm.run("exitd", OURS, (*directories, *words), os.environ, LIMIT_SECONDS, SOON)
    assert code == 1 and b"Traceback" not in err, (code, err)
    return err.decode()


DATABASE = ("exitd.db", "exitd.db-wal", "exitd.db-shm", "exitd.ring")  # as docs/operations.md removes them


def copied_while_it_runs(daemon: Daemon, to: pathlib.Path) -> None:
    """SQLite's own backup, one file."""
    uri = f"file:{daemon.root}/exitd.db?mode=ro"
    with (
        contextlib.closing(sqlite3.connect(uri, uri=True)) as database,
        contextlib.closing(sqlite3.connect(to / "exitd.db")) as copy,
    ):
        database.backup(copy)


def copied_when_it_was_killed(daemon: Daemon, to: pathlib.Path) -> None:
    daemon.kill()
    for name in ("exitd.db", "exitd.db-wal", "exitd.ring"):
        shutil.copy(daemon.root / name, to / name)
    daemon.start()


@pytest.mark.parametrize("copied", [copied_while_it_runs, copied_when_it_was_killed])
def test_a_copy_of_the_database_that_is_put_back_has_what_there_was_and_nothing_of_what_came_after_it(
    daemon: Daemon, tmp_path: pathlib.Path, copied: Callable[[Daemon, pathlib.Path], None]
) -> None:
    """What came after it may be in the log and in the ring that the database had when exitd was killed."""
    with daemon.client() as client:
        before = lives.run(client, "sh", "-c", "exit 3")[0]
        client.remove(before, force=False)
    copied(daemon, tmp_path)
    with daemon.client() as client:
        for code in range(4, 9):
            after = lives.run(client, "sh", "-c", f"exit {code}")[0]
            client.remove(after, force=False)
    daemon.kill()
    for name in DATABASE:
        (daemon.root / name).unlink(missing_ok=True)
    for path in tmp_path.iterdir():
        shutil.copy(path, daemon.root / path.name)
    daemon.start()
    with daemon.client() as client:
        assert [exit_.container_id for exit_ in client.exits(pb.ExitsRequest())] == [before]
        again = lives.run(client, "sh", "-c", "exit 9")[0]
        assert [word(each) for each in ledger(client, again)] == ["exited 9"]


def spoil(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[:100] + bytes(4000) + path.read_bytes()[4100:])


def no_database(path: pathlib.Path) -> None:
    path.write_text("this is a letter to my mother\n" * 200)


def from_the_future(path: pathlib.Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("harm", "said"),
    [(spoil, "damaged"), (no_database, "damaged"), (from_the_future, "newer exitd")],
    ids=["damaged", "no database", "newer"],
)
def test_a_database_that_cannot_be_read_is_refused_and_left_alone_with_the_containers(
    daemon: Daemon, go: pathlib.Path, harm: Callable[[pathlib.Path], None], said: str
) -> None:
    with daemon.client() as client:
        container = client.start(client.create(patient(go)).id)
    daemon.kill(15)  # in order, so that the log is merged into the file
    path = daemon.root / "exitd.db"
    kept = path.read_bytes()
    harm(path)
    harmed = path.read_bytes()
    text = refusal(daemon)
    assert said in text and str(path) in text and "Containers were not touched" in text and "move the file away" in text
    assert path.read_bytes() == harmed
    assert os.path.exists(f"/proc/{container.init.pid}") and os.path.exists(f"/proc/{container.shim.pid}")
    go.rmdir()
    for leftover in daemon.root.glob("exitd.db-*"):
        leftover.unlink()
    path.write_bytes(kept)
    daemon.start()
    with daemon.client() as client:
        exit_ = last_exit(client, container.id)
        assert (word(exit_), exit_.source) == ("exited 7", "record")


@pytest.mark.parametrize(
    ("by", "said"), [(1, "written by a newer exitd (version 2, this one knows 1)"), (-1, "")], ids=["newer", "older"]
)
def test_a_newer_exitds_ring_is_refused_and_left_alone_with_the_containers_and_an_older_ones_is_read(
    go: pathlib.Path, by: int, said: str
) -> None:
    """The version of a block is in its head, behind four bytes. What an exitd of version 0 would have written does not
    exist: its checksum fails, and so it was never reported."""
    with directory() as base:
        (base / "config.toml").write_text("[limits]\nring_flush_seconds = 60\n")
        daemon = Daemon(base, extra=("--config", str(base / "config.toml")))
        try:
            daemon.start()
            with daemon.client() as client:
                container = client.start(client.create(patient(go)).id)
                over = lives.up(client).id
                client.kill(over, "KILL")
                exit_ = last_exit(client, over)
            daemon.kill()
            ring = daemon.root / "exitd.ring"
            data = bytearray(ring.read_bytes())
            assert data[:4] == b"\xffexr" and data[4] == 1
            kept, data[4] = data[4], 1 + by
            ring.write_bytes(data)
            if said:
                text = refusal(daemon)
                assert said in text and str(ring) in text
                assert ring.read_bytes() == data
                assert os.path.exists(f"/proc/{container.init.pid}") and os.path.exists(f"/proc/{container.shim.pid}")
                data[4] = kept
                ring.write_bytes(data)
            go.rmdir()
            daemon.start()
            with daemon.client() as client:
                assert word(last_exit(client, container.id)) == "exited 7"
                assert ledger(client, over) == [exit_]
                assert [event.type for event in lives.events(client, over)] == ["create", "start", "kill", "exit"]
        finally:
            daemon.end()
        until(lambda: not processes_of(base), "processes")


def test_a_second_daemon_is_refused_with_the_reason_and_the_first_goes_on(daemon: Daemon) -> None:
    with daemon.client() as client:
        container = lives.up(client)
        other = daemon.base / "other"
        assert f"another exitd has {daemon.state}" in refusal(daemon)
        assert f"another exitd has {daemon.state}" in refusal(daemon, "--root", str(other))
        assert f"another exitd has {daemon.root}" in refusal(daemon, "--state", str(other))
        assert client.inspect(container.id).init == container.init
        client.stop(container.id, 0)
        assert word(last_exit(client, container.id)) == "signaled 9"
        assert types(client, container.id) == ["create", "start", "stop", "exit"]


@pytest.mark.parametrize("name", ["root", "state"])
def test_directories_that_others_can_write_to_are_refused(name: str) -> None:
    with directory() as base:
        daemon = Daemon(base)
        path: pathlib.Path = getattr(daemon, name)
        path.mkdir()
        os.chown(path, 65534, 65534)
        assert f"{path} must belong to uid 0" in refusal(daemon)
        os.chown(path, 0, 0)
        path.chmod(0o777)
        assert f"{path} must belong to uid 0" in refusal(daemon)
        path.chmod(0o700)
        base.chmod(0o777)
        assert f"{base} must belong to uid 0" in refusal(daemon)
        base.chmod(0o700)
        path.rmdir()
        path.write_text("a file")
        assert str(path) in refusal(daemon)


def test_a_state_directory_with_too_long_a_path_is_refused_with_the_limit() -> None:
    with directory() as base:
        text = refusal(Daemon(base), "--state", f"{base}/{'x' * 60}")
        assert "at most 64 bytes" in text
        assert not (base / ("x" * 60)).exists()


def test_a_lost_database_is_not_made_anew_behind_the_daemons_back(daemon: Daemon) -> None:
    """Deleted under the running daemon: what it says it has stored is on no disk, and the next one begins with nothing
    and clears away what it does not know."""
    with daemon.client() as client:
        container = lives.up(client)
    for path in daemon.root.glob("exitd.db*"):
        path.unlink()
    daemon.restart()
    with daemon.client() as client, pytest.raises(NoSuchContainer):
        client.inspect(container.id)
    daemon.kill()
    daemon.extra = ("--reconcile-seconds", "0.1")
    daemon.start()
    until(lambda: not os.path.exists(f"/proc/{container.init.pid}"), "the stranger")
    until(lambda: left(daemon).run_directories == 0 and left(daemon).shims == 0, "its run directory")
