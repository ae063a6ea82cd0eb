"""The processes of a pod are killed, or stopped, at exact moments: the pause process at every step that makes a pod or
a member of it, the monitors at random. Every end is reported once and as it was, and nothing stays behind."""

import contextlib
import glob
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.errors import ExitdError, RuntimeFailed, WrongState
from supervisor.model.values import NEVER_STARTED
from supervisor.monitor.rundir import lock_holder
from tests.system import observedpods, oracle
from tests.system.daemons import Daemon
from tests.system.kill_matrix.table import row
from tests.system.lives import first_exit, last_exit, ledger, types, word
from tests.system.observedpods import NOT_READY, Pod
from tests.system.oracle import Revived, Subject
from tests.system.processes import gone, killed, stopped
from tests.system.runtimes import Gates
from tests.system.waits import LIMIT_SECONDS, scaled, until

# A stopped shim is waited for that long.
LIMITS = {"supervisor.model.evidence.ZOMBIE_PATIENCE_SECONDS": 0.5}
pytestmark = [pytest.mark.observed(), pytest.mark.limits(LIMITS)]

SEED = 20_264
PIDS = ("own", "pod")


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    with daemon.client() as made:
        yield made


def settled(daemon: Daemon, *pods: Pod) -> Counter[str]:
    """All of them removed, judged, and nothing of them left."""
    up, said = Revived(daemon), Counter[str]()
    for pod in pods:
        with daemon.client() as client:
            said += observedpods.judge(client, pod)
        observedpods.removed(up, pod)
    oracle.nothing_left(daemon)
    return said


def with_member(daemon: Daemon, client: Client, has: dict[str, object]) -> tuple[Pod, Subject]:
    """A ready pod and its member, which is not made yet."""
    pod = observedpods.observed(daemon, has)
    pod.id = client.run_pod(pod.spec).id
    return pod, pod.members[0]


def kill_pause(client: Client, pod: Pod) -> None:
    """By nobody that exitd knows; its end is stored when this returns."""
    killed(client.inspect(pod.id).init.pid)
    assert (word(first_exit(client, pod.id)), first_exit(client, pod.id).reason) == ("signaled 9", "unknown")


@pytest.mark.parametrize("restart", ["no", "always"])
@pytest.mark.parametrize("moment", row("pod, while it is run").moments)
def test_a_pause_process_killed_while_its_pod_is_run_makes_that_an_error_and_leaves_nothing(
    daemon: Daemon, client: Client, gates: Gates, moment: str, restart: str
) -> None:
    gates.close(moment)
    pod = observedpods.observed(daemon, runtime=str(gates.runtime), restart=restart)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(client.run_pod, pod.spec)
        gates.reached(moment)
        run_directory = observedpods.newest_run(daemon)
        pod.id = run_directory.parent.name
        init = observedpods.init_in(run_directory)
        if moment == "start.after":
            observedpods.executed(init)
        killed(init)
        if moment != "create.after":  # its shim sees it, and reports, while the start has not returned yet
            until(lambda: gone(init), "the shim does not reap it")
        gates.open()
        with pytest.raises(RuntimeFailed, match=f"{pod.name} ended before"):
            running.result(LIMIT_SECONDS)
    assert client.pods() == () and oracle.by_name(client, pod.name) is None
    said = "signaled" if moment == "start.after" else NEVER_STARTED
    # By its zombie where the shim had no processor within its patience.
    assert observedpods.judge_pause(client, pod.id) in ({f"{said} by record": 1}, {f"{said} by zombie": 1})
    oracle.nothing_left(daemon)
    observedpods.ready(Revived(daemon), pod)  # the name is free
    settled(daemon, pod)


@pytest.mark.parametrize("pid", PIDS)
def test_a_member_of_a_pod_whose_pause_process_has_just_died_is_refused(
    daemon: Daemon, client: Client, pid: str
) -> None:
    """Whether exitd has heard of the death yet or not."""
    for _ in range(scaled(100, least=5)):
        pod = observedpods.observed(daemon, {"pid": pid})
        pod.id = client.run_pod(pod.spec).id
        killed(client.inspect(pod.id).init.pid)
        with pytest.raises(WrongState, match="pod"):
            client.create(pod.members[0].spec)
        assert [c.id for c in client.list(all_of_them=True)] == [pod.id]
        client.remove_pod(pod.id, force=True)
        assert observedpods.judge(client, pod).total() == 1
    oracle.nothing_left(daemon)


@pytest.mark.parametrize("pid", PIDS)
@pytest.mark.parametrize("moment", row("pod, a member is created").moments)
def test_a_pause_process_killed_while_a_member_is_created_ends_or_refuses_that_member(
    daemon: Daemon, client: Client, gates: Gates, moment: str, pid: str
) -> None:
    pod, member = with_member(daemon, client, {"pid": pid, "runtime": str(gates.runtime)})
    gates.close(moment)
    with ThreadPoolExecutor(1) as pool:
        creating = pool.submit(client.create, member.spec)
        gates.reached(moment)
        member.id = observedpods.newest_run(daemon).parent.name
        if (moment, pid) == ("create.after", "pod"):  # it cannot end before the member's init has been reaped
            os.kill(client.inspect(pod.id).init.pid, signal.SIGKILL)
        else:
            kill_pause(client, pod)
        gates.open()
        refused = creating.exception(LIMIT_SECONDS)
    if refused is None:
        until(lambda: client.inspect(member.id).phase == pb.PHASE_EXITED, "the member stays")
        assert observedpods.reasons(client, member) == ["pause-exit"]
    else:
        assert isinstance(refused, WrongState) and pod.id[:12] in str(refused), refused
        assert ledger(client, member.id) == []
    assert word(first_exit(client, pod.id)) == "signaled 9"
    assert client.inspect_pod(pod.id).state == NOT_READY
    settled(daemon, pod)


@pytest.mark.parametrize("pid", PIDS)
@pytest.mark.parametrize("moment", row("pod, a member is started").moments)
def test_a_pause_process_killed_while_a_member_is_started_ends_that_member_and_it_says_why(
    daemon: Daemon, client: Client, gates: Gates, moment: str, pid: str
) -> None:
    pod, member = with_member(daemon, client, {"pid": pid, "runtime": str(gates.runtime)})
    member.id = client.create(member.spec).id
    gates.close(moment)
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(client.start, member.id)
        gates.reached(moment)
        init = client.inspect(member.id).init.pid
        if moment == "start.after":
            observedpods.executed(init)
        killed(client.inspect(pod.id).init.pid)
        until(lambda: gone(init), "the member lives on without its pause process")
        gates.open()
        assert isinstance(starting.exception(LIMIT_SECONDS), ExitdError | None)
    told = last_exit(client, member.id)
    end = "signaled 9" if moment == "start.after" else f"unknown {NEVER_STARTED}"
    assert (word(told), told.reason, told.by.policy) == (end, "pause-exit", "pause-exit")
    settled(daemon, pod)


@pytest.mark.parametrize("pid", PIDS)
def test_a_member_that_was_not_started_yet_ends_with_its_pause_process_and_cannot_be_started(
    daemon: Daemon, client: Client, pid: str
) -> None:
    pod, member = with_member(daemon, client, {"pid": pid})
    member.id = client.create(member.spec).id
    kill_pause(client, pod)
    told = last_exit(client, member.id)
    assert (word(told), told.reason) == (f"unknown {NEVER_STARTED}", "pause-exit")
    with pytest.raises(WrongState, match="NotReady"):
        client.start(member.id)
    assert types(client, member.id).count("start") == 0
    assert [word(row) for row in ledger(client, member.id)] == [f"unknown {NEVER_STARTED}"]
    settled(daemon, pod)


def one_life(up: Revived, pod: Pod, end: str) -> None:
    """To the end of all its containers; they stay."""
    observedpods.run(up, pod)
    if end == "go":
        for member in pod.members:
            member.go()
            oracle.over(up, member)
    elif end == "kill":
        up.call(lambda client: client.kill(pod.id, "KILL"))
        for member in pod.members:
            oracle.over(up, member)
    observedpods.stopped(up, pod)


def monitors(daemon: Daemon, victim: str) -> list[int]:
    if victim == "keeper":
        return [pid for pid in [daemon.keeper_pid()] if pid]
    found = [lock_holder(path) for path in glob.glob(f"{daemon.state}/c/*/*")]
    return [holder.pid for holder in found if holder is not None]


@pytest.mark.parametrize("victim", row("pod, its monitors").victims)
def test_a_monitor_killed_at_any_moment_of_a_pods_life_costs_no_code(
    daemon: Daemon, client: Client, victim: str
) -> None:
    """A shim, of the pause container or of a member, or the keeper, between two events of the pod."""
    pick, up, said = random.Random(SEED), Revived(daemon), Counter[str]()
    for number in range(scaled(200, least=6)):
        pod = observedpods.observed(daemon, {"pid": "own"}, {"pid": "pod"})
        when, end = pick.randrange(1, 9), pick.choice(["go", "kill", "stop"])
        case = f"seed {SEED}, number {number}: a {victim} killed after {when} events, end by {end}"
        goal = client.info().seq + when
        with ThreadPoolExecutor(1) as pool:
            life = pool.submit(one_life, up, pod, end)
            until(lambda: client.info().seq >= goal or life.done(), case)  # noqa: B023
            for pid in [pick.choice(pids) for pids in [monitors(daemon, victim)] if pids]:
                with contextlib.suppress(ProcessLookupError):
                    killed(pid)
            life.result(LIMIT_SECONDS * 2)
        said += observedpods.judge(client, pod, case)
        observedpods.removed(up, pod)
        oracle.nothing_left(daemon)
    print(dict(said))
    assert not any(words.startswith("unknown") for words in said), said


@pytest.mark.parametrize("pid", PIDS)
@pytest.mark.parametrize("way", ["kill", "stop", "remove"])
def test_a_stopped_shim_of_a_member_does_not_make_its_pod_unkillable(
    daemon: Daemon, client: Client, way: str, pid: str
) -> None:
    """In the pod's pid namespace the pause process cannot end before somebody has reaped the member."""
    pod = observedpods.observed(daemon, {"pid": pid}, {"pid": pid})
    observedpods.run(Revived(daemon), pod)
    with stopped(client.inspect(pod.members[0].id).shim.pid):
        began = time.monotonic()
        if way == "kill":
            client.kill(pod.id, "KILL")
            first_exit(client, pod.id)
        elif way == "stop":
            client.stop_pod(pod.id, 0)
        else:
            client.remove_pod(pod.id, force=True)
        for member in pod.members:
            assert word(last_exit(client, member.id)) == "signaled 9"
        assert time.monotonic() - began < LIMIT_SECONDS
    assert observedpods.judge(client, pod).total() == 3
    settled(daemon, pod)
