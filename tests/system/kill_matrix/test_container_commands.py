"""Everybody around a container is killed, or stopped, at the very moment a runtime command of its life begins or has
done its work. The container ends with its own code each time, and what exitd says afterwards is compared with that."""

import contextlib
import glob
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from supervisor.monitor.rundir import created as init_of
from supervisor.monitor.rundir import lock_holder
from tests.system import oracle
from tests.system.daemons import Daemon
from tests.system.kill_matrix.table import Case, cases
from tests.system.oracle import Revived, Subject
from tests.system.processes import killed, state_of, stopped
from tests.system.runtimes import Gates
from tests.system.waits import LIMIT_SECONDS, until

# Of what is stopped: how long the others wait for it.
LIMITS = {
    "supervisor.model.evidence.ZOMBIE_PATIENCE_SECONDS": 0.5,
    "supervisor.monitor.keeper.ANSWER_SECONDS": 1.0,
    "supervisor.monitor.keeper.REST_SECONDS": 1.0,
    "supervisor.monitor.shims.LEAVES_SECONDS": 0.5,
    "supervisor.runtime.oci.runplan.SHIM_SECONDS": 1.0,
}
# A start that gets no processor for so long is given up: the life is none of the wanted kind then.
pytestmark = [pytest.mark.observed("--runtime-seconds", "3"), pytest.mark.limits(LIMITS)]


def victim_pid(daemon: Daemon, command: int, victim: str) -> int:
    """0: there is none at this moment."""
    if victim in ("exitd", "keeper", "runtime"):
        return {"exitd": daemon.pid, "keeper": daemon.keeper_pid(), "runtime": command}[victim]
    run_directory = max(glob.glob(f"{daemon.state}/c/*/*"))
    found = lock_holder(run_directory) if victim == "shim" else init_of(run_directory)
    return found.pid if found is not None else 0


def checked(daemon: Daemon, subject: Subject, case: Case) -> None:
    """One victim at a time: somebody always knows."""
    with daemon.client() as client:
        said = oracle.judge(client, subject, str(case))
    assert said and not any(words.startswith("unknown") for words in said), f"{case}: {said}"
    oracle.nothing_left(daemon)


@pytest.mark.parametrize("case", cases("container"), ids=str)
def test_whoever_is_killed_in_a_runtime_command_no_exit_is_lost_invented_or_reported_twice(
    daemon: Daemon, gates: Gates, case: Case
) -> None:
    checked(daemon, life_with_kills(daemon, gates, case), case)


@pytest.mark.parametrize("case", cases("container, two die"), ids=str)
def test_of_two_killed_in_a_runtime_command_the_third_still_reports_the_truth(
    daemon: Daemon, gates: Gates, case: Case
) -> None:
    subject = life_with_kills(daemon, gates, case)
    with daemon.client() as client:
        said = oracle.judge(client, subject, str(case))
    assert said and (case.victim == "keeper+shim" or not any(words.startswith("unknown") for words in said)), said
    oracle.nothing_left(daemon)


def life_with_kills(daemon: Daemon, gates: Gates, case: Case) -> Subject:
    gates.close(case.moment)
    subject = oracle.observed(daemon, oracle.fresh_name(), runtime=str(gates.runtime))
    with ThreadPoolExecutor(1) as pool:
        life = pool.submit(oracle.whole_life, Revived(daemon), subject)
        kill(daemon, gates, case)
        life.result(LIMIT_SECONDS * 2)
    return subject


def kill(daemon: Daemon, gates: Gates, case: Case) -> None:
    """All of them, as nearly at once as it goes, while the runtime command waits."""
    command = gates.reached(case.moment)
    for pid in [victim_pid(daemon, command, victim) for victim in case.victims]:
        if pid:
            with contextlib.suppress(ProcessLookupError):
                killed(pid)
    gates.open()


@pytest.mark.parametrize("case", cases("container, restarted by its policy"), ids=str)
def test_whoever_is_killed_while_the_policy_restarts_a_container_every_run_keeps_its_own_code(
    daemon: Daemon, gates: Gates, case: Case
) -> None:
    """The last command of the first run, or one of the second run's."""
    up = Revived(daemon)
    first_waits = "[ $code -gt 43 ] || read line </mnt/go"
    name = oracle.fresh_name()
    subject = oracle.observed(daemon, name, first_waits, runtime=str(gates.runtime), restart="on-failure:1")
    oracle.created(up, subject)
    oracle.started(up, subject)
    gates.close(case.moment)
    subject.go()
    kill(daemon, gates, case)
    oracle.over(up, subject)
    oracle.removed(up, subject)
    checked(daemon, subject, case)


@pytest.mark.parametrize("case", cases("container, one stands still"), ids=str)
def test_whoever_is_stopped_in_a_runtime_command_the_others_go_on_within_their_limits(
    daemon: Daemon, gates: Gates, case: Case
) -> None:
    up = Revived(daemon)
    gates.close(case.moment)
    subject = oracle.observed(daemon, oracle.fresh_name(), runtime=str(gates.runtime))
    with ThreadPoolExecutor(1) as pool:
        life = pool.submit(deaf_life if case.victim == "init" else oracle.whole_life, up, subject)
        command = gates.reached(case.moment)
        with stopped(victim_pid(daemon, command, case.victim)) as pidfd:
            gates.open()
            if case.victim == "exitd":
                until(lambda: state_of(command) in ("", "Z"), f"{case.moment} does not end")
                signal.pidfd_send_signal(pidfd, signal.SIGCONT)
            life.result(LIMIT_SECONDS * 2)
    checked(daemon, subject, case)


def deaf_life(up: Revived, subject: Subject) -> None:
    """Of a container whose init may be stopped: it does not end by itself."""
    oracle.created(up, subject)
    oracle.started(up, subject)
    oracle.removed(up, subject)
