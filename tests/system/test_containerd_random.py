"""Tasks live at random under a real containerd while exitd, containerd, relays, shims and the keeper are killed and
stopped. An oracle that knows every end beforehand finds nothing lost, made up or doubled, and nothing is left.

EXITD_SEED=N is the seed of the first run: the one that a failure names."""

import contextlib
import os
import shutil
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.system import oracle
from tests.system.containerdchance import chance
from tests.system.containerdhistory import History, violations
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


def forgive(rig: Containerd, history: History) -> None:
    """What a containerd that is killed in the middle of a call leaves by itself: a bundle that it was removing, which
    the next one takes no notice of; and a relay that it has begun and not spoken to, which goes after a while."""
    lost = [call for call in history.calls if history.is_lost(call)]
    for task in {call.who.task for call in lost if call.verb in ("create", "delete")}:
        for place in ("r", "s"):
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(rig.base / place / "io.containerd.runtime.v2.task" / rig.namespace / f".{task}")
    if any(call.verb == "create" for call in lost):
        until(lambda: not rig.left().processes, "a relay stays", RELAY_SECONDS)


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
        forgive(rig, history)
        rig.left_is()
        oracle.nothing_left(rig.with_exitd())
    slowest = max(call.over - call.begun for call in history.calls if call.verb != "wait")
    print(seed, len(history.calls), len(history.told), f"{slowest:.1f} s", Counter(one.what for one in history.struck))
