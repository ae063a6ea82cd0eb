"""Pods on real containers: what members share, what becomes of them with their pause container, and what is left."""

import os
import pathlib
import signal

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.errors import BadRequest, NoSuchContainer, RuntimeFailed, WrongState
from tests.system import lives
from tests.system.daemons import Daemon, spec
from tests.system.lives import events, first_exit, last_exit, ledger, run, word
from tests.system.processes import in_mask
from tests.system.runtimes import Wrapper
from tests.system.waits import LIMIT_SECONDS, until

SHARED = ("net", "ipc", "uts")


def pod(client: Client, **fields: object) -> pb.Pod:
    """A ready pod."""
    return client.run_pod(pb.ContainerSpec(image="pause", **fields))  # type: ignore[arg-type]


def up(client: Client, *args: str, **fields: object) -> pb.Container:
    """A container that runs. What it runs by default is deaf to SIGTERM: its grace is short."""
    return lives.up(client, *args, **{"stop_timeout_seconds": 1, **fields})


def namespaces(container: pb.Container, kinds: tuple[str, ...] = SHARED) -> list[str]:
    return [os.readlink(f"/proc/{container.init.pid}/ns/{kind}") for kind in kinds]


def test_members_share_the_network_ipc_and_uts_of_their_pause_container_and_nothing_else(client: Client) -> None:
    made = pod(client)
    first, second = (up(client, sandbox=made.id) for _ in range(2))
    assert namespaces(first) == namespaces(second) == namespaces(made.pause)
    assert namespaces(made.pause) != [os.readlink(f"/proc/self/ns/{kind}") for kind in SHARED]
    own = ("pid", "mnt")
    assert not set(namespaces(first, own)) & set(namespaces(made.pause, own)) | set(namespaces(second, own)) & set(
        namespaces(first, own)
    )


def test_a_member_reaches_another_over_the_loopback_interface(client: Client) -> None:
    made = pod(client)
    server = "import socket; s = socket.create_server(('127.0.0.1', 7)); print('up', flush=True); s.accept()"
    serving = up(client, "python3", "-c", server, sandbox=made.id)
    connect = "import socket; socket.create_connection(('127.0.0.1', 7), 5)"
    follow = client.logs(pb.LogsRequest(id=serving.id, follow=True))
    assert next(iter(follow)).data == b"up\n"
    follow.cancel()
    assert word(run(client, "python3", "-c", connect, sandbox=made.id)[1]) == "exited 0"
    assert word(last_exit(client, serving.id)) == "exited 0"


def test_members_share_dev_shm_and_the_pods_host_name(client: Client) -> None:
    made = pod(client, hostname="pod-1")
    assert word(run(client, "sh", "-c", "echo 43 > /dev/shm/n", sandbox=made.id)[1]) == "exited 0"
    script = '[ "$(hostname)" = pod-1 ] && [ "$HOSTNAME" = pod-1 ] && exit $(cat /dev/shm/n)'
    assert word(run(client, "sh", "-c", script, sandbox=made.id)[1]) == "exited 43"


def test_a_member_with_the_pods_pid_namespace_sees_the_pause_process_as_its_first(client: Client) -> None:
    made = pod(client)
    member = up(client, sandbox=made.id, pid="pod")
    assert namespaces(member, ("pid",)) == namespaces(made.pause, ("pid",))
    script = '[ "$(cat /proc/1/comm)" = pause ]'
    assert word(run(client, "sh", "-c", script, sandbox=made.id, pid="pod")[1]) == "exited 0"


def test_an_empty_directory_is_shared_by_the_members_and_goes_with_the_pod(daemon: Daemon, client: Client) -> None:
    made = pod(client)
    mounts = [pb.Mount(empty_dir="scratch", destination="/scratch")]
    run(client, "sh", "-c", "echo 7 > /scratch/n", sandbox=made.id, mounts=mounts, user="nobody")
    _, exit_ = run(client, "sh", "-c", "exit $(cat /scratch/n)", sandbox=made.id, mounts=mounts)
    assert word(exit_) == "exited 7"
    client.remove(made.id, force=True)
    assert not (daemon.root / "c" / made.id).exists()


@pytest.mark.parametrize(
    ("kind", "id_key", "sandbox", "member"),
    [
        ("io.kubernetes.docker.type", "io.kubernetes.sandbox.id", "podsandbox", "container"),
        ("io.kubernetes.cri.container-type", "io.kubernetes.cri.sandbox-id", "sandbox", "container"),
        ("cri.isulad.type", "cri.sandbox.id", "podsandbox", "container"),
    ],
)
def test_annotations_of_each_family_make_a_pod_and_its_members(
    client: Client, kind: str, id_key: str, sandbox: str, member: str
) -> None:
    pause = client.start(client.create(pb.ContainerSpec(image="pause", annotations={kind: sandbox})).id)
    joined = up(client, annotations={kind: member, id_key: pause.id[:12]}, network="none")
    assert joined.spec.sandbox == pause.id
    assert joined.spec.annotations[id_key] == pause.id
    assert namespaces(joined) == namespaces(pause)
    (listed,) = client.pods()
    assert (listed.id, listed.state, [each.id for each in listed.members]) == (pause.id, "SANDBOX_READY", [joined.id])


def test_who_belongs_to_no_pod_or_to_two_is_refused(client: Client) -> None:
    made = pod(client)
    single = up(client)
    other = {"io.kubernetes.docker.type": "container", "io.kubernetes.sandbox.id": "feedfacefeed"}
    with pytest.raises(NoSuchContainer, match="exitctl pods"):
        client.create(spec("true", annotations=other))
    with pytest.raises(BadRequest, match="is a container and no pod"):
        client.create(spec("true", sandbox=single.id))
    with pytest.raises(BadRequest, match="another place"):
        client.create(spec("true", sandbox=made.id, annotations=other))
    with pytest.raises(BadRequest, match="no member of a pod"):
        client.create(spec("true", network="pod"))
    with pytest.raises(BadRequest, match="its pod's"):
        client.create(spec("true", sandbox=made.id, network="host"))
    client.stop_pod(made.id)
    with pytest.raises(WrongState, match="NotReady"):
        client.create(spec("true", sandbox=made.id))


def test_members_of_a_pod_on_the_hosts_network_are_on_it_too(client: Client) -> None:
    made = pod(client, network="host")
    member = up(client, sandbox=made.id)
    assert namespaces(member, ("net",)) == [os.readlink("/proc/self/ns/net")]
    assert namespaces(member, ("ipc",)) == namespaces(made.pause, ("ipc",))
    with pytest.raises(BadRequest, match="has host"):
        client.create(spec("true", sandbox=made.id, network="none"))


def test_when_the_pause_container_ends_its_members_end_and_say_why(client: Client) -> None:
    made = pod(client)
    stubborn = up(
        client, "sh", "-c", "trap '' TERM; while :; do sleep 1; done", sandbox=made.id, stop_timeout_seconds=1
    )
    polite = up(client, "sh", "-c", "trap 'exit 5' TERM; while :; do sleep 0.05; done", sandbox=made.id)
    until(lambda: polite.init.pid and in_mask(polite.init.pid, "SigCgt", signal.SIGTERM), "the trap is not set")
    client.kill(made.id, "KILL")
    assert word(last_exit(client, polite.id)) == "exited 5"
    assert word(last_exit(client, stubborn.id)) == "signaled 9"
    for each in (polite, stubborn):
        told = last_exit(client, each.id)
        assert (told.reason, told.by.policy) == ("pause-exit", "pause-exit")
        assert len(ledger(client, each.id)) == 1
    assert first_exit(client, made.id).reason == "kill"
    assert client.inspect_pod(made.id).state == "SANDBOX_NOTREADY"


def test_members_in_the_pods_pid_namespace_that_the_kernel_kills_say_why_too(client: Client) -> None:
    made = pod(client)
    member = up(client, sandbox=made.id, pid="pod")
    client.kill(made.id, "KILL")
    told = last_exit(client, member.id)
    assert (word(told), told.reason) == ("signaled 9", "pause-exit")


def test_members_that_are_to_be_kept_live_on_without_their_pause_container(client: Client) -> None:
    made = pod(client, pod=pb.PodSpec(on_pause_exit="keep"))
    member = up(client, sandbox=made.id)
    client.kill(made.id, "KILL")
    first_exit(client, made.id)
    shown = client.inspect_pod(made.id)
    assert (shown.state, shown.members[0].phase) == ("SANDBOX_NOTREADY", pb.PHASE_RUNNING)
    client.kill(member.id, "KILL")
    assert last_exit(client, member.id).reason == "kill"


def test_a_restarted_pause_container_is_a_new_sandbox_and_takes_the_members_of_the_old_one_along(
    client: Client,
) -> None:
    made = pod(client, restart="always")
    always = up(client, sandbox=made.id, restart="always")
    never = up(client, sandbox=made.id)
    before = namespaces(made.pause)
    os.kill(made.pause.init.pid, signal.SIGKILL)
    until(lambda: client.inspect(always.id).sandbox_run == 2, "no revival")
    until(lambda: client.inspect(always.id).phase == pb.PHASE_RUNNING, "no revival")
    again = client.inspect_pod(made.id)
    assert (again.state, again.spec.attempt) == ("SANDBOX_READY", 1)
    assert namespaces(again.pause) != before
    assert namespaces(client.inspect(always.id)) == namespaces(again.pause)
    until(lambda: client.inspect(never.id).phase == pb.PHASE_EXITED, "it goes on")
    assert [exit_.reason for exit_ in ledger(client, always.id)] == ["pause-exit"]


def test_a_pod_that_is_to_end_with_its_last_member_does(client: Client) -> None:
    made = pod(client, pod=pb.PodSpec(exit_policy="stop"))
    first, second = (client.create(spec("sh", "-c", f"exit {code}", sandbox=made.id)).id for code in (3, 4))
    client.start(first)
    assert word(last_exit(client, first)) == "exited 3"
    assert client.inspect_pod(made.id).state == "SANDBOX_READY"
    client.start(second)
    told = first_exit(client, made.id)
    assert (word(told), told.reason, told.by.policy) == ("exited 0", "stop", "last-member")


def test_waiting_for_a_pod_gives_the_exit_of_every_member(client: Client) -> None:
    made = pod(client)
    members = [client.create(spec("sh", "-c", f"exit {code}", sandbox=made.id)).id for code in (3, 0, 44)]
    waiting = client.begin_wait(made.id)
    for member in members:
        client.start(member)
    exits = waiting.reply(LIMIT_SECONDS).members
    assert [(exit_.container_id, exit_.code) for exit_ in exits] == list(zip(members, (3, 0, 44), strict=True))


def test_every_event_of_a_pod_names_it(client: Client) -> None:
    made = pod(client)
    member, _ = run(client, "true", sandbox=made.id)
    client.remove(made.id, force=True)
    for id in (made.id, member):
        assert {event.pod_id for event in events(client, id)} == {made.id}
        assert [event.type for event in events(client, id)].count("exit") == 1


def test_a_pod_is_removed_with_its_members_but_not_while_it_is_ready(client: Client) -> None:
    made = pod(client)
    member = up(client, sandbox=made.id)
    with pytest.raises(WrongState, match="Ready"):
        client.remove_pod(made.id, force=False)
    client.stop_pod(made.id)
    assert last_exit(client, member.id).reason == "stop"
    client.remove_pod(made.id, force=False)
    assert not client.list(all_of_them=True)
    assert word(first_exit(client, made.id)) == "exited 0"


def test_a_pods_memory_limit_is_that_of_all_its_containers_together(client: Client) -> None:
    made = pod(client, pod=pb.PodSpec(memory_bytes=48 << 20))
    hungry = "b = []\nwhile True: b.append(bytearray(1 << 20))"
    _, exit_ = run(client, "python3", "-c", hungry, sandbox=made.id, memory_bytes=512 << 20)
    assert (word(exit_), exit_.reason, exit_.oom.init) == ("signaled 9", "oom", True)
    assert client.inspect_pod(made.id).state == "SANDBOX_READY"


PLACES_OF_PODS = ("exitd/pod-$id", "exitd.slice/exitd-$id.slice")  # by the two cgroup drivers


def test_a_pod_that_its_runtime_refuses_leaves_no_cgroup_of_its_limits(daemon: Daemon, client: Client) -> None:
    """The cgroup is there when the runtime is called, and nobody removes the pod: there never was one."""
    runtime, found = Wrapper.make(daemon.base), daemon.base / "found"
    places = [f"/sys/fs/cgroup/{top}{name}" for top in ("", "*/") for name in PLACES_OF_PODS]
    runtime.on("create", f"for id; do :; done; ls -d {' '.join(places)} >{found}; exit 1")
    with pytest.raises(RuntimeFailed, match="could not create"):
        pod(client, runtime=runtime.name, pod=pb.PodSpec(memory_bytes=48 << 20, pids_limit=60))
    limited = [pathlib.Path(line) for line in found.read_text().splitlines()]
    until(lambda: limited and not [path for path in limited if path.exists()], f"one of {limited} is left")
    assert not client.list(all_of_them=True)


def test_a_pod_whose_members_shim_is_stopped_can_be_killed_all_the_same(client: Client) -> None:
    made = pod(client)
    member = up(client, sandbox=made.id, pid="pod")
    os.kill(member.shim.pid, signal.SIGSTOP)
    client.stop_pod(made.id, 0)
    assert word(first_exit(client, made.id)) == "signaled 9"
    assert word(last_exit(client, member.id)) == "signaled 9"
    assert len(ledger(client, member.id)) == 1
