"""Out of memory: who was killed, told before the exit, and told apart from every other 137."""

import json
import pathlib
import signal

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from shim.native import process_stat
from supervisor.api.client import Client
from supervisor.monitor import kmsg
from supervisor.runtime.oci import cgroups
from tests.system import daemons, lives
from tests.system.keepers import Keeper, Node
from tests.system.lives import events, last_exit, ledger, types, word
from tests.system.processes import state_of, stopped
from tests.system.streams import finish
from tests.system.waits import scaled, until, wait_readable

LIMIT_BYTES = 16 << 20
BOMB = "tail /dev/zero"  # it keeps its last line, which has no end
WORDS = "word=a; while :; do word=$word$word; done"  # of the shell itself


def test_an_init_that_is_killed_for_memory_ends_by_oom_and_the_event_comes_first(client: Client) -> None:
    for _ in range(scaled(100, 3)):
        container, exit_ = lives.run(client, "sh", "-c", f"exec {BOMB}", memory_bytes=LIMIT_BYTES)
        assert (word(exit_), exit_.source, exit_.reason) == ("signaled 9", "record", "oom")
        assert (exit_.oom.init, exit_.oom.kills, exit_.oom.limit_bytes) == (True, 1, LIMIT_BYTES)
        assert types(client, container) == ["create", "start", "oom", "exit"]
        assert dict(events(client, container)[2].attributes) == {"init": "true", "kills": "1"}


@pytest.mark.parametrize("code", [0, 7])
def test_a_child_that_is_killed_for_memory_is_counted_and_not_blamed_for_the_end_of_init(
    client: Client, code: int
) -> None:
    container, exit_ = lives.run(client, "sh", "-c", f"{BOMB}; exit {code}", memory_bytes=LIMIT_BYTES)
    assert (word(exit_), exit_.reason) == (f"exited {code}", "self")
    assert (exit_.oom.init, exit_.oom.kills) == (False, 1)
    assert types(client, container) == ["create", "start", "oom", "exit"]


def test_a_stop_after_a_child_was_killed_for_memory_is_a_stop(client: Client) -> None:
    script = f"{BOMB}; : >/tmp/bombed; while :; do sleep 0.05; done"
    container = lives.up(client, "sh", "-c", script, memory_bytes=LIMIT_BYTES)
    ready = pathlib.Path(f"/proc/{container.init.pid}/root/tmp/bombed")
    until(ready.exists, "the bomb")
    client.stop(container.id, 0)
    exit_ = last_exit(client, container.id)
    assert (word(exit_), exit_.reason, exit_.oom.init, exit_.oom.kills) == ("signaled 9", "stop", False, 1)


def test_every_run_counts_its_own(client: Client) -> None:
    policy = "on-failure:2"
    container = lives.up(client, "sh", "-c", f"{BOMB}; exit 1", memory_bytes=LIMIT_BYTES, restart=policy).id
    until(lambda: len(ledger(client, container)) == 3, "three ends")
    assert [exit_.oom.kills for exit_ in ledger(client, container)] == [1, 1, 1]


def test_an_exit_137_and_a_kill_are_no_oom(client: Client) -> None:
    _, exit_ = lives.run(client, "sh", "-c", "exit 137", memory_bytes=LIMIT_BYTES)
    assert (word(exit_), exit_.reason, exit_.oom.kills) == ("exited 137", "self", 0)
    container = lives.up(client, memory_bytes=LIMIT_BYTES).id
    client.kill(container, "KILL")
    exit_ = last_exit(client, container)
    assert (word(exit_), exit_.reason, exit_.oom.kills) == ("signaled 9", "kill", 0)


def test_an_oom_while_the_daemon_was_away_is_reported_by_the_next_one() -> None:
    with daemons.daemon() as daemon:
        with daemon.client() as client:
            script = f"until [ -e /mnt/go ]; do sleep 0.05; done; exec {BOMB}"
            mounts = [pb.Mount(source=str(daemon.base), destination="/mnt", read_only=True)]
            container = lives.up(client, "sh", "-c", script, memory_bytes=LIMIT_BYTES, mounts=mounts).id
        daemon.kill()
        (daemon.base / "go").touch()
        daemon.start()
        with daemon.client() as client:
            exit_ = last_exit(client, container)
            assert (word(exit_), exit_.source, exit_.reason, exit_.oom.kills) == ("signaled 9", "record", "oom", 1)


def test_a_memory_kill_whose_counter_has_gone_with_its_cgroup_is_known_from_the_kernels_log() -> None:
    """As systemd does with a scope: the last process ends, the cgroup is removed, and then init's parent is woken."""
    with daemons.daemon() as daemon:
        with daemon.client() as client:
            script = f"until [ -e /mnt/go ]; do sleep 0.05; done; exec {BOMB}"
            mounts = [pb.Mount(source=str(daemon.base), destination="/mnt", read_only=True)]
            container = lives.up(client, "sh", "-c", script, memory_bytes=LIMIT_BYTES, mounts=mounts)
            shim = process_stat(container.init.pid)[1]
        daemon.kill()
        with stopped(shim):
            until(lambda: state_of(shim) == "T", "the shim's standstill")
            (daemon.base / "go").touch()
            until(lambda: state_of(container.init.pid) == "Z", "the memory kill")
            cgroups.remove(lives.cgroup(container.id))
        until(lambda: state_of(container.init.pid) != "Z", "the shim's word")
        daemon.start()
        with daemon.client() as client:
            exit_ = last_exit(client, container.id)
            assert (word(exit_), exit_.source) == ("signaled 9", "record")
            seen = (exit_.reason, exit_.oom.init, exit_.oom.kills, types(client, container.id)[2:])
            if kmsg.readable():
                assert seen == ("oom", True, 1, ["oom", "exit"])
            else:  # in a container of somebody's own, say
                assert seen == ("unknown", False, 0, ["exit"])


def test_a_shim_whose_counter_has_gone_with_its_cgroup_records_the_kill_from_the_kernels_log(
    node: Node, keeper: Keeper
) -> None:
    """Without any daemon."""
    bundle, inner = limited(node, WORDS)
    memcg = f"/{cgroups.inside(inner)}"
    run = keeper.make("box", bundle, oom=cgroups.oom_counter_path(inner) or "", memcg=memcg)
    with stopped(run.shim_pid):
        until(lambda: state_of(run.shim_pid) == "T", "the shim's standstill")
        run.start()
        until(lambda: state_of(run.created.pid) == "Z", "the memory kill")
        cgroups.remove(inner)
    assert wait_readable(run.shim_pidfd)
    written = run.record()
    assert written is not None and written.signal == 9
    assert written.oom_kills == (1 if kmsg.readable() else -1)
    finish(node, keeper, run)


def test_of_another_cgroups_memory_kills_in_the_kernels_log_a_shim_records_nothing(node: Node, keeper: Keeper) -> None:
    """A child is killed for memory, in a cgroup that is not the shim's by its name; then init by somebody. With many
    kills in a few seconds the kernel leaves out the line with the cgroup: whom it names by pid is not init."""
    bundle, inner = limited(node, f"( {WORDS} ); while :; do sleep 1; done")
    run = keeper.make("box", bundle, oom=cgroups.oom_counter_path(inner) or "", memcg="/exitd-test/another")
    with stopped(run.shim_pid):
        until(lambda: state_of(run.shim_pid) == "T", "the shim's standstill")
        run.start()
        until(lambda: cgroups.oom_kills(inner) == 1, "the child's memory kill")
        signal.pidfd_send_signal(run.created.pidfd, signal.SIGKILL)
        until(lambda: state_of(run.created.pid) == "Z", "the kill")
        cgroups.remove(inner)
    assert wait_readable(run.shim_pidfd)
    written = run.record()
    assert written is not None and (written.signal, written.oom_kills) == (9, -1)
    finish(node, keeper, run)


def limited(node: Node, script: str) -> tuple[pathlib.Path, str]:
    """A bundle with a memory limit, and its cgroup."""
    bundle = node.bundle("/bin/sh", "-c", script)
    config = json.loads((bundle / "config.json").read_text())
    config["linux"]["resources"] = {"memory": {"limit": LIMIT_BYTES}}
    (bundle / "config.json").write_text(json.dumps(config))
    return bundle, config["linux"]["cgroupsPath"]
