"""Tasks live at random under a real containerd while exitd, containerd, relays, shims and the keeper are killed and
stopped. An oracle that knows every end beforehand finds nothing lost, made up or doubled, and nothing is left.

EXITD_SEED=N is the seed of the first run: the one that a failure names."""

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.system import oracle
from tests.system.containerdchance import chance
from tests.system.containerdhistory import violations
from tests.system.containerdrig import Containerd, containerd
from tests.system.daemonrig import scaled, until

SEED = int(os.environ.get("EXITD_SEED", "5206"))
RUNS = scaled(50, least=1)
ROUNDS, MISFORTUNES = 20, 6
RELAY_SECONDS = 45.0  # it goes after 30 when nobody comes to it


@pytest.fixture(scope="module")
def rig() -> Iterator[Containerd]:
    with containerd() as made:
        made.with_exitd()
        yield made


@pytest.mark.parametrize("seed", range(SEED, SEED + RUNS))
def test_random_misfortunes_lose_invent_and_double_nothing(rig: Containerd, seed: int) -> None:
    with chance(rig, seed) as made:
        made.live(ROUNDS, MISFORTUNES)
        made.settle()
        history = made.history()
        found = violations(history)
        assert not found, "\n".join(found)
        assert rig.wanted("task", "ls", "-q") == ""
        for life in made.lives:
            rig.wanted("container", "rm", life.program.id)
        if any(call.verb == "create" and call.error for call in history.calls):  # its containerd has died of it
            until(lambda: not rig.left().processes, "a relay stays", RELAY_SECONDS)
        rig.left_is()
        oracle.nothing_left(rig.with_exitd())
    slowest = max(call.over - call.begun for call in history.calls if call.verb != "wait")
    print(seed, len(history.calls), len(history.told), f"{slowest:.1f} s", Counter(one.what for one in history.struck))
