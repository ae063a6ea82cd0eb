"""The wall clock jumps, by years and in both directions: nothing that waits notices."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest

from supervisor.model import lifecycle, restart
from supervisor.model.lifecycle import Moment
from supervisor.model.values import Exited, Phase, Policy, RestartPolicy, Spec
from tests.supervisor.fakes import FakeClock, World, until, world
from tests.supervisor.happenings import SECOND, container, ended, moment

YEAR = 365 * 24 * 3600 * SECOND
JUMPS = [-50 * YEAR, -YEAR, -SECOND, SECOND, YEAR, 50 * YEAR]


class JumpingClock(FakeClock):
    """Another year whenever somebody looks."""

    def __init__(self) -> None:
        super().__init__()
        self._jumps: Iterator[int] = cycle(JUMPS)

    def now_ns(self) -> int:
        return time.time_ns() + next(self._jumps)


def at(seconds: int, jump: int) -> Moment:
    made = moment(seconds)
    return replace(made, now_ns=made.now_ns + jump)


@pytest.mark.parametrize("jump", JUMPS)
def test_when_the_next_run_begins_is_decided_without_the_wall_clock(jump: int) -> None:
    running = container(policy="always")
    straight = lifecycle.step(running, ended(Exited(1)), at(91, 0)).container
    jumped = lifecycle.step(running, ended(Exited(1)), at(91, jump)).container
    assert straight is not None and jumped is not None
    assert (jumped.restart_at, jumped.delay_ns) == (straight.restart_at, straight.delay_ns)


@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize(("ran_seconds", "resets"), [(9, False), (10, True)])
def test_how_long_a_run_was_is_measured_without_the_wall_clock(jump: int, ran_seconds: int, resets: bool) -> None:
    running = replace(container(policy="always"), delay_ns=16 * SECOND)
    after = lifecycle.step(running, ended(Exited(1)), at(90 + ran_seconds, jump)).container
    assert after is not None
    assert after.delay_ns == (restart.DELAY_MIN_NS if resets else 32 * SECOND)


def test_timers_fire_when_they_should_while_the_wall_clock_jumps(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            w.node.clock = JumpingClock()
            id = await w.running(Spec(name="web", restart=RestartPolicy(Policy.ALWAYS)))
            for run in range(1, 5):
                begun = time.monotonic()
                w.manager.ends(id, run, Exited(1))
                await until(partial(is_up, w, id, run + 1), "the next run")
                pause = time.monotonic() - begun
                assert pause >= 0.1 * 2 ** (run - 1)  # and not by a jump more, for which `until` does not wait

    asyncio.run(main())


def is_up(w: World, id: str, run: int) -> bool:
    found = w.node.containers[id]
    return found.run == run and found.phase is Phase.RUNNING
