"""A small attack: lives of every kind while daemon, keeper, shims and runtime commands are killed and stopped and forks
fail. The judge of `make attack` finds nothing invented, lost, doubled, called failed, left behind or stuck.

EXITD_SEED=N attacks with another plan."""

import os

import pytest

from tests.attack import lives, report
from tests.attack.run import Plan, attack

SEED = int(os.environ.get("EXITD_SEED", "1107"))
EXITS = 80
# Without `descriptors` and `full`: README says what they may cost an exec.
MISFORTUNES = ("kill", "stop", "stop-and-kill", "forks")


@pytest.mark.timeout(1200)  # each of its many steps has two minutes
def test_a_small_attack_is_survived_with_every_exit_told_as_it_was() -> None:
    plan = Plan(SEED, EXITS, misfortunes=MISFORTUNES)
    result = attack(plan)
    about = "\n".join(report.lines(result))
    print(about)
    assert result.verdict.good and result.deaths and not result.interrupted, about
    if "forks" not in result.misfortunes:  # a daemon that cannot have its threads may end, and is started again
        assert not result.fallen, about


def test_the_plan_of_this_attack_has_lives_of_every_kind() -> None:
    assert {life.kind for life in lives.planned(1107, EXITS)} == set(lives.KINDS)
