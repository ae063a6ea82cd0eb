"""A replacement for a lost shim: tried for as long as the run lives, and for a limit after its end."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from shim import launch
from supervisor.model.errors import Busy
from supervisor.model.values import RunKey
from supervisor.monitor import rundir, shims
from supervisor.monitor.shims import Shims
from supervisor.monitor.witness import Watch
from tests.supervisor.fakes import in_loop, until


class Full(Shims):
    """There is no room for any."""

    def __init__(self) -> None:
        self.tries = 0

    async def begin(self, *args: Any, **options: Any) -> launch.Created | launch.Failed | None:
        self.tries += 1
        raise Busy("full")


@in_loop
async def test_a_replacement_is_given_up_after_the_end_when_there_is_no_room_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shims, "ADOPT_REST_SECONDS", 0.001)
    monkeypatch.setattr(shims, "ROOM_SECONDS", 0.05)
    senses: Any = None
    full, watch = Full(), Watch(RunKey("c1", 1), rundir.RunDirectory(str(tmp_path)), senses)
    replacing = asyncio.ensure_future(full.replace(watch))
    await until(lambda: full.tries > 100)  # for as long as it lives
    assert not replacing.done()
    watch.reported = True
    async with asyncio.timeout(30):
        assert await replacing is False
    tries = full.tries
    assert await full.replace(watch) is False  # the limit has passed for all who ask
    assert full.tries == tries + 1
