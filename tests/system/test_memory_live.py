"""Memory kills in containers that live on, and in pods: reported in time, counted once, blamed on nobody else."""

import os
import pathlib
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from tests.system import daemons, lives, runtimes
from tests.system.daemons import spec
from tests.system.lives import ended, events, last_exit, ledger, types, word
from tests.system.processes import children_of, killed
from tests.system.waits import LIMIT_SECONDS, scaled, until

LIMIT_BYTES = 16 << 20
BOMB = "tail /dev/zero"  # it keeps its last line, which has no end
# A bomb each time it is told to.
BOMBS = "while read line; do [ $line = end ] && exit 5; tail /dev/zero; done </mnt/go"


class Bomber:
    """A container whose children run out of memory when it is told to have one do so."""

    def __init__(self, client: Client, directory: pathlib.Path, **fields: object) -> None:
        os.mkfifo(directory / "go")
        mounts = [pb.Mount(source=str(directory), destination="/mnt")]
        fields.setdefault("memory_bytes", LIMIT_BYTES)
        self.container = lives.up(client, "sh", "-c", BOMBS, mounts=mounts, **fields)
        self.id = self.container.id
        self._fd = os.open(directory / "go", os.O_RDWR)  # its next run reads on

    def bomb(self, word: str = "now") -> None:
        os.write(self._fd, f"{word}\n".encode())

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def bomber(client: Client, tmp_path: pathlib.Path) -> Iterator[Bomber]:
    made = Bomber(client, tmp_path)
    yield made
    made.close()


def told(client: Client, container: str) -> list[tuple[str, str]]:
    """The counts of its oom events, and whether init was the victim."""
    found = [dict(event.attributes) for event in events(client, container) if event.type == "oom"]
    return [(each["kills"], each["init"]) for each in found]


def test_a_child_killed_for_memory_is_reported_while_its_container_lives(client: Client, bomber: Bomber) -> None:
    for number in (1, 2):
        bomber.bomb()
        until(lambda: len(told(client, bomber.id)) == number, "the event")  # noqa: B023
        assert client.inspect(bomber.id).phase == pb.PHASE_RUNNING
    bomber.bomb("end")
    exit_ = last_exit(client, bomber.id)
    assert (word(exit_), exit_.reason, exit_.oom.init, exit_.oom.kills) == ("exited 5", "self", False, 2)
    assert told(client, bomber.id) == [("1", "false"), ("2", "false")]
    assert types(client, bomber.id) == ["create", "start", "oom", "oom", "exit"]


def test_a_sigkill_from_elsewhere_after_a_childs_memory_kill_is_not_blamed_on_memory(
    client: Client, bomber: Bomber
) -> None:
    bomber.bomb()
    until(lambda: told(client, bomber.id), "the event")
    os.kill(bomber.container.init.pid, signal.SIGKILL)
    exit_ = last_exit(client, bomber.id)
    assert (word(exit_), exit_.reason, exit_.oom.init, exit_.oom.kills) == ("signaled 9", "unknown", False, 1)
    assert told(client, bomber.id) == [("1", "false")]


def test_a_kill_while_the_daemon_was_away_is_reported_by_the_next_one_and_none_is_reported_twice(
    tmp_path: pathlib.Path,
) -> None:
    with daemons.daemon() as daemon:
        with daemon.client() as client:
            bomber = Bomber(client, tmp_path)
            bomber.bomb()
            until(lambda: told(client, bomber.id), "the first event")
        daemon.restart()
        with daemon.client() as client:
            assert told(client, bomber.id) == [("1", "false")]
        daemon.kill()
        bomber.bomb()
        until(lambda: not children_of(bomber.container.init.pid), "the second bomb")
        daemon.start()
        with daemon.client() as client:
            until(lambda: len(told(client, bomber.id)) == 2, "the second event")
            bomber.bomb("end")
            assert last_exit(client, bomber.id).oom.kills == 2
            assert told(client, bomber.id) == [("1", "false"), ("2", "false")]
        bomber.close()


def test_every_run_begins_its_count_anew(client: Client, tmp_path: pathlib.Path) -> None:
    bomber = Bomber(client, tmp_path, restart_rules=["exit in 5 => restart"])
    bomber.bomb()
    until(lambda: told(client, bomber.id) == [("1", "false")], "the event of the first run")
    bomber.bomb("end")
    until(lambda: client.inspect(bomber.id).run == 2 and client.inspect(bomber.id).phase == pb.PHASE_RUNNING, "run 2")
    bomber.bomb()
    until(lambda: told(client, bomber.id) == [("1", "false")] * 2, "the event of the second run")
    client.stop(bomber.id, 0)
    assert [exit_.oom.kills for exit_ in ledger(client, bomber.id)] == [1, 1]
    bomber.close()


def test_an_init_killed_for_memory_whose_shim_was_killed_before_is_still_reported_as_that(
    client: Client, tmp_path: pathlib.Path
) -> None:
    """The memory killer may take the monitor first: the keeper counts, too."""
    os.mkfifo(tmp_path / "go")
    mounts = [pb.Mount(source=str(tmp_path), destination="/mnt")]
    script = f"read line </mnt/go; exec {BOMB}"
    container = lives.up(client, "sh", "-c", script, memory_bytes=LIMIT_BYTES, mounts=mounts)
    killed(container.shim.pid)
    (tmp_path / "go").write_text("now\n")
    exit_ = last_exit(client, container.id)
    assert (word(exit_), exit_.source, exit_.reason) == ("signaled 9", "keeper", "oom")
    assert (exit_.oom.init, exit_.oom.kills) == (True, 1)
    assert types(client, container.id) == ["create", "start", "oom", "exit"]


def member_bombed(client: Client, pod: str, **fields: object) -> pb.Exit:
    """A member that is killed for memory, and its exit."""
    made = client.create(spec("sh", "-c", f"exec {BOMB}", sandbox=pod, **fields)).id
    waiting = client.begin_wait(made)
    client.start(made)
    return ended(waiting.result(LIMIT_SECONDS))


@pytest.mark.parametrize("runtime", ["runc", "crun"])
@pytest.mark.parametrize(("own", "pods"), [(LIMIT_BYTES, LIMIT_BYTES), (0, LIMIT_BYTES), (LIMIT_BYTES, 0)])
def test_a_pods_limit_neither_hides_nor_replaces_the_kill_of_its_member(
    client: Client, tmp_path: pathlib.Path, runtime: str, own: int, pods: int
) -> None:
    """With equal limits it is the pod's cgroup that runs out, and the member's that counts."""
    program = runtimes.program(runtime, tmp_path)
    pod = client.run_pod(pb.ContainerSpec(image="pause", runtime=program, pod=pb.PodSpec(memory_bytes=pods)))
    exit_ = member_bombed(client, pod.id, memory_bytes=own)
    assert (word(exit_), exit_.reason) == ("signaled 9", "oom")
    assert (exit_.oom.init, exit_.oom.kills, exit_.oom.limit_bytes) == (True, 1, LIMIT_BYTES)
    assert types(client, exit_.container_id) == ["create", "start", "oom", "exit"]
    assert {event.pod_id for event in events(client, exit_.container_id)} == {pod.id}
    assert client.inspect_pod(pod.id).state == "SANDBOX_READY"
    assert types(client, pod.id) == ["create", "start"]


def test_one_members_bomb_under_the_pods_limit_is_not_its_neighbours(client: Client, tmp_path: pathlib.Path) -> None:
    """Both are woken: memory ran out above them."""
    pod = client.run_pod(pb.ContainerSpec(image="pause", pod=pb.PodSpec(memory_bytes=LIMIT_BYTES)))
    neighbour = lives.up(client, sandbox=pod.id).id
    bomber = Bomber(client, tmp_path, sandbox=pod.id, memory_bytes=0)
    bomber.bomb()
    until(lambda: told(client, bomber.id) == [("1", "false")], "the event")
    client.stop(neighbour, 0)
    assert last_exit(client, neighbour).oom.kills == 0 and told(client, neighbour) == []
    bomber.close()


def test_pods_full_of_memory_bombs_end_by_oom_every_time_and_the_event_comes_first(client: Client) -> None:
    pods, rounds = scaled(100, 4), scaled(100, 3)
    made = [client.run_pod(pb.ContainerSpec(image="pause")).id for _ in range(pods)]
    with ThreadPoolExecutor(max_workers=8) as threads:
        for _ in range(rounds):
            exits = list(threads.map(lambda pod: member_bombed(client, pod, memory_bytes=LIMIT_BYTES), made))
            assert {(word(e), e.source, e.reason, e.oom.init, e.oom.kills) for e in exits} == {
                ("signaled 9", "record", "oom", True, 1)
            }
            for exit_ in exits:
                assert types(client, exit_.container_id) == ["create", "start", "oom", "exit"]
                client.remove(exit_.container_id, force=False)
