"""A small attack: lives of every kind under every misfortune: daemon, keeper, shims and runtime commands are killed and
stopped, forks and descriptors fail, disks are full, flushes slow. `make rig` has a larger one, with containerd's tasks.
The judge of `make attack` finds nothing invented, lost, doubled, called failed, left behind or stuck.

EXITD_SEED=N attacks with another plan."""

import os

import pytest

from tests.attack import lives, report
from tests.attack.run import Plan, attack
from tests.system.waits import SCALE

SEED = int(os.environ.get("EXITD_SEED", "1107"))
EXITS, EXITS_IN_FULL = 80, 2000
EVERY = (*lives.KINDS, lives.TASK)
# Under one of these a daemon that cannot have what it begins with ends, and is started again.
STARTS_ANEW = {"forks", "descriptors", "full"}


@pytest.mark.timeout(1200)  # each of its many steps has two minutes
def test_a_small_attack_is_survived_with_every_exit_reported_as_it_was() -> None:
    plan = Plan(SEED, EXITS) if SCALE < 1 else Plan(SEED, int(EXITS_IN_FULL * SCALE), EVERY, crowd=60, at_once=6)
    result = attack(plan)
    about = "\n".join(report.lines(result))
    print(about)
    assert result.verdict.good and result.deaths and not result.interrupted, about
    if not STARTS_ANEW & result.misfortunes.keys():
        assert not result.fallen, about


def test_the_plan_of_this_attack_has_lives_of_every_kind() -> None:
    assert {life.kind for life in lives.planned(1107, EXITS)} == set(lives.KINDS)
