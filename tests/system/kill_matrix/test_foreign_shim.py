"""exitd is killed at its system calls over a container under containerd's own shim for runc, and everybody at random
moments: nothing is lost, invented, doubled or left, and an end is unknown only where the shim was killed."""

import contextlib
import random
from collections import Counter

import pytest

from tests.system import oracle
from tests.system.daemons import Daemon
from tests.system.foreign_shims import nothing_left, observed, shims
from tests.system.kill_matrix.calls import SEED, killed_at_each
from tests.system.kill_matrix.table import row
from tests.system.oracle import Revived, Subject
from tests.system.processes import killed
from tests.system.waits import scaled

pytestmark = pytest.mark.observed()

TRUE = {"exited by shimv2-wait", "signaled by shimv2-wait", "unknown by shimv2-wait", "never-started by shimv2-wait"}
SHIM_LOST = {
    *("exited by pidfd", "signaled by pidfd", "unknown by shimv2-delete", "unknown by none"),
    *("exited by shimv2-event", "signaled by shimv2-event"),  # it was killed after its event and before its answer
    *(f"never-started by {source}" for source in ("pidfd", "zombie", "shimv2-delete", "none")),
}


def test_exitd_killed_at_any_system_call_loses_invents_and_doubles_nothing(daemon: Daemon) -> None:
    def life() -> Subject:
        subject = observed(daemon)
        oracle.whole_life(Revived(daemon), subject)
        return subject

    def judge(subject: Subject, case: str) -> Counter[str]:
        with daemon.client() as client:
            said = oracle.judge(client, subject, case)
        nothing_left(daemon)
        return said

    said = killed_at_each(daemon, row("foreign shim, at calls").count, life, judge)
    assert set(said) <= TRUE, said


def test_random_kills_of_exitd_and_of_shims_lose_invent_and_double_nothing(daemon: Daemon) -> None:
    pick, up = random.Random(SEED), Revived(daemon)
    subjects = [observed(daemon, f"sleep 0.{pick.randrange(10)}", restart="always") for _ in range(4)]
    oracle.begin_all(up, subjects)
    for _ in range(scaled(400, least=8)):
        if pick.random() < 0.4:
            killed(daemon.pid)
        elif living := shims(daemon):
            with contextlib.suppress(ProcessLookupError):
                killed(pick.choice(living))
        up.revive()
    said = oracle.stop_and_judge(up, subjects)
    assert set(said) <= TRUE | SHIM_LOST, said
    nothing_left(daemon)
