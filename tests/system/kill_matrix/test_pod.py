"""exitd is killed while a pod is run, gets its members, loses its pause process, is started again, stopped and removed.
The next one goes on where it was: the pod is what it should be, every end is reported once, and nothing stays
behind."""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.errors import ExitdError
from tests.system import daemons, observedpods, oracle
from tests.system.daemons import Daemon
from tests.system.kill_matrix.calls import killed_at_each
from tests.system.kill_matrix.table import Case, cases, row
from tests.system.lives import ledger, word
from tests.system.observedpods import NOT_READY, READY, Pod
from tests.system.oracle import Revived, Subject
from tests.system.processes import killed
from tests.system.runtimes import Gates
from tests.system.waits import LIMIT_SECONDS, until

pytestmark = pytest.mark.observed()


def whose(case: Case) -> str:
    """`pause` or `member`: whose runtime command it is."""
    return case.moment.split()[0]


def command(case: Case) -> str:
    return case.moment.split()[1]


def pod_with_gates(daemon: Daemon, gates: Gates, who: str, *members: dict[str, object], **fields: object) -> Pod:
    """Only the pause container, or only the first member, goes through the gates."""
    gated, plain = {"runtime": str(gates.runtime)}, {"runtime": "runc"}
    first, *others = members
    of_members = [{**first, **(gated if who == "member" else plain)}, *({**other, **plain} for other in others)]
    return observedpods.observed(daemon, *of_members, **(gated if who == "pause" else plain), **fields)


def one_ends_and_one_is_stopped(up: Revived, pod: Pod) -> None:
    observedpods.run(up, pod)
    pod.members[0].go()
    oracle.over(up, pod.members[0])
    observedpods.stopped(up, pod)
    assert observedpods.state(up, pod) == NOT_READY
    observedpods.removed(up, pod)


def removed_at_once(up: Revived, pod: Pod) -> None:
    observedpods.run(up, pod)
    observedpods.removed(up, pod)


def kill_daemon(daemon: Daemon, gates: Gates, moment: str) -> None:
    gates.reached(moment)
    killed(daemon.pid)
    gates.open()


def with_a_killed_daemon(daemon: Daemon, gates: Gates, moment: str, life: Callable[[], None]) -> None:
    gates.close(moment)
    with ThreadPoolExecutor(1) as pool:
        living = pool.submit(life)
        kill_daemon(daemon, gates, moment)
        living.result(LIMIT_SECONDS * 3)


def judged(daemon: Daemon, pod: Pod, case: str) -> Counter[str]:
    """Its monitors lived: somebody knew every time."""
    with daemon.client() as client:
        said = observedpods.judge(client, pod, case)
        for member in pod.members:
            assert set(observedpods.reasons(client, member)) <= {"self", "stop", "kill", "pause-exit"}, case
    assert said and not any(words.startswith("unknown") for words in said), f"{case}: {said}"
    oracle.nothing_left(daemon)
    return said


@pytest.mark.parametrize("case", cases("pod"), ids=str)
def test_exitd_killed_while_a_pod_is_run_lived_in_and_stopped_makes_no_difference_to_its_exits(
    daemon: Daemon, gates: Gates, case: Case
) -> None:
    up, pod = Revived(daemon), pod_with_gates(daemon, gates, whose(case), {}, {"pid": "pod"})
    with_a_killed_daemon(daemon, gates, command(case), lambda: one_ends_and_one_is_stopped(up, pod))
    with daemon.client() as client:
        last = ledger(client, pod.members[0].id)[-1]
    assert (word(last), last.reason) == ("exited 43", "self")
    judged(daemon, pod, str(case))


@pytest.mark.parametrize("case", cases("pod, removed alive"), ids=str)
def test_exitd_killed_while_a_pod_is_removed_with_living_members_finishes_that(
    daemon: Daemon, gates: Gates, case: Case
) -> None:
    up, pod = Revived(daemon), pod_with_gates(daemon, gates, whose(case), {}, {"pid": "pod"})
    with_a_killed_daemon(daemon, gates, command(case), lambda: removed_at_once(up, pod))
    judged(daemon, pod, str(case))


@pytest.mark.parametrize("kept", [False, True])
def test_a_pod_in_the_middle_of_its_removal_is_removed_by_the_next_daemon_with_all_its_members(
    daemon: Daemon, gates: Gates, kept: bool
) -> None:
    """Also one whose members were to be kept when the pause container ends."""
    how = pb.PodSpec(on_pause_exit="keep" if kept else "stop")
    up, pod = Revived(daemon), pod_with_gates(daemon, gates, "member", {}, {}, pod=how)
    observedpods.run(up, pod)
    gates.close("delete.before")
    with ThreadPoolExecutor(1) as pool, daemon.client() as client:
        removing = pool.submit(client.remove_pod, pod.id, force=True)
        kill_daemon(daemon, gates, "delete.before")
        assert isinstance(removing.exception(LIMIT_SECONDS), ExitdError)
    up.revive()
    observedpods.removed(up, pod)
    judged(daemon, pod, "in the middle of rm")


@pytest.mark.parametrize("pid", ["own", "pod"])
@pytest.mark.parametrize("order", ["pause first", "daemon first"])
def test_members_of_a_pause_process_that_died_with_the_daemon_are_ended_by_the_next_one_at_once(
    order: str, pid: str
) -> None:
    """Not first by its slow loop, which compares every 30 s here."""
    with daemons.daemon() as daemon:
        up, pod = Revived(daemon), observedpods.observed(daemon, {"pid": pid, "restart": "always"}, {"pid": pid})
        observedpods.run(up, pod)
        pause = observedpods.pause_of(daemon, pod)
        for victim in (pause, daemon.pid) if order == "pause first" else (daemon.pid, pause):
            os.kill(victim, signal.SIGKILL)
        up.revive()
        began = time.monotonic()
        for member in pod.members:
            oracle.over(up, member)
            assert told(daemon, member) == [("signaled 9", "pause-exit")]
        assert observedpods.state(up, pod) == NOT_READY
        assert time.monotonic() - began < 20.0
        observedpods.removed(up, pod)
        judged(daemon, pod, order)


def told(daemon: Daemon, subject: Subject) -> list[tuple[str, str]]:
    with daemon.client() as client:
        return [(word(row), row.reason) for row in ledger(client, subject.id)]


@pytest.mark.parametrize("case", cases("pod, pause dead"), ids=str)
def test_exitd_killed_while_members_end_with_their_pause_process_ends_them_all(
    daemon: Daemon, gates: Gates, case: Case
) -> None:
    up, pod = Revived(daemon), pod_with_gates(daemon, gates, whose(case), {}, {"restart": "always"})
    observedpods.run(up, pod)
    pause = observedpods.pause_of(daemon, pod)
    with_a_killed_daemon(daemon, gates, command(case), lambda: killed(pause))
    up.revive()
    for member in pod.members:
        oracle.over(up, member)
        assert told(daemon, member) == [("signaled 9", "pause-exit")]
    assert observedpods.state(up, pod) == NOT_READY
    observedpods.removed(up, pod)
    judged(daemon, pod, str(case))


@pytest.mark.parametrize("case", cases("pod, coming back"), ids=str)
def test_exitd_killed_while_a_pod_comes_back_brings_it_back_with_the_members_that_are_to(
    daemon: Daemon, gates: Gates, case: Case
) -> None:
    up = Revived(daemon)
    pod = pod_with_gates(daemon, gates, whose(case), {"restart": "always"}, {}, restart="always")
    observedpods.run(up, pod)
    pause = observedpods.pause_of(daemon, pod)
    with_a_killed_daemon(daemon, gates, command(case), lambda: killed(pause))
    up.revive()
    comes, stays = pod.members
    until(lambda: has_joined_again(up, pod, comes), "the member does not come back")
    until(lambda: len(comes.truth()) > 1, "the member's next run does not begin")
    assert observedpods.state(up, pod) == READY
    assert told(daemon, stays) == [("signaled 9", "pause-exit")]
    comes.go()
    until(lambda: ("exited 44", "self") in told(daemon, comes), "its own end in the new sandbox is not told")
    observedpods.stopped(up, pod)
    observedpods.removed(up, pod)
    judged(daemon, pod, str(case))


def has_joined_again(up: Revived, pod: Pod, member: Subject, run: int = 1) -> bool:
    """A later sandbox than that of `run`."""

    def ask(client: Client) -> bool:
        seen, pause = client.inspect(member.id), client.inspect(pod.id)
        return seen.phase == pb.PHASE_RUNNING and seen.sandbox_run == pause.run > run

    return up.patiently(ask)


def a_life_with_a_death(up: Revived, pod: Pod) -> None:
    """Its pause process is killed on the way, and it comes back."""
    observedpods.run(up, pod)
    pause = up.patiently(lambda client: client.inspect(pod.id))
    killed(pause.init.pid)
    until(lambda: has_joined_again(up, pod, pod.members[0], pause.run), "no new sandbox")
    observedpods.stopped(up, pod)
    observedpods.removed(up, pod)


def test_exitd_killed_at_any_system_call_of_a_pods_life_loses_invents_and_doubles_nothing(daemon: Daemon) -> None:
    def life() -> Pod:
        pod = observedpods.observed(daemon, {"restart": "always"}, {"pid": "pod"}, restart="always")
        a_life_with_a_death(Revived(daemon), pod)
        return pod

    killed_at_each(daemon, row("pod, at calls").count, life, partial(judged, daemon))
