"""The host is booted anew: every container of every pod has ended, nobody saw how, and each policy applies once."""

import pathlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.model.errors import ExitdError
from tests.system import daemons, observedpods, oracle
from tests.system.daemons import Daemon
from tests.system.lives import ledger, word
from tests.system.observedpods import NOT_READY, READY, Pod
from tests.system.oracle import Revived, Subject, down
from tests.system.runtimes import gated
from tests.system.test_recovery import pretended_boot
from tests.system.waits import LIMIT_SECONDS, until

REBOOTED = "unknown host-rebooted"
POLICIES = ("no", "on-failure:3", "always", "unless-stopped")
COME_BACK = POLICIES[1:]


class Host:
    """One that can be booted anew, under a daemon that compares only every 30 s."""

    def __init__(self, daemon: Daemon, boot_id: pathlib.Path) -> None:
        self.daemon, self._boot_id, self._boots = daemon, boot_id, 1

    def reboot(self) -> None:
        self._boots += 1
        self.daemon.kill()
        self._boot_id.write_text(f"{self._boots:08x}-2222-4222-8222-222222222222\n")
        self.daemon.start()


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Iterator[Host]:
    with pretended_boot(tmp_path) as (boot_id, wrapper), daemons.daemon(wrapper=wrapper) as daemon:
        yield Host(daemon, boot_id)


def running(daemon: Daemon, restart: str) -> Pod:
    """A pod with a member of each policy."""
    pod = observedpods.observed(daemon, *({"restart": policy} for policy in POLICIES), restart=restart)
    observedpods.run(Revived(daemon), pod)
    return pod


def told(daemon: Daemon, id: str) -> list[str]:
    with daemon.client() as client:
        return [word(row) for row in ledger(client, id)]


def state(daemon: Daemon, pod: Pod) -> tuple[str, list[tuple[int, int, int]]]:
    """Of the pod, and phase, run and joined sandbox of every container."""
    with daemon.client() as client:
        seen = client.inspect_pod(pod.id)
    return seen.state, [(c.phase, c.run, c.sandbox_run) for c in (seen.pause, *seen.members)]


def begun(member: Subject, runs: int) -> None:
    until(lambda: len(member.truth()) == runs, f"{member.spec.restart} is not started again")


def test_after_a_reboot_pods_come_back_as_new_sandboxes_with_the_members_whose_policy_says_so(host: Host) -> None:
    daemon = host.daemon
    comes, stays = running(daemon, "always"), running(daemon, "no")
    host.reboot()
    for member in comes.members:
        if member.spec.restart in COME_BACK:
            begun(member, 2)
    until(lambda: state(daemon, comes)[1][1:].count((pb.PHASE_RUNNING, 2, 2)) == len(COME_BACK), "not all run")
    assert state(daemon, comes) == (
        READY,
        [(pb.PHASE_RUNNING, 2, 0), (pb.PHASE_EXITED, 1, 1), *[(pb.PHASE_RUNNING, 2, 2)] * len(COME_BACK)],
    )
    assert state(daemon, stays) == (NOT_READY, [(pb.PHASE_EXITED, 1, 0), *[(pb.PHASE_EXITED, 1, 1)] * len(POLICIES)])
    for pod in (comes, stays):
        for id in observedpods.ids(pod):
            assert told(daemon, id) == [REBOOTED]
    before = [state(daemon, pod) for pod in (comes, stays)]
    for _ in range(2):
        with down(daemon):
            pass
        assert [state(daemon, pod) for pod in (comes, stays)] == before
    assert [len(member.truth()) for member in (*comes.members, *stays.members)] == [1, 2, 2, 2, 1, 1, 1, 1]
    removed_and_judged(daemon, comes, stays)


def removed_and_judged(daemon: Daemon, *pods: Pod) -> None:
    for pod in pods:
        observedpods.removed(Revived(daemon), pod)
        with daemon.client() as client:
            observedpods.judge(client, pod)
    oracle.nothing_left(daemon)


def test_after_a_reboot_a_pod_that_is_started_by_hand_takes_its_members_along(host: Host) -> None:
    pod = running(host.daemon, "no")
    host.reboot()
    with host.daemon.client() as client:
        client.start(pod.id)
        assert client.inspect_pod(pod.id).spec.attempt == 1
    for member in pod.members:
        if member.spec.restart in COME_BACK:
            begun(member, 2)
    assert told(host.daemon, pod.id) == [REBOOTED]
    removed_and_judged(host.daemon, pod)


def test_a_pod_that_was_stopped_before_the_reboot_stays_so(host: Host) -> None:
    pod = running(host.daemon, "unless-stopped")
    observedpods.stopped(Revived(host.daemon), pod)
    before = state(host.daemon, pod)
    host.reboot()
    assert before[0] == NOT_READY
    until(lambda: not recovering(host.daemon), "not looked up")
    assert state(host.daemon, pod)[0] == NOT_READY
    assert told(host.daemon, pod.id) == ["signaled 9"]
    assert [told(host.daemon, member.id) for member in pod.members] == [["signaled 9"]] * len(POLICIES)
    removed_and_judged(host.daemon, pod)


def recovering(daemon: Daemon) -> bool:
    with daemon.client() as client:
        return any(container.recovering for container in client.list(all_of_them=True))


def test_two_reboots_in_a_row_are_two_unknown_ends_of_who_came_back_and_one_of_who_did_not(host: Host) -> None:
    pod = running(host.daemon, "always")
    never, *comes = pod.members
    for runs in (2, 3):
        host.reboot()
        for member in comes:
            begun(member, runs)
    assert told(host.daemon, pod.id) == [REBOOTED] * 2
    assert told(host.daemon, never.id) == [REBOOTED]
    assert [told(host.daemon, member.id) for member in comes] == [[REBOOTED] * 2] * len(comes)
    removed_and_judged(host.daemon, pod)


@pytest.mark.parametrize("moment", ["create.before", "create.after"])
def test_a_pod_or_a_member_that_was_being_made_when_the_host_went_down_is_none(host: Host, moment: str) -> None:
    pod = running(host.daemon, "always")
    with gated(host.daemon) as gates, ThreadPoolExecutor(2) as pool, host.daemon.client() as client:
        gates.close(moment)
        half = observedpods.observed(host.daemon, runtime=str(gates.runtime))
        late = oracle.observed(host.daemon, "late", sandbox=pod.name, runtime=str(gates.runtime))
        one, other = pool.submit(client.run_pod, half.spec), pool.submit(client.create, late.spec)
        until(lambda: making(host.daemon) == 2, "not both are being made")
        gates.reached(moment)
        host.reboot()
        assert isinstance(one.exception(LIMIT_SECONDS), ExitdError)
        assert isinstance(other.exception(LIMIT_SECONDS), ExitdError)
        gates.open()
    until(lambda: state(host.daemon, pod)[1][0] == (pb.PHASE_RUNNING, 2, 0), "the pod does not come back")
    with host.daemon.client() as client:
        until(lambda: making(host.daemon) == 0, "what was being made stays")
        assert {c.id for c in client.list(all_of_them=True)} == {*observedpods.ids(pod)}
    host.daemon.extra = ("--reconcile-seconds", "0.2")  # what the halted commands have left is found by comparing
    host.daemon.restart()
    removed_and_judged(host.daemon, pod)


def making(daemon: Daemon) -> int:
    with daemon.client() as client:
        unmade = (pb.PHASE_CREATING, pb.PHASE_REMOVING)
        return sum(container.phase in unmade for container in client.list(all_of_them=True))
