"""supervisor/system/background.py: how long what has failed is left alone before it is tried again."""

import asyncio
import itertools

import pytest
from structlog.testing import capture_logs

from supervisor.model.errors import ShimFailed
from supervisor.system import background
from supervisor.system.background import Background, pauses, retry
from tests.supervisor.fakes import in_loop


def test_each_failure_is_followed_by_its_own_pause_and_the_last_pause_is_repeated() -> None:
    assert list(itertools.islice(pauses((1.0, 5.0, 30.0)), 5)) == [1.0, 5.0, 30.0, 30.0, 30.0]
    assert list(itertools.islice(pauses((0.1,)), 3)) == [0.1, 0.1, 0.1]


class Fails:
    """Work that fails so often, and then gives its number."""

    def __init__(self, times: int) -> None:
        self.tries, self._times = 0, times

    async def __call__(self) -> int:
        self.tries += 1
        await asyncio.sleep(0)
        if self.tries <= self._times:
            raise (ShimFailed("not yet"), OSError("not yet"))[self.tries % 2]
        return self.tries


@in_loop
async def test_what_fails_is_tried_until_it_has_succeeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "RETRY_SECONDS", (0.0,))
    assert await retry(Fails(3), "work", "c1") == 4


@in_loop
async def test_what_has_failed_is_left_alone_for_its_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "RETRY_SECONDS", (1000.0,))
    work, tasks = Fails(1), Background()
    tasks.spawn(retry(work, "work", "c1"))
    for _ in range(100):
        await asyncio.sleep(0)
    assert (work.tries, len(tasks)) == (1, 1)
    await tasks.close()
    assert (work.tries, len(tasks)) == (1, 0)


@in_loop
async def test_background_work_that_fails_is_logged_and_harms_no_other() -> None:
    async def fails() -> None:
        raise ValueError("a bug")

    tasks, work = Background(), Fails(0)
    with capture_logs() as logged:
        tasks.spawn(fails())
        tasks.spawn(work())
        await tasks.settled()
    assert (work.tries, len(tasks)) == (1, 0)
    assert [(each["event"], str(each["exc_info"])) for each in logged] == [("background work failed", "a bug")]
