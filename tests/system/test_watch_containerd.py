"""`exitctl watch --containerd SOCKET`: all tasks of a containerd that runs them with its own runtime, runc v2."""

import os
import pathlib
import subprocess
from functools import partial

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from tests.system import daemons, tinyroot
from tests.system.containerd.server import EXITD, RUNC, Box, Containerd
from tests.system.daemons import Daemon
from tests.system.exitctl import Cli
from tests.system.waits import LIMIT_SECONDS, until
from tests.system.watched import KERNELS_SOURCE, end_of, exits, observed, said, watch_of

pytestmark = pytest.mark.grpc  # containerd is asked over it, and its descriptors stay


def watch(client: Client, containerd: Containerd) -> str:
    reply = client.watch(pb.WatchRequest(containerd=containerd.address))
    assert reply.watch.trouble == ""
    return reply.watch.target


def name_of(containerd: Containerd, id: str) -> str:
    return f"{id}@{containerd.address}/{containerd.namespace}"


def test_tasks_of_before_and_after_are_reported_with_their_true_codes(client: Client, containerd: Containerd) -> None:
    wait = "trap 'exit 7' TERM; while :; do sleep 0.05; done"
    before = containerd.box(RUNC, "before").started("--", "sh", "-c", wait)
    target = watch(client, containerd)
    observed(client, target, 1)
    after = containerd.box(RUNC, "after").started("--", "sh", "-c", wait)
    killed = containerd.box(RUNC, "killed").started("--", "sleep", "1000")
    observed(client, target, 3)
    for box in (before, after):
        until(partial(catches_term, box.pid), f"{box.id} has no trap")
        box.task("kill", "-s", "SIGTERM")
        exit_ = end_of(client, name_of(containerd, box.id))
        assert (said(exit_), exit_.source) == (("exited 7", "self"), KERNELS_SOURCE)
        assert (exit_.name, exit_.namespace) == (box.id, f"containerd/{containerd.namespace}")
    killed.task("kill", "-s", "SIGKILL")
    assert said(end_of(client, name_of(containerd, killed.id))) == ("signaled 9", "unknown")
    assert (watch_of(client, target).processes, watch_of(client, target).exits) == (0, 3)
    client.end_watch(target)


def catches_term(pid: int) -> bool:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) & 1 << 14)


def test_every_namespace_is_watched_and_kept_apart(client: Client, containerd: Containerd) -> None:
    """The same id in two of them: the other one's image is a directory."""
    box = containerd.box(RUNC, "twin").started("--", "sleep", "1000")
    root = tinyroot.make(containerd.base / "twin", ("sleep",))
    elsewhere = ["ctr", "--address", containerd.address, "--namespace", "elsewhere"]
    words = ["--rootfs", "--null-io", "--detach", "--runtime", RUNC, str(root), box.id, "/bin/sleep", "1000"]
    run(*elsewhere, "run", *words)
    target = watch(client, containerd)
    observed(client, target, 2)
    run(*elsewhere, "task", "kill", "-s", "SIGKILL", box.id)
    there = end_of(client, f"{box.id}@{containerd.address}/elsewhere")
    assert (there.name, there.namespace) == (box.id, "containerd/elsewhere")
    assert exits(client, name_of(containerd, box.id)) == []
    box.task("kill", "-s", "SIGKILL")
    end_of(client, name_of(containerd, box.id))
    client.end_watch(target)
    run(*elsewhere, "task", "rm", "-f", box.id)
    run(*elsewhere, "container", "rm", box.id)


def run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, done.stderr


def test_the_restart_of_containerd_costs_no_exit(client: Client, containerd: Containerd) -> None:
    boxes = [containerd.box(RUNC, "over").started("--", "sleep", "1000") for _ in range(3)]
    target = watch(client, containerd)
    observed(client, target, 3)
    pids = [box.pid for box in boxes]
    containerd.kill()
    os.kill(pids[0], 9)
    assert said(end_of(client, name_of(containerd, boxes[0].id))) == ("signaled 9", "unknown")
    until(lambda: "does not answer" in watch_of(client, target).trouble, "nobody says that it is away")
    containerd.start()
    since = containerd.box(RUNC, "since").started("--", "sh", "-c", "exit 9")
    until(lambda: watch_of(client, target).trouble == "", "it is not watched again")
    later = containerd.box(RUNC, "later").started("--", "sleep", "1000")
    observed(client, target, 3)
    for pid in (pids[1], later.pid):
        os.kill(pid, 9)
    for box in (boxes[1], later):
        assert said(end_of(client, name_of(containerd, box.id))) == ("signaled 9", "unknown")
    assert len(exits(client, name_of(containerd, since.id))) <= 1  # it may have come before exitd was back
    assert len(exits(client, name_of(containerd, boxes[0].id))) == 1
    client.end_watch(target)


def test_a_containerd_that_is_not_there_is_reported_and_waited_for(
    client: Client, containerd: Containerd, cli: Cli
) -> None:
    containerd.kill()
    said_ = cli("watch", "--containerd", containerd.address, "--detach")
    assert (said_.code, said_.out) == (0, f"{containerd.address}\n")
    assert "does not answer" in said_.err
    containerd.start()
    box = containerd.box(RUNC, "late").started("--", "sleep", "1000")
    observed(client, containerd.address, 1)
    box.task("kill", "-s", "SIGKILL")
    end_of(client, name_of(containerd, box.id))
    assert cli.ok("watch", "--stop", containerd.address) == containerd.address


def test_exitd_killed_meanwhile_goes_on_watching(containerd: Containerd) -> None:
    boxes = [containerd.box(RUNC, "kept").started("--", "sleep", "1000") for _ in range(2)]
    with daemons.daemon() as daemon:
        with daemon.client() as client:
            target = watch(client, containerd)
            observed(client, target, 2)
        kill_and_look_again(daemon, containerd, boxes, target)


def kill_and_look_again(daemon: Daemon, containerd: Containerd, boxes: list[Box], target: str) -> None:
    pids = [box.pid for box in boxes]
    daemon.kill()
    os.kill(pids[0], 9)
    until(lambda: not os.path.exists(f"/proc/{pids[0]}"), "it is not reaped")
    daemon.start()
    with daemon.client() as again:
        assert said(end_of(again, name_of(containerd, boxes[0].id))) == ("unknown watcher-away", "unknown")
        observed(again, target, 1)
        os.kill(pids[1], 9)
        assert said(end_of(again, name_of(containerd, boxes[1].id))) == ("signaled 9", "unknown")
        again.end_watch(target)


def test_tasks_that_exitd_runs_itself_are_reported_once_and_by_their_own_ids(containerd: Containerd) -> None:
    exitd = containerd.with_exitd()
    with exitd.client() as client:
        target = watch(client, containerd)
        own = containerd.box(EXITD, "own").started("--", "sleep", "1000")
        other = containerd.box(RUNC, "other").started("--", "sleep", "1000")
        observed(client, target, 1)
        for box in (own, other):
            box.task("kill", "-s", "SIGKILL")
        end_of(client, name_of(containerd, other.id))

        def found() -> list[str]:
            return [exit_.container_id for exit_ in client.exits(pb.ExitsRequest()) if exit_.name == own.id]

        until(found, "the other end may be known before it")
        assert len(found()) == 1 and "@" not in found()[0]
        client.end_watch(target)


def test_the_command_shows_what_ends_there(cli: Cli, client: Client, containerd: Containerd) -> None:
    showing = cli.begin("watch", "--containerd", containerd.address)
    assert showing.stderr is not None and showing.stdout is not None
    showing.stderr.readline()
    box = containerd.box(RUNC, "shown").started("--", "sleep", "1000")
    observed(client, containerd.address, 1)
    box.task("kill", "-s", "SIGKILL")
    assert (
        f"{box.id} ({box.id[:12]}@{containerd.address}/{containerd.namespace}) 137 SIGKILL" in showing.stdout.readline()
    )
    client.end_watch(containerd.address)
    showing.communicate(timeout=LIMIT_SECONDS)
