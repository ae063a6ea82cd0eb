"""Tasks live at random under a real containerd while exitd, containerd, relays, shims and the keeper are killed and
stopped. An oracle that knows every end beforehand finds nothing lost, made up or doubled, and nothing is left.

EXITD_SEED=N is the seed of the first run: the one that a failure names."""

import contextlib
import os
import shutil
from collections import Counter

import pytest

from tests.system import oracle
from tests.system.containerd.chance import chance
from tests.system.containerd.history import History, violations
from tests.system.containerd.server import RELAY_SECONDS, Containerd
from tests.system.waits import scaled, until

SEED = int(os.environ.get("EXITD_SEED", "5206"))
RUNS = scaled(50, least=1)
ROUNDS, MISFORTUNES = 20, 6


def forgive(containerd: Containerd, history: History) -> None:
    """What a containerd that is killed in the middle of a call leaves by itself: a bundle that it was removing, which
    the next one takes no notice of; and a relay that it has begun and not spoken to, which goes after a while."""
    lost = [call for call in history.calls if history.is_lost(call)]
    for task in {call.who.task for call in lost if call.verb in ("create", "delete")}:
        for place in ("r", "s"):
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(
                    containerd.base / place / "io.containerd.runtime.v2.task" / containerd.namespace / f".{task}"
                )
    if any(call.verb == "create" for call in lost):
        until(lambda: not containerd.left().processes, "a relay stays", RELAY_SECONDS)


@pytest.mark.parametrize("seed", range(SEED, SEED + RUNS))
def test_random_misfortunes_lose_invent_and_double_nothing(containerd: Containerd, seed: int) -> None:
    with chance(containerd, seed) as made:
        made.live(ROUNDS, MISFORTUNES)
        made.settle()
        history = made.history()
        found = violations(history)
        assert not found, "\n".join(found)
        assert containerd.wanted("task", "ls", "-q") == ""
        for life in made.lives:
            containerd.wanted("container", "rm", life.program.id)
        forgive(containerd, history)
        containerd.left_is()
        oracle.nothing_left(containerd.with_exitd())
    slowest = max(call.over - call.begun for call in history.calls if call.verb != "wait")
    print(seed, len(history.calls), len(history.told), f"{slowest:.1f} s", Counter(one.what for one in history.struck))
