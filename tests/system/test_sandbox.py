"""containerd's Sandbox service, over the real relay: a pod without a pause container of CRI's, its ends and those of
its members. containerd 2's part is the test's; check_containerds.py has the real one."""

import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator

import pytest

from protos.containerd import podsandbox_pb2 as cri
from protos.containerd import sandbox_pb2 as sb
from protos.containerd import task_pb2 as pb
from protos.exitd.v1 import exitd_pb2
from supervisor.api.client import Client
from supervisor.ttrpc.faults import CallFailed
from tests.system import lives
from tests.system.containerd.sandboxes import LIFE, SANDBOX, TASK, Controller, Pod, controlled, relay_gone
from tests.system.daemons import Daemon
from tests.system.tasks import KEEP, LEAVE, Tasks
from tests.system.waits import until


@pytest.fixture
def controller(client: Client, daemon: Daemon, tmp_path: pathlib.Path) -> Iterator[Controller]:
    """The client counts what is left."""
    with controlled(daemon, tmp_path) as made:
        yield made


@pytest.fixture
def killed_often(killable: Daemon, tmp_path: pathlib.Path) -> Iterator[Controller]:
    """exitd may be killed."""
    with controlled(killable, tmp_path) as made:
        yield made


def namespace(pid: int, kind: str) -> str:
    return os.readlink(f"/proc/{pid}/ns/{kind}")


def code(pod: Pod, method: str, request: sb.PingRequest | sb.SandboxStatusRequest) -> int:
    try:
        pod.ask(method, request, sb.PingResponse)
    except CallFailed as error:
        return error.code
    return 0


def exits(client: Client, name: str) -> list[str]:
    """What exitd's ledger says of this container of containerd's."""
    return [lives.word(each) for each in client.exits(exitd_pb2.ExitsRequest()) if each.name == name]


def removed(pod: Pod) -> None:
    """As CRI does it, from Stop to `delete`; the relay has gone."""
    relay = pod.connection.relay()
    pod.stop()
    pod.shutdown()
    relay_gone(pod.controller, relay)


def test_the_life_of_a_pod_is_the_one_that_containerd_drives(controller: Controller, client: Client) -> None:
    pod = controller.pod(hostname="web-0", metadata={"name": "web", "namespace": "shop", "uid": "u"})
    pid, relay = pod.started(), pod.connection.relay()
    waiting = pod.wait()
    ready = pod.status()
    assert (ready.sandbox_id, ready.pid, ready.state) == (pod.id, pid, "SANDBOX_READY")
    assert ready.created_at.seconds > 0 and not ready.HasField("exited_at")
    there = pod.ask("Platform", sb.PlatformRequest(sandbox_id=pod.id), sb.PlatformResponse).platform
    assert there.os == "linux" and there.architecture
    assert code(pod, "PingSandbox", sb.PingRequest(sandbox_id=pod.id)) == 0
    found = pod.ask("SandboxMetrics", sb.SandboxMetricsRequest(sandbox_id=pod.id), sb.SandboxMetricsResponse).metrics
    assert found.id == pod.id and found.data.value

    member = pod.member("app", "/bin/sh", "-c", "read name </etc/hostname; test $name = web-0 && exit 43", pid=pid)
    assert member.waited(member.started()) == 43
    assert member.delete() == 43
    assert pod.connection.relay() == relay and pod.status() == ready  # that relay is the sandbox's, and stays

    pod.stop()
    ended = pod.waited(waiting)
    assert ended.exit_status == 0 and ended.exited_at.seconds > 0
    over = pod.status()
    assert (over.state, over.pid, over.exited_at) == ("SANDBOX_NOTREADY", pid, ended.exited_at)
    assert code(pod, "PingSandbox", sb.PingRequest(sandbox_id=pod.id)) == 9
    assert pod.waited(pod.wait()) == ended
    pod.shutdown()
    relay_gone(controller, relay)
    assert pod.connection.is_closed()
    deleted = pod.deleted()
    assert (deleted.pid, deleted.exit_status, deleted.exited_at) == (pid, 0, ended.exited_at)
    assert exits(client, member.id) == ["exited 43"] and exits(client, pod.id) == ["exited 0"]
    # containerd publishes the events of a sandbox itself.
    assert controller.events.of(member.id) == list(zip(LIFE, (0, 0, 43, 43), strict=True))
    assert controller.events.of(pod.id) == []


def test_members_share_what_a_pod_shares(controller: Controller) -> None:
    dns = {"servers": ["10.96.0.10"], "searches": ["svc"]}
    pod = controller.pod(hostname="web-0", dns_config=dns, metadata={"name": "web"})
    pid = pod.started()
    script = (
        "read -r a b </etc/resolv.conf; test $a$b = searchsvc && test -s /etc/hosts &&"
        " test $(hostname) = web-0 && echo 43 >/dev/shm/code && exec sleep 1000"
    )
    first = pod.member("first", "/bin/sh", "-c", script, pid=pid)
    waiting = first.started()
    inside = first.pid()
    assert {kind: namespace(inside, kind) for kind in ("net", "ipc", "uts")} == {
        kind: namespace(pid, kind) for kind in ("net", "ipc", "uts")
    }
    assert namespace(pid, "net") != namespace(os.getpid(), "net")
    code_file = pathlib.Path(f"/proc/{inside}/root/dev/shm/code")
    until(code_file.exists, "the first member has written")
    second = pod.member("second", "/bin/sh", "-c", "read code </dev/shm/code; exit $code", pid=pid)
    assert second.waited(second.started()) == 43
    assert second.delete() == 43
    pod.stop(1)
    assert first.waited(waiting) == 137  # its init has no handler for the stop signal
    assert first.delete() == 137
    pod.shutdown()


def test_what_a_member_mounts_itself_stays(controller: Controller, tmp_path: pathlib.Path) -> None:
    (tmp_path / "mine").write_text("43\n")
    own = {"destination": "/etc/resolv.conf", "type": "bind", "source": str(tmp_path / "mine"), "options": ["bind"]}
    pod = controller.pod()
    member = pod.member(
        "app", "/bin/sh", "-c", "read code </etc/resolv.conf; exit $code", pid=pod.started(), mounts=(own,)
    )
    assert member.waited(member.started()) == 43
    member.delete()
    removed(pod)


def test_a_pod_has_the_network_namespace_that_cri_has_made(controller: Controller) -> None:
    with subprocess.Popen(["unshare", "--net", "sleep", "1000"]) as holder:
        netns = f"/proc/{holder.pid}/ns/net"
        until(lambda: namespace(holder.pid, "net") != namespace(os.getpid(), "net"), "it has none of its own")
        pod = controller.pod()
        pid = pod.started(netns)
        assert namespace(pid, "net") == namespace(holder.pid, "net")
        removed(pod)
        holder.kill()


def test_a_pod_of_the_host_has_the_hosts_namespaces(controller: Controller) -> None:
    modes = {"network": cri.NODE, "pid": cri.NODE, "ipc": cri.NODE}
    pod = controller.pod(linux={"security_context": {"namespace_options": modes}})
    pid = pod.started()
    assert {namespace(pid, kind) for kind in ("net", "pid", "ipc", "uts")} == {
        namespace(os.getpid(), kind) for kind in ("net", "pid", "ipc", "uts")
    }
    removed(pod)


def test_it_is_a_pod_of_exitds_whose_members_outlive_it(controller: Controller, client: Client) -> None:
    """As with a pause container of CRI's: kubelet stops them, with the time that each is to have."""
    pod = controller.pod(metadata={"name": "web", "namespace": "shop", "uid": "u", "attempt": 1})
    pid = pod.started()
    member = pod.member("app", "/bin/sleep", "1000", pid=pid)
    waiting, whole = member.started(), pod.wait()
    (shown,) = (each for each in client.pods() if each.pause.spec.name == pod.id)
    assert (shown.spec.name, shown.spec.namespace, shown.spec.attempt) == ("web", "shop", 1)
    assert [each.spec.name for each in shown.members] == [member.id]
    os.kill(pid, signal.SIGKILL)
    assert pod.waited(whole).exit_status == 137
    assert pod.status().state == "SANDBOX_NOTREADY"
    late = pod.member("late", "/bin/true", pid=1)
    with pytest.raises(CallFailed, match="does not run"):
        late.create()
    assert member.connection.silent()
    pod.stop(1)
    assert member.waited(waiting) == 137  # its init has no handler for the stop signal
    assert exits(client, member.id) == ["signaled 9"] and exits(client, pod.id) == ["signaled 9"]
    assert member.delete() == 137
    removed(pod)


def test_a_shutdown_leaves_nothing_of_a_pod_that_runs(controller: Controller, client: Client) -> None:
    pod = controller.pod()
    pid, relay = pod.started(), pod.connection.relay()
    member = pod.member("app", "/bin/sleep", "1000", pid=pid)
    member.started()
    pod.shutdown()
    assert [each.spec.name for each in client.list(all_of_them=True)] == []
    assert exits(client, member.id) == ["signaled 9"] and exits(client, pod.id) == ["signaled 9"]
    relay_gone(controller, relay)


def test_a_sandbox_that_cannot_be_made_leaves_nothing_and_its_relay_goes(controller: Controller) -> None:
    pod = controller.pod(linux={"cgroup_parent": "/a/../../b"})
    relay = pod.connection.relay()
    with pytest.raises(CallFailed, match="cgroup_parent") as refused:
        pod.create()
    assert refused.value.code == 3
    assert code(pod, "SandboxStatus", sb.SandboxStatusRequest(sandbox_id=pod.id)) == 5
    pod.shutdown()
    relay_gone(controller, relay)


def test_a_task_without_a_configuration_is_refused_by_its_name(controller: Controller) -> None:
    """The relay begins, as for a sandbox; it is the task that lacks something."""
    pod = controller.pod()
    request = pb.CreateTaskRequest(id=pod.id, bundle=str(pod.bundle.directory))
    with pytest.raises(CallFailed, match=rf"{pod.id}/config\.json: No such file"):
        pod.connection.ask(TASK, "Create", request, pb.CreateTaskResponse)
    pod.shutdown()


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_ends_while_exitd_is_away_are_reported_at_once_and_stored_once(killed_often: Controller, by: int) -> None:
    daemon = killed_often.relays.daemon
    assert daemon is not None
    pod = killed_often.pod()
    pid = pod.started()
    member = pod.member("app", "/bin/sh", "-c", "while test ! -e /dev/shm/go; do sleep 0.02; done; exit 7", pid=pid)
    waiting, whole, inside = member.started(), pod.wait(), member.pid()
    daemon.kill()
    pathlib.Path(f"/proc/{inside}/root/dev/shm/go").touch()
    assert member.waited(waiting) == 7
    assert pod.status().state == "SANDBOX_READY"
    os.kill(pid, by)
    ended = pod.waited(whole)
    assert ended.exit_status == (137 if by == signal.SIGKILL else 0)
    over = pod.status()
    assert (over.state, over.exited_at) == ("SANDBOX_NOTREADY", ended.exited_at)
    assert member.delete() == 7
    daemon.start()
    with daemon.client() as client:
        until(lambda: exits(client, pod.id), "exitd has not stored the pod's end")
        assert exits(client, pod.id) == ["signaled 9" if by == signal.SIGKILL else "exited 0"]
        assert exits(client, member.id) == ["exited 7"]
    assert pod.waited(pod.wait()) == ended
    relay = pod.connection.relay()
    pod.shutdown()
    relay_gone(killed_often, relay)
    assert pod.deleted().exit_status == ended.exit_status
    assert killed_often.events.of(member.id) == list(zip(LIFE, (0, 0, 7, 7), strict=True))
    assert killed_often.events.of(pod.id) == []


def test_a_pod_is_removed_while_exitd_is_away_and_exitd_follows(killed_often: Controller) -> None:
    daemon = killed_often.relays.daemon
    assert daemon is not None
    pod = killed_often.pod()
    pid, relay = pod.started(), pod.connection.relay()
    whole = pod.wait()
    daemon.kill()
    os.kill(pid, signal.SIGKILL)
    assert pod.waited(whole).exit_status == 137
    with pytest.raises(CallFailed) as refused:
        pod.stop()
    assert refused.value.code == 5  # which containerd takes for done
    pod.shutdown()
    pod.connection.close()
    assert pod.deleted().exit_status == 137
    daemon.start()
    with daemon.client() as client:
        until(lambda: client.list(all_of_them=True) == (), "exitd has not removed it")
        assert exits(client, pod.id) == ["signaled 9"]
    relay_gone(killed_often, relay)


def test_a_containerd_that_starts_while_exitd_is_away_finds_its_pod(killed_often: Controller) -> None:
    """It connects anew, asks for Connect and Pids of the sandbox, then for its status, and waits for it."""
    daemon = killed_often.relays.daemon
    assert daemon is not None
    pod = killed_often.pod()
    pid = pod.started()
    daemon.kill()
    pod.connection.close()
    pod.connection = killed_often.connect(pod.bundle.address)
    asked = pb.ConnectRequest(id=pod.id)
    assert pod.connection.ask(TASK, "Connect", asked, pb.ConnectResponse).task_pid == pid
    found = pod.connection.ask(TASK, "Pids", pb.PidsRequest(id=pod.id), pb.PidsResponse)
    assert [each.pid for each in found.processes] == [pid]
    assert (pod.status().state, pod.status().pid) == ("SANDBOX_READY", pid)
    whole = pod.wait()
    daemon.start()
    os.kill(pid, signal.SIGKILL)
    assert pod.waited(whole).exit_status == 137
    removed(pod)


def test_what_an_exitd_has_done_that_could_not_answer_is_not_done_again(lone_tasks: Tasks) -> None:
    """The relay repeats each request under its key."""
    relay, bundle = lone_tasks.relay, lone_tasks.base / "pod"
    bundle.mkdir()
    asked = sb.CreateSandboxRequest(sandbox_id="pod", bundle_path=str(bundle))
    creating = relay.begin("CreateSandbox", asked, SANDBOX)
    relay.answer(creating)
    lone_tasks.daemon.restart()
    relay.again(creating)
    relay.answer(creating)
    starting = relay.begin("StartSandbox", sb.StartSandboxRequest(sandbox_id="pod"), SANDBOX)
    first = relay.answer(starting)
    lone_tasks.daemon.restart()
    relay.again(starting)
    assert relay.answer(starting) == first
    waiting = relay.begin("WaitSandbox", sb.WaitSandboxRequest(sandbox_id="pod"), SANDBOX)
    ending = relay.begin("ShutdownSandbox", sb.ShutdownSandboxRequest(sandbox_id="pod"), SANDBOX)
    relay.answer(ending)
    lone_tasks.daemon.restart()
    relay.again(ending, waiting)
    relay.answer(ending)
    assert relay.flags[creating] == KEEP and relay.flags[ending] == KEEP | LEAVE
    ended = relay.answer(waiting)
    assert isinstance(ended, sb.WaitSandboxResponse) and ended.exit_status == 137
    assert [kind for kind in lone_tasks.log() if kind == "exit"] == ["exit"]
