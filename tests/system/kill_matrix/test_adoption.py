"""exitd dies while it adopts shims that were started by hand: each end is reported once, and nothing is left."""

import contextlib
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.system import oracle
from tests.system.byhand import adopted, begun, no_cgroup
from tests.system.daemons import Daemon
from tests.system.kill_matrix.calls import calls_of, chosen, hit_at
from tests.system.kill_matrix.table import row
from tests.system.oracle import AT_ONCE, Revived, Subject, end_and_judge
from tests.system.waits import until

pytestmark = pytest.mark.observed()


def whole_life(up: Revived, subject: Subject) -> None:
    """From its adoption to its removal, whoever is killed meanwhile."""

    def is_listed() -> bool:
        return up.patiently(lambda client: subject.id in {c.id for c in client.list(all_of_them=True)})

    until(is_listed, f"{subject.name} is not adopted")
    oracle.over(up, subject)
    oracle.removed(up, subject)


def test_exitd_killed_again_and_again_while_they_come_and_go_loses_and_doubles_nothing(daemon: Daemon) -> None:
    chance = random.Random(20)
    with ThreadPoolExecutor(3) as pool:
        coming = [pool.submit(begun, daemon, AT_ONCE if n % 2 else oracle.WHEN_TOLD, 50 + n) for n in range(20)]
        while not all(each.done() for each in coming):
            Revived(daemon).revive()
            with contextlib.suppress(AssertionError):
                until(lambda: all(each.done() for each in coming), "more", seconds=chance.uniform(0.0, 0.6))
            daemon.kill()
    Revived(daemon).revive()
    subjects = [each.result() for each in coming]
    for subject in subjects:
        adopted(daemon, subject)
    for subject in subjects[::2]:
        subject.go()
    assert set(end_and_judge(daemon, *subjects)) == {"exited by record"}
    no_cgroup(daemon, *subjects)


def test_exitd_killed_at_any_system_call_of_an_adoption_loses_invents_and_doubles_nothing(daemon: Daemon) -> None:
    deaths, found = 0, calls_of(daemon, lambda: whole_life(Revived(daemon), begun(daemon, AT_ONCE)))
    for call, number in chosen(found, row("adoption, at calls").count):
        before, up = daemon.pid, Revived(daemon)
        with hit_at(daemon, (call, number)):
            subject = begun(daemon, AT_ONCE)
            whole_life(up, subject)
        deaths += daemon.pid != before
        with daemon.client() as client:
            said = oracle.judge(client, subject, f"{call} {number}")
        assert set(said) == {"exited by record"}, f"{call} {number}: {said}"
        oracle.nothing_left(daemon)
    assert deaths
