"""`exitctl watch --runc-root DIR`: all containers of a runtime's state directory, whoever made them."""

import os
import pathlib
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from tests.system import daemons
from tests.system.daemons import Daemon
from tests.system.exitctl import Cli
from tests.system.waits import LIMIT_SECONDS, scaled, until
from tests.system.watched import KERNELS_SOURCE, Engine, end_of, engine, exits, observed, said, watch_of

SOURCES = (KERNELS_SOURCE, "zombie")  # who reaps orphans on this machine, and when, is not ours to say
BOMB = "tail /dev/zero"  # it keeps its last line, which has no end
LIMIT_BYTES = 16 << 20


@pytest.fixture(params=["runc", "crun"])
def runtime(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Engine]:
    with engine(request.param, tmp_path / "x") as made:
        yield made


@pytest.fixture
def runc(tmp_path: pathlib.Path) -> Iterator[Engine]:
    with engine("runc", tmp_path / "x") as made:
        yield made


def watch(client: Client, runtime: Engine) -> str:
    return client.watch(pb.WatchRequest(runc_root=str(runtime.root))).watch.target


def test_containers_of_before_and_after_are_reported_with_their_true_codes(client: Client, runtime: Engine) -> None:
    runtime.run("before", "go; exit 7")
    target = watch(client, runtime)
    observed(client, target, 1)
    runtime.run("after", "go; exit 137")
    runtime.run("killed", "go; kill -9 $$")
    observed(client, target, 3)
    ends = {"before": ("exited 7", "self"), "after": ("exited 137", "self")}
    for id, told in ends.items():
        pid = runtime.pid(id)
        runtime.go(id)
        exit_ = end_of(client, f"{id}@{runtime.root}")
        assert said(exit_) == told
        assert exit_.source in SOURCES
        assert (exit_.name, exit_.namespace, exit_.init.pid) == (id, "oci", pid)
    os.kill(runtime.pid("killed"), 9)
    assert said(end_of(client, f"killed@{runtime.root}")) == ("signaled 9", "unknown")
    assert (watch_of(client, target).processes, watch_of(client, target).exits) == (0, 3)
    client.end_watch(target)


def test_an_id_that_is_used_again_is_the_next_run(client: Client, runtime: Engine) -> None:
    target = watch(client, runtime)
    for run, code in enumerate((3, 4, 5), start=1):
        if run > 1:
            runtime.delete("again")
            (runtime.base / "mnt" / "again").unlink()
            for path in (runtime.base / "b" / "again" / "config.json", runtime.base / "b" / "again"):
                path.rmdir() if path.is_dir() else path.unlink()
        runtime.run("again", f"go; exit {code}")
        observed(client, target, 1)
        runtime.go("again")
        assert said(end_of(client, f"again@{runtime.root}", run)) == (f"exited {code}", "self")
    client.end_watch(target)


def test_an_init_that_is_killed_for_memory_ended_by_oom(client: Client, runtime: Engine) -> None:
    runtime.run("oom", f"go; exec {BOMB}", memory_bytes=LIMIT_BYTES)
    target = watch(client, runtime)
    observed(client, target, 1)
    seq = client.info().seq + 1
    runtime.go("oom")
    exit_ = end_of(client, f"oom@{runtime.root}")
    assert said(exit_) == ("signaled 9", "oom")
    assert (exit_.oom.init, exit_.oom.kills, exit_.oom.limit_bytes) == (True, 1, LIMIT_BYTES)
    told = [each.event for each in client.events(pb.EventsRequest(from_seq=seq, no_follow=True)) if each.event.id]
    assert [each.type for each in told] == ["oom", "exit"]
    client.end_watch(target)


def test_a_child_that_is_killed_for_memory_is_reported_while_init_lives(client: Client, runc: Engine) -> None:
    # Opened for both, the fifo has no end: that of go's writer, which may still be there, ends nothing.
    runc.run("child", f"go; {BOMB}; read line 0<>/mnt/child; kill -9 $$", memory_bytes=LIMIT_BYTES)
    target = watch(client, runc)
    observed(client, target, 1)
    seq = client.info().seq + 1
    runc.go("child")
    event = until(lambda: ooms(client, seq), "the kill is not told")[0]
    attributes = {"watch": target, "run": "1", "kills": "1", "init": "false"}
    assert (event.id, dict(event.attributes)) == (f"child@{runc.root}", attributes)
    os.kill(runc.pid("child"), 9)
    exit_ = end_of(client, f"child@{runc.root}")
    assert (said(exit_), exit_.oom.init, exit_.oom.kills) == (("signaled 9", "unknown"), False, 1)
    client.end_watch(target)


def ooms(client: Client, seq: int) -> list[pb.Event]:
    request = pb.EventsRequest(from_seq=seq, no_follow=True, filters=["type=oom"])
    return [each.event for each in client.events(request) if each.HasField("event")]


def test_a_directory_that_goes_and_comes_again_is_watched_again(client: Client, runc: Engine) -> None:
    target = watch(client, runc)
    runc.root.rmdir()
    until(lambda: "No such file" in watch_of(client, target).trouble, "nobody says that it is gone")
    runc.run("new", "go; exit 6")
    observed(client, target, 1)
    assert watch_of(client, target).trouble == ""
    runc.go("new")
    assert said(end_of(client, f"new@{runc.root}")) == ("exited 6", "self")
    client.end_watch(target)


def test_containers_that_end_at_once_are_each_reported_once(client: Client, runc: Engine) -> None:
    """Some may have ended before they could be looked at: that is said, and no code is made up."""
    target = watch(client, runc)
    count = scaled(200, 8)
    for number in range(count):
        runc.run(f"quick{number}", f"exit {number}")
    for number in range(count):
        exit_ = end_of(client, f"quick{number}@{runc.root}")
        assert said(exit_) in ((f"exited {number}", "self"), ("unknown ended-before-watch", "unknown"))
    client.end_watch(target)


def test_exitd_killed_meanwhile_reports_what_it_can_and_says_what_it_cannot(runc: Engine) -> None:
    with daemons.daemon() as daemon:
        with daemon.client() as client:
            target = watch(client, runc)
            for id in ("lives", "gone"):
                runc.run(id, "go; exit 7")
            observed(client, target, 2)
        daemon.kill()
        runc.go("gone")
        until(lambda: not os.path.exists(f"/proc/{runc.pid('gone')}"), "it is not reaped")
        runc.run("since", "go; exit 8")
        daemon.start()
        with daemon.client() as client:
            assert said(end_of(client, f"gone@{runc.root}")) == ("unknown watcher-away", "unknown")
            observed(client, target, 2)
            for id, code in (("lives", 7), ("since", 8)):
                runc.go(id)
                assert said(end_of(client, f"{id}@{runc.root}")) == (f"exited {code}", "self")
            restarted(daemon)
            with daemon.client() as again:
                until(lambda: watch_of(again, target).trouble == "", "it does not go on")
                assert [len(exits(again, f"{id}@{runc.root}")) for id in ("gone", "lives", "since")] == [1, 1, 1]


def restarted(daemon: Daemon) -> None:
    daemon.kill()
    daemon.start()


def listing(root: pathlib.Path) -> dict[str, tuple[int, int, int]]:
    """Every file below it: when it was changed, its size and its mode."""
    found = [root, *sorted(root.rglob("*"))]
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size, path.stat().st_mode) for path in found}


def test_the_command_shows_what_ends_in_a_directory(cli: Cli, client: Client, runc: Engine) -> None:
    runc.run("one", "go; exit 5")
    showing = cli.begin("watch", "--runc-root", str(runc.root), "--format", "jsonl")
    until(client.watches, "it is not watched")
    observed(client, str(runc.root), 1)
    runc.go("one")
    assert showing.stdout is not None
    line = showing.stdout.readline()
    assert f'"ID":"one@{runc.root}"' in line and '"Code":5' in line
    client.end_watch(str(runc.root))
    showing.communicate(timeout=LIMIT_SECONDS)
    assert showing.returncode == 0
