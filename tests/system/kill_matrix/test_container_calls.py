"""exitd is killed, or stopped, at its system calls while a container is created, started, ends, is started again by its
policy and is removed; and everybody is killed at random while many containers live. Their codes are compared with what
they wrote down themselves."""

import contextlib
import glob
import os
import random
import signal
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest

from shim import native
from supervisor.monitor.rundir import lock_holder
from tests.system import oracle
from tests.system.daemons import Daemon
from tests.system.kill_matrix.calls import SEED, calls_of, chosen, hit_at, killed_at_each
from tests.system.kill_matrix.table import row
from tests.system.oracle import Revived, Subject
from tests.system.processes import killed
from tests.system.waits import LIMIT_SECONDS, scaled, until

pytestmark = pytest.mark.observed()
SHIMS = 10  # so many are killed at least: some of them while their container lives


def life(daemon: Daemon) -> Subject:
    """Two runs, the second one by the policy; removed in the end."""
    subject = oracle.observed(daemon, oracle.fresh_name(), restart="on-failure:1")
    oracle.whole_life(Revived(daemon), subject)
    return subject


def judge(daemon: Daemon, subject: Subject, case: str) -> Counter[str]:
    with daemon.client() as client:
        said = oracle.judge(client, subject, case)
    oracle.nothing_left(daemon)
    return said


def test_exitd_killed_at_any_system_call_of_a_containers_life_loses_invents_and_doubles_nothing(
    daemon: Daemon,
) -> None:
    said = killed_at_each(daemon, row("container, at calls").count, lambda: life(daemon), partial(judge, daemon))
    assert set(said) <= {"exited by record", "exited by keeper", "signaled by keeper"}, said


def test_exitd_stopped_at_any_system_call_of_a_containers_life_goes_on_where_it_was(daemon: Daemon) -> None:
    """Whoever asks waits meanwhile; the container and its shim do not."""
    said, stops = Counter[str](), 0
    for call in chosen(calls_of(daemon, lambda: life(daemon)), row("container, stopped at calls").count):
        with hit_at(daemon, call, "STOP"), ThreadPoolExecutor(1) as pool:
            lived = pool.submit(life, daemon)
            stops += carry_on(daemon, lived, str(call))
        said += judge(daemon, lived.result(LIMIT_SECONDS), str(call))
    assert stops and set(said) == {"exited by record"}, said


def carry_on(daemon: Daemon, life: "Future[Subject]", case: str) -> int:
    """SIGCONT whenever it stands still (each thread has an n-th call of its own), until the life is over. How often.

    At each call a traced thread stands still for a moment: only what is seen again and again is a stop.
    """
    seen = Counter[str]()

    def look() -> bool:
        seen["still"] = seen["still"] + 1 if native.process_stat(daemon.pid)[0] in "Tt" else 0
        if seen["still"] % 20 == 19:
            os.kill(daemon.pid, signal.SIGCONT)
            seen["stops"] += 1
        return life.done()

    try:
        until(look, f"not over: {case}")
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    return seen["stops"]


def test_random_kills_among_many_restarting_containers_lose_invent_and_double_nothing(daemon: Daemon) -> None:
    pick, up = random.Random(SEED), Revived(daemon)
    subjects = [
        oracle.observed(daemon, oracle.fresh_name(), f"sleep 0.{pick.randrange(10)}", restart="always")
        for _ in range(scaled(200, least=10))
    ]
    oracle.begin_all(up, subjects)
    kills, shims = 0, 0
    while kills < scaled(600, least=30) or shims < SHIMS:
        kills += 1
        seq = up.patiently(lambda client: client.info().seq)
        victim = pick.choice([*row("many containers").victims, "shim", "shim"])
        for pid in [pick.choice(pids) for pids in [victims(daemon, victim)] if pids]:
            with contextlib.suppress(ProcessLookupError):
                killed(pid)
                shims += victim == "shim"
        up.revive()
        until(lambda: up.patiently(lambda client: client.info().seq) > seq, f"nothing happens after {victim}")  # noqa: B023
    said = oracle.stop_and_judge(up, subjects)
    assert said["exited by record"], said
    assert said["exited by keeper"] + said["exited by pidfd"], said  # of those whose shim was killed first
    oracle.nothing_left(daemon)


def victims(daemon: Daemon, kind: str) -> list[int]:
    if kind == "shim":
        found = []
        for path in glob.glob(f"{daemon.state}/c/*/*"):  # pathlib's own breaks off when a directory goes meanwhile
            with contextlib.suppress(FileNotFoundError):
                found.append(lock_holder(path))
        return [holder.pid for holder in found if holder is not None]
    return [pid for pid in [daemon.pid if kind == "exitd" else daemon.keeper_pid()] if pid]
