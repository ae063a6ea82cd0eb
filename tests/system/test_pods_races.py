"""What happens to a pod at the same moment: members come while it goes, names collide, it is started while it ends."""

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.errors import ExitdError, NameTaken, NoSuchContainer, WrongState
from supervisor.model.values import Process
from supervisor.monitor import procfs
from tests.system import observedpods, oracle
from tests.system.daemons import Daemon
from tests.system.lives import last_exit, ledger, word
from tests.system.observedpods import NOT_READY, READY, Pod
from tests.system.oracle import Revived
from tests.system.processes import children_of, killed
from tests.system.runtimes import Gates
from tests.system.test_races import together
from tests.system.waits import LIMIT_SECONDS, scaled, until

pytestmark = pytest.mark.observed()

ENDED_BY_POD = {"stop", "kill", "pause-exit"}


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    with daemon.client() as made:
        yield made


def run(client: Client, daemon: Daemon, *members: dict[str, object], **fields: object) -> Pod:
    """A ready pod; its members are not made yet."""
    pod = observedpods.observed(daemon, *members, **fields)
    pod.id = client.run_pod(pod.spec).id
    return pod


def known_members(client: Client, pod: Pod) -> None:
    """Their ids, as far as there are such members."""
    by_name = {c.spec.name: c.id for c in client.list(all_of_them=True)}
    for member in pod.members:
        member.id = by_name.get(member.name, "")


@pytest.mark.parametrize("way", ["stop", "remove"])
def test_a_member_that_is_created_while_its_pod_is_stopped_or_removed_does_not_outlive_that(
    daemon: Daemon, client: Client, way: str
) -> None:
    answers = Counter[str]()
    for number in range(scaled(200, least=10)):
        pod = run(client, daemon, {"pid": "pod" if number % 2 else "own"}, {})
        creates = [partial(client.create, member.spec) for member in pod.members]
        end = partial(client.stop_pod, pod.id, 0) if way == "stop" else partial(client.remove_pod, pod.id, force=True)
        *made, ended = together(*creates, end)
        assert not isinstance(ended, ExitdError), ended
        assert all(isinstance(one, pb.Container | WrongState | NoSuchContainer) for one in made), made
        answers.update(type(one).__name__ for one in made)
        for member, answer in zip(pod.members, made, strict=True):
            member.id = answer.id if isinstance(answer, pb.Container) else ""
            if member.id and way == "stop":
                assert last_exit(client, member.id).reason in ENDED_BY_POD
        until(lambda: not client.list(all_of_them=False), "somebody lives on")
        if way == "remove":
            assert client.list(all_of_them=True) == ()
        observedpods.removed(Revived(daemon), pod)
        observedpods.judge(client, pod)
    print(dict(answers))
    oracle.nothing_left(daemon)


def test_a_member_whose_create_meets_the_end_of_its_pod_is_refused_for_that_end(
    daemon: Daemon, client: Client, gates: Gates
) -> None:
    """The pod's pid namespace makes no process any more, and its first one, the pause, cannot end: a process in there
    has ended whose parent, outside, is stopped and does not reap it."""
    pod = run(client, daemon, {"runtime": str(gates.runtime), "pid": "pod"})
    (member,) = pod.members
    pause = client.inspect(pod.id).init
    # nsenter itself waits outside for its child in the namespace.
    with subprocess.Popen(["nsenter", f"--pid=/proc/{pause.pid}/ns/pid", "sleep", "60"]) as outside:
        try:
            until(lambda: children_of(outside.pid), "nobody is in the namespace")
            gates.close("create.before")
            with ThreadPoolExecutor(1) as pool:
                creating = pool.submit(client.create, member.spec)
                gates.reached("create.before")
                outside.send_signal(signal.SIGSTOP)
                os.waitid(os.P_PID, outside.pid, os.WSTOPPED)  # until then it may still reap
                os.kill(pause.pid, signal.SIGKILL)
                process = Process(pause.pid, pause.started_ticks)
                until(lambda: procfs.is_ending(process), "the pause does not end")
                gates.open()
                with pytest.raises(WrongState, match="the pause container of the pod"):
                    creating.result(LIMIT_SECONDS)
            assert not procfs.is_gone(process)
        finally:
            outside.kill()
    until(lambda: client.inspect(pod.id).phase == pb.PHASE_EXITED, "its end is not told")
    observedpods.removed(Revived(daemon), pod)
    oracle.nothing_left(daemon)


def test_of_many_pods_run_under_one_name_at_once_one_is_ready_and_the_others_are_refused(
    daemon: Daemon, client: Client
) -> None:
    pod = observedpods.observed(daemon)
    answers = together(*[partial(client.run_pod, pod.spec)] * 8)
    (made,) = [answer for answer in answers if isinstance(answer, pb.Pod)]
    assert Counter(type(answer) for answer in answers) == {pb.Pod: 1, NameTaken: 7}
    assert [(each.id, each.state) for each in client.pods()] == [(made.id, READY)]
    pod.id = made.id
    observedpods.removed(Revived(daemon), pod)
    assert observedpods.judge(client, pod).total() == 1
    oracle.nothing_left(daemon)


@pytest.mark.parametrize("moment", ["create.before", "create.after", "start.before", "start.after"])
def test_a_pod_is_removed_by_force_while_its_members_are_created_and_started(
    daemon: Daemon, client: Client, gates: Gates, moment: str
) -> None:
    pod = run(client, daemon, {"runtime": str(gates.runtime)}, {"runtime": "runc"})
    gated, plain = pod.members
    plain.id = client.start(client.create(plain.spec).id).id
    gates.close(moment)
    with ThreadPoolExecutor(2) as pool:
        beginning = pool.submit(lambda: client.start(client.create(gated.spec).id))
        gates.reached(moment)
        known_members(client, pod)
        removing = pool.submit(client.remove_pod, pod.id, force=True)
        until(lambda: client.inspect(plain.id).phase != pb.PHASE_RUNNING, "the removal does not begin")
        gates.open()
        removing.result(LIMIT_SECONDS)
        assert isinstance(beginning.exception(LIMIT_SECONDS), ExitdError | None)
    assert client.list(all_of_them=True) == ()
    observedpods.judge(client, pod, moment)
    assert all(row.reason == "kill" for row in ledger(client, plain.id))
    oracle.nothing_left(daemon)


def test_a_pod_that_is_started_while_its_members_still_end_has_them_again_in_its_new_sandbox(
    daemon: Daemon, client: Client
) -> None:
    """They are slow to end: the new sandbox is there before the last of the old one has gone."""
    slow = {"before_end": "trap 'sleep 0.5; exit 9' TERM; read line </mnt/go & wait", "stop_timeout_seconds": 10}
    pod = run(client, daemon, {**slow, "restart": "always"}, {**slow, "restart": "no"})
    observedpods.begun(Revived(daemon), pod)
    killed(client.inspect(pod.id).init.pid)
    until(lambda: client.inspect(pod.id).phase == pb.PHASE_EXITED, "its end is not told")
    client.start(pod.id)
    assert client.inspect_pod(pod.id).state == READY
    comes, stays = pod.members
    until(lambda: client.inspect(comes.id).sandbox_run == 2, "the member does not come back")
    until(lambda: len(comes.truth()) == 2, "it does not begin again")
    assert client.inspect(comes.id).run == 2
    until(lambda: client.inspect(stays.id).phase == pb.PHASE_EXITED, "the other member does not end")
    for member in pod.members:
        assert observedpods.reasons(client, member) == ["pause-exit"]
    client.remove_pod(pod.id, force=True)
    oracle.nothing_left(daemon)


def test_many_starts_of_a_pod_that_is_not_ready_make_one_new_sandbox(daemon: Daemon, client: Client) -> None:
    pod = run(client, daemon)
    client.stop_pod(pod.id, 0)
    answers = together(*[partial(client.start, pod.id)] * 8)
    assert {type(answer) for answer in answers} <= {pb.Container, WrongState}
    now = client.inspect_pod(pod.id)
    assert (now.state, now.pause.run, now.spec.attempt) == (READY, 2, 1)
    observedpods.removed(Revived(daemon), pod)
    assert observedpods.judge(client, pod).total() == 2
    oracle.nothing_left(daemon)


def test_a_pod_started_and_stopped_at_once_ends_as_one_of_both_and_reports_every_end_once(
    daemon: Daemon, client: Client
) -> None:
    pod = run(client, daemon, {"restart": "always"})
    observedpods.begun(Revived(daemon), pod)
    for _ in range(scaled(200, least=10)):
        together(partial(client.start, pod.id), partial(client.stop_pod, pod.id, 0))
    client.stop_pod(pod.id, 0)
    assert client.inspect_pod(pod.id).state == NOT_READY
    until(lambda: client.inspect(pod.members[0].id).phase == pb.PHASE_EXITED, "its member lives on")
    observedpods.judge(client, pod)
    observedpods.removed(Revived(daemon), pod)
    oracle.nothing_left(daemon)


@pytest.mark.parametrize("way", ["stop", "kill", "remove"])
def test_a_member_that_starts_again_all_the_time_stays_ended_once_its_pod_has(
    daemon: Daemon, client: Client, way: str
) -> None:
    for runs in range(1, 1 + scaled(100, least=3)):
        pod = run(client, daemon, {"before_end": "sleep 0.05", "restart": "always", "code": 1})
        (member,) = pod.members
        observedpods.begun(Revived(daemon), pod)
        until(lambda: len(member.truth()) >= min(runs, 4), "it does not start again")  # noqa: B023
        if way == "stop":
            client.stop_pod(pod.id, 0)
        elif way == "kill":
            client.kill(pod.id, "KILL")
        else:
            client.remove_pod(pod.id, force=True)
        if way != "remove":
            until(lambda: client.inspect(member.id).phase == pb.PHASE_EXITED, "it starts again")  # noqa: B023
            assert client.inspect_pod(pod.id).state == NOT_READY
        ended = len(member.truth())
        client.create(pb.ContainerSpec(rootfs="/", args=["true"], name="later"))  # its restart would have been due
        client.remove("later", force=True)
        assert len(member.truth()) == ended
        observedpods.judge(client, pod)
        observedpods.removed(Revived(daemon), pod)
    oracle.nothing_left(daemon)


def test_a_pod_that_removes_itself_takes_members_along_that_are_slow_to_end(daemon: Daemon, client: Client) -> None:
    """They have their files and their grace until they have ended by themselves."""
    script = "trap 'sleep 0.3; [ -e /scratch/n ] && [ -e /dev/shm/n ] && exit 5; exit 6' TERM; "
    script += "touch /scratch/n /dev/shm/n; while :; do sleep 0.01; done"
    pod = run(client, daemon, auto_remove=True)
    mounts = [pb.Mount(empty_dir="scratch", destination="/scratch")]
    spec = pb.ContainerSpec(rootfs="/", args=["sh", "-c", script], sandbox=pod.name, mounts=mounts)
    member = client.start(client.create(spec).id)
    scratch = daemon.root / "c" / pod.id / "volumes" / "scratch" / "n"
    until(scratch.exists, "the member does not begin")
    gone = client.begin_wait(pod.id, condition="removed")
    client.kill(pod.id, str(int(signal.SIGKILL)))
    gone.result(LIMIT_SECONDS)
    assert client.list(all_of_them=True) == ()
    (row,) = ledger(client, member.id)
    assert (word(row), row.reason) == ("exited 5", "pause-exit")
    oracle.nothing_left(daemon)
