"""Everybody around a container is killed, or stopped, at the very moment a runtime command of its life begins or has
done its work. The container ends with its own code each time, and what exitd says afterwards is compared with that."""

import contextlib
import itertools
import random
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from supervisor.monitor.rundir import created as init_of
from supervisor.monitor.rundir import lock_holder
from tests.system import oracle
from tests.system.daemonrig import LIMIT_SECONDS, SCALE, Daemon, until
from tests.system.gates import Gates, killed, state_of, stopped
from tests.system.oracle import Revived, Subject

pytestmark = pytest.mark.observed("--runtime-seconds", "0.5")

MOMENTS = [f"{verb}.{side}" for verb in ("create", "start", "delete") for side in ("before", "after")]
VICTIMS = ["daemon", "keeper", "shim", "runtime", "init"]
CASES = [(victim, moment) for victim in VICTIMS for moment in MOMENTS]
# At less than full scale these in a life with one run, and some of the others where the policy restarts.
HALF = [(who, moment) for who, moment in CASES if (VICTIMS.index(who) % 2 == 0) == moment.endswith("after")]
OTHERS = [case for case in CASES if case not in HALF]
PAIRS = [(pair, moment) for pair in itertools.combinations(VICTIMS, 2) for moment in MOMENTS]
# A stopped monitor costs its limit each time: at less than full scale, one case of each kind.

STOPS = [
    *(("daemon", moment) for moment in MOMENTS),
    *(("keeper", "create.before"), ("keeper", "delete.before")),
    *(("shim", "create.after"), ("shim", "start.after"), ("shim", "delete.after")),
    *(("runtime", "create.after"), ("runtime", "start.after"), ("runtime", "delete.before")),
    *(("init", "start.before"), ("init", "start.after")),
]
SEED = 20_262


def victim_pid(daemon: Daemon, command: int, victim: str) -> int:
    """0: there is none at this moment."""
    if victim in ("daemon", "keeper", "runtime"):
        return {"daemon": daemon.pid, "keeper": daemon.keeper_pid(), "runtime": command}[victim]
    run_directory = str(max((daemon.state / "c").glob("*/*")))
    found = lock_holder(run_directory) if victim == "shim" else init_of(run_directory)
    return found.pid if found is not None else 0


def checked(daemon: Daemon, subject: Subject, case: str) -> None:
    """One victim at a time: somebody always knows."""
    with daemon.client() as client:
        said = oracle.judge(client, subject, case)
    assert said and not any(words.startswith("unknown") for words in said), f"{case}: {said}"
    oracle.nothing_left(daemon)


@pytest.mark.parametrize(("victim", "moment"), CASES if SCALE >= 1 else HALF)
def test_whoever_is_killed_in_a_runtime_command_no_exit_is_lost_invented_or_told_twice(
    daemon: Daemon, gates: Gates, victim: str, moment: str
) -> None:
    subject = life_with_kills(daemon, gates, moment, victim)
    checked(daemon, subject, f"{victim} at {moment}")


@pytest.mark.parametrize(("pair", "moment"), PAIRS if SCALE >= 1 else random.Random(SEED).sample(PAIRS, 7))
def test_of_two_killed_in_a_runtime_command_the_third_still_tells_the_truth(
    daemon: Daemon, gates: Gates, pair: tuple[str, str], moment: str
) -> None:
    subject = life_with_kills(daemon, gates, moment, *pair)
    with daemon.client() as client:
        said = oracle.judge(client, subject, f"{pair} at {moment}")
    assert said and (pair == ("keeper", "shim") or not any(words.startswith("unknown") for words in said)), said
    oracle.nothing_left(daemon)


def life_with_kills(daemon: Daemon, gates: Gates, moment: str, *victims: str) -> Subject:
    gates.close(moment)
    subject = oracle.observed(daemon, oracle.fresh_name(), runtime=str(gates.runtime))
    with ThreadPoolExecutor(1) as pool:
        life = pool.submit(oracle.whole_life, Revived(daemon), subject)
        kill(daemon, gates, moment, *victims)
        life.result(LIMIT_SECONDS * 2)
    return subject


def kill(daemon: Daemon, gates: Gates, moment: str, *victims: str) -> None:
    """All of them, as nearly at once as it goes, while the runtime command waits."""
    command = gates.reached(moment)
    for pid in [victim_pid(daemon, command, victim) for victim in victims]:
        if pid:
            with contextlib.suppress(ProcessLookupError):
                killed(pid)
    gates.open()


@pytest.mark.parametrize(("victim", "moment"), CASES if SCALE >= 1 else random.Random(SEED).sample(OTHERS, 9))
def test_whoever_is_killed_while_the_policy_restarts_a_container_every_run_keeps_its_own_code(
    daemon: Daemon, gates: Gates, victim: str, moment: str
) -> None:
    """The last command of the first run, or one of the second run's."""
    up = Revived(daemon)
    first_waits = "[ $code -gt 43 ] || read line </mnt/go"
    name = oracle.fresh_name()
    subject = oracle.observed(daemon, name, first_waits, runtime=str(gates.runtime), restart="on-failure:1")
    oracle.created(up, subject)
    oracle.started(up, subject)
    gates.close(moment)
    subject.go()
    kill(daemon, gates, moment, victim)
    oracle.over(up, subject)
    oracle.removed(up, subject)
    checked(daemon, subject, f"{victim} at {moment}")


@pytest.mark.parametrize(("victim", "moment"), CASES if SCALE >= 1 else STOPS)
def test_whoever_is_stopped_in_a_runtime_command_the_others_go_on_within_their_limits(
    daemon: Daemon, gates: Gates, victim: str, moment: str
) -> None:
    up = Revived(daemon)
    gates.close(moment)
    subject = oracle.observed(daemon, oracle.fresh_name(), runtime=str(gates.runtime))
    with ThreadPoolExecutor(1) as pool:
        life = pool.submit(deaf_life if victim == "init" else oracle.whole_life, up, subject)
        command = gates.reached(moment)
        with stopped(victim_pid(daemon, command, victim)) as pidfd:
            gates.open()
            if victim == "daemon":
                until(lambda: state_of(command) in ("", "Z"), f"{moment} does not end")
                signal.pidfd_send_signal(pidfd, signal.SIGCONT)
            life.result(LIMIT_SECONDS * 2)
    checked(daemon, subject, f"{victim} at {moment}")


def deaf_life(up: Revived, subject: Subject) -> None:
    """Of a container whose init may be stopped: it does not end by itself."""
    oracle.created(up, subject)
    oracle.started(up, subject)
    oracle.removed(up, subject)
